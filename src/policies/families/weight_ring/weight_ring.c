/*
 * The weight-ring family (WeiPipe): worker i mod P keeps micro-batch i from its first forward to its
 * last backward, and the C chunks of the model come by, V of each worker's own; see
 * policies/families/weight_ring/ring.h.
 *
 *   F(i,c) waits for F(i,c-1)        L(i), head and loss, for F(i,C-1)
 *   B(i,c) waits for B(i,c+1), on the last chunk for L(i), and for F(i,c)
 *   W(i,c) waits for B(i,c)
 *
 * and the first op of a turn for the turn before of the worker before, which then passes its weights
 * and gradients on, all at once as published: so nothing overtakes the ring. Where there is no way
 * around, worker 0 waits for nobody.
 */
#include "policies/families/activations.h"
#include "policies/families/families.h"
#include "policies/families/ownership.h"
#include "policies/families/weight_ring/line.h"
#include "policies/families/workers.h"
#include "policies/refuse.h"
#include "sp_error.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_worker_check(lay, lay->chunks, why, n);

    return err ? err : sp_refuse_word(lay, "gradients", "run", "f32", why, n);
}

/* The home of a chunk is the worker that keeps its parameters. */
static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    struct sp_ring *ring;
    int err = sp_map_create(lay, 1, NULL, NULL, map, why, n);

    if (err)
        return err;
    err = sp_ring_create(lay, &def->weight_ring, &ring, why, n);
    if (err) {
        sp_map_destroy(*map);
        *map = NULL;
        return err;
    }
    for (int c = 0; c < ring->chunks; c++)
        (*map)->home[c] = (struct sp_chunk_owner){.stage = sp_ring_owner(ring, c), .chunk = c};
    (*map)->state = ring;
    (*map)->destroy_state = sp_ring_destroy;
    return 0;
}

static int owned(const struct sp_layout *lay, int stage, int i)
{
    for (int c = 0; c < sp_globals(lay); c++)
        if (sp_chunk_owner(lay, 0, c).stage == stage && i-- == 0)
            return c;
    return -1;
}

/* Whether B of all chunks of a micro-batch come before W of any: what a forward dropped is then all back, and stays
 * until W. */
static bool brings_all_back(const struct sp_plan *plan)
{
    int before = 0;

    for (int i = 0; i < plan->programs[0].n; i++) {
        const struct sp_op *op = &plan->programs[0].ops[i];

        if (op->part != SP_CHUNK || op->mb != 0)
            continue;
        if (op->pass == SP_W)
            break;
        before += op->pass == SP_B;
    }
    return before == sp_globals(&plan->layout);
}

static int refuse(const struct sp_plan *plan, const struct sp_train_wish *wish)
{
    if (wish->recompute == SP_RECOMPUTE_SELECTIVE && plan->split)
        return sp_error(
            EINVAL,
            "train: --recompute selective: %s computes weight gradients when the weights "
            "have gone on; use none, no-attention or full",
            plan->def->name);
    if (wish->recompute != SP_RECOMPUTE_NONE && plan->split && brings_all_back(plan))
        return sp_error(
            EINVAL,
            "train: --recompute %s: %s computes the gradients of all inputs before those of "
            "weights, until when everything recomputed stays, so it would save no memory; "
            "use none, or --schedule weipipe",
            wish->recompute_text, plan->def->name);
    if (wish->post_validation && sp_ring_of(&plan->layout)->layout != SP_RING_LINE)
        return sp_refuse_post_validation(plan);
    return 0;
}

static int ids(const struct sp_layout *lay)
{
    return lay->micro_batches * (3 * sp_globals(lay) + 1);
}

static int id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int C = sp_globals(lay), m = lay->micro_batches;
    int pass = op->pass == SP_F ? 0 : op->pass == SP_B ? 1 : 2;

    if (op->mb < 0 || op->mb >= m || op->mb % lay->stages != stage || op->slice != 0 ||
        op->chunk < 0)
        return -1;
    if (op->part == SP_HEAD)
        return op->pass == SP_F && op->chunk == 0 ? 3 * m * C + op->mb : -1;
    if (op->part != SP_CHUNK || op->pass == SP_R || op->pass >= SP_PASSES || op->chunk >= C)
        return -1;
    return (pass * m + op->mb) * C + op->chunk;
}

static struct sp_dep at(const struct sp_layout *lay, enum sp_pass pass, enum sp_part part, int mb,
                        int c)
{
    return (struct sp_dep){
        .stage = mb % lay->stages,
        .op = {.pass = (unsigned char)pass, .part = (unsigned char)part, .mb = mb, .chunk = c}};
}

/* The last op of a worker in its turn k or before; NULL: there is none. */
static const struct sp_op *last_op(const struct sp_layout *lay, const struct sp_ring *ring,
                                   int worker, int k)
{
    int i = k < 0 ? 0 : ring->first[(k < ring->turns ? k : ring->turns - 1) + 1];

    while (i > 0 && ring->ops[i - 1].mb * lay->stages + worker >= lay->micro_batches)
        i--;
    return i > 0 ? &ring->ops[i - 1] : NULL;
}

