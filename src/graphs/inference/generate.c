/*
 * Runs T tokens at positions first .. first+T-1, where T is a whole prompt or 1:
 *
 *   embed -> x;   layer l:  the forward of training, whose attention reads rows 0 .. first+T-1 of
 *                           cache[l], to which rows first .. of kv are copied before
 *   logits of the last row of x
 *
 * The layers are divided among stages in order. The tokens may be cut into slices, each a forward of
 * its own: while a stage has one of them, the stage before it has the next one.
 *
 * A graph that trains has its weights elsewhere: rank 0 has a copy of all, and its stages are its
 * GPUs, or one that has the threads of all workers.
 */
#include "graphs/inference/inference.h"
#include "graphs/weights/checkpoint.h"
#include "graphs/layer/layer.h"
#include "sp_error.h"
#include "transport/transport.h"
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 1 << 17, SLICES_A_STAGE = 4, SHORTEST_SLICE = 64 };

/* Tasks read its shapes until they end. */
struct slice {
    struct sp_shape sh, all; /* of its rows; of these and of all before */
    struct sp_tensor *ids;
};

struct sp_generator {
    struct sp_graph *g;
    struct sp_shape whole; /* for a full window */
    int stages;
    bool spread;                            /* the stages are those of the plan, on all processes */
    int length;                             /* valid rows of the cache */
    int32_t *text;                          /* [window] the tokens of these rows; on rank 0 */
    int slices;                             /* asked for; 0: to be chosen */
    int n_slices;                           /* there is room for */
    struct slice *slice;                    /* [n_slices] */
    struct sp_tensor **crossing;            /* [n_slices][stages] what leaves a stage */
    int64_t messages;                       /* between stages so far, the same on all ranks */
    struct sp_tensor *ends[SP_BLOCK_KINDS]; /* blocks outside the layers */
    struct sp_tensor **blocks;              /* [layers][SP_LAYER_BLOCKS] */
    struct sp_tensor **cache;               /* [layers] keys and values (window, kv) */
    struct sp_layer_activations *activations; /* [layers] */
    struct sp_tensor *logits;
    struct sp_pool **pools; /* [stages], so that no stage waits for a buffer of another */
};

static int stage_of(const struct sp_generator *gen, int layer)
{
    return sp_generator_stage(&gen->whole.model, gen->stages, layer);
}

static struct sp_stage *local(const struct sp_generator *gen, int stage)
{
    return sp_graph_stage(gen->g, stage);
}

/* The context for tasks of a local stage, which picks their worker. */
static struct sp_task_context context_of(const struct sp_generator *gen, int stage, int layer)
{
    struct sp_task_context ctx = sp_stage_context(gen->g, local(gen, stage), 'G');

    ctx.layer = layer;
    return ctx;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The first stage of this process that reads a block; -1: none does. */
static int reader_of(const struct sp_generator *gen, enum sp_block_kind kind, int layer)
{
    for (int s = 0; s < gen->stages; s++)
        if (local(gen, s) && sp_generator_holds(&gen->whole.model, gen->stages, s, kind, layer))
            return s;
    return -1;
}

static int keep_block(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct sp_generator *gen = arg;
    struct sp_task_context ctx = context_of(gen, reader_of(gen, kind, layer), layer);
    struct sp_tensor *from, **to;

    to = layer < 0 ? &gen->ends[kind] : &gen->blocks[sp_layer_block_at(kind, layer)];
    *to = sp_tensor_make(gen->g->cfg.sink, n, sp_shape_elem(&gen->whole), "w");
    from = sp_tensor_make_at(gen->g->cfg.sink, (void *)w, n, sizeof *w, "values");
    if (gen->whole.dtype == SP_F32)
        sp_copy_insert(&ctx, from, *to);
    else
        sp_round_insert(&ctx, from, gen->whole.dtype, *to);
    sp_tensor_unmake_at(from); /* waits, because the caller frees the values */
    return 0;
}

/* ---- a forward ------------------------------------------------------------------------------- */

/* Appends the keys and values of the rows under way to the cache, which attention then reads. */
static void keep_keys(struct sp_op_ctx *c, int l)
{
    struct sp_generator *gen = c->data;
    struct sp_layer_activations *t = &gen->activations[l];
    const struct sp_shape *sh = c->sh;
    struct sp_rows rows = {.batch = 1,
                           .width = sh->kv_width,
                           .n = sh->seq,
                           .from_len = sh->seq,
                           .to_len = gen->whole.seq,
                           .to_at = sh->first};

    sp_rows_insert(&c->ctx, sh, &rows, t->own.kv, gen->cache[l], sh->first == 0);
    sp_pool_drop(&t->own.kv);
    t->own.kv = gen->cache[l];
    sp_pool_hold(t->own.kv);
}

/* Runs the layers of a stage from x, which is dropped after the first. Returns the output of the
 * last layer. */
static struct sp_tensor *forward_layers(struct sp_generator *gen, int stage, struct slice *slice,
                                        struct sp_tensor *x)
{
    struct sp_chunk_activations activations = {.layers = gen->activations};
    struct sp_cut cut = {.n = 1, .shapes = &slice->all};
    struct sp_stage pools = {.local = gen->pools[stage]};
    struct sp_op_ctx c = {.g = gen->g,
                          .st = &pools,
                          .sh = &slice->sh,
                          .fl = &activations,
                          .cut = &cut,
                          .share = keep_keys,
                          .data = gen,
                          .w = gen->blocks};

