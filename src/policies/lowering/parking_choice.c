#include "policies/lowering/parking_choice.h"
#include "policies/families/activations.h"
#include "policies/simulation/listsim.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* One forward of a stage whose activations may be parked. */
struct unit {
    struct sp_parked at;
    int64_t bytes;
    bool parked;
};

/* A stage while its units are chosen. */
struct side {
    int stage, n;
    struct unit *unit; /* [n] in program order */
    int *of;           /* [ops] the unit of a forward or backward; -1: none */
};

/* ---- what may be parked ----------------------------------------------------------------------- */

/* Its backward must be some ops later: one in which it leaves and one in which it returns. */
enum { LEAST_OPS = 3 };

static int backward_of(const struct sp_program *prog, int forward)
{
    const struct sp_op *f = &prog->ops[forward];

    for (int k = forward + 1; k < prog->n; k++)
        if (prog->ops[k].pass == SP_B && prog->ops[k].mb == f->mb && prog->ops[k].chunk == f->chunk)
            return k;
    return -1;
}

static bool is_last(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    return sp_global_stage(&plan->layout, stage, op->chunk) == sp_globals(&plan->layout) - 1;
}

/* Ops of a pair are submitted together. */
static bool is_second(const struct sp_program *prog, int k)
{
    return k > 0 && prog->ops[k - 1].overlap;
}

/* Sets next[k] to the next op of the peer's program once op k of the stage is submitted. */
static void find_next(const struct sp_plan *plan, int stage, int peer, int *next)
{
    for (int i = 0, n = sp_plan_ops(plan), of_peer = 0; i < n; i++) {
        of_peer = plan->order[i].stage == peer ? plan->order[i].index + 1 : of_peer;
        if (plan->order[i].stage == stage)
            next[plan->order[i].index] = of_peer;
    }
}

int sp_parking_list(const struct sp_plan *plan, int stage, int peer, struct sp_parked *list)
{
    const struct sp_program *prog = &plan->programs[stage];
    int *next = calloc((size_t)prog->n + 1, sizeof *next), n = 0;

    if (!next)
        return -ENOMEM;
    find_next(plan, stage, peer, next);
    for (int k = 0; k < prog->n; k++) {
        const struct sp_op *op = &prog->ops[k];
        int b = op->pass == SP_F ? backward_of(prog, k) : -1, asked;

        if (b < k + LEAST_OPS || is_last(plan, stage, op))
            continue;
        asked = b - 2 - is_second(prog, b);
        asked -= is_second(prog, asked);
        list[n++] = (struct sp_parked){.leaves = k,
                                       .asked = asked,
                                       .returns = b,
                                       .peer = peer,
                                       .arrives = next[k],
                                       .goes = next[asked],
                                       .mb = op->mb,
                                       .at = sp_global_stage(&plan->layout, stage, op->chunk)};
    }
    free(next);
    return n;
}

static int list_units(const struct sp_plan *plan, const struct sp_shape *sh, int stage, int peer,
                      struct side *s)
{
    const struct sp_program *prog = &plan->programs[stage];
    struct sp_parked *list = calloc((size_t)prog->n + 1, sizeof *list);

    s->stage = stage;
    s->unit = calloc((size_t)prog->n + 1, sizeof *s->unit);
    s->of = malloc(((size_t)prog->n + 1) * sizeof *s->of);
    s->n = list ? sp_parking_list(plan, stage, peer, list) : -ENOMEM;
    if (!s->unit || !s->of || s->n < 0) {
        free(list);
        return -ENOMEM;
    }
    for (int k = 0; k < prog->n; k++)
        s->of[k] = -1;
    for (int i = 0; i < s->n; i++) {
        s->of[list[i].leaves] = s->of[list[i].returns] = i;
        s->unit[i] = (struct unit){.at = list[i],
                                   .bytes = sp_stash_of_op(plan, sh, plan->parking->recompute,
                                                           plan->parking->every, stage,
                                                           &prog->ops[list[i].leaves])};
    }
    free(list);
    return 0;
}

/* ---- the choice ------------------------------------------------------------------------------- */

/* Bytes that the two stages of a pair keep at most. */
struct peaks {
    int64_t from, to;
};

/* Walks the order of submission of all stages. The stage `from` parks what it has just computed
 * whenever it keeps more than `limit`. */
static struct peaks walk(const struct sp_plan *plan, const struct sp_shape *sh, struct side *from,
                         int to, int64_t limit)
{
    const struct sp_parking *p = plan->parking;
    int64_t live = 0, peer = 0, away = 0;
    struct peaks most = {0, 0};
    int *asks = calloc((size_t)plan->programs[from->stage].n + 1, sizeof *asks);

    if (!asks)
        abort(); /* as sp_stash_peak does */
    for (int i = 0; i < from->n; i++)
        from->unit[i].parked = false;
    for (int i = 0, n = sp_plan_ops(plan); i < n; i++) {
        int s = plan->order[i].stage, k = plan->order[i].index;
        const struct sp_op *op = &plan->programs[s].ops[k];
        int64_t taken = 0, freed;

        if (s != from->stage && s != to)
            continue;
        if (op->pass == SP_F)
            taken = sp_stash_of_op(plan, sh, p->recompute, p->every, s, op);
        freed = sp_stash_freed_by_op(plan, sh, p->recompute, p->every, s, op);
        if (s == to) {
            peer += taken;
            most.to = peer + away > most.to ? peer + away : most.to;
            peer -= freed;
            continue;
        }
        live += taken;
        most.from = live > most.from ? live : most.from;
        live -= freed;
        if (op->pass == SP_F && from->of[k] >= 0 && live > limit) {
            struct unit *u = &from->unit[from->of[k]];

            u->parked = true;
            asks[u->at.asked] = from->of[k] + 1;
            live -= u->bytes;
            away += u->bytes;
            most.to = peer + away > most.to ? peer + away : most.to;
        }
        if (asks[k]) { /* both have it while it returns */
            live += from->unit[asks[k] - 1].bytes;
            most.from = live > most.from ? live : most.from;
            away -= from->unit[asks[k] - 1].bytes;
        }
    }
    free(asks);
    return most;
}

