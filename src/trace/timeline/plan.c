/* Fills a record from a plan: its ops, their order, their dependencies, and the activations they
 * keep. */
#include "policies/families/activations.h"
#include "policies/simulation/index.h"
#include "policies/simulation/listsim.h"
#include "trace/timeline/timeline.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* An upper bound on the dependencies of all ops. */
static int count_deps(const struct sp_plan *plan)
{
    struct sp_dep deps[SP_MAX_DEPS];
    int n = 0;

    for (int s = 0; s < plan->layout.stages; s++)
        for (int i = 0; i < plan->programs[s].n; i++)
            n += sp_run_deps(plan, s, &plan->programs[s].ops[i], deps);
    return n;
}

static void add_deps(const struct sp_plan *plan, const struct sp_index *ix, int number,
                     struct sp_timeline *t)
{
    struct sp_timeline_op *op = &t->op[number];
    struct sp_dep deps[SP_MAX_DEPS];
    int n = sp_run_deps(plan, op->stage, &op->op, deps);

    op->first_dep = t->n_deps;
    for (int d = 0; d < n; d++) {
        int at = sp_index_place(ix, plan, &deps[d]);

        if (at >= 0)
            t->dep[t->n_deps++] =
                (struct sp_timeline_dep){t->first_op[deps[d].stage] + at, deps[d].beside};
    }
    op->deps = t->n_deps - op->first_dep;
}

static int add_order(const struct sp_plan *plan, struct sp_timeline *t)
{
    int n, stage, index;
    struct sp_placed *order = sp_plan_order(plan, &n);
    struct sp_index ix;
    int err = order ? sp_index_create(plan, &ix, &stage, &index) : -ENOMEM;

    if (!err) {
        for (int k = 0; k < n; k++)
            t->op[t->first_op[order[k].stage] + order[k].index].turn = k;
        for (int i = 0; i < t->n_ops; i++)
            add_deps(plan, &ix, i, t);
        sp_index_destroy(&ix);
    }
    free(order);
    return err;
}

/* Counts the activations of a stage: F adds them; W frees them, or a B without a W. */
static void add_activations(const struct sp_timeline_terms *terms, int stage, struct sp_timeline *t)
{
    const struct sp_plan *plan = terms->plan;
    int alive = 0;
    int64_t bytes = 0;

    for (int i = t->first_op[stage]; i < t->first_op[stage + 1]; i++) {
        struct sp_timeline_op *op = &t->op[i];

        alive += op->op.pass == SP_F && op->op.part != SP_HEAD;
        if (terms->shape && op->op.pass == SP_F)
            bytes +=
                sp_stash_of_op(plan, terms->shape, terms->recompute, terms->every, stage, &op->op);
        op->alive = alive;
        op->bytes = bytes;
        alive -= sp_op_releases(plan, stage, &op->op);
        if (terms->shape)
            bytes -= sp_stash_freed_by_op(plan, terms->shape, terms->recompute, terms->every, stage,
                                          &op->op);
        op->after = alive;
        op->bytes_after = bytes;
        t->stage[stage].peak = op->alive > t->stage[stage].peak ? op->alive : t->stage[stage].peak;
        if (op->bytes > t->stage[stage].peak_bytes)
            t->stage[stage].peak_bytes = op->bytes;
    }
}

/* The number of layers of a stage, if each stage computes its own layers; otherwise 0. */
static int layers_of(const struct sp_timeline_terms *terms, int stage)
{
    const struct sp_plan *plan = terms->plan;
    int layers = terms->shape ? terms->shape->model.layers : plan->layout.layers;

    if (!layers || plan->family->facts.parts || plan->family->facts.one_line ||
        plan->family->facts.sharded)
        return 0;
    return sp_stage_layers(plan, layers, stage);
}

static void add_stages(const struct sp_timeline_terms *terms, struct sp_timeline *t)
{
    const struct sp_plan *plan = terms->plan;

    t->processes = terms->processes > 1 ? terms->processes : 1;
    for (int s = 0; s < t->stages; s++) {
        struct sp_timeline_stage *st = &t->stage[s];

        st->rank = terms->process ? terms->process[s] : s;
        st->lane = terms->worker ? terms->worker[s] : s;
        st->layers = layers_of(terms, s);
        t->processes = st->rank >= t->processes ? st->rank + 1 : t->processes;
        t->first_op[s + 1] = t->first_op[s] + plan->programs[s].n;
        for (int i = 0; i < plan->programs[s].n; i++) {
            struct sp_timeline_op *op = &t->op[t->first_op[s] + i];

            op->op = plan->programs[s].ops[i];
            op->stage = s;
            op->index = i;
            op->split = plan->deferred && op->op.pass == SP_B &&
                        plan->deferred[plan->family->id(&plan->layout, s, &op->op)];
        }
        add_activations(terms, s, t);
    }
}

int sp_timeline_of_ops(const struct sp_timeline_terms *terms, int deps, struct sp_timeline *t)
{
    const struct sp_plan *plan = terms->plan;
    const struct sp_layout *lay = &plan->layout;
    int err = sp_timeline_create(lay->stages, sp_plan_ops(plan), deps, t);

    if (err)
        return err;
    t->micro_batches = lay->micro_batches;
    t->chunks = lay->chunks;
    t->slices = lay->slices;
    t->layers = lay->layers;
    t->parts = plan->family->facts.parts;
    t->share = sp_activation_share(plan->family, lay);
    t->n_deps = 0;
    snprintf(t->schedule, sizeof t->schedule, "%s%s%s", plan->def->name, *plan->options ? ":" : "",
             plan->options);
    add_stages(terms, t);
    return 0;
}

int sp_timeline_of_plan(const struct sp_timeline_terms *terms, struct sp_timeline *t)
{
    int err = sp_timeline_of_ops(terms, count_deps(terms->plan), t);

    if (err)
        return err;
    err = add_order(terms->plan, t);
    if (err)
        sp_timeline_destroy(t);
    return err;
}
