/* Layers of which pipelines keep shards (zero.h): --zero 2 and 3. */
#include "graphs/members.h"
#include "graphs/weights/zero.h"
#include "policies/families/ownership.h"
#include "policies/lowering/pipelines.h"
#include "sp_error.h"
#include <stdlib.h>

/* A buffer for a whole block. */
struct whole {
    struct sp_gathered buffer;
    int layer;     /* whose block it is; -1: free */
    bool used;     /* weights: by an op; else they are gathered for one */
    int pending;   /* gradients: backwards whose weight gradients are not computed yet */
    unsigned turn; /* when it was freed: the oldest is taken first */
};

/* n buffers for each kind of block of a layer. */
struct wholes {
    struct whole *of[SP_LAYER_BLOCKS];
    int n;
};

/* A part of a gradient from another pipeline. */
struct part {
    struct sp_tensor *sum, *part;
    int layer;
};

struct sp_zero_stage {
    struct wholes weights, gradients;
    unsigned turn;
    struct sp_tensor **received; /* [parts] buffers for parts, by block and sender; own: NULL */
    struct part *part;           /* [n_parts] received, not added yet */
    int parts, n_parts;
};

/* ---- buffers --------------------------------------------------------------------------------- */

static int create_wholes(struct sp_graph *g, struct sp_stage *st, struct wholes *w, int n,
                         size_t elem)
{
    int err = 0;

    for (int k = 0; k < SP_LAYER_BLOCKS; k++) {
        w->of[k] = calloc((size_t)n + 1, sizeof *w->of[k]);
        if (!w->of[k])
            return -ENOMEM;
    }
    for (; !err && w->n < n; w->n++)
        for (int k = 0; !err && k < SP_LAYER_BLOCKS; k++) {
            struct whole *whole = &w->of[k][w->n];

            whole->layer = -1;
            err = sp_gathered_create(g->cfg.sink, &whole->buffer,
                                     sp_block_elements(&g->shape.held, sp_layer_block(k)),
                                     sp_graph_replicas(g), elem);
            st->gathered_bytes += sp_gathered_bytes(&whole->buffer);
        }
    return err;
}

static void destroy_wholes(struct wholes *w)
{
    for (int k = 0; k < SP_LAYER_BLOCKS; k++) {
        for (int i = 0; i < w->n; i++)
            sp_gathered_destroy(&w->of[k][i].buffer);
        free(w->of[k]);
    }
}

/* The most layers of a stage whose gradients are whole at a time: those of backwards that wait for
 * weight gradients, or the one of a backward and the one that leaves. */
static int most_gradients(const struct sp_graph *g, const struct sp_stage *st)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_program *prog = &plan->programs[st->index];
    int *pending = calloc((size_t)sp_chunks_of(plan), sizeof *pending), most = 2, layers = 0;

    SP_NEED(pending, "no memory to share gradients out");
    for (int i = 0; i < prog->n; i++) {
        const struct sp_op *op = &prog->ops[i];
        int first, count, before;

        if (op->part != SP_CHUNK || op->pass == SP_F || op->pass == SP_R)
            continue;
        sp_chunk_layers(plan, g->shape.model.layers, st->index, op->chunk, &first, &count);
        before = pending[op->chunk] > 0;
        if (op->pass == SP_B && !sp_op_releases(plan, st->index, op))
            pending[op->chunk]++;
        else if (op->pass == SP_W)
            pending[op->chunk]--;
        layers += ((pending[op->chunk] > 0) - before) * count;
        most = layers + 2 > most ? layers + 2 : most;
    }
    free(pending);
    return most;
}

static int create_received(struct sp_graph *g, struct sp_stage *st, struct sp_zero_stage *z)
{
    int D = sp_graph_replicas(g);
    uint64_t first, n;

    z->parts = SP_LAYER_BLOCKS * D;
    z->received = calloc((size_t)z->parts, sizeof(struct sp_tensor *));
    z->part = calloc((size_t)z->parts, sizeof *z->part);
    if (!z->received || !z->part)
        return -ENOMEM;
    for (int i = 0; i < z->parts; i++) {
        if (i % D == 0) /* its own part */
            continue;
        sp_pipelines_part(sp_block_elements(&g->shape.held, sp_layer_block(i / D)),
                          sp_graph_replica(g), D, &first, &n);
        z->received[i] = sp_tensor_make(g->cfg.sink, n, sizeof(float), "gradient part");
        st->gathered_bytes += sp_tensor_size(z->received[i]);
    }
    return 0;
}

