/*
 * Sampling with cached keys and values must give every token the logits of a training forward over
 * all tokens, however they are fed and on however many stages they are. Their cross-entropy must be the loss of a training step.
 */
#include "engine/graph_run.h"
#include "graphs/inference/inference.h"
#include "policies/plan_create.h"
#include "graphs/create.h"
#include "sinks/starpu/sink.h"
#include <unistd.h>

enum { LAYERS = 3, TOKENS = 14, VOCAB = 61 };

struct kind {
    bool llama, tied;
    enum sp_dtype dtype;
    int stages, workers;
    bool qwen; /* Llama style with norms of heads, biases, stretched positions */
};

static const struct kind kinds[] = {
    {false, true, SP_F32, 1, 1, false},  {false, false, SP_F32, 2, 2, false},
    {true, true, SP_F32, 3, 2, false},   {true, false, SP_F32, 2, 1, false},
    {false, true, SP_BF16, 2, 2, false}, {true, false, SP_BF16, 1, 1, false},
    {true, false, SP_F32, 2, 2, true},
};

/* A graph on a started StarPU, one sequence a step. */
struct trained {
    struct kind kind;
    struct sp_params params;
    struct sp_plan plan;
    struct sp_graph g;
    double loss; /* of the step whose inputs are ids */
    int32_t ids[TOKENS], targets[TOKENS];
};

static void start(const struct kind *kind, struct trained *t)
{
    struct sp_model m = model_of(LAYERS, kind->llama, kind->tied);
    struct sp_layout lay = layout(kind->stages, 1);
    struct sp_placement place = one_process(kind->stages, kind->workers);
    struct sp_shape shape;
    struct sp_graph_config cfg = {.sink = sp_starpu_sink(),
                                  .params = &t->params,
                                  .plan = &t->plan,
                                  .shape = &shape,
                                  .every = 1,
                                  .seed = 8};
    struct sp_step_report report;

    if (kind->qwen) {
        m.qk_norm = m.qkv_bias = m.out_bias = m.mlp_bias = true;
        m.rope = (struct sp_rope){1e4f, SP_ROPE_LLAMA3, 4, 1, 4, 16};
    }
    t->kind = *kind;
    lay.layers = LAYERS;
    assert_int_equal(sp_plan_create("1f1b", &lay, &t->plan), 0);
    assert_int_equal(sp_params_create(&m, &t->params), 0);
    start_starpu(kind->workers, &sp_order_strict);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    sp_shape_init(&shape, &m, 1, TOKENS, lay.micro_batches);
    sp_shape_cut(&shape, 5, 0);
    shape.dtype = kind->dtype;
    assert_int_equal(sp_graph_create(&cfg, &place, &t->g), 0);
    assert_int_equal(sp_checkpoint_init(&t->g, NULL), 0);
    assert_int_equal(sp_step_report_create(&t->g, &report), 0);
    sp_step_gradients(&t->g, &data, 5, &report);
    t->loss = report.loss;
    sp_data_sample(&data, 5, TOKENS, t->ids, t->targets);
    sp_step_report_destroy(&t->g, &report);
}

static void stop(struct trained *t)
{
    sp_graph_destroy(&t->g);
    starpu_shutdown();
    sp_params_destroy(&t->params);
    sp_plan_destroy(&t->plan);
}

static struct sp_tensor *weight(struct trained *t, enum sp_block_kind kind, int layer)
{
    struct sp_stage *st = &t->g.stages[sp_block_owner(&t->g, kind, layer)];
    struct sp_block *b = sp_stage_block(st, kind, layer);

    return b ? b->w : NULL;
}

/* ---- a training forward ----------------------------------------------------------------- */

static struct sp_tensor *vector(const struct sp_shape *sh, size_t n)
{
    struct sp_tensor *handle;

    handle = sp_tensor_make(sp_starpu_sink(), n, sp_shape_elem(sh), "of the test");
    return handle;
}

static void drop_all(struct sp_tensor **handles, int n)
{
    starpu_task_wait_for_all();
    for (int i = 0; i < n; i++)
        sp_tensor_unmake(handles[i]);
}

/* x = the layer's output, with all that its backward would need. */
static void train_layer(struct trained *t, const struct sp_shape *sh, int l, struct sp_tensor **x)
{
    struct sp_task_context ctx = sp_stage_context(&t->g, &t->g.stages[0], 'T');
    size_t T = (size_t)sh->rows;
    struct sp_tensor *all[8] = {
        *x,
        vector(sh, sp_shape_pre_saved(sh, true)),
        vector(sh, T * (size_t)sh->q_width),
        vector(sh, T * (size_t)sh->kv_width),
        vector(sh, T * (size_t)sh->q_width),
        vector(sh, sp_shape_f32(sh, T * (size_t)sh->model.heads)),
        vector(sh, sp_shape_post_saved(sh, true)),
    };
    struct sp_pre pre = {.x = *x, .saved = all[1], .q = all[2], .kv = all[3], .keep_outputs = true};
    struct sp_post post = {.x = *x, .o = all[4], .saved = all[6], .keep_outputs = true};
    struct sp_attn_keys keys = {.len = sh->seq, .kv = all[3]};
    struct sp_attn at = {.q_len = sh->seq,
                         .begins = true,
                         .ends = true,
                         .n_keys = 1,
                         .keys = &keys,
                         .q = all[2],
                         .o = all[4],
                         .lse = all[5]};

    *x = vector(sh, T * (size_t)sh->model.hidden);
    sp_pre_fwd_insert(&ctx, sh, &pre, weight(t, SP_BLOCK_NORM1, l), weight(t, SP_BLOCK_QKV, l), 0);
    sp_attn_fwd_insert(&ctx, sh, &at, 0);
    sp_post_fwd_insert(&ctx, sh, &post, weight(t, SP_BLOCK_POST, l), *x, 0);
    drop_all(all, 7);
}