static int64_t larger(struct peaks p)
{
    return p.from > p.to ? p.from : p.to;
}

/* Chooses the limit that leaves both stages of a pair least, and parks by it. Returns how many units
 * are parked. */
static int choose(struct sp_plan *plan, const struct sp_shape *sh, struct side *from, int to)
{
    const struct peaks before = walk(plan, sh, from, to, INT64_MAX);
    int64_t best = larger(before), limit = INT64_MAX, step = 0;
    int n = 0;

    for (int i = 0; i < from->n; i++)
        step = from->unit[i].bytes > step ? from->unit[i].bytes : step;
    for (int64_t l = before.to; step && l < before.from; l += step) {
        int64_t most = larger(walk(plan, sh, from, to, l));

        if (most < best) {
            best = most;
            limit = l;
        }
    }
    walk(plan, sh, from, to, limit);
    for (int i = 0; i < from->n; i++)
        n += from->unit[i].parked;
    return n;
}

/* Keeps the units of a side that are parked. */
static int keep(struct sp_parking *p, const struct side *from, int n)
{
    struct sp_parking_stage *stage = &p->stage[from->stage];

    stage->unit = calloc((size_t)n + 1, sizeof *stage->unit);
    if (!stage->unit)
        return -ENOMEM;
    for (int i = 0; i < from->n; i++)
        if (from->unit[i].parked)
            stage->unit[stage->n++] = from->unit[i].at;
    return 0;
}

/* Parks activations of one stage on another. */
static int pair_up(struct sp_plan *plan, const struct sp_shape *sh, int from, int to)
{
    struct side side = {0};
    int err = list_units(plan, sh, from, to, &side);
    int n = err ? 0 : choose(plan, sh, &side, to);

    if (n)
        err = keep(plan->parking, &side, n);
    free(side.unit);
    free(side.of);
    return err;
}

/* ---- the result ------------------------------------------------------------------------------- */

struct sp_parking *sp_parking_new(const struct sp_plan *plan, enum sp_recompute recompute,
                                  int every)
{
    struct sp_parking *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    *p = (struct sp_parking){.recompute = recompute,
                             .every = every,
                             .stages = plan->layout.stages,
                             .globals = sp_globals(&plan->layout)};
    p->stage = calloc((size_t)p->stages, sizeof *p->stage);
    p->of = calloc((size_t)(plan->layout.micro_batches * p->globals), sizeof(*p->of));
    if (!p->stage || !p->of) {
        sp_parking_destroy(p);
        return NULL;
    }
    return p;
}

void sp_parking_close(struct sp_parking *p)
{
    for (int s = 0; s < p->stages; s++)
        for (int i = 0; i < p->stage[s].n; i++) {
            const struct sp_parked *u = &p->stage[s].unit[i];

            p->of[u->mb * p->globals + u->at] = u;
        }
}

/* ---- all stages -------------------------------------------------------------------------------- */

struct fullness {
    int stage;
    int64_t bytes;
};

static int compare_fullness(const void *a, const void *b)
{
    const struct fullness *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : x->stage - y->stage;
}

int sp_parking_check(const char *command, const struct sp_plan *plan, const struct sp_shape *sh)
{
    const struct sp_family *family = plan->family;
    const char *what = NULL;

    if (!family->facts.by_layer || family->facts.parts || family->shared ||
        family->facts.shares_attention || family->facts.stashes)
        what = plan->def->name;
    else if (sp_layout_flag(&plan->layout, "auto"))
        what = "orders that are searched again during a run";
    else if (plan->layout.vocabulary_parallel)
        what = "--vocabulary-parallel";
    else if (plan->layout.slices > 1)
        what = "--slices";
    else if (sh->tensor * sh->context > 1)
        what = "stages of several devices";
    return what ? sp_error(EINVAL, "%s: --offload-peers is not available with %s; leave it out",
                           command, what)
                : 0;
}

int sp_parking_create(struct sp_plan *plan, const struct sp_shape *sh, enum sp_recompute recompute,
                      int every)
{
    bool kept = plan->order != NULL;
    int stages = plan->layout.stages, n = 0, ops, err = 0;
    struct sp_parking *p = sp_parking_new(plan, recompute, every);
    struct fullness *all = calloc((size_t)stages, sizeof *all);

    if (!p || !all)
        err = -ENOMEM;
    plan->parking = p;
    if (!err && !kept && !(plan->order = sp_plan_order(plan, &ops)))
        err = -ENOMEM;
    for (int s = 0; !err && s < stages; s++)
        all[s] = (struct fullness){s, sp_stash_peak(plan, sh, recompute, every, s)};
    if (!err)
        qsort(all, (size_t)stages, sizeof *all, compare_fullness);
    for (int i = 0; !err && i < stages / 2; i++)
        err = pair_up(plan, sh, all[i].stage, all[stages - 1 - i].stage);
    for (int s = 0; !err && s < stages; s++)
        n += p->stage[s].n;
    free(all);
    if (!err)
        sp_parking_close(p);
    if (!kept) {
        free(plan->order);
        plan->order = NULL;
    }
    if (err || !n) {
        sp_parking_destroy(p);
        plan->parking = NULL;
    }
    return err;
}