int sp_zero_stage_create(struct sp_graph *g, struct sp_stage *st)
{
    int weights = g->cfg.plan->paired ? 4 : 2, err; /* for each op: its blocks and the next ones */
    struct sp_zero_stage *z;

    if (g->shape.zero < 2)
        return 0;
    st->zero = z = calloc(1, sizeof *z);
    if (!z)
        return -ENOMEM;
    err = create_received(g, st, z);
    err = err ? err : create_wholes(g, st, &z->gradients, most_gradients(g, st), sizeof(float));
    if (!err && g->shape.zero >= 3)
        err = create_wholes(g, st, &z->weights, weights, sp_shape_elem(&g->shape));
    return err;
}

void sp_zero_stage_destroy(struct sp_stage *st)
{
    if (!st->zero)
        return;
    destroy_wholes(&st->zero->weights);
    destroy_wholes(&st->zero->gradients);
    for (int i = 0; st->zero->received && i < st->zero->parts; i++)
        sp_tensor_unmake(st->zero->received[i]);
    free(st->zero->received);
    free(st->zero->part);
    free(st->zero);
}

static int index_of(enum sp_block_kind kind)
{
    return (int)kind - SP_BLOCK_NORM1;
}

/* Two ops that overlap may use the same block, which each has gathered then. */
static struct whole *find(const struct wholes *w, int k, int layer, bool used)
{
    for (int i = 0; i < w->n; i++)
        if (w->of[k][i].layer == layer && w->of[k][i].used == used)
            return &w->of[k][i];
    return NULL;
}

/* Takes the buffer that has been free longest; NULL: none is free. */
static struct whole *take(struct wholes *w, int k, int layer)
{
    struct whole *oldest = NULL;

    for (int i = 0; i < w->n; i++)
        if (w->of[k][i].layer < 0 && (!oldest || w->of[k][i].turn < oldest->turn))
            oldest = &w->of[k][i];
    if (oldest)
        oldest->layer = layer;
    return oldest;
}

static void give_back(struct sp_zero_stage *z, struct whole *w)
{
    w->layer = -1;
    w->used = false;
    w->pending = 0;
    w->turn = ++z->turn;
}

static struct sp_block *block_of(struct sp_stage *st, int layer, int k)
{
    return sp_stage_block(st, sp_layer_block(k), layer);
}

struct sp_tensor *sp_zero_weights(const struct sp_stage *st, enum sp_block_kind kind, int layer)
{
    return find(&st->zero->weights, index_of(kind), layer, true)->buffer.whole;
}

struct sp_tensor *sp_zero_gradient(const struct sp_stage *st, enum sp_block_kind kind, int layer)
{
    return find(&st->zero->gradients, index_of(kind), layer, false)->buffer.whole;
}

/* ---- weights --------------------------------------------------------------------------------- */

static bool is_shipped(const struct sp_op_ctx *c, int layer)
{
    return c->shards && layer >= c->first && layer < c->first + c->count;
}

/* This pipeline's part of the weights, or of the gradient, of block k of a layer; NULL: the stage does
 * not have it. */
static struct sp_tensor *shard_of(const struct sp_op_ctx *c, int layer, int k, enum sp_state state)
{
    const struct sp_block *b = block_of(c->st, layer, k);

    if (is_shipped(c, layer))
        return (state == SP_STATE_W ? c->shards->shard
                                    : c->shards->sum)[SP_LAYER_BLOCKS * (layer - c->first) + k];
    return b ? b->state[state] : NULL;
}

/* The pointer by which ops find the whole weights, or the whole gradient, of block k of a layer; NULL:
 * the stage does not have it. */
static struct sp_tensor **place_of(const struct sp_op_ctx *c, int layer, int k, enum sp_state state)
{
    struct sp_block *b = block_of(c->st, layer, k);

    if (is_shipped(c, layer))
        return &(state == SP_STATE_W
                     ? c->shards->w
                     : c->shards->gradient)[SP_LAYER_BLOCKS * (layer - c->first) + k];
    if (!b)
        return NULL;
    return state == SP_STATE_W ? &b->w : &b->g;
}

/* Lets ops find a whole block. NULL: there is none. */
static void use_whole(const struct sp_op_ctx *c, const struct whole *w, int layer, int k,
                      enum sp_state state)
{
    struct sp_tensor **place = place_of(c, layer, k, state);

    if (place)
        *place = w ? w->buffer.whole : NULL;
}

/* Gathers a block: every pipeline sends its shard to all others. NULL: no buffer is free. */
static struct whole *gather(struct sp_op_ctx *c, int k, int layer, struct sp_tensor *shard)
{
    struct sp_graph *g = c->g;
    struct whole *w = take(&c->st->zero->weights, k, layer);
    struct sp_task_context ctx = c->ctx;
    struct sp_tensor_id t = {
        .kind = SP_TENSOR_BLOCK, .block = (unsigned char)sp_layer_block(k), .mb = -1, .at = layer};