    for (int l = 0; l < gen->whole.model.layers; l++) {
        struct sp_tensor *y;

        if (stage_of(gen, l) != stage)
            continue;
        y = sp_take_hidden(&c, "x");
        c.ctx = context_of(gen, stage, l);
        gen->activations[l].x = x;
        sp_layer_forward(&c, l, (struct sp_keep){0}, y);
        sp_pool_drop(&gen->activations[l].x);
        x = y;
    }
    return x;
}

/* The output of the embedding, or of the stage before. */
static struct sp_tensor *input(struct sp_generator *gen, int stage, struct slice *slice,
                               struct sp_tensor *before)
{
    const struct sp_shape *sh = &slice->sh;
    struct sp_task_context ctx = context_of(gen, stage, -1);
    struct sp_tensor *x = before;

    if (before) {
        sp_pool_hold(x);
        return x;
    }
    x = sp_pool_get(gen->pools[stage], (size_t)sh->rows * (size_t)sh->model.hidden,
                    sp_shape_elem(sh), "x");
    if (stage == 0)
        sp_embed_fwd_insert(&ctx, sh, slice->ids, gen->ends[SP_BLOCK_TOKENS],
                            gen->ends[SP_BLOCK_POSITIONS], x, 0);
    return x;
}

/* Sends a tensor of a stage to one of another process, or receives it there. */
static void pass(struct sp_generator *gen, struct sp_tensor *t, int from, int to)
{
    const struct sp_sink_ops *ops = gen->g->cfg.sink->ops;
    const struct sp_placement *place = &gen->g->place;
    int64_t tag = sp_tag(gen->g, SP_MSG_ACTION, (gen->messages + from) % MESSAGES);

    if (local(gen, from))
        ops->send(t, sp_stage_rank(place, to), tag, "x", NULL);
    else
        ops->receive(t, sp_stage_rank(place, from), tag, NULL, NULL, NULL);
}

/* The output of a stage is kept until the end of the feed: else the buffer of the next one would
 * have to wait for its reader. */
static void forward_slice(struct sp_generator *gen, struct slice *slice, struct sp_tensor **leaves)
{
    for (int s = 0; s < gen->stages; s++) {
        struct sp_tensor *x;

        leaves[s] = NULL;
        if (!local(gen, s))
            continue;
        x = input(gen, s, slice, s > 0 ? leaves[s - 1] : NULL);
        if (s > 0 && !local(gen, s - 1))
            pass(gen, x, s - 1, s);
        leaves[s] = forward_layers(gen, s, slice, x);
        if (s < gen->stages - 1 && !local(gen, s + 1))
            pass(gen, leaves[s], s, s + 1);
    }
    gen->messages += gen->stages;
}

/* Logits of the last row of x, on rank 0; elsewhere `to` is NULL. */
static void read_logits(struct sp_generator *gen, struct slice *slice, struct sp_tensor *x,
                        float *to)
{
    const struct sp_model *m = &gen->whole.model;
    int last = gen->stages - 1;
    const void *from;

    if (local(gen, last)) {
        struct sp_task_context ctx = context_of(gen, last, m->layers - 1);

        sp_logits_insert(&ctx, &slice->sh, slice->sh.seq - 1, 1, x, gen->ends[SP_BLOCK_NORM],
                         gen->ends[sp_head_table(m)], gen->logits);
    }
    if (!local(gen, 0) != !local(gen, last))
        pass(gen, gen->logits, last, 0);
    gen->messages += gen->stages;
    if (!to)
        return;
    from = sp_tensor_acquire(gen->logits, SP_READ);
    for (int i = 0; i < m->vocab; i++)
        to[i] = gen->whole.dtype == SP_F32 ? ((const float *)from)[i]
                                           : sp_bf16_value(((const uint16_t *)from)[i]);
    sp_tensor_release(gen->logits);
}

/* The number of slices for n rows. */
static int cut_of(const struct sp_generator *gen, int n)
{
    int most = gen->slices ? n : n / SHORTEST_SLICE;

    most = most < gen->n_slices ? most : gen->n_slices;
    return most > 1 ? most : 1;
}

/* Runs rows first .. first+n-1 of the text. */
static void forward(struct sp_generator *gen, int first, int n, float *logits)
{
    int slices = cut_of(gen, n), begin = 0;

    for (int k = 0; k < slices; k++) {
        struct slice *slice = &gen->slice[k];
        int end = (int)((int64_t)n * (k + 1) / slices);

        sp_shape_slice(&gen->whole, first + begin, end - begin, &slice->sh);
        sp_shape_slice(&gen->whole, 0, first + end, &slice->all);
        if (local(gen, 0)) {
            slice->ids = sp_pool_get(gen->pools[0], (size_t)(end - begin), sizeof(int32_t), "ids");
            memcpy(sp_tensor_acquire(slice->ids, SP_WRITE), gen->text + first + begin,
                   (size_t)(end - begin) * sizeof *gen->text);
            sp_tensor_release(slice->ids);
        }
        begin = end;
    }
    for (int k = 0; k < slices; k++)
        forward_slice(gen, &gen->slice[k], &gen->crossing[k * gen->stages]);
    read_logits(gen, &gen->slice[slices - 1], gen->crossing[slices * gen->stages - 1], logits);
    for (int i = 0; i < slices * gen->stages; i++)
        sp_pool_drop(&gen->crossing[i]);
    for (int k = 0; k < slices; k++)
        sp_pool_drop(&gen->slice[k].ids);
}

/* `tokens` and `logits` are NULL but on rank 0. */
static void feed(struct sp_generator *gen, const int32_t *tokens, int n, float *logits)
{
    int window = gen->whole.seq, kept = gen->length, first = kept;

    if (kept + n > window) {
        kept = window / 2 < window - n ? window / 2 : window - n;
        memmove(gen->text, gen->text + gen->length - kept, (size_t)kept * sizeof *gen->text);
        first = 0;
    }
    if (tokens)
        memcpy(gen->text + kept, tokens, (size_t)n * sizeof *tokens);
    gen->length = kept + n;
    forward(gen, first, gen->length - first, logits);
}

void sp_generator_feed(struct sp_generator *gen, const int32_t *tokens, int n, float *logits)
{
    int window = gen->whole.seq;

    if (n > window) {
        tokens += n - window;
        n = window;
    }
    if (gen->spread)
        sp_transport_share(&n, sizeof n);
    feed(gen, tokens, n, logits);
}

void sp_generator_follow(struct sp_generator *gen)
{
    int n = 0;

    if (!gen || !gen->spread)
        return;
    sp_transport_share(&n, sizeof n);
    while (n > 0) {
        feed(gen, NULL, n, NULL);
        sp_transport_share(&n, sizeof n);
    }
}

/* ---- its life -------------------------------------------------------------------------------- */

/* Makes the tensors of a generator whose arrays are there. */
static bool make_tensors(struct sp_generator *gen)
{
    struct sp_sink *sink = gen->g->cfg.sink;
    const struct sp_model *m = &gen->whole.model;
    size_t elem = sp_shape_elem(&gen->whole), window = (size_t)gen->whole.seq;

    for (int s = 0; s < gen->stages; s++) {
        gen->pools[s] = sp_pool_create(sink, 0, SP_POOL_FORGETS);
        if (!gen->pools[s])
            return false;
    }
    gen->logits = sp_tensor_make(sink, (size_t)sp_logits_ld(m->vocab), elem, "logits");
    for (int l = 0; l < m->layers; l++) {
        sp_activations_give(&gen->whole, &gen->activations[l], NULL);
        if (local(gen, stage_of(gen, l)))
            gen->cache[l] = sp_pool_get(gen->pools[stage_of(gen, l)],
                                        window * (size_t)gen->whole.kv_width, elem, "cache");
    }
    return true;
}

static struct sp_generator *allocate(struct sp_graph *g, bool spread, int window, int slices)
{
    struct sp_generator *gen = calloc(1, sizeof *gen);
    const struct sp_model *m = &g->cfg.params->model;
    int stages = spread ? g->place.stages : g->place.gpus ? g->place.n_local : 1;

