/*
 * The layerwise graph on programs written by hand: several chunks a stage, weight gradients apart,
 * one stage or as many as layers, one window or many. Whatever the plan: the loss and the gradients
 * of one stage, nothing alive after a step, the planned peak, no growth after the second step.
 */
#include "engine/support.h"
#include "graphs/checkpoint.h"
#include "graphs/step.h"
#include "plan/memory.h"
#include <math.h>

enum { LAYERS = 4, BATCH = 2, SEQ = 6, STEPS = 3, MOST = 1 << 16 };

struct run {
    double loss[STEPS], norm[STEPS];
    int n; /* gradients of the first step */
    float *gradients;
};

static char data_path[] = "/tmp/starpipe-test-graph-XXXXXX";
static struct sp_data data;

static int make_data(void **state)
{
    unsigned char bytes[997];
    uint64_t seed = 3;
    int fd = mkstemp(data_path);

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)draw_below(&seed, 61);
    assert_true(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes);
    close(fd);
    assert_int_equal(sp_data_open(data_path, 1, 61, &data), 0);
    unlink(data_path);
    return 0;
}

static int close_data(void **state)
{
    (void)state;
    sp_data_close(&data);
    return 0;
}

static struct sp_model model_of(bool llama, bool tied)
{
    return (struct sp_model){.name = "test",
                             .arch = llama ? SP_ARCH_LLAMA : SP_ARCH_GPT2,
                             .layers = LAYERS,
                             .hidden = 24,
                             .heads = 4,
                             .kv_heads = llama ? 2 : 4,
                             .head_dim = 6,
                             .mlp = 35,
                             .vocab = 61,
                             .positions = 16,
                             .tied = tied,
                             .norm_eps = 1e-5f,
                             .rope_theta = 10000};
}

static int keep_gradients(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct run *run = arg;

    (void)kind, (void)layer;
    assert_true((size_t)run->n + n <= MOST);
    memcpy(run->gradients + run->n, w, n * sizeof *w);
    run->n += (int)n;
    return 0;
}

struct setting {
    bool llama, tied, ready;
    enum sp_recompute recompute;
    int every, window, workers;
};

static void run_plan(const struct sp_plan *plan, const struct setting *set, struct run *run)
{
    struct sp_model m = model_of(set->llama, set->tied);
    struct sp_params params;
    struct sp_graph_config cfg = {.params = &params,
                                  .plan = plan,
                                  .batch = BATCH,
                                  .seq = SEQ,
                                  .mlp_rows = 5,
                                  .head_rows = 7,
                                  .recompute = set->recompute,
                                  .every = set->every ? set->every : 1,
                                  .ready = set->ready,
                                  .window = set->window,
                                  .seed = 8};
    int p = plan->layout.stages, workers = set->workers < p ? set->workers : p;
    struct sp_placement place = {.world = {.size = 1, .node_size = 1},
                                 .stages = p,
                                 .n_local = p,
                                 .workers = workers,
                                 .threads = 1,
                                 .cores = workers};
    struct sp_update hp = {.lr = 1e-2f,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .eps = 1e-8f,
                           .bias1 = 0.1f,
                           .bias2 = 0.05f,
                           .factor = 1};
    struct sp_step_report report;
    struct sp_graph g;
    double pool = 0;

    *run = (struct run){.gradients = calloc(MOST, sizeof(float))};
    assert_non_null(run->gradients);
    assert_int_equal(sp_params_create(&m, &params), 0);
    start_starpu(workers, set->ready ? &sp_order_ready : &sp_order_strict);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    assert_int_equal(sp_graph_create(&cfg, &place, &g), 0);
    assert_int_equal(sp_checkpoint_init(&g, NULL), 0);
    assert_int_equal(sp_step_report_create(&g, &report), 0);
    for (int k = 0; k < STEPS; k++) {
        double bytes = 0;

        sp_step_gradients(&g, &data, (uint64_t)k, &report);
        run->loss[k] = report.loss;
        run->norm[k] = report.grad_norm;
        for (int s = 0; s < p; s++) {
            const struct sp_stage_report *st = &report.stages[s];
            struct sp_memory memory;
            int64_t planned =
                sp_stash_peak(plan, &g.shape, set->recompute, set->every ? set->every : 1, s);

            assert_true(st->live_bytes == 0);
            if (st->peak_bytes > (double)planned ||
                (!set->ready && st->peak_bytes != (double)planned))
                fail_msg("stage %d: peak %.0f, planned %lld", s, st->peak_bytes,
                         (long long)planned);
            for (int i = 0; i < st->n_ops; i++)
                assert_true(st->ops[i].end_us >= st->ops[i].start_us && st->ops[i].busy_us > 0);
            bytes += st->pool_bytes;
            /* The workspace holds scratch as well, which no pool does. */
            memory = sp_memory_of_stage(plan, &g.shape, set->recompute, cfg.every, s);
            if (st->pool_bytes > (double)(memory.activations + memory.workspace))
                fail_msg("stage %d: pools of %.0f bytes, %lld planned", s, st->pool_bytes,
                         (long long)(memory.activations + memory.workspace));
        }
        assert_true(k < 2 || bytes == pool); /* slack fills up in the second step */
        pool = bytes;
        if (k == 0)
            assert_int_equal(sp_checkpoint_each(&g, SP_FIELD_G, keep_gradients, run), 0);
        sp_step_update(&g, &hp, &report);
    }
    sp_step_report_destroy(&g, &report);
    sp_graph_destroy(&g);
    starpu_shutdown();
    sp_params_destroy(&params);
}

