/*
 * Measured layer times: positive, consistent with each other, and near what a step of the whole
 * model takes; nothing of the measurement stays in StarPU, and graphs run before, between and after
 * measurements.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "engine/support.h"
#include "graphs/checkpoint.h"
#include "graphs/step.h"
#include "plan/profile.h"
#include <dlfcn.h>
#include <math.h>

enum { BATCH = 2, SEQ = 64, M = 4, STEPS = 5 };

/* StarPU's functions, counted: handles registered and not unregistered. */
static int handles;

static void *next(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    assert_non_null(function);
    return function;
}

void starpu_vector_data_register(starpu_data_handle_t *handle, int home_node, uintptr_t ptr,
                                 uint32_t nx, size_t elemsize)
{
    void (*real)(starpu_data_handle_t *, int, uintptr_t, uint32_t, size_t);

    *(void **)&real = next("starpu_vector_data_register");
    handles++;
    real(handle, home_node, ptr, nx, elemsize);
}

void starpu_data_unregister(starpu_data_handle_t handle)
{
    void (*real)(starpu_data_handle_t);

    *(void **)&real = next("starpu_data_unregister");
    handles--;
    real(handle);
}

void starpu_data_unregister_no_coherency(starpu_data_handle_t handle)
{
    void (*real)(starpu_data_handle_t);

    *(void **)&real = next("starpu_data_unregister_no_coherency");
    handles--;
    real(handle);
}

/* One worker, one stage. */
static struct sp_params params;
static const struct sp_placement place = {.world = {.size = 1, .node_size = 1},
                                          .stages = 1,
                                          .n_local = 1,
                                          .workers = 1,
                                          .threads = 1,
                                          .cores = 1};

static void begin(const char *preset, bool ready)
{
    struct sp_model model;

    assert_int_equal(sp_model_load(preset, &model), 0);
    assert_int_equal(sp_params_create(&model, &params), 0);
    start_starpu(1, ready ? &sp_order_ready : &sp_order_strict);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    handles = 0;
}

static void end(void)
{
    starpu_shutdown();
    sp_params_destroy(&params);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median busy time, in microseconds a micro-batch, of steps of the whole model. */
static double real_step(const struct sp_graph_config *like)
{
    static unsigned char text[4096];
    struct sp_data data = {.bytes = text, .size = sizeof text, .tokens = sizeof text, .width = 1};
    struct sp_graph_config cfg = *like;
    struct sp_step_report report;
    struct sp_plan plan;
    struct sp_graph g;
    double busy[STEPS];
    uint64_t seed = 5;

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)draw_below(&seed, 256);
    make_plan("1f1b", 1, M, &plan);
    cfg.plan = &plan;
    sp_order_reset(); /* the graph counts positions from 1 */
    assert_int_equal(sp_graph_create(&cfg, &place, &g), 0);
    assert_int_equal(sp_checkpoint_init(&g, NULL), 0);
    assert_int_equal(sp_step_report_create(&g, &report), 0);
    for (int k = -1; k < STEPS; k++) {
        sp_step_gradients(&g, &data, (uint64_t)(k + 1), &report);
        assert_true(isfinite(report.loss) && report.stages[0].live_bytes == 0);
        if (k >= 0)
            busy[k] = report.stages[0].busy_us / M;
    }
    sp_step_report_destroy(&g, &report);
    sp_graph_destroy(&g);
    sp_plan_destroy(&plan);
    qsort(busy, STEPS, sizeof *busy, ascending);
    return busy[STEPS / 2];
}

static double predicted(const struct sp_layer_costs *c, int layers, enum sp_recompute mode)
{
    return c->embed_fwd_us + c->embed_bwd_us + c->head_us +
           layers * (sp_layer_fwd_us(c) + sp_layer_bwd_us(c, mode));
}

static void check_costs(const struct sp_layer_costs *c)
{
    const double *parts[] = {&c->embed_fwd_us, &c->embed_bwd_us, &c->pre_fwd_us, &c->attn_fwd_us,
                             &c->post_fwd_us,  &c->bwd_us,       &c->wgrad_us,   &c->head_us};

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!(*parts[i] > 0 && *parts[i] < 1e7))
            fail_msg("time %zu is %g us", i, *parts[i]);
    assert_true(c->recompute_us[SP_RECOMPUTE_NONE] == 0);
    for (int mode = 0; mode < SP_RECOMPUTE_MODES; mode++)
        assert_true(c->recompute_us[mode] >= 0 && c->recompute_us[mode] < 1e7);
    assert_true(c->recompute_us[SP_RECOMPUTE_FULL] > 0);
    assert_true(c->recompute_us[SP_RECOMPUTE_NO_ATTENTION] > 0);
    /* Either is near a forward; the machine may be busy. */
    assert_true(c->bwd_us < 20 * sp_layer_fwd_us(c) && c->wgrad_us < 20 * sp_layer_fwd_us(c));
}