    if (!gen)
        return NULL;
    stages = stages < m->layers ? stages : m->layers;
    *gen = (struct sp_generator){.g = g, .spread = spread, .stages = stages, .slices = slices};
    gen->n_slices = slices ? slices : stages > 1 && spread ? SLICES_A_STAGE * stages : 1;
    gen->n_slices = gen->n_slices < window ? gen->n_slices : window;
    sp_shape_init(&gen->whole, m, 1, window, 1);
    sp_shape_cut(&gen->whole, g->shape.mlp_rows < g->shape.rows ? g->shape.mlp_rows : 0, 1);
    gen->whole.dtype = g->shape.dtype;
    gen->whole.longest = &gen->whole;
    gen->text = calloc((size_t)window, sizeof *gen->text);
    gen->slice = calloc((size_t)gen->n_slices, sizeof *gen->slice);
    gen->crossing = calloc((size_t)gen->n_slices * (size_t)stages, sizeof *gen->crossing);
    gen->blocks = calloc((size_t)m->layers * SP_LAYER_BLOCKS, sizeof *gen->blocks);
    gen->cache = calloc((size_t)m->layers, sizeof *gen->cache);
    gen->activations = calloc((size_t)m->layers, sizeof *gen->activations);
    gen->pools = calloc((size_t)stages, sizeof *gen->pools);
    if (!spread)
        sp_placement_gather(&g->place, true);
    if (!gen->text || !gen->slice || !gen->crossing || !gen->blocks || !gen->cache ||
        !gen->activations || !gen->pools || !make_tensors(gen)) {
        sp_generator_destroy(gen);
        return NULL;
    }
    return gen;
}

/* Reads every block that this process has from the file, in the order of the model. */
static int read_blocks(struct sp_generator *gen, const struct sp_st_file *weights)
{
    const struct sp_params *p = gen->g->cfg.params;
    const struct sp_parameter *before = NULL;
    int err = 0;

    for (const struct sp_parameter *t = p->tensors; !err && t < p->tensors + p->n; before = t++) {
        size_t n = sp_block_elements(&p->model, t->block);
        float *w;

        if ((before && before->block == t->block && before->layer == t->layer) ||
            reader_of(gen, t->block, t->layer) < 0)
            continue;
        w = malloc(n * sizeof *w);
        if (!w)
            return sp_error(ENOMEM, "no memory for a block of %zu parameters", n);
        err = sp_weights_read_block(weights, p, t->block, t->layer, w);
        err = err ? err : keep_block(gen, t->block, t->layer, w, n);
        free(w);
    }
    return err;
}

int sp_generator_create(struct sp_graph *g, const struct sp_st_file *weights, int window,
                        int slices, struct sp_generator **gen)
{
    struct sp_generator *new = NULL;
    int err;

    if ((weights || g->place.world.rank == 0) &&
        !(new = allocate(g, weights != NULL, window, slices)))
        return sp_error(ENOMEM, "out of memory for a sample");
    err = weights ? read_blocks(new, weights) : sp_checkpoint_each(g, SP_FIELD_W, keep_block, new);
    if (err)
        sp_generator_destroy(new);
    else
        *gen = new;
    return err;
}

static void destroy_tensors(struct sp_generator *gen)
{
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        sp_tensor_unmake(gen->ends[kind]);
    for (int i = 0; gen->blocks && i < SP_LAYER_BLOCKS * gen->whole.model.layers; i++)
        sp_tensor_unmake(gen->blocks[i]);
    for (int l = 0; gen->cache && l < gen->whole.model.layers; l++)
        sp_pool_drop(&gen->cache[l]);
    sp_tensor_unmake(gen->logits);
    for (int s = 0; gen->pools && s < gen->stages; s++)
        if (gen->pools[s])
            sp_pool_destroy(gen->pools[s]);
}

void sp_generator_destroy(struct sp_generator *gen)
{
    if (!gen)
        return;
    if (gen->spread && gen->g->place.world.rank == 0)
        sp_transport_share(&(int){0}, sizeof(int));
    destroy_tensors(gen);
    if (!gen->spread)
        sp_placement_gather(&gen->g->place, false);
    free(gen->text);
    free(gen->slice);
    free(gen->crossing);
    free(gen->blocks);
    free(gen->cache);
    free(gen->activations);
    free(gen->pools);
    free(gen);
}