/* Largest difference of the gradients, relative to the largest of them. */
static double distance(const struct run *a, const struct run *b)
{
    double most = 0, size = 0;

    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        most = fmax(most, fabs((double)a->gradients[i] - (double)b->gradients[i]));
        size = fmax(size, fabs((double)b->gradients[i]));
    }
    assert_true(size > 0);
    return most / size;
}

static double worst;

static void compare(const struct run *run, const struct run *one, const char *what)
{
    double d = distance(run, one);

    worst = d > worst ? d : worst;
    for (int k = 0; k < STEPS; k++)
        if (!(fabs(run->loss[k] - one->loss[k]) < 1e-5 * one->loss[k]) ||
            !(fabs(run->norm[k] - one->norm[k]) < 1e-5 * one->norm[k]))
            fail_msg("%s, step %d: loss %.9g norm %.9g, one stage has %.9g %.9g", what, k,
                     run->loss[k], run->norm[k], one->loss[k], one->norm[k]);
    if (!(d < 1e-5))
        fail_msg("%s: gradients differ by %.2e", what, d);
}

/* Three micro-batches each. */
static const struct program {
    const char *name;
    int stages, chunks;
    const char *lines[4];
} table[] = {
    {"one stage, W apart", 1, 1, {"F0.0 B0.0 F1.0 F2.0 B2.0 W0.0 B1.0 W1.0 W2.0"}},
    {"one stage, one W apart", 1, 1, {"F0.0 F1.0 B1.0 F2.0 B0.0 B2.0 W0.0"}},
    {"one stage, two chunks",
     1,
     2,
     {"F0.0 F1.0 F0.1 B0.1 F1.1 F2.0 B0.0 F2.1 B1.1 B2.1 B1.0 B2.0"}},
    {"one stage, four chunks, W apart",
     1,
     4,
     {"F0.0 F0.1 F0.2 F0.3 B0.3 B0.2 W0.3 B0.1 B0.0 W0.2 W0.0 W0.1 "
      "F1.0 F2.0 F1.1 F2.1 F1.2 F2.2 F1.3 F2.3 B2.3 B1.3 B2.2 B1.2 B2.1 B1.1 B2.0 B1.0 W2.1"}},
    {"two stages, two chunks",
     2,
     2,
     {"F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F2.1 B1.1 B0.0 B2.1 B1.0 B2.0",
      "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F2.1 B2.1 B1.0 B2.0"}},
    {"two stages, W apart",
     2,
     1,
     {"F0.0 F1.0 F2.0 B0.0 B1.0 W0.0 B2.0 W1.0 W2.0", "F0.0 B0.0 F1.0 B1.0 W1.0 F2.0 B2.0 W2.0"}},
    {"as many stages as layers",
     4,
     1,
     {"F0.0 F1.0 F2.0 B0.0 B1.0 B2.0", "F0.0 F1.0 F2.0 B0.0 B1.0 B2.0",
      "F0.0 F1.0 B0.0 F2.0 B1.0 B2.0", "F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"}},
};

static void plan_of(const struct program *prog, struct sp_plan *plan)
{
    struct sp_layout lay = layout(prog->stages, 3);

    lay.chunks = prog->chunks;
    lay.layers = LAYERS;
    write_plan(lay, prog->lines, plan);
}

static const struct program one_stage = {"one stage", 1, 1, {"F0.0 B0.0 F1.0 B1.0 F2.0 B2.0"}};

static void test_programs(void **state)
{
    static const struct setting settings[] = {
        {.tied = true, .workers = 2},
        {.tied = true, .workers = 1, .window = 1, .recompute = SP_RECOMPUTE_FULL},
        {.llama = true, .workers = 2, .ready = true, .recompute = SP_RECOMPUTE_NO_ATTENTION},
        {.llama = true, .tied = true, .workers = 2, .ready = true, .window = 1},
        {.workers = 2, .recompute = SP_RECOMPUTE_FULL, .every = 2},
        {.llama = true, .workers = 1, .ready = true, .recompute = SP_RECOMPUTE_SELECTIVE},
    };
    int runs = 0;

    (void)state;
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        struct setting plain = {.llama = settings[k].llama, .tied = settings[k].tied, .workers = 1};
        struct sp_plan plan;
        struct run one, run;

        plan_of(&one_stage, &plan);
        run_plan(&plan, &plain, &one);
        sp_plan_destroy(&plan);
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            plan_of(&table[i], &plan);
            run_plan(&plan, &settings[k], &run);
            compare(&run, &one, table[i].name);
            sp_plan_destroy(&plan);
            free(run.gradients);
            runs++;
        }
        free(one.gradients);
    }
    printf("[          ] %d runs of %d steps, gradients within %.1e of one stage's\n", runs, STEPS,
           worst);
}

/* Two runs of one plan give the same bits. */
static void test_same_bits(void **state)
{
    struct setting set = {.tied = true, .workers = 2, .ready = true, .window = 3};
    struct sp_plan plan;
    struct run a, b;

    (void)state;
    plan_of(&table[4], &plan);
    run_plan(&plan, &set, &a);
    run_plan(&plan, &set, &b);
    assert_memory_equal(a.gradients, b.gradients, (size_t)a.n * sizeof(float));
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
    assert_memory_equal(a.norm, b.norm, sizeof a.norm);
    sp_plan_destroy(&plan);
    free(a.gradients);
    free(b.gradients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_same_bits),
    };

    return cmocka_run_group_tests(tests, make_data, close_data);
}
