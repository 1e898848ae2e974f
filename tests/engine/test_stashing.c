/*
 * PipeDream and PipeDream-2BW against their definitions, by one stage. PipeDream (Narayanan et al. 2019, section 3.2):
 * the gradient of micro-batch i is that of weights of which each stage's had max(0, i - (p-1-s)) updates of the step;
 * then every stage updates its newest ones. PipeDream-2BW (2021, section 3.1): the gradient of batch b is the mean of its
 * micro-batches' at weights that had max(0, b-1) updates of the step on all stages.
 */
#include "engine/graph_run.h"
#include "policies/families/layerwise/layerwise.h"
#include "transport/transport.h"
#include "sinks/starpu/sink.h"

enum { PIPEDREAM_STEPS = 2, UPDATES = 32, BLOCKS = 64 };

static struct sp_update update_of(int done)
{
    return (struct sp_update){.lr = 1e-2f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-4f,
                              .bias1 = (float)(1 - pow(0.9, done)),
                              .bias2 = (float)(1 - pow(0.95, done)),
                              .factor = 1};
}

/* ---- what the engine does ---------------------------------------------------------------------- */

/* Parameters of the whole model, block after block. */
struct values {
    int n, blocks, first[BLOCKS + 1];
    enum sp_block_kind kind[BLOCKS];
    int layer[BLOCKS];
    float *x;
};

static int keep(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct values *v = arg;

    assert_true(v->blocks < BLOCKS && (size_t)v->n + n <= MOST);
    v->kind[v->blocks] = kind;
    v->layer[v->blocks] = layer;
    v->first[v->blocks++] = v->n;
    memcpy(v->x + v->n, w, n * sizeof *w);
    v->n += (int)n;
    v->first[v->blocks] = v->n;
    return 0;
}

static void gather(struct sp_graph *g, enum sp_field field, struct values *v)
{
    float *x = v->x ? v->x : calloc(MOST, sizeof *x);

    assert_non_null(x);
    *v = (struct values){.x = x};
    assert_int_equal(sp_checkpoint_each(g, field, keep, v), 0);
}

/* A graph of a plan, in one process. */
struct engine {
    struct sp_params params;
    struct sp_plan plan;
    struct sp_graph g;
    struct sp_step_report report;
};

/* A schedule, and the micro-batches of an update. */
struct method {
    const char *schedule;
    int batch;
    bool
        late; /* weights are those before the last update, on all stages; else the newest of each */
};

static void start(const char *schedule, int p, int m, int layers, const struct setting *set,
                  enum sp_dtype dtype, struct engine *e)
{
    struct sp_model model = model_of(layers, set->llama, false);
    struct sp_layout lay = layout(p, m);
    int workers = set->workers < p ? set->workers : p;
    struct sp_shape shape;
    struct sp_graph_config cfg = {.sink = sp_starpu_sink(),
                                  .params = &e->params,
                                  .plan = &e->plan,
                                  .shape = &shape,
                                  .recompute = set->recompute,
                                  .every = 1,
                                  .ready = set->ready,
                                  .window = set->window,
                                  .seed = 8};
    struct sp_placement place = one_process(p, workers);

    lay.layers = layers;
    assert_int_equal(sp_params_create(&model, &e->params), 0);
    assert_int_equal(sp_plan_create(schedule, &lay, &e->plan), 0);
    start_starpu(workers, set->ready ? &sp_order_ready : &sp_order_strict);
    sp_shape_init(&shape, &model, BATCH, SEQ, lay.micro_batches);
    shape.dtype = dtype;
    assert_int_equal(sp_graph_create(&cfg, &place, &e->g), 0);
    assert_int_equal(sp_checkpoint_init(&e->g, NULL), 0);
    assert_int_equal(sp_step_report_create(&e->g, &e->report), 0);
}

static void stop(struct engine *e)
{
    sp_step_report_destroy(&e->g, &e->report);
    sp_graph_destroy(&e->g);
    starpu_shutdown();
    sp_plan_destroy(&e->plan);
    sp_params_destroy(&e->params);
}

/* Loss and root mean square of the norms of each step; weights after the last one. */
static void train(struct engine *e, double *loss, double *norm, struct values *w)
{
    int n = sp_updates(&e->plan.layout);
    struct sp_update updates[UPDATES], unused = update_of(1);

    for (int k = 0; k < PIPEDREAM_STEPS; k++) {
        for (int i = 0; i < n; i++)
            updates[i] = update_of(k * n + i + 1);
        sp_step_begin(&e->g, &data, (uint64_t)k);
        sp_step_rest(&e->g, updates, false);
        sp_transport_wait_all();
        sp_step_finish(&e->g, &e->report);
        sp_step_update(&e->g, &unused, &e->report); /* nothing is left to update */
        loss[k] = e->report.loss;
        norm[k] = e->report.grad_norm;
    }
    gather(&e->g, SP_FIELD_W, w);
}

