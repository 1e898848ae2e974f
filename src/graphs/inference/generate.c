/*
 * Runs T tokens at positions first .. first+T-1, where T is a whole prompt or 1:
 *
 *   embed -> x;   layer l:  the forward of training, whose attention reads rows 0 .. first+T-1 of
 *                           cache[l], to which rows first .. of kv are copied before
 *   logits of the last row of x
 *
 * On cores the first worker does it all, with the threads of all workers. On GPUs the layers are
 * divided among the GPUs in order, as stages are.
 */
#include "graphs/inference/inference.h"
#include "graphs/weights/checkpoint.h"
#include "graphs/layer/layer.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

struct sp_generator {
    struct sp_graph *g;
    struct sp_shape whole, sh;              /* for a full window; for the forward under way */
    int length;                             /* valid rows of the cache */
    int32_t *text;                          /* [window] the tokens of these rows */
    struct sp_shape all;                    /* for the valid rows of the cache */
    struct sp_tensor *ends[SP_BLOCK_KINDS]; /* blocks outside the layers */
    struct sp_tensor **blocks;              /* [layers][SP_LAYER_BLOCKS] */
    struct sp_tensor **cache;               /* [layers] keys and values (window, kv), from `pool` */
    struct sp_layer_activations *activations; /* [layers] */
    struct sp_tensor *ids, *logits;
    struct sp_pool *pool;
};

/* The context for the tasks of a layer, which picks their worker; -1: for the embedding. */
static struct sp_task_context context_of(const struct sp_generator *gen, int layer)
{
    int part = (layer > 0 ? layer : 0) * gen->g->place.n_local / gen->whole.model.layers;
    int on = gen->g->place.gpus ? part : 0;
    struct sp_task_context ctx = sp_stage_context(gen->g, &gen->g->stages[on], 'G');

    ctx.layer = layer;
    return ctx;
}

/* ---- weights --------------------------------------------------------------------------------- */

