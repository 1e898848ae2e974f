/*
 * The sharded family (ZeRO-3, fully sharded data parallelism): worker i mod P keeps micro-batch i
 * from its first forward to its last backward. Every parameter block lies in P shards; a worker
 * owns one of them with its gradient and optimizer state. A chunk of layers, the unit, is gathered
 * before the ops that use it. After each backward its gradient is cut up, and the owners of the
 * shards sum it.
 *
 *   F(i,c) waits for F(i,c-1)        B(i,c) for B(i,c+1) and F(i,c)
 *
 * A gather is a collective: it starts when every worker has begun the op before the one that needs
 * it, so when every worker has ended the op before that. It is enough to ask this of one other
 * worker, the previous one.
 *
 *   F(i,c) for its F(.,c-2)          B(i,c) for its B(.,c+2), the last but one chunk for its F(.,c)
 *
 * The last chunk is still gathered when its backward begins. So all workers have to take chunks in
 * the same order, whichever that is. A run is not as strict: owners send their shards whatever they
 * compute, and the sums of gradients keep workers together.
 *
 * As actions: a unit of weights is gathered one unit ahead of the ops that use it (shards.h). Its
 * gradient is scattered after the last of a run of backwards that add to it. Embedding and head are
 * gathered before the first op and scattered at the end of the step: they are small compared with
 * the layers, or every micro-batch uses them twice.
 */
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "policies/families/sharded/shards.h"
#include "policies/lowering/lowering.h"
#include "policies/refuse.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>

/* Refuses a number of micro-batches that workers cannot share evenly; 0 if they can. */
static int check_rounds(const struct sp_layout *lay, char *why, size_t n)
{
    int P = lay->stages, m = lay->micro_batches, below = m / P * P;

    if (m == below)
        return 0;
    if (below > 0 && below + P <= SP_MAX_SIZE)
        snprintf(why, n,
                 "gives %d workers as many micro-batches each, which %d are not; use "
                 "--micro-batches %d or %d",
                 P, m, below, below + P);
    else
        snprintf(why, n,
                 "gives %d workers as many micro-batches each, which %d are not; use "
                 "--micro-batches %d",
                 P, m, below > 0 ? below : P);
    return -EINVAL;
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int err = sp_refuse_slices(lay, why, n);

    return err ? err : check_rounds(lay, why, n);
}

/* Every stage has every chunk. */
static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    (void)def, (void)why, (void)n;
    return sp_map_create_all(lay, map);
}

bool sp_worker_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                       size_t n)
{
    if (op->mb % lay->stages == stage)
        return false;
    snprintf(why, n, "micro-batch %d is on stage %d", op->mb, op->mb % lay->stages);
    return true;
}

static bool foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                    size_t n)
{
    return sp_worker_foreign(lay, stage, op, why, n) ||
           sp_layerwise_foreign(lay, stage, op, why, n);
}

static int ids(const struct sp_layout *lay)
{
    return 2 * lay->micro_batches * lay->chunks;
}

static int id(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    if (op->mb < 0 || op->mb >= lay->micro_batches || op->mb % lay->stages != stage ||
        op->part != SP_CHUNK || op->slice != 0 || op->chunk < 0 || op->chunk >= lay->chunks ||
        (op->pass != SP_F && op->pass != SP_B))
        return -1;
    return ((op->pass == SP_B) * lay->micro_batches + op->mb) * lay->chunks + op->chunk;
}

static struct sp_dep at(const struct sp_layout *lay, enum sp_pass pass, int mb, int c)
{
    return (struct sp_dep){.stage = mb % lay->stages,
                           .op = {.pass = (unsigned char)pass, .mb = mb, .chunk = c}};
}

static int deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    int P = lay->stages, i = op->mb, c = op->chunk, last = lay->chunks - 1, n = 0;
    int before = i - stage + (stage + P - 1) % P; /* of the previous worker, in the same round */

    if (op->pass == SP_F && c > 0)
        out[n++] = at(lay, SP_F, i, c - 1);
    if (op->pass == SP_B)
        out[n++] = at(lay, SP_F, i, c);
    if (op->pass == SP_B && c < last)
        out[n++] = at(lay, SP_B, i, c + 1);
    if (P == 1)
        return n;
    if (op->pass == SP_F && c >= 2)
        out[n++] = at(lay, SP_F, before, c - 2);
    else if (op->pass == SP_B && c == last - 1)
        out[n++] = at(lay, SP_F, before, c);
    else if (op->pass == SP_B && c < last - 1)
        out[n++] = at(lay, SP_B, before, c + 2);
    return n;
}

