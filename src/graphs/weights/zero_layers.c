/* Layers of which pipelines keep shards (zero.h): --zero 2 and 3. */
#include "graphs/members.h"
#include "graphs/weights/zero.h"
#include "policies/families/ownership.h"
#include "policies/lowering/pipelines.h"
#include "sp_error.h"
#include <stdlib.h>

/* Buffers for the blocks of a whole layer. */
struct whole {
    struct sp_gathered block[SP_LAYER_BLOCKS];
    int layer;     /* whose blocks they are; -1: free */
    bool used;     /* weights: by an op; else they are gathered for one */
    int pending;   /* gradients: backwards whose weight gradients are not computed yet */
    unsigned turn; /* when they were freed: the oldest are taken first */
};

struct wholes {
    struct whole *whole; /* [n] */
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
    struct part *part; /* [n_parts] received, not added yet */
    int n_parts;
};

/* ---- buffers --------------------------------------------------------------------------------- */

static int create_wholes(struct sp_graph *g, struct sp_stage *st, struct wholes *w, int n,
                         size_t elem)
{
    int err = 0;

    w->whole = calloc((size_t)n + 1, sizeof *w->whole);
    if (!w->whole)
        return -ENOMEM;
    for (; !err && w->n < n; w->n++) {
        struct whole *whole = &w->whole[w->n];

        whole->layer = -1;
        for (int k = 0; !err && k < SP_LAYER_BLOCKS; k++) {
            err = sp_gathered_create(g->cfg.sink, &whole->block[k],
                                     sp_block_elements(&g->shape.held, sp_layer_block(k)),
                                     sp_graph_replicas(g), elem);
            st->gathered_bytes += sp_gathered_bytes(&whole->block[k]);
        }
    }
    return err;
}

static void destroy_wholes(struct wholes *w)
{
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < SP_LAYER_BLOCKS; k++)
            sp_gathered_destroy(&w->whole[i].block[k]);
    free(w->whole);
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

int sp_zero_stage_create(struct sp_graph *g, struct sp_stage *st)
{
    int weights = g->cfg.plan->paired ? 4 : 2, err; /* for each op: its layer and the next one */
    struct sp_zero_stage *z;

    if (g->shape.zero < 2)
        return 0;
    st->zero = z = calloc(1, sizeof *z);
    if (!z)
        return -ENOMEM;
    z->part = calloc((size_t)(SP_LAYER_BLOCKS * sp_graph_replicas(g)), sizeof *z->part);
    err = z->part ? create_wholes(g, st, &z->gradients, most_gradients(g, st), sizeof(float))
                  : -ENOMEM;
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
    free(st->zero->part);
    free(st->zero);
}

/* Two ops that overlap may use the same layer, which each has gathered then. */
static struct whole *find(const struct wholes *w, int layer, bool used)
{
    for (int i = 0; i < w->n; i++)
        if (w->whole[i].layer == layer && w->whole[i].used == used)
            return &w->whole[i];
    return NULL;
}

/* Takes the buffers that have been free longest; NULL: none is free. */
static struct whole *take(struct wholes *w, int layer)
{
    struct whole *oldest = NULL;

    for (int i = 0; i < w->n; i++)
        if (w->whole[i].layer < 0 && (!oldest || w->whole[i].turn < oldest->turn))
            oldest = &w->whole[i];
    if (oldest)
        oldest->layer = layer;
    return oldest;
}

static void give_back(struct sp_zero_stage *z, struct whole *w)
{
    w->layer = -1;
    w->used = false;
    w->turn = ++z->turn;
}

static struct sp_block *block_of(struct sp_stage *st, int layer, int k)
{
    return sp_stage_block(st, sp_layer_block(k), layer);
}

static void use_weights(struct sp_stage *st, const struct whole *w, int layer)
{
    for (int k = 0; k < SP_LAYER_BLOCKS; k++)
        block_of(st, layer, k)->w = w ? w->block[k].whole : NULL;
}

static void use_gradients(struct sp_stage *st, const struct whole *w, int layer)
{
    for (int k = 0; k < SP_LAYER_BLOCKS; k++)
        block_of(st, layer, k)->g = w ? w->block[k].whole : NULL;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Gathers a layer: every pipeline sends its shard to all others. */
static struct whole *gather(struct sp_op_ctx *c, int layer)
{
    struct sp_graph *g = c->g;
    struct whole *w = take(&c->st->zero->weights, layer);
    struct sp_task_context ctx = c->ctx;

    ctx.layer = layer;
    for (int k = 0; w && k < SP_LAYER_BLOCKS; k++) {
        const struct sp_block *b = block_of(c->st, layer, k);

        sp_gathered_cut(&w->block[k]);
        sp_copy_insert(&ctx, b->state[SP_STATE_W], w->block[k].part[sp_graph_replica(g)]);
        sp_zero_share_weights(g, c->st, b, &w->block[k], sp_exchange_tag(g));
        sp_gathered_join(&w->block[k]);
    }
    return w;
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
    if (op->pass == SP_B && (mode == SP_RECOMPUTE_FULL || mode == SP_RECOMPUTE_NO_ATTENTION))
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

        if (layer >= 0 && !find(&c->st->zero->weights, layer, false))
            gather(c, layer);
    }
}