static int keep_block(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct sp_generator *gen = arg;
    bool at_end = kind == SP_BLOCK_NORM || kind == SP_BLOCK_HEAD;
    struct sp_task_context ctx = context_of(gen, at_end ? gen->whole.model.layers - 1 : layer);
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

/* Runs all layers from the embedding's output; each layer's input is dropped after it. Returns the
 * output of the last layer. */
static struct sp_tensor *forward_layers(struct sp_generator *gen, struct sp_tensor *x)
{
    struct sp_chunk_activations activations = {.layers = gen->activations};
    struct sp_cut cut = {.n = 1, .shapes = &gen->all};
    struct sp_stage pools = {.local = gen->pool};
    struct sp_op_ctx c = {.g = gen->g,
                          .st = &pools,
                          .sh = &gen->sh,
                          .fl = &activations,
                          .cut = &cut,
                          .share = keep_keys,
                          .data = gen,
                          .w = gen->blocks};

    for (int l = 0; l < gen->whole.model.layers; l++) {
        struct sp_tensor *y = sp_take_hidden(&c, "x");

        c.ctx = context_of(gen, l);
        gen->activations[l].x = x;
        sp_layer_forward(&c, l, (struct sp_keep){0}, y);
        sp_pool_drop(&gen->activations[l].x);
        x = y;
    }
    return x;
}

static void read_logits(struct sp_generator *gen, float *to)
{
    const void *from;

    from = sp_tensor_acquire(gen->logits, SP_READ);
    for (int i = 0; i < gen->whole.model.vocab; i++)
        to[i] = gen->whole.dtype == SP_BF16 ? sp_bf16_value(((const uint16_t *)from)[i])
                                            : ((const float *)from)[i];
    sp_tensor_release(gen->logits);
}

/* Runs rows first .. first+n-1 of the text. */
static void forward(struct sp_generator *gen, int first, int n, float *logits)
{
    const struct sp_model *m = &gen->whole.model;
    struct sp_task_context start = context_of(gen, -1), end = context_of(gen, m->layers - 1);
    struct sp_tensor *table = gen->ends[sp_head_table(m)], *x;

    sp_shape_slice(&gen->whole, first, n, &gen->sh);
    sp_shape_slice(&gen->whole, 0, first + n, &gen->all);
    memcpy(sp_tensor_acquire(gen->ids, SP_WRITE), gen->text + first, (size_t)n * sizeof *gen->text);
    sp_tensor_release(gen->ids);

    x = sp_pool_get(gen->pool, (size_t)n * (size_t)m->hidden, sp_shape_elem(&gen->sh), "x");
    sp_embed_fwd_insert(&start, &gen->sh, gen->ids, gen->ends[SP_BLOCK_TOKENS],
                        gen->ends[SP_BLOCK_POSITIONS], x, 0);
    x = forward_layers(gen, x);
    sp_logits_insert(&end, &gen->sh, n - 1, 1, x, gen->ends[SP_BLOCK_NORM], table, gen->logits);
    sp_pool_put(x);
    read_logits(gen, logits);
}

void sp_generator_feed(struct sp_generator *gen, const int32_t *tokens, int n, float *logits)
{
    int window = gen->whole.seq, kept = gen->length, first = kept;

    if (n > window) {
        tokens += n - window;
        n = window;
    }
    if (kept + n > window) {
        kept = window / 2 < window - n ? window / 2 : window - n;
        memmove(gen->text, gen->text + gen->length - kept, (size_t)kept * sizeof *gen->text);
        first = 0;
    }
    memcpy(gen->text + kept, tokens, (size_t)n * sizeof *tokens);
    gen->length = kept + n;
    forward(gen, first, gen->length - first, logits);
}

/* ---- its life -------------------------------------------------------------------------------- */

static struct sp_generator *allocate(struct sp_graph *g, int window)
{
    struct sp_generator *gen = calloc(1, sizeof *gen);
    const struct sp_model *m = &g->cfg.params->model;
    size_t elem = sp_shape_elem(&g->shape);

    if (!gen)
        return NULL;
    gen->g = g;
    sp_shape_init(&gen->whole, m, 1, window, 1);
    sp_shape_cut(&gen->whole, g->shape.mlp_rows < g->shape.rows ? g->shape.mlp_rows : 0, 1);
    gen->whole.dtype = g->shape.dtype;
    gen->whole.longest = &gen->whole;
    gen->text = calloc((size_t)window, sizeof *gen->text);
    gen->blocks = calloc((size_t)m->layers * SP_LAYER_BLOCKS, sizeof *gen->blocks);
    gen->cache = calloc((size_t)m->layers, sizeof *gen->cache);
    gen->activations = calloc((size_t)m->layers, sizeof *gen->activations);
    gen->pool = sp_pool_create(g->cfg.sink, 0, SP_POOL_FORGETS);
    if (!gen->text || !gen->blocks || !gen->cache || !gen->activations || !gen->pool) {
        sp_generator_destroy(gen);
        return NULL;
    }
    for (int l = 0; l < m->layers; l++)
        sp_activations_give(&gen->whole, &gen->activations[l], NULL);
    sp_placement_gather(&g->place, true);
    gen->ids = sp_tensor_make(g->cfg.sink, (size_t)window, sizeof(int32_t), "ids");
    gen->logits = sp_tensor_make(g->cfg.sink, (size_t)sp_logits_ld(m->vocab), elem, "logits");
    for (int l = 0; l < m->layers; l++)
        gen->cache[l] =
            sp_pool_get(gen->pool, (size_t)window * (size_t)gen->whole.kv_width, elem, "cache");
    return gen;
}

/* Reads every block from the file, in the order of the model. */
static int read_blocks(struct sp_generator *gen, const struct sp_st_file *weights)
{
    const struct sp_params *p = gen->g->cfg.params;
    const struct sp_parameter *before = NULL;
    int err = 0;

    for (const struct sp_parameter *t = p->tensors; !err && t < p->tensors + p->n; before = t++) {
        size_t n = sp_block_elements(&p->model, t->block);
        float *w;

        if (before && before->block == t->block && before->layer == t->layer)
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
                        struct sp_generator **gen)
{
    struct sp_generator *new = NULL;
    int err;

    if (g->place.world.rank == 0 && !(new = allocate(g, window)))
        return sp_error(ENOMEM, "out of memory for a sample");
    err = weights ? read_blocks(new, weights) : sp_checkpoint_each(g, SP_FIELD_W, keep_block, new);
    if (err)
        sp_generator_destroy(new);
    else
        *gen = new;
    return err;
}

void sp_generator_destroy(struct sp_generator *gen)
{
    if (!gen)
        return;
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        sp_tensor_unmake(gen->ends[kind]);
    for (int i = 0; gen->blocks && i < SP_LAYER_BLOCKS * gen->whole.model.layers; i++)
        sp_tensor_unmake(gen->blocks[i]);
    for (int l = 0; gen->cache && l < gen->whole.model.layers; l++)
        sp_pool_drop(&gen->cache[l]);
    sp_tensor_unmake(gen->ids);
    sp_tensor_unmake(gen->logits);
    if (gen->pool)
        sp_pool_destroy(gen->pool);
    sp_placement_gather(&gen->g->place, false);
    free(gen->text);
    free(gen->blocks);
    free(gen->cache);
    free(gen->activations);
    free(gen);
}
