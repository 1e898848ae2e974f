/*
 * T tokens at positions first .. first+T-1, T being a whole prompt or 1:
 *
 *   embed -> x;   layer l:  pre(x) -> q, kv    kv -> rows first .. of cache[l]
 *                           attention(q, rows 0 .. first+T-1 of cache[l]) -> o    post(x, o) -> x
 *   logits of the last row of x
 *
 * On cores the first worker does it all, with the threads of all workers. On GPUs the layers lie on
 * them in order, as stages do.
 */
#include "graphs/generate.h"
#include "graphs/checkpoint.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

struct sp_generator {
    struct sp_graph *g;
    struct sp_shape whole, sh;                 /* of a full window; of the forward under way */
    int length;                                /* rows of the cache that count */
    int32_t *text;                             /* [window] the tokens behind these rows */
    starpu_data_handle_t ends[SP_BLOCK_KINDS]; /* blocks outside the layers */
    starpu_data_handle_t (*layers)[3];         /* [layers] NORM1, QKV, POST */
    starpu_data_handle_t *cache;               /* [layers] keys and values (window, kv) */
    starpu_data_handle_t ids, logits;
    struct sp_pool *pool;
};

/* Where the tasks of a layer run; -1: those of the embedding. */
static struct sp_task_context context_of(const struct sp_generator *gen, int layer)
{
    int part = (layer > 0 ? layer : 0) * gen->g->place.n_local / gen->whole.model.layers;
    int on = gen->g->place.gpus ? part : 0;
    struct sp_task_context ctx = sp_stage_context(gen->g, &gen->g->stages[on], 'G');

    ctx.layer = layer;
    return ctx;
}

/* ---- weights ---------------------------------------------------------------------------------- */

static int keep_block(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct sp_generator *gen = arg;
    bool at_end = kind == SP_BLOCK_NORM || kind == SP_BLOCK_HEAD;
    struct sp_task_context ctx = context_of(gen, at_end ? gen->whole.model.layers - 1 : layer);
    starpu_data_handle_t from, *to;

    to = layer < 0 ? &gen->ends[kind] : &gen->layers[layer][kind - SP_BLOCK_NORM1];
    sp_vector_register(to, n, sp_shape_elem(&gen->whole), "w");
    sp_vector_register_at(&from, (void *)w, n, sizeof *w, "values");
    if (gen->whole.dtype == SP_F32)
        sp_copy_insert(&ctx, from, *to);
    else
        sp_round_insert(&ctx, from, gen->whole.dtype, *to);
    starpu_data_unregister(from); /* waits: the values are there for the moment */
    return 0;
}

/* ---- a forward -------------------------------------------------------------------------------- */

/* A tensor of the rows under way. */
static starpu_data_handle_t take(struct sp_generator *gen, size_t width, const char *name)
{
    return sp_pool_get(gen->pool, (size_t)gen->sh.rows * width, sp_shape_elem(&gen->sh), name);
}

/* o = attention of q over all rows of the cache, those of kv last. */
static void attend(struct sp_generator *gen, int l, starpu_data_handle_t q, starpu_data_handle_t kv,
                   starpu_data_handle_t o)
{
    const struct sp_shape *sh = &gen->sh;
    struct sp_task_context ctx = context_of(gen, l);
    int len = sh->first + sh->seq;
    struct sp_rows rows = {.batch = 1,
                           .width = sh->kv_width,
                           .n = sh->seq,
                           .from_len = sh->seq,
                           .to_len = gen->whole.seq,
                           .to_at = sh->first};
    struct sp_attn at = {.q_len = sh->seq,
                         .q_pos = sh->first,
                         .n_kv = 1,
                         .kv_len = &len,
                         .q = q,
                         .o = o,
                         .kv = &gen->cache[l]};

    sp_rows_insert(&ctx, sh, &rows, kv, gen->cache[l], sh->first == 0);
    at.lse = take(gen, sp_shape_f32(sh, (size_t)sh->model.heads), "lse");
    sp_attn_fwd_insert(&ctx, sh, &at, 0);
    sp_pool_put(at.lse);
}

/* Takes x, gives the layer's output. */
static starpu_data_handle_t layer_forward(struct sp_generator *gen, int l, starpu_data_handle_t x)
{
    const struct sp_shape *sh = &gen->sh;
    const starpu_data_handle_t *w = gen->layers[l];
    struct sp_task_context ctx = context_of(gen, l);
    starpu_data_handle_t q = take(gen, (size_t)sh->q_width, "q");
    starpu_data_handle_t kv = take(gen, (size_t)sh->kv_width, "kv");
    starpu_data_handle_t o = take(gen, (size_t)sh->q_width, "o");
    starpu_data_handle_t y = take(gen, (size_t)sh->model.hidden, "x");

    sp_pre_fwd_insert(&ctx, sh, &(struct sp_pre){.x = x, .q = q, .kv = kv}, w[0], w[1], 0);
    attend(gen, l, q, kv, o);
    sp_post_fwd_insert(&ctx, sh, &(struct sp_post){.x = x, .o = o}, w[2], y, 0);
    sp_pool_put(q);
    sp_pool_put(kv);
    sp_pool_put(o);
    sp_pool_put(x);
    return y;
}