    if (!w)
        return NULL;
    ctx.layer = layer;
    sp_gathered_cut(&w->buffer);
    sp_copy_insert(&ctx, shard, w->buffer.part[sp_graph_replica(g)]);
    sp_zero_share_weights(g, c->st, &t, shard, &w->buffer, sp_exchange_tag(g));
    sp_gathered_join(&w->buffer);
    return w;
}

void sp_zero_gather_ahead(struct sp_op_ctx *c, enum sp_block_kind kind, int layer,
                          struct sp_tensor *shard)
{
    int k = index_of(kind);

    if (shard && !find(&c->st->zero->weights, k, layer, false))
        gather(c, k, layer, shard);
}

void sp_zero_gather_block(struct sp_op_ctx *c, enum sp_block_kind kind, int layer,
                          struct sp_tensor *shard)
{
    int k = index_of(kind);
    struct whole *w = find(&c->st->zero->weights, k, layer, false);

    w = w ? w : gather(c, k, layer, shard);
    SP_NEED(w, "internal: starpipe: no buffer for the weights of a layer");
    w->used = true;
    use_whole(c, w, layer, k, SP_STATE_W);
}

void sp_zero_drop_block(struct sp_op_ctx *c, enum sp_block_kind kind, int layer)
{
    struct wholes *weights = &c->st->zero->weights;
    int k = index_of(kind);

    give_back(c->st->zero, find(weights, k, layer, true));
    use_whole(c, find(weights, k, layer, true), layer, k, SP_STATE_W);
}

static void gather_layer_ahead(struct sp_op_ctx *c, int layer)
{
    for (int k = 0; k < SP_LAYER_BLOCKS; k++)
        sp_zero_gather_ahead(c, sp_layer_block(k), layer, shard_of(c, layer, k, SP_STATE_W));
}

/* The layer with which an op of a chunk begins, -1: it has none. */
static int first_of(const struct sp_op_ctx *c, const struct sp_op *op)
{
    const struct sp_plan *plan = c->g->cfg.plan;
    int first, count, last, every = c->g->cfg.every;
    enum sp_recompute mode;

    if (op->part != SP_CHUNK)
        return -1;
    sp_chunk_layers(plan, c->g->shape.model.layers, c->st->index, op->chunk, &first, &count);
    if (!count || op->pass == SP_F)
        return count ? first : -1;
    last = count - 1;
    mode = sp_layer_recompute(plan, c->g->cfg.recompute, first + last);
    if (op->pass == SP_B && !sp_stash_keeps(mode, SP_STASH_PRE))
        last = last / every * every; /* of a group that keeps one input */
    return first + last;
}

/* Gathers the layers with which the stage's next op, and the one that overlaps with it, begin. */
static void gather_next_op(struct sp_op_ctx *c)
{
    const struct sp_program *prog = &c->g->cfg.plan->programs[c->st->index];
    int next = c->ctx.op_index + 1;

    for (int i = next; i < prog->n && (i == next || prog->ops[next].overlap) && i < next + 2; i++) {
        int layer = first_of(c, &prog->ops[i]);

        if (layer >= 0)
            gather_layer_ahead(c, layer);
    }
}

/* Gathers what the stage needs after layer i of the chunk. */
static void gather_ahead(struct sp_op_ctx *c, int i)
{
    const struct sp_program *prog = &c->g->cfg.plan->programs[c->st->index];
    int next = c->ctx.pass == 'F' ? i + 1 : i - 1;

    if (next >= 0 && next < c->count)
        gather_layer_ahead(c, c->first + next);
    else if (!prog->ops[c->ctx.op_index].overlap)
        gather_next_op(c);
}

void sp_zero_gather(struct sp_op_ctx *c, int i)
{
    int layer = c->first + i;

    if (!sp_shape_shards_weights(&c->g->shape, layer))
        return;
    for (int k = 0; k < SP_LAYER_BLOCKS; k++)
        sp_zero_gather_block(c, sp_layer_block(k), layer, shard_of(c, layer, k, SP_STATE_W));
    if (sp_sink_computes(c->g->cfg.sink)) /* a count has each op send what it needs itself */
        gather_ahead(c, i);
}