static void check_preset(const char *preset, bool ready)
{
    static const char *const names[] = {"none", "selective", "no-attention", "full"};
    struct sp_graph_config cfg = {
        .params = &params, .batch = BATCH, .seq = SEQ, .every = 1, .ready = ready, .seed = 3};
    struct sp_layer_costs c;

    begin(preset, ready);
    assert_int_equal(sp_profile_layers(&cfg, &place, &c), 0);
    printf("[          ] %s, us: embed %.1f %.1f, pre %.1f, attn %.1f, post %.1f, B %.1f, W %.1f, "
           "head %.1f\n",
           preset, c.embed_fwd_us, c.embed_bwd_us, c.pre_fwd_us, c.attn_fwd_us, c.post_fwd_us,
           c.bwd_us, c.wgrad_us, c.head_us);
    check_costs(&c);
    for (int mode = 0; mode < SP_RECOMPUTE_MODES; mode++) {
        double ratio;

        cfg.recompute = (enum sp_recompute)mode;
        ratio = predicted(&c, params.model.layers, cfg.recompute) / real_step(&cfg);
        printf("[          ] %s, recompute %s (+%.1f us): predicted over measured step %.3f\n",
               preset, names[mode], c.recompute_us[mode], ratio);
        assert_true(ratio > 1 / 3.0 && ratio < 3);
    }
    assert_int_equal(handles, 0);
    end();
}

static void test_gpt(void **state)
{
    (void)state;
    check_preset("gpt-tiny", false);
}

static void test_llama(void **state)
{
    (void)state;
    check_preset("llama-tiny", true);
}

/* A graph, two measurements, a graph, all in one StarPU: positions, handles, memory. */
static void test_nothing_stays(void **state)
{
    struct sp_graph_config cfg = {
        .params = &params, .batch = BATCH, .seq = SEQ, .every = 1, .seed = 3};
    struct sp_layer_costs a, b;
    size_t used[2];

    (void)state;
    begin("gpt-tiny", false);
    real_step(&cfg);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sp_profile_layers(&cfg, &place, i ? &b : &a), 0);
        assert_int_equal(handles, 0);
        used[i] = starpu_memory_get_used_all_nodes();
    }
    assert_true(starpu_profiling_status_get() == STARPU_PROFILING_ENABLE);
    real_step(&cfg);
    assert_int_equal(handles, 0);
    check_costs(&b);
    printf(
        "[          ] two measurements: layer %.1f and %.1f us, StarPU holds %zu and %zu bytes\n",
        sp_layer_fwd_us(&a) + sp_layer_bwd_us(&a, SP_RECOMPUTE_NONE),
        sp_layer_fwd_us(&b) + sp_layer_bwd_us(&b, SP_RECOMPUTE_NONE), used[0], used[1]);
    assert_int_equal(used[0], used[1]);
    end();
}

/* A larger vocabulary costs the head more, a longer sequence attention most. */
static void test_follows_sizes(void **state)
{
    struct sp_graph_config cfg = {.params = &params, .batch = 1, .seq = 32, .every = 1, .seed = 3};
    struct sp_layer_costs small, wide, tall;
    struct sp_model model;

    (void)state;
    begin("gpt-tiny", false);
    assert_int_equal(sp_profile_layers(&cfg, &place, &small), 0);
    cfg.seq = 256;
    assert_int_equal(sp_profile_layers(&cfg, &place, &tall), 0);
    model = params.model;
    model.vocab = 8192;
    sp_params_destroy(&params);
    assert_int_equal(sp_params_create(&model, &params), 0);
    cfg.seq = 32;
    assert_int_equal(sp_profile_layers(&cfg, &place, &wide), 0);
    printf("[          ] head %.1f us at 256 tokens, %.1f at 8192; attention over post %.2f at 32, "
           "%.2f at 256\n",
           small.head_us, wide.head_us, small.attn_fwd_us / small.post_fwd_us,
           tall.attn_fwd_us / tall.post_fwd_us);
    assert_true(wide.head_us > 4 * small.head_us);
    assert_true(tall.attn_fwd_us / tall.post_fwd_us > small.attn_fwd_us / small.post_fwd_us);
    end();
}

/* What is said to be needed covers what StarPU allocates. */
static void test_bytes(void **state)
{
    struct sp_graph_config cfg = {
        .params = &params, .batch = BATCH, .seq = SEQ, .every = 1, .seed = 3};
    struct sp_layer_costs c;
    struct sp_shape shape;
    int64_t bytes;

    (void)state;
    begin("llama-tiny", false);
    sp_shape_init(&shape, &params.model, BATCH, SEQ, M, 0, 0);
    bytes = sp_profile_bytes(&shape);
    assert_int_equal(sp_profile_layers(&cfg, &place, &c), 0);
    printf("[          ] measuring: %.2f MiB said, %.2f held by StarPU afterwards\n",
           (double)bytes / 1048576, (double)starpu_memory_get_used_all_nodes() / 1048576);
    assert_true(bytes > 1 << 20);
    assert_true((double)starpu_memory_get_used_all_nodes() < 1.5 * (double)bytes);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt),           cmocka_unit_test(test_llama),
        cmocka_unit_test(test_nothing_stays), cmocka_unit_test(test_follows_sizes),
        cmocka_unit_test(test_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