static void required(const struct sp_layout *lay, sp_need_fn need, void *arg)
{
    for (int i = 0; i < lay->micro_batches; i++) {
        for (int c = 0; c < lay->chunks; c++) {
            sp_need(need, arg, at(lay, SP_F, i, c));
            sp_need(need, arg, at(lay, SP_B, i, c));
        }
    }
}

/* A worker alone does to a micro-batch what the stages of a line do one after the other. */
static double cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op)
{
    double share = (double)plan->layout.stages / plan->layout.chunks;

    (void)stage;
    return share * (op->pass == SP_F ? costs->f : costs->b + costs->w);
}

/* A gather is not a message that could arrive out of turn. */
static int stream(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    return id(lay, stage, op);
}

/* ---- actions --------------------------------------------------------------------------------- */

int sp_shards_prefetch(const struct sp_program *prog, int k)
{
    int next = k + 1;

    if (!sp_shards_change(prog, k))
        return -1;
    while (next < prog->n && prog->ops[next].chunk == prog->ops[k].chunk)
        next++;
    if (next == prog->n || (k > 0 && prog->ops[next].chunk == prog->ops[k - 1].chunk))
        return -1;
    return next;
}

/* Bytes that a stage sends for a unit: in a gather its own shard, in a scatter the shards of
 * others; all have one size. */
static int64_t bytes_of(const struct sp_lowering *l, const struct sp_tensor_id *t)
{
    const struct sp_shape *sh = l->shape;
    int first, count;
    int64_t sum = 0;

    if (!sh)
        return 0;
    sp_chunk_layers(l->plan, sh->model.layers, 0, t->at < 0 ? 0 : t->at, &first, &count);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        bool of_layer = sp_block_is_of_layer((enum sp_block_kind)kind);

        if (of_layer == (t->at >= 0) && sp_block_is_gathered(l->plan, (enum sp_block_kind)kind))
            sum += (of_layer ? count : 1) *
                   (int64_t)sp_block_held(l->plan, &sh->held, (enum sp_block_kind)kind);
    }
    return sum * (l->plan->layout.stages - 1) *
           (t->kind == SP_TENSOR_D ? (int64_t)sizeof(float) : (int64_t)sp_shape_elem(sh));
}

void sp_shards_lower(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index,
                     int chunk)
{
    struct sp_tensor_id t = {
        .kind = kind == SP_ACTION_GATHER ? SP_TENSOR_W : SP_TENSOR_D, .mb = -1, .at = chunk};

    sp_lower_collective(l, kind, stage, index, t, l->plan->layout.stages, l->all, bytes_of(l, &t));
}

static void lower(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, index = l->order[i].index;
    const struct sp_program *prog = &l->plan->programs[stage];
    int next = sp_shards_prefetch(prog, index);
    bool alone = l->plan->layout.stages == 1;

    if (!alone && index == 0) {
        sp_shards_lower(l, SP_ACTION_GATHER, stage, 0, SP_SHARDS_ENDS);
        sp_shards_lower(l, SP_ACTION_GATHER, stage, 0, prog->ops[0].chunk);
    }
    if (!alone && next >= 0)
        sp_shards_lower(l, SP_ACTION_GATHER, stage, next, prog->ops[next].chunk);
    sp_lower_run(l, stage, index);
    if (!alone && prog->ops[index].pass == SP_B && sp_shards_add_last(prog, index))
        sp_shards_lower(l, SP_ACTION_SCATTER, stage, index, prog->ops[index].chunk);
}

static void lower_end(struct sp_lowering *l)
{
    for (int r = 0; r < l->plan->layout.stages && l->plan->layout.stages > 1; r++)
        sp_shards_lower(l, SP_ACTION_SCATTER, r, INT_MAX, SP_SHARDS_ENDS);
}

static const struct sp_lowerer lowers = {.stream = stream, .lower = lower, .end = lower_end};

const struct sp_family sp_family_sharded = {
    .name = "sharded",
    .facts.sharded = true,
    .facts.one_line = true,
    .facts.every_end = true,
    .facts.shards_ends = true,
    .facts.groups = SP_GROUP_ALL,
    .check = check,
    .place = place,
    .foreign = foreign,
    .id = id,
    .ids = ids,
    .deps = deps,
    .required = required,
    .cost = cost,
    .lowers = &lowers,
};
