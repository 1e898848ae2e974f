/*
 * The weight-ring family (WeiPipe): worker i mod P keeps micro-batch i from its first forward to
 * its last backward, and the C chunks of the model come by; each worker owns V of them. See
 * policies/families/weight_ring/ring.h.
 *
 *   F(i,c) waits for F(i,c-1)        L(i), head and loss, for F(i,C-1)
 *   B(i,c) waits for B(i,c+1), on the last chunk for L(i), and for F(i,c)
 *   W(i,c) waits for B(i,c)
 *
 * The first op of a turn also waits for the previous turn of the previous worker, which then passes
 * its weights and gradients on, all at once as published: so nothing overtakes the ring. Down the
 * line, worker 0 waits for no other worker.
 *
 * As actions: weights and gradients of chunks travel around the ring (actions_around.c) or down the
 * line (actions_line.c). Every worker owns a part of embedding and head. They are gathered before
 * its first op, and their gradients scattered after the last op that adds to them. That costs twice
 * their size per worker and step, in messages between all workers at once; around the ring it would
 * be 2(G+1) times.
 */
#include "policies/families/families.h"
#include "policies/families/ownership.h"
#include "policies/families/sharded/shards.h"
#include "policies/families/weight_ring/actions.h"
#include "policies/families/weight_ring/line.h"
#include "policies/refuse.h"
#include "sp_error.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_refuse_slices(lay, why, n);

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
    (*map)->rounds_gradients = lay->stages > 1 && !sp_option_is(lay, "gradients", "f32");
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

/* True if B of all chunks of a micro-batch come before W of any: then all that a forward dropped
 * has been recomputed, and stays until W. */
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

/* The producer on another worker, if the op is the first of its turn. */
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

/* The producers of an op that belong to its own micro-batch. */
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

/* The gradient that an op adds to comes from so many micro-batches before; 0: from none. */
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

/* In a run weights are sent on before they are used, so only gradients wait: for those of the
 * micro-batch before. */
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
    /* in the same node it is needed only when this op ends */
    out[n].beside =
        out[n].stage < stage && sp_ring_lag(ring, out[n].stage) == sp_ring_lag(ring, stage);
    return n + 1;
}

static void required(const struct sp_layout *lay, sp_need_fn need, void *arg)
{
    for (int i = 0; i < lay->micro_batches; i++) {
        sp_need(need, arg, at(lay, SP_F, SP_HEAD, i, 0));
        for (int c = 0; c < sp_globals(lay); c++) {
            sp_need(need, arg, at(lay, SP_F, SP_CHUNK, i, c));
            sp_need(need, arg, at(lay, SP_B, SP_CHUNK, i, c));
        }
    }
}

/* A chunk costs its share of a stage's work in other families; the head costs nothing extra, as
 * there. */
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

/* Turn by turn, so that no worker gets ahead of the next one with what it passes on. */
static double turn(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    const struct sp_ring *ring = sp_ring_of(lay);

    return sp_ring_turn(ring, op, op->mb / lay->stages) + sp_ring_lag(ring, stage);
}

bool sp_ring_keeps_apart(const struct sp_plan *plan, const struct sp_shape *sh)
{
    return sp_rounds_gradients(plan, sh) || sp_ring_of(&plan->layout)->node > 1;
}

/* ---- actions --------------------------------------------------------------------------------- */

static bool is_line(const struct sp_lowering *l)
{
    return sp_lowering_ring(l)->layout == SP_RING_LINE;
}

/* True if an op is the last of its worker that adds to the gradients of embedding and head. */
static bool adds_last_to_ends(const struct sp_plan *plan, int worker, int index)
{
    const struct sp_program *prog = &plan->programs[worker];

    for (int k = prog->n - 1; k >= 0; k--) {
        const struct sp_op *op = &prog->ops[k];

        if (op->part == SP_HEAD || (op->chunk == 0 && sp_ring_adds(plan, worker, op)))
            return k == index;
    }
    return false;
}

static int lower_begin(struct sp_lowering *l)
{
    return is_line(l) ? 0 : sp_ring_around_lower_begin(l);
}

static void lower(struct sp_lowering *l, int i)
{
    int worker = l->order[i].stage, index = l->order[i].index;
    bool alone = l->plan->layout.stages == 1;

    if (index == 0 && !alone)
        sp_shards_lower(l, SP_ACTION_GATHER, worker, 0, SP_SHARDS_ENDS);
    if (is_line(l))
        sp_ring_line_lower(l, i);
    else
        sp_ring_around_lower(l, i);
    if (adds_last_to_ends(l->plan, worker, index) && !alone)
        sp_shards_lower(l, SP_ACTION_SCATTER, worker, index, SP_SHARDS_ENDS);
}

static void lower_end(struct sp_lowering *l)
{
    if (!is_line(l))
        sp_ring_around_lower_end(l);
}

static const struct sp_lowerer lowers = {
    .run_deps = run_deps, .turn = turn, .begin = lower_begin, .lower = lower, .end = lower_end};
static const struct sp_owners owners = {.owned = owned};

const struct sp_family sp_family_weight_ring = {
    .name = "weight-ring",
    .facts.layers = SP_LAYERS_ALIKE,
    .facts.names_global = true,
    .facts.every_end = true,
    .facts.shards_ends = true,
    .facts.head_op = true,
    .facts.post_validates = true,
    .facts.groups = SP_GROUP_ALL,
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
    .lowers = &lowers,
    .owners = &owners,
};