static const void *acquired(struct sp_tensor *handle)
{
    return sp_tensor_acquire(handle, SP_READ);
}

static float value(enum sp_dtype dtype, const void *x, size_t i)
{
    return dtype == SP_BF16 ? sp_bf16_value(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* logits(T,V): the predicted next token of each of `ids`, by the kernels of the run's type. */
static void train_forward(struct trained *t, float *logits)
{
    const struct sp_shape *sh = &t->g.shape;
    const struct sp_backend *k = sp_cpu_backend(sh->dtype);
    struct sp_task_context ctx = sp_stage_context(&t->g, &t->g.stages[0], 'T');
    enum sp_block_kind kind = t->kind.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
    int h = sh->model.hidden;
    struct sp_tensor *ids, *x = vector(sh, (size_t)(TOKENS * h));
    float n[TOKENS * 64], z[TOKENS * VOCAB];
    const void *rows, *norm, *table;

    assert_true(h <= 64);
    ids = sp_tensor_make_at(sp_starpu_sink(), t->ids, TOKENS, sizeof *t->ids, "test");
    sp_embed_fwd_insert(&ctx, sh, ids, weight(t, SP_BLOCK_TOKENS, -1),
                        weight(t, SP_BLOCK_POSITIONS, -1), x, 0);
    for (int l = 0; l < LAYERS; l++)
        train_layer(t, sh, l, &x);
    sp_tensor_unmake_at(ids);
    rows = acquired(x);
    norm = acquired(weight(t, SP_BLOCK_NORM, -1));
    table = acquired(weight(t, kind, -1));
    k->norm(k,
            &(struct sp_norm){.rms = sh->rms,
                              .T = TOKENS,
                              .h = h,
                              .eps = sh->model.norm_eps,
                              .gain = norm,
                              .bias = sp_weight_at(sh, (void *)norm, sh->norm_bias)},
            rows, n, NULL);
    k->linear(k, &(struct sp_linear){.T = TOKENS, .in = h, .out = VOCAB, .w = table}, n, z);
    for (size_t i = 0; i < TOKENS * VOCAB; i++)
        logits[i] = value(sh->dtype, z, i);
    sp_tensor_release(weight(t, kind, -1));
    sp_tensor_release(weight(t, SP_BLOCK_NORM, -1));
    sp_tensor_release(x);
    drop_all(&x, 1);
}

/* ---- the same by sampling --------------------------------------------------------------- */

static double worst_logit[SP_ELEMENTS];

static int argmax(const float *z)
{
    int at = 0;

    for (int i = 1; i < VOCAB; i++)
        at = z[i] > z[at] ? i : at;
    return at;
}

static void check_row(enum sp_dtype dtype, const float *got, const float *want, const char *what,
                      int row)
{
    double size = 0, most = 0;

    for (int i = 0; i < VOCAB; i++) {
        size = fmax(size, fabs((double)want[i]));
        most = fmax(most, fabs((double)got[i] - (double)want[i]));
    }
    worst_logit[dtype] = fmax(worst_logit[dtype], most / size);
    if (!(most < (dtype == SP_F32 ? 1e-5 : 2e-2) * size))
        fail_msg("%s, token %d: logits differ by %.2e of %.2e", what, row, most, size);
    if (dtype == SP_F32 && argmax(got) != argmax(want))
        fail_msg("%s, token %d: the most likely is %d, not %d", what, row, argmax(got),
                 argmax(want));
}

/* `weights`: of the stages' own; NULL: gathered, on one stage. */
static struct sp_generator *generator(struct trained *t, const struct sp_st_file *weights,
                                      int window, int slices)
{
    struct sp_generator *gen = NULL;

    assert_int_equal(sp_generator_create(&t->g, weights, window, slices, &gen), 0);
    assert_non_null(gen);
    return gen;
}

/* The first `prompt` tokens in slices, then one at a time. */
static void check_fed(struct trained *t, const struct sp_st_file *weights, int prompt, int slices,
                      const float *want)
{
    struct sp_generator *gen = generator(t, weights, TOKENS, slices);
    float got[VOCAB];
    char what[64];

    snprintf(what, sizeof what, "%s, %s, prompt of %d in %d", t->kind.llama ? "llama" : "gpt",
             t->kind.tied ? "tied" : "untied", prompt, slices);
    for (int i = prompt; i <= TOKENS; i++) {
        if (i == prompt)
            sp_generator_feed(gen, t->ids, prompt, got);
        else
            sp_generator_feed(gen, &t->ids[i - 1], 1, got);
        check_row(t->kind.dtype, got, want + (size_t)(i - 1) * VOCAB, what, i - 1);
    }
    sp_generator_destroy(gen);
}

/* -log softmax(z)[target] */
static double loss_of(const float *z, int target)
{
    double sum = 0;

    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)z[i]);
    return log(sum) - (double)z[target];
}