static void read_logits(struct sp_generator *gen, float *to)
{
    const void *from;

    starpu_data_acquire(gen->logits, STARPU_R);
    from = starpu_data_get_local_ptr(gen->logits);
    for (int i = 0; i < gen->whole.model.vocab; i++)
        to[i] = gen->whole.dtype == SP_BF16 ? sp_bf16_value(((const uint16_t *)from)[i])
                                            : ((const float *)from)[i];
    starpu_data_release(gen->logits);
}

/* Rows first .. first+n-1 of the text. */
static void forward(struct sp_generator *gen, int first, int n, float *logits)
{
    const struct sp_model *m = &gen->whole.model;
    struct sp_task_context start = context_of(gen, -1), end = context_of(gen, m->layers - 1);
    starpu_data_handle_t table = gen->ends[m->tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD], x;

    sp_shape_slice(&gen->whole, first, n, &gen->sh);
    starpu_data_acquire(gen->ids, STARPU_W);
    memcpy(starpu_data_get_local_ptr(gen->ids), gen->text + first, (size_t)n * sizeof *gen->text);
    starpu_data_release(gen->ids);

    x = take(gen, (size_t)m->hidden, "x");
    sp_embed_fwd_insert(&start, &gen->sh, gen->ids, gen->ends[SP_BLOCK_TOKENS],
                        gen->ends[SP_BLOCK_POSITIONS], x, 0);
    for (int l = 0; l < m->layers; l++)
        x = layer_forward(gen, l, x);
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

/* ---- its life --------------------------------------------------------------------------------- */

static struct sp_generator *allocate(struct sp_graph *g, int window)
{
    struct sp_generator *gen = calloc(1, sizeof *gen);
    const struct sp_model *m = &g->shape.model;
    size_t elem = sp_shape_elem(&g->shape);

    if (!gen)
        return NULL;
    gen->g = g;
    sp_shape_init(&gen->whole, m, 1, window, 1, g->cfg.mlp_rows, 1);
    gen->whole.dtype = g->shape.dtype;
    gen->whole.longest = &gen->whole;
    gen->text = calloc((size_t)window, sizeof *gen->text);
    gen->layers = calloc((size_t)m->layers, sizeof *gen->layers);
    gen->cache = calloc((size_t)m->layers, sizeof *gen->cache);
    gen->pool = sp_pool_create(0);
    if (!gen->text || !gen->layers || !gen->cache || !gen->pool) {
        sp_generator_destroy(gen);
        return NULL;
    }
    sp_placement_gather(&g->place, true);
    sp_vector_register(&gen->ids, (size_t)window, sizeof(int32_t), "ids");
    sp_vector_register(&gen->logits, (size_t)sp_logits_ld(m->vocab), elem, "logits");
    for (int l = 0; l < m->layers; l++)
        sp_vector_register(&gen->cache[l], (size_t)window * (size_t)gen->whole.kv_width, elem,
                           "cache");
    return gen;
}

int sp_generator_create(struct sp_graph *g, int window, struct sp_generator **gen)
{
    struct sp_generator *new = NULL;
    int err;

    if (g->place.world.rank == 0 && !(new = allocate(g, window)))
        return sp_error(ENOMEM, "out of memory for a sample");
    err = sp_checkpoint_each(g, SP_FIELD_W, keep_block, new);
    if (err)
        sp_generator_destroy(new);
    else
        *gen = new;
    return err;
}

static void drop(starpu_data_handle_t handle)
{
    if (handle)
        starpu_data_unregister_no_coherency(handle);
}

void sp_generator_destroy(struct sp_generator *gen)
{
    if (!gen)
        return;
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        drop(gen->ends[kind]);
    for (int l = 0; l < gen->whole.model.layers; l++) {
        for (int k = 0; gen->layers && k < 3; k++)
            drop(gen->layers[l][k]);
        drop(gen->cache ? gen->cache[l] : NULL);
    }
    drop(gen->ids);
    drop(gen->logits);
    if (gen->pool)
        sp_pool_destroy(gen->pool);
    sp_placement_gather(&gen->g->place, false);
    free(gen->text);
    free(gen->layers);
    free(gen->cache);
    free(gen);
}
