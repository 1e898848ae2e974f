/*
 * PipeDream against its definition (Narayanan et al. 2019, section 3.2), by one stage: the gradient of micro-batch i is
 * that of weights of which each stage's had max(0, i - (p-1-s)) updates of the step; then every stage updates its
 * newest ones.
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
    sp_shape_init(&shape, &model, BATCH, SEQ, lay.micro_batches, 0, 0);
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
    int m = e->plan.layout.micro_batches;
    struct sp_update updates[UPDATES], unused = update_of(1);

    for (int k = 0; k < PIPEDREAM_STEPS; k++) {
        for (int i = 0; i < m; i++)
            updates[i] = update_of(k * m + i + 1);
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

static void define(int p, int m, int layers, const struct setting *set, double *loss, double *norm,
                   struct values *w)
{
    const struct setting plain = {.llama = set->llama, .workers = 1};
    int all = PIPEDREAM_STEPS * m;
    struct sp_layout lay = layout(p, m);
    float *version[UPDATES + 1] = {0};
    double *first = calloc(2 * MOST, sizeof *first);
    struct values g = {0};
    struct engine one;
    struct sp_plan plan;

    lay.layers = layers;
    assert_int_equal(sp_plan_create("pipedream", &lay, &plan), 0);
    start("gpipe", 1, 1, layers, &plain, SP_F32, &one);
    gather(&one.g, SP_FIELD_W, w);
    for (int k = 0; k <= all; k++) {
        version[k] = calloc(MOST, sizeof **version);
        assert_non_null(version[k]);
    }
    assert_non_null(first);
    memcpy(version[0], w->x, sizeof *w->x * (size_t)w->n);
    for (int i = 0; i < all; i++) {
        struct sp_update hp = update_of(i + 1);

        for (int b = 0; b < w->blocks; b++) {
            int behind = p - 1 - stage_of(&plan, w, b), in_step = i % m - behind;

            put(&one.g, w, b, version[i - i % m + (in_step > 0 ? in_step : 0)]);
        }
        sp_step_gradients(&one.g, &data, (uint64_t)i, &one.report);
        loss[i / m] += one.report.loss / m;
        norm[i / m] += one.report.grad_norm * one.report.grad_norm / m;
        gather(&one.g, SP_FIELD_G, &g);
        sp_checkpoint_clear(&one.g, SP_FIELD_G);
        step(&hp, w->n, g.x, first, first + MOST, version[i], version[i + 1]);
    }
    memcpy(w->x, version[all], sizeof *w->x * (size_t)w->n);
    for (int k = 0; k <= all; k++)
        free(version[k]);
    free(first);
    free(g.x);
    stop(&one);
    sp_plan_destroy(&plan);
}

/* ---- both -------------------------------------------------------------------------------------- */

static double check(int p, int m, int layers, const struct setting *set)
{
    double loss[PIPEDREAM_STEPS] = {0}, norm[PIPEDREAM_STEPS] = {0}, far = 0, size = 0;
    double wants[PIPEDREAM_STEPS] = {0}, want_norm[PIPEDREAM_STEPS] = {0};
    struct values w = {0}, want = {0};
    struct engine e;

    start("pipedream", p, m, layers, set, SP_F32, &e);
    for (int s = 0; s < p; s++)
        assert_int_equal(sp_weight_versions(&e.plan, s), p - s < m ? p - s : m);
    train(&e, loss, norm, &w);
    stop(&e);
    define(p, m, layers, set, wants, want_norm, &want);
    assert_int_equal(w.n, want.n);
    for (int k = 0; k < PIPEDREAM_STEPS; k++)
        if (!(fabs(loss[k] - wants[k]) < 1e-5 * wants[k]) ||
            !(fabs(norm[k] - sqrt(want_norm[k])) < 1e-4 * norm[k]))
            fail_msg("p=%d m=%d, step %d: loss %.9g, norm %.9g, by definition %.9g and %.9g", p, m,
                     k, loss[k], norm[k], wants[k], sqrt(want_norm[k]));
    for (int i = 0; i < w.n; i++) {
        far = fmax(far, fabs((double)w.x[i] - (double)want.x[i]));
        size = fmax(size, fabs((double)want.x[i]));
    }
    free(w.x);
    free(want.x);
    if (!(far < 1e-5 * size))
        fail_msg("p=%d m=%d: weights differ by %.2e of %.2e", p, m, far, size);
    return far / size;
}

static void versions(void **state)
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
    double most = 0;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        most = fmax(most, check(cases[i].p, cases[i].m, cases[i].layers, &cases[i].set));
    print_message("weights within %.1e of those by definition\n", most);
}

/* Versions are then of the rounded weights; the master is updated in place. */
static void two_bytes(void **state)
{
    static const struct setting set = {.llama = true, .workers = 3};
    double loss[2][PIPEDREAM_STEPS], norm[2][PIPEDREAM_STEPS];

    (void)state;
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

TEST_GROUP(stashing)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(versions), cmocka_unit_test(two_bytes)};

    return cmocka_run_group_tests(tests, make_data, close_data);
}