/* ---- the same by definition -------------------------------------------------------------------- */

static int stage_of(const struct sp_plan *plan, const struct values *v, int block)
{
    int p = plan->layout.stages, first, count;

    if (v->layer[block] < 0)
        return v->kind[block] == SP_BLOCK_TOKENS || v->kind[block] == SP_BLOCK_POSITIONS ? 0
                                                                                         : p - 1;
    for (int s = 0; s < p; s++) {
        sp_chunk_layers(plan, plan->layout.layers, s, 0, &first, &count);
        if (v->layer[block] < first + count)
            return s;
    }
    return -1;
}

static void put(struct sp_graph *g, const struct values *v, int block, const float *w)
{
    struct sp_block *b = sp_stage_block(&g->stages[0], v->kind[block], v->layer[block]);
    int n = v->first[block + 1] - v->first[block];

    memcpy(sp_tensor_acquire(b->state[SP_STATE_W], SP_WRITE), w + v->first[block],
           sizeof *w * (size_t)n);
    sp_tensor_release(b->state[SP_STATE_W]);
}

/* AdamW without decay. */
static void step(const struct sp_update *hp, int n, const float *g, double *m, double *v,
                 const float *from, float *to)
{
    for (int i = 0; i < n; i++) {
        m[i] = hp->beta1 * m[i] + (1 - hp->beta1) * (double)g[i];
        v[i] = hp->beta2 * v[i] + (1 - hp->beta2) * (double)g[i] * (double)g[i];
        to[i] = (float)((double)from[i] -
                        hp->lr * (m[i] / hp->bias1) / (sqrt(v[i] / hp->bias2) + hp->eps));
    }
}

/* Updates of the step that the weights of a block had, where the gradient of a micro-batch is taken. */
static int updates_of(const struct method *method, const struct sp_plan *plan,
                      const struct values *w, int block, int mb)
{
    int behind = plan->layout.stages - 1 - stage_of(plan, w, block);
    int had = method->late ? mb / method->batch - 1 : mb - behind;

    return had > 0 ? had : 0;
}

/* Adds a part of the gradient of micro-batch i of a run. */
static void add_gradient(struct engine *one, int i, double part, double *loss, struct values *g,
                         float *sum)
{
    sp_step_gradients(&one->g, &data, (uint64_t)i, &one->report);
    *loss += one->report.loss;
    gather(&one->g, SP_FIELD_G, g);
    sp_checkpoint_clear(&one->g, SP_FIELD_G);
    for (int k = 0; k < g->n; k++)
        sum[k] += (float)(part * (double)g->x[k]);
}

