/*
 * The verifier: checks that a set of programs is a schedule of its family.
 *
 * It does not require that channels with room for one message suffice. The engine submits all tasks
 * in one topological order and its sends are detached, so none blocks a worker. Published orders
 * (breadth-first, interleaved) would deadlock if a sender blocked until its last message was taken;
 * sp_listsim_buffers computes the room that they need. The order of messages does matter: every
 * channel is first in, first out.
 */
#include "policies/simulation/index.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/verify.h"
#include "policies/simulation/times.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct check {
    const struct sp_plan *plan;
    struct sp_index ix;
    char *why;
    size_t n;
    int ret;
};

static char *print(const struct check *c, const struct sp_op *op, char *text)
{
    return sp_op_print(op, c->plan->layout.slices > 1, text);
}

/* Writes what is wrong with a stage's program, and returns -EINVAL. */
__attribute__((format(printf, 3, 4))) static int refuse(const struct check *c, int stage,
                                                        const char *fmt, ...)
{
    int n = snprintf(c->why, c->n, "order: stage %d: ", stage);
    va_list ap;

    va_start(ap, fmt);
    if (n < (int)c->n)
        vsnprintf(c->why + n, c->n - (size_t)n, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

/* Writes the reason why the family has no such op on the stage. */
static int foreign(struct check *c, int stage, int index)
{
    const struct sp_layout *lay = &c->plan->layout;
    const struct sp_family *family = c->plan->family;
    const struct sp_op *op = &c->plan->programs[stage].ops[index];
    char text[SP_OP_TEXT], reason[96];

    if (op->mb < 0 || op->mb >= lay->micro_batches)
        snprintf(reason, sizeof reason, "%d micro-batches", lay->micro_batches);
    else if (family->foreign && family->foreign(lay, stage, op, reason, sizeof reason))
        ; /* it wrote the reason */
    else if (op->slice >= lay->slices && !family->shared)
        snprintf(reason, sizeof reason, "%d slice%s", lay->slices, lay->slices > 1 ? "s" : "");
    else
        snprintf(reason, sizeof reason, "no op of the family %s there", family->name);
    return refuse(c, stage, "%s does not exist (%s)", print(c, op, text), reason);
}

/* Refuses an op that occurs twice, or before an op of the same stage that it waits for. */
static int check_op(struct check *c, int stage, int index)
{
    const struct sp_plan *plan = c->plan;
    const struct sp_op *op = &plan->programs[stage].ops[index];
    char text[SP_OP_TEXT], other[SP_OP_TEXT];
    struct sp_dep deps[SP_MAX_DEPS];
    struct sp_dep self = {.stage = stage, .op = *op};
    int first = sp_index_place(&c->ix, plan, &self), n;

    if (first != index)
        return refuse(c, stage, "%s appears twice (positions %d and %d)", print(c, op, text), first,
                      index);
    n = plan->family->deps(&plan->layout, stage, op, deps);
    for (int i = 0; i < n; i++) {
        int place = sp_index_place(&c->ix, plan, &deps[i]);

        if (place < 0)
            return refuse(c, deps[i].stage, "%s is missing (%s of stage %d waits for it)",
                          print(c, &deps[i].op, other), print(c, op, text), stage);
        if (deps[i].stage == stage && place > index)
            return refuse(c, stage, "%s at position %d comes before its %s", print(c, op, text),
                          index, print(c, &deps[i].op, other));
    }
    return 0;
}

/* Refuses a recompute that is not before the backward of its chunk. */
static int check_recompute(struct check *c, int stage, int index)
{
    const struct sp_op *op = &c->plan->programs[stage].ops[index];
    struct sp_dep backward = {.stage = stage, .op = *op};
    char text[SP_OP_TEXT], other[SP_OP_TEXT];

    if (op->pass != SP_R)
        return 0;
    backward.op.pass = SP_B;
    if (sp_index_place(&c->ix, c->plan, &backward) > index)
        return 0;
    return refuse(c, stage, "%s at position %d comes after its %s", print(c, op, text), index,
                  print(c, &backward.op, other));
}

static void need(void *arg, int stage, const struct sp_op *op)
{
    struct check *c = arg;
    struct sp_dep dep = {.stage = stage, .op = *op};
    char text[SP_OP_TEXT];

    if (c->ret || sp_index_place(&c->ix, c->plan, &dep) >= 0)
        return;
    c->ret = refuse(c, stage, "%s is missing", print(c, op, text));
}

/* Two ops that overlap must be a forward and then a backward that does not need it; no third may
 * join. With the forward first, the activations of both count as alive, as they are. */
static int check_pair(struct check *c, int stage, int index)
{
    const struct sp_plan *plan = c->plan;
    const struct sp_program *prog = &plan->programs[stage];
    const struct sp_op *op = &prog->ops[index];
    char text[SP_OP_TEXT], other[SP_OP_TEXT], reason[96] = "";
    struct sp_dep deps[SP_MAX_DEPS];
    int n;

    if (!op->overlap)
        return 0;
    print(c, op, text);
    if (index + 1 == prog->n)
        return refuse(c, stage, "%s at position %d overlaps with the next op, but is the last",
                      text, index);
    if (!plan->family->facts.pairs)
        snprintf(reason, sizeof reason, "but the family %s has no overlapped ops",
                 plan->family->name);
    else if (op[1].overlap)
        snprintf(reason, sizeof reason, "which overlaps too: only two can");
    else if (op->pass != SP_F || op[1].pass != SP_B)
        snprintf(reason, sizeof reason, "not a forward and then a backward");
    n = plan->family->deps(&plan->layout, stage, &op[1], deps);
    for (int i = 0; i < n && !*reason; i++) {
        if (deps[i].stage == stage && sp_index_place(&c->ix, plan, &deps[i]) == index)
            snprintf(reason, sizeof reason, "which waits for it");
    }
    if (!*reason)
        return 0;
    return refuse(c, stage, "%s at position %d overlaps with %s, %s", text, index,
                  print(c, &op[1], other), reason);
}

static int check_ops(struct check *c)
{
    const struct sp_plan *plan = c->plan;

    plan->family->required(&plan->layout, need, c);
    for (int s = 0; s < plan->layout.stages && !c->ret; s++) {
        for (int k = 0; k < plan->programs[s].n && !c->ret; k++) {
            c->ret = check_op(c, s, k);
            if (!c->ret)
                c->ret = check_recompute(c, s, k);
        }
    }
    for (int s = 0; plan->paired && s < plan->layout.stages && !c->ret; s++) {
        for (int k = 0; k < plan->programs[s].n && !c->ret; k++)
            c->ret = check_pair(c, s, k);
    }
    return c->ret;
}

/* Plays the programs. A deadlock becomes the error of the order. */
static int simulate(const struct check *c, enum sp_channel kind, struct sp_times *t)
{
    char reason[448] = "";
    int ret = sp_listsim(c->plan, &sp_costs_unit, kind, t, reason, sizeof reason);

    if (ret == -EDEADLK || ret == -EINVAL) {
        snprintf(c->why, c->n, "order: %s", reason);
        ret = -EINVAL;
    }
    return ret;
}

static int check_memory(const struct check *c, const struct sp_times *t)
{
    double held;
    int s = sp_times_beyond_memory(c->plan, t, &held);

    if (s < 0)
        return 0;
    snprintf(c->why, c->n,
             "order: stage %d holds activations of %.6g micro-batches at once, more than the %.6g "
             "allowed",
             s, held, c->plan->layout.memory);
    return -EINVAL;
}

/* First-in-first-out channels are stricter than unbounded ones. If they fail, unbounded ones are
 * tried to find out if the order of messages is the fault. */
static int check_progress(const struct check *c)
{
    struct sp_times t;
    int ret = simulate(c, SP_FIFO, &t);

    if (ret == -EINVAL && !simulate(c, SP_UNBOUNDED, &t))
        sp_times_destroy(&t);
    if (ret)
        return ret;
    ret = check_memory(c, &t);
    sp_times_destroy(&t);
    if (!ret && c->plan->paired) {
        ret = simulate(c, SP_PAIRED, &t);
        if (!ret)
            sp_times_destroy(&t);
    }
    return ret;
}

int sp_verify(const struct sp_plan *plan, char *why, size_t n)
{
    struct check c = {.plan = plan, .why = why, .n = n};
    int stage, index, ret;

    ret = sp_index_create(plan, &c.ix, &stage, &index);
    if (ret)
        return ret == -EINVAL ? foreign(&c, stage, index) : ret;
    ret = check_ops(&c);
    sp_index_destroy(&c.ix);
    return ret ? ret : check_progress(&c);
}