static void check_loss(struct trained *t)
{
    struct sp_generator *gen = generator(t, NULL, TOKENS, 0);
    double sum = 0, within = t->kind.dtype == SP_F32 ? 1e-5 : 2e-2;
    float z[VOCAB];

    for (int i = 0; i < TOKENS; i++) {
        sp_generator_feed(gen, &t->ids[i], 1, z);
        sum += loss_of(z, t->targets[i]);
    }
    if (!(fabs(sum / TOKENS - t->loss) < within * t->loss))
        fail_msg("the loss is %.9g by sampling, %.9g by training", sum / TOKENS, t->loss);
    sp_generator_destroy(gen);
}

/* On the stages of the plan, with the weights of a file. */
static void check_stages(struct trained *t, const float *want)
{
    static const char path[] = "generate.safetensors";
    struct sp_st_file weights;

    assert_int_equal(sp_checkpoint_write(&t->g, SP_FIELD_W, path), 0);
    assert_int_equal(sp_st_open(path, &weights), 0);
    check_fed(t, &weights, 1, 0, want);
    check_fed(t, &weights, TOKENS, 1, want);
    check_fed(t, &weights, 11, 4, want);
    check_fed(t, &weights, 6, 40, want);
    sp_st_close(&weights);
    unlink(path);
}

TEST(logits)
{
    static float want[TOKENS * VOCAB];
    struct trained t;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        start(&kinds[i], &t);
        train_forward(&t, want);
        check_fed(&t, NULL, 1, 0, want);
        check_fed(&t, NULL, 6, 0, want);
        check_fed(&t, NULL, TOKENS, 3, want);
        check_stages(&t, want);
        check_loss(&t);
        stop(&t);
    }
    printf("[          ] logits within %.1e of a training forward's, bf16 %.1e\n",
           worst_logit[SP_F32], worst_logit[SP_BF16]);
}

/* ---- the window ------------------------------------------------------------------------- */

/* z: the logits of a new generator after n tokens that fit into its window. */
static void fresh(struct trained *t, int window, const int32_t *tokens, int n, float *z)
{
    struct sp_generator *gen = generator(t, NULL, window, 0);

    sp_generator_feed(gen, tokens, n, z);
    sp_generator_destroy(gen);
}

/* Feeds one token at a time: once the window is full, only its later half stays. */
static void check_slides(struct trained *t, int window)
{
    struct sp_generator *gen = generator(t, NULL, window, 0);
    int32_t text[40];
    float got[VOCAB], want[VOCAB];
    int first = 0; /* token of the text at position 0 */

    for (int i = 0; i < 40; i++) {
        text[i] = (i * 17 + 5) % VOCAB;
        sp_generator_feed(gen, &text[i], 1, got);
        if (i - first == window)
            first = i - window / 2;
        fresh(t, window, &text[first], i + 1 - first, want);
        check_row(t->kind.dtype, got, want, "window", i);
    }
    sp_generator_destroy(gen);
}

/* Feeds several tokens at a time: only the end of a prompt longer than the window counts. */
static void check_prompts(struct trained *t, int window)
{
    static const int lengths[] = {3, 2, 5, 39, 1, 7, 6, 40};
    struct sp_generator *gen = generator(t, NULL, window, 3);
    int32_t text[200];
    float got[VOCAB], want[VOCAB];
    int first = 0, n = 0;

    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        int more = lengths[k], kept = window - more;

        for (int i = n; i < n + more; i++)
            text[i] = (i * 17 + 5) % VOCAB;
        sp_generator_feed(gen, &text[n], more, got);
        kept = kept < 0 ? 0 : kept < window / 2 ? kept : window / 2;
        if (n + more - first > window)
            first = more > window ? n + more - window : n - kept;
        n += more;
        fresh(t, window, &text[first], n - first, want);
        check_row(t->kind.dtype, got, want, "prompts", n - 1);
    }
    sp_generator_destroy(gen);
}

TEST(window)
{
    struct trained t;

    for (int i = 0; i < 4; i += 3) {
        start(&kinds[i], &t);
        check_slides(&t, 1);
        check_slides(&t, 7);
        check_prompts(&t, 7);
        check_prompts(&t, 8);
        stop(&t);
    }
}

TEST_FIXTURE(make_data, close_data)
