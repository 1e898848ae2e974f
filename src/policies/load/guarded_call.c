#include "policies/load/guarded_call.h"
#include "policies/families/families.h"
#include "policies/load/guard.h"
#include "policies/load/limit.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "policies/simulation/costs.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Arguments and results of a guarded call. */
struct call {
    struct sp_plan *plan;
    const struct sp_schedule_def *def;
    const struct sp_family *family;
    struct sp_layout lay;
    int stage;
    int ret;
    double makespan;
    char why[512];
};

static void begin(struct call *c, const struct sp_plan *plan)
{
    *c = (struct call){.def = plan->def, .family = plan->family, .lay = plan->layout};
}

static int guarded(struct call *c, const char *function, void (*fn)(void *arg))
{
    char what[128];

    snprintf(what, sizeof what, "%s of %s", function, c->def->name);
    return sp_guard_call(sp_schedule_owner(c->def), what, fn, c);
}

static int refused(struct call *c)
{
    if (c->ret == -ENOMEM)
        return sp_error(ENOMEM, "schedule %s has no memory", c->def->name);
    c->why[sizeof c->why - 1] = '\0';
    return sp_error(EINVAL, "schedule %s %s", c->def->name,
                    *c->why ? c->why : "refuses this layout and does not say why");
}

static void check(void *arg)
{
    struct call *c = arg;

    if (c->family->check)
        c->ret = c->family->check(&c->lay, c->why, sizeof c->why);
    if (!c->ret && c->def->check)
        c->ret = c->def->check(&c->lay, c->why, sizeof c->why);
    if (!c->ret && c->def->makespan)
        c->makespan = c->def->makespan(&c->lay, 1, 1, 1);
    if (!c->ret && c->def->makespan_of_parts)
        c->makespan = c->def->makespan_of_parts(&c->lay, &sp_costs_unit.parts);
}

int sp_call_check(const struct sp_plan *plan)
{
    struct call c;
    int ret;

    begin(&c, plan);
    ret = guarded(&c, "check", check);
    if (ret)
        return ret;
    if (c.ret)
        return refused(&c);
    if (!isfinite(c.makespan))
        return sp_error(EINVAL, "schedule %s: its makespan for f = b = w = 1 is %g", c.def->name,
                        c.makespan);
    return 0;
}

static void place(void *arg)
{
    struct call *c = arg;

    c->ret = c->family->place(&c->lay, c->def, &c->plan->map, c->why, sizeof c->why);
}

int sp_call_place(struct sp_plan *plan)
{
    struct call c;
    int ret;

    begin(&c, plan);
    c.plan = plan;
    ret = guarded(&c, "global_stage", place);
    if (ret)
        return ret;
    return c.ret ? refused(&c) : 0;
}

static void emit(void *arg)
{
    struct call *c = arg;

    if (c->family->emit)
        c->family->emit(&c->lay, c->stage, &c->plan->programs[c->stage]);
    else if (c->def->emit_all)
        c->ret = c->def->emit_all(&c->lay, c->plan->programs, c->why, sizeof c->why);
    else if (c->def->emit)
        c->def->emit(&c->lay, c->stage, &c->plan->programs[c->stage]);
    else /* this family replaces another one, whose order it takes */
        sp_family_find(c->def->family)->emit(&c->lay, c->stage, &c->plan->programs[c->stage]);
}

/* The family cannot have more ops than it has ids. Some more are let through, so that the verifier
 * can say which are wrong. */
static int most_ops(const struct sp_plan *plan)
{
    int ids = plan->family->ids(&plan->layout);

    return ids < SP_MAX_OPS - 1024 ? ids + 1024 : SP_MAX_OPS;
}

/* A plugin may have set these numbers itself. */
static int check_program(const struct sp_plan *plan, int stage)
{
    const struct sp_program *prog = &plan->programs[stage];

    if (prog->n >= 0 && prog->n <= prog->cap && (prog->n == 0 || prog->ops))
        return 0;
    return sp_error(EINVAL, "schedule %s: the program of stage %d has %d ops in room for %d",
                    plan->def->name, stage, prog->n, prog->cap);
}

static int emit_programs(struct sp_plan *plan, struct call *c)
{
    long long ops = 0;
    int ret;

    for (int s = 0; s < plan->layout.stages; s++) {
        if (s == 0 || !plan->def->emit_all) {
            c->stage = s;
            ret = guarded(c, plan->def->emit_all ? "emit_all" : "emit", emit);
            if (ret) {
                plan->programs = NULL; /* left alone: they may be in any state */
                return ret;
            }
            if (c->ret)
                return refused(c);
        }
        ret = check_program(plan, s);
        if (ret)
            return ret;
        ops += plan->programs[s].n;
        if (ops > SP_MAX_OPS)
            return sp_error(EINVAL, "schedule %s emits more than %d ops", plan->def->name,
                            SP_MAX_OPS);
    }
    return 0;
}

int sp_call_emit(struct sp_plan *plan)
{
    struct call c;
    int ret;

    plan->programs = calloc((size_t)plan->layout.stages, sizeof *plan->programs);
    if (!plan->programs)
        return sp_error(ENOMEM, "no memory for the programs of %d stages", plan->layout.stages);
    begin(&c, plan);
    c.plan = plan;
    sp_program_limit(most_ops(plan), sp_guard_full);
    ret = emit_programs(plan, &c);
    sp_program_limit(INT_MAX, NULL);
    return ret;
}