/* Gathers what the stage needs after layer i of the chunk. */
static void gather_ahead(struct sp_op_ctx *c, int i)
{
    const struct sp_program *prog = &c->g->cfg.plan->programs[c->st->index];
    int next = c->ctx.pass == 'F' ? i + 1 : i - 1;

    if (next >= 0 && next < c->count) {
        if (!find(&c->st->zero->weights, c->first + next, false))
            gather(c, c->first + next);
    } else if (!prog->ops[c->ctx.op_index].overlap) {
        gather_next_op(c);
    }
}

void sp_zero_gather(struct sp_op_ctx *c, int i)
{
    struct sp_zero_stage *z = c->st->zero;
    struct whole *w;

    if (!z || !z->weights.n)
        return;
    w = find(&z->weights, c->first + i, false);
    w = w ? w : gather(c, c->first + i);
    SP_NEED(w, "internal: starpipe: no buffers for the weights of a layer");
    w->used = true;
    use_weights(c->st, w, c->first + i);
    if (sp_sink_computes(c->g->cfg.sink)) /* a count has each op send what it needs itself */
        gather_ahead(c, i);
}

void sp_zero_drop(struct sp_op_ctx *c, int i)
{
    struct sp_zero_stage *z = c->st->zero;

    if (!z || !z->weights.n)
        return;
    give_back(z, find(&z->weights, c->first + i, true));
    use_weights(c->st, find(&z->weights, c->first + i, true), c->first + i);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void clear(const struct sp_op_ctx *c, struct whole *w, int layer)
{
    struct sp_task_context ctx = c->ctx;

    ctx.layer = layer;
    for (int k = 0; k < SP_LAYER_BLOCKS; k++) {
        sp_gathered_join(&w->block[k]);
        sp_clear_insert(&ctx, w->block[k].whole);
    }
}

void sp_zero_take_gradient(struct sp_op_ctx *c, int i)
{
    struct sp_zero_stage *z = c->st->zero;
    int layer = c->first + i;
    struct whole *w;

    if (!z)
        return;
    w = find(&z->gradients, layer, false);
    if (!w) {
        w = take(&z->gradients, layer);
        SP_NEED(w, "internal: starpipe: no buffers for the gradients of a layer");
        clear(c, w, layer);
        use_gradients(c->st, w, layer);
    }
    w->pending += c->ctx.pass == 'B';
}

void sp_zero_scatter(struct sp_op_ctx *c, int i)
{
    struct sp_zero_stage *z = c->st->zero;
    struct sp_graph *g = c->g;
    int q = sp_graph_replica(g), D = sp_graph_replicas(g), layer = c->first + i;
    struct sp_task_context ctx = c->ctx;
    struct whole *w;

    if (!z)
        return;
    sp_zero_add(c->st, &ctx);
    w = find(&z->gradients, layer, false);
    ctx.layer = layer;
    for (int k = 0; k < SP_LAYER_BLOCKS; k++) {
        struct sp_block *b = block_of(c->st, layer, k);
        struct sp_tensor *sum = b->state[SP_STATE_G];
        struct sp_tensor_id t = {
            .kind = SP_TENSOR_GRADIENT, .block = (unsigned char)b->kind, .mb = -1, .at = layer};
        int64_t tag = sp_exchange_tag(g);

        sp_gathered_cut(&w->block[k]);
        sp_sum_insert(&ctx, SP_F32, sum, w->block[k].part[q], false);
        for (int j = 1; j < D; j++) {
            int to = (q + j) % D, from = sp_replica_pipeline(g, (q - j + D) % D);
            struct sp_tensor *part =
                sp_pool_get(c->st->local, b->n, sizeof(float), "gradient part");

            sp_message_share(g, c->st, &t, w->block[k].part[to], sp_replica_pipeline(g, to), tag);
            sp_message_take(g, c->st, part, from, tag);
            z->part[z->n_parts++] = (struct part){sum, part, layer};
        }
    }
    if (--w->pending > 0) {
        clear(c, w, layer);
        return;
    }
    use_gradients(c->st, NULL, layer);
    give_back(z, w);
}

void sp_zero_add(struct sp_stage *st, const struct sp_task_context *ctx)
{
    struct sp_zero_stage *z = st->zero;
    struct sp_task_context at = *ctx;

    for (int i = 0; z && i < z->n_parts; i++) {
        at.layer = z->part[i].layer;
        sp_sum_insert(&at, SP_F32, z->part[i].sum, z->part[i].part, false);
        sp_pool_put(z->part[i].part);
    }
    if (z)
        z->n_parts = 0;
}

void sp_zero_discard(struct sp_graph *g)
{
    for (int s = 0; s < g->place.n_local; s++) {
        struct sp_zero_stage *z = g->stages[s].zero;

        for (int i = 0; z && i < z->weights.n; i++)
            if (z->weights.whole[i].layer >= 0)
                give_back(z, &z->weights.whole[i]);
    }
}