static double squares(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static void define(const struct method *method, int p, int m, int layers, const struct setting *set,
                   double *loss, double *norm, struct values *w)
{
    const struct setting plain = {.llama = set->llama, .workers = 1};
    int each = m / method->batch, all = PIPEDREAM_STEPS * each;
    struct sp_layout lay = layout(p, m);
    float *version[UPDATES + 1] = {0};
    double *first = calloc(2 * MOST, sizeof *first);
    float *gradient = calloc(MOST, sizeof *gradient);
    struct values g = {0};
    struct engine one;
    struct sp_plan plan;

    lay.layers = layers;
    assert_int_equal(sp_plan_create(method->schedule, &lay, &plan), 0);
    start("gpipe", 1, 1, layers, &plain, SP_F32, &one);
    gather(&one.g, SP_FIELD_W, w);
    for (int k = 0; k <= all; k++) {
        version[k] = calloc(MOST, sizeof **version);
        assert_non_null(version[k]);
    }
    assert_non_null(first);
    assert_non_null(gradient);
    memcpy(version[0], w->x, sizeof *w->x * (size_t)w->n);
    for (int u = 0; u < all; u++) {
        struct sp_update hp = update_of(u + 1);
        double sum = 0;

        memset(gradient, 0, MOST * sizeof *gradient);
        for (int i = u * method->batch; i < (u + 1) * method->batch; i++) {
            for (int b = 0; b < w->blocks; b++)
                put(&one.g, w, b, version[u - u % each + updates_of(method, &plan, w, b, i % m)]);
            add_gradient(&one, i, 1.0 / method->batch, &sum, &g, gradient);
        }
        loss[u / each] += sum / m;
        norm[u / each] += squares(gradient, w->n) / each;
        step(&hp, w->n, gradient, first, first + MOST, version[u], version[u + 1]);
    }
    memcpy(w->x, version[all], sizeof *w->x * (size_t)w->n);
    for (int k = 0; k <= all; k++)
        free(version[k]);
    free(first);
    free(gradient);
    free(g.x);
    stop(&one);
    sp_plan_destroy(&plan);
}

/* ---- both -------------------------------------------------------------------------------------- */

static double check(const struct method *method, int p, int m, int layers,
                    const struct setting *set)
{
    double loss[PIPEDREAM_STEPS] = {0}, norm[PIPEDREAM_STEPS] = {0}, far = 0, size = 0;
    double wants[PIPEDREAM_STEPS] = {0}, want_norm[PIPEDREAM_STEPS] = {0};
    struct values w = {0}, want = {0};
    struct engine e;

    start(method->schedule, p, m, layers, set, SP_F32, &e);
    assert_int_equal(sp_updates(&e.plan.layout), m / method->batch);
    for (int s = 0; s < p; s++)
        assert_int_equal(sp_weight_versions(&e.plan, s), method->late ? (m > method->batch) + 1
                                                         : p - s < m  ? p - s
                                                                      : m);
    train(&e, loss, norm, &w);
    stop(&e);
    define(method, p, m, layers, set, wants, want_norm, &want);
    assert_int_equal(w.n, want.n);
    for (int k = 0; k < PIPEDREAM_STEPS; k++)
        if (!(fabs(loss[k] - wants[k]) < 1e-5 * wants[k]) ||
            !(fabs(norm[k] - sqrt(want_norm[k])) < 1e-4 * norm[k]))
            fail_msg("%s, p=%d m=%d, step %d: loss %.9g, norm %.9g, by definition %.9g and %.9g",
                     method->schedule, p, m, k, loss[k], norm[k], wants[k], sqrt(want_norm[k]));
    for (int i = 0; i < w.n; i++) {
        far = fmax(far, fabs((double)w.x[i] - (double)want.x[i]));
        size = fmax(size, fabs((double)want.x[i]));
    }
    free(w.x);
    free(want.x);
    if (!(far < 1e-5 * size))
        fail_msg("%s, p=%d m=%d: weights differ by %.2e of %.2e", method->schedule, p, m, far,
                 size);
    return far / size;
}

TEST(versions)
{
    static const struct {
        int p, m, layers;
        struct setting set;
    } cases[] = {
        {1, 3, 2, {.llama = true, .workers = 1}},
        {2, 5, 2, {.workers = 2}},
        {2, 1, 3, {.llama = true, .workers = 1}},
        {3, 8, 4, {.llama = true, .workers = 2, .recompute = SP_RECOMPUTE_FULL}},
        {4, 9, 5, {.workers = 4, .recompute = SP_RECOMPUTE_NO_ATTENTION, .window = 1}},
        {4, 3, 4, {.llama = true, .workers = 3, .recompute = SP_RECOMPUTE_SELECTIVE}},
        {4, 8, 4, {.llama = true, .workers = 2, .ready = true}},
    };
    const struct method pipedream = {"pipedream", 1, false};
    double most = 0;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        most =
            fmax(most, check(&pipedream, cases[i].p, cases[i].m, cases[i].layers, &cases[i].set));
    print_message("weights within %.1e of those by definition\n", most);
}

TEST(two_versions)
{
    static const struct {
        struct method method;
        int p, m, layers;
        struct setting set;
    } cases[] = {
        {{"pipedream-2bw:batch=2", 2, true}, 1, 6, 2, {.llama = true, .workers = 1}},
        {{"pipedream-2bw", 2, true}, 2, 8, 2, {.workers = 2}},
        {{"pipedream-2bw", 3, true}, 2, 9, 3, {.llama = true, .workers = 1}},
        {{"pipedream-2bw:batch=6", 6, true},
         3,
         12,
         4,
         {.workers = 2, .recompute = SP_RECOMPUTE_FULL}},
        {{"pipedream-2bw", 4, true}, 4, 16, 5, {.llama = true, .workers = 4, .window = 1}},
        {{"pipedream-2bw", 3, true}, 4, 3, 4, {.workers = 3}}, /* one batch a step: 1F1B */
        {{"pipedream-2bw:batch=4", 4, true}, 3, 12, 4, {.workers = 2, .ready = true}},
    };
    double most = 0;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        most = fmax(
            most, check(&cases[i].method, cases[i].p, cases[i].m, cases[i].layers, &cases[i].set));
    print_message("weights within %.1e of those by definition\n", most);
}

/* Versions are then of the rounded weights; the master is updated in place. */
TEST(two_bytes)
{
    static const struct setting set = {.llama = true, .workers = 3};
    double loss[2][PIPEDREAM_STEPS], norm[2][PIPEDREAM_STEPS];

    for (int i = 0; i < 2; i++) {
        struct values w = {0};
        struct engine e;

        start("pipedream", 3, 6, 3, &set, i ? SP_BF16 : SP_F32, &e);
        train(&e, loss[i], norm[i], &w);
        stop(&e);
        free(w.x);
    }
    for (int k = 0; k < PIPEDREAM_STEPS; k++)
        if (!(fabs(loss[1][k] - loss[0][k]) < 2e-2 * loss[0][k]))
            fail_msg("step %d: loss %.9g, in f32 %.9g", k, loss[1][k], loss[0][k]);
}

TEST_FIXTURE(make_data, close_data)