void sp_zero_drop(struct sp_op_ctx *c, int i)
{
    int layer = c->first + i;

    for (int k = 0; sp_shape_shards_weights(&c->g->shape, layer) && k < SP_LAYER_BLOCKS; k++)
        sp_zero_drop_block(c, sp_layer_block(k), layer);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void clear(const struct sp_op_ctx *c, struct whole *w)
{
    struct sp_task_context ctx = c->ctx;

    ctx.layer = w->layer;
    sp_gathered_join(&w->buffer);
    sp_clear_insert(&ctx, w->buffer.whole);
}

void sp_zero_take_block_gradient(struct sp_op_ctx *c, enum sp_block_kind kind, int layer)
{
    int k = index_of(kind);
    struct whole *w = find(&c->st->zero->gradients, k, layer, false);

    if (!w) {
        w = take(&c->st->zero->gradients, k, layer);
        SP_NEED(w, "internal: starpipe: no buffer for the gradients of a layer");
        clear(c, w);
        use_whole(c, w, layer, k, SP_STATE_G);
    }
    w->pending += c->ctx.pass == 'B';
}

void sp_zero_take_gradient(struct sp_op_ctx *c, int i)
{
    int layer = c->first + i;

    for (int k = 0; sp_shape_shards_gradients(&c->g->shape, layer) && k < SP_LAYER_BLOCKS; k++)
        sp_zero_take_block_gradient(c, sp_layer_block(k), layer);
}

/* Adds this pipeline's part of a gradient to its shard, and exchanges the others. */
static void scatter(struct sp_op_ctx *c, struct whole *w, int k, struct sp_tensor *sum)
{
    struct sp_zero_stage *z = c->st->zero;
    struct sp_graph *g = c->g;
    int q = sp_graph_replica(g), D = sp_graph_replicas(g);
    struct sp_task_context ctx = c->ctx;
    struct sp_tensor_id t = {.kind = SP_TENSOR_GRADIENT,
                             .block = (unsigned char)sp_layer_block(k),
                             .mb = -1,
                             .at = w->layer};
    int64_t tag = sp_exchange_tag(g);

    ctx.layer = w->layer;
    sp_gathered_cut(&w->buffer);
    sp_sum_insert(&ctx, SP_F32, sum, w->buffer.part[q], false);
    for (int j = 1; j < D; j++) {
        int to = (q + j) % D, from = sp_replica_pipeline(g, (q - j + D) % D);
        struct sp_tensor *part = z->received[k * D + j];

        sp_message_share(g, c->st, &t, w->buffer.part[to], sp_replica_pipeline(g, to), tag);
        sp_message_take(g, c->st, part, from, tag);
        z->part[z->n_parts++] = (struct part){sum, part, w->layer};
    }
}

/* After a scatter: the next backward that waits for weight gradients adds to zeros again. */
static void leave_gradient(struct sp_op_ctx *c, struct whole *w, int k)
{
    if (--w->pending > 0) {
        clear(c, w);
        return;
    }
    use_whole(c, NULL, w->layer, k, SP_STATE_G);
    give_back(c->st->zero, w);
}

void sp_zero_scatter_block(struct sp_op_ctx *c, enum sp_block_kind kind, int layer,
                           struct sp_tensor *sum)
{
    int k = index_of(kind);
    struct whole *w = find(&c->st->zero->gradients, k, layer, false);

    scatter(c, w, k, sum);
    leave_gradient(c, w, k);
}

void sp_zero_scatter(struct sp_op_ctx *c, int i)
{
    struct sp_zero_stage *z = c->st->zero;
    int layer = c->first + i;

    if (!z)
        return;
    sp_zero_add(c->st, &c->ctx);
    for (int k = 0; k < SP_LAYER_BLOCKS; k++)
        scatter(c, find(&z->gradients, k, layer, false), k, shard_of(c, layer, k, SP_STATE_G));
    for (int k = 0; k < SP_LAYER_BLOCKS; k++)
        leave_gradient(c, find(&z->gradients, k, layer, false), k);
}

void sp_zero_add(struct sp_stage *st, const struct sp_task_context *ctx)
{
    struct sp_zero_stage *z = st->zero;
    struct sp_task_context at = *ctx;

    for (int i = 0; z && i < z->n_parts; i++) {
        at.layer = z->part[i].layer;
        sp_sum_insert(&at, SP_F32, z->part[i].sum, z->part[i].part, false);
    }
    if (z)
        z->n_parts = 0;
}

void sp_zero_discard(struct sp_graph *g)
{
    for (int s = 0; s < g->place.n_local; s++) {
        struct sp_zero_stage *z = g->stages[s].zero;

        for (int i = 0; z && i < SP_LAYER_BLOCKS * z->weights.n; i++) {
            struct whole *w = &z->weights.of[i % SP_LAYER_BLOCKS][i / SP_LAYER_BLOCKS];

            if (w->layer >= 0)
                give_back(z, w);
        }
    }
}