/* What the first op of a turn waits for. */
static int ring_dep(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep *out)
{
    const struct sp_ring *ring = sp_ring_of(lay);
    int P = lay->stages, k = sp_ring_turn(ring, op, op->mb / P),
        before = stage > 0 ? stage - 1 : P - 1;
    bool line = ring->layout == SP_RING_LINE, same = stage % ring->node > 0; /* turn as `before` */
    const struct sp_op *first, *last;

    if (k < 0 || P == 1)
        return 0;
    first = &ring->ops[ring->first[k]];
    if (first->pass != op->pass || first->part != op->part || first->chunk != op->chunk ||
        first->mb != op->mb / P)
        return 0;
    if (stage == 0 && line)
        return 0;
    last = same ? first : last_op(lay, ring, before, stage > 0 ? k : k - P);
    if (!last)
        return 0;
    *out = at(lay, (enum sp_pass)last->pass, (enum sp_part)last->part, last->mb * P + before,
              last->chunk);
    out->beside = same;
    return 1;
}

/* What an op waits for of its own micro-batch. */
static int own_deps(const struct sp_layout *lay, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS])
{
    int i = op->mb, c = op->chunk, last = sp_globals(lay) - 1, n = 0;

    if (op->part == SP_HEAD) {
        out[n++] = at(lay, SP_F, SP_CHUNK, i, last);
    } else if (op->pass == SP_F && c > 0) {
        out[n++] = at(lay, SP_F, SP_CHUNK, i, c - 1);
    } else if (op->pass == SP_B) {
        out[n++] = at(lay, SP_F, SP_CHUNK, i, c);
        out[n++] = c < last ? at(lay, SP_B, SP_CHUNK, i, c + 1) : at(lay, SP_F, SP_HEAD, i, 0);
    } else if (op->pass == SP_W) {
        out[n++] = at(lay, SP_B, SP_CHUNK, i, c);
    }
    return n;
}

static int deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    int n = own_deps(lay, op, out);

    return n + ring_dep(lay, stage, op, &out[n]);
}

/* By how many micro-batches that one is before, to whose gradient an op adds; 0: to none. */
static int from_before(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    const struct sp_ring *ring = sp_ring_of(lay);
    int before;

    if (ring->layout != SP_RING_LINE)
        return op->mb > 0;
    if (stage == sp_ring_owner(ring, op->chunk))
        return 0;
    before = sp_line_next(ring, stage, op->chunk, -1, lay->stages);
    return before < 0 ? 0 : stage - before;
}

/* Weights are sent on before they are used; gradients want those of the micro-batch before. */
static int run_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS])
{
    const struct sp_ring *ring = sp_ring_of(lay);
    struct sp_op w = {.pass = SP_W, .mb = op->mb, .chunk = op->chunk};
    bool apart = sp_ring_turn(ring, &w, op->mb / lay->stages) >= 0;
    bool adds = op->part == SP_CHUNK && (op->pass == SP_W || (op->pass == SP_B && !apart));
    int n = own_deps(lay, op, out), back = adds ? from_before(lay, stage, op) : 0;

    if (back == 0)
        return n;
    out[n] = at(lay, (enum sp_pass)op->pass, SP_CHUNK, op->mb - back, op->chunk);
    /* of the same node: it is wanted when this one ends */
    out[n].beside =
        out[n].stage < stage && sp_ring_lag(ring, out[n].stage) == sp_ring_lag(ring, stage);
    return n + 1;
}

static void required(const struct sp_layout *lay,
                     void (*need)(void *arg, int stage, const struct sp_op *op), void *arg)
{
    for (int i = 0; i < lay->micro_batches; i++) {
        struct sp_dep head = at(lay, SP_F, SP_HEAD, i, 0);

        need(arg, head.stage, &head.op);
        for (int c = 0; c < sp_globals(lay); c++) {
            struct sp_dep f = at(lay, SP_F, SP_CHUNK, i, c), b = at(lay, SP_B, SP_CHUNK, i, c);

            need(arg, f.stage, &f.op);
            need(arg, b.stage, &b.op);
        }
    }
}

/* A chunk is its share of what a stage is elsewhere; the head costs nothing of its own, as there. */
static double cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    double share = 1. / plan->layout.chunks;

    if (op->part == SP_HEAD)
        return 0;
    switch (op->pass) {
    case SP_F:
        return share * costs->f;
    case SP_W:
        return share * costs->w;
    default:
        return share * (costs->b + (sp_op_releases(plan, stage, op) ? costs->w : 0));
    }
}

/* Turn by turn, so that no worker is ahead of the next one with what it passes on. */
static double turn(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    const struct sp_ring *ring = sp_ring_of(lay);

    return sp_ring_turn(ring, op, op->mb / lay->stages) + sp_ring_lag(ring, stage);
}

static int activations(const struct sp_layout *lay)
{
    return sp_globals(lay);
}

bool sp_ring_keeps_apart(const struct sp_plan *plan, const struct sp_shape *sh)
{
    return sp_rounds_gradients(plan, sh) || sp_ring_of(&plan->layout)->node > 1;
}

static const struct sp_lowerer lowers = {.run_deps = run_deps,
                                         .turn = turn,
                                         .begin = sp_weight_ring_lower_begin,
                                         .lower = sp_weight_ring_lower,
                                         .end = sp_weight_ring_lower_end};
static const struct sp_owners owners = {.owned = owned, .is_end = sp_every_stage};

const struct sp_family sp_family_weight_ring = {
    .name = "weight-ring",
    .facts.layers = SP_LAYERS_ALIKE,
    .facts.names_global = true,
    .facts.shards_ends = true,
    .facts.head_op = true,
    .facts.rounds_gradients = true,
    .facts.post_validates = true,
    .groups = sp_all_groups,
    .check = check,
    .place = place,
    .emit = sp_ring_emit,
    .refuse = refuse,
    .foreign = sp_worker_foreign,
    .id = id,
    .ids = ids,
    .deps = deps,
    .required = required,
    .cost = cost,
    .activations = activations,
    .lowers = &lowers,
    .owners = &owners,
};
