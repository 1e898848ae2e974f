/*
 * Measured layer times must be positive, consistent with each other, and add up to about a step of
 * the whole model. A measurement leaves nothing in StarPU; graphs run before, between and after
 * measurements.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "engine/support.h"
#include "graphs/weights/checkpoint.h"
#include "graphs/step.h"
#include "plan/profile.h"
#include "graphs/create.h"
#include "sinks/starpu/sink.h"
#include <dlfcn.h>
#include <malloc.h>
#include <math.h>

enum { BATCH = 2, SEQ = 64, M = 4, STEPS = 8 };

/* Counts handles that are registered and not yet unregistered, by wrapping StarPU's functions. */
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

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* One worker, one stage. */
static struct sp_params params;
static const struct sp_placement place = {.world = {.size = 1, .node_size = 1},
                                          .pipelines = 1,
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

/* Busy time, in microseconds a micro-batch, of a quiet step of the whole model: every op as fast as
 * it was in any of the steps. */
static double real_step(const struct sp_graph_config *like)
{
    static unsigned char text[4096];
    struct sp_data_file file = {.bytes = text, .tokens = sizeof text, .width = 1};
    struct sp_data data = {.file = &file, .files = 1, .tokens = sizeof text};
    struct sp_graph_config cfg = *like;
    struct sp_step_report report;
    struct sp_plan plan;
    struct sp_graph g;
    double least[2 * M], busy = 0; /* F and B of every micro-batch */
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
        assert_int_equal(report.stages[0].n_ops, 2 * M);
        for (int i = 0; i < 2 * M; i++)
            least[i] = k < 0 ? INFINITY : fmin(least[i], report.stages[0].ops[i].busy_us);
    }
    for (int i = 0; i < 2 * M; i++)
        busy += least[i] / M;
    sp_step_report_destroy(&g, &report);
    sp_graph_destroy(&g);
    sp_plan_destroy(&plan);
    return busy;
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
}

static const char *const mode_names[] = {"none", "selective", "no-attention", "full"};

/* The recompute modes, one bit each, for which the measured times predict steps of the whole
 * model. */
static unsigned predicts(const struct sp_graph_config *like, const struct sp_layer_costs *c,
                         const char *preset)
{
    struct sp_graph_config cfg = *like;
    unsigned near = 0;

    for (int mode = 0; mode < SP_RECOMPUTE_MODES; mode++) {
        double ratio;

        cfg.recompute = (enum sp_recompute)mode;
        ratio = predicted(c, params.model.layers, cfg.recompute) / real_step(&cfg);
        printf("[          ] %s, recompute %s (+%.1f us): predicted over quiet step %.3f\n", preset,
               mode_names[mode], c->recompute_us[mode], ratio);
        if (ratio > 1 / 3.0 && ratio < 3)
            near |= 1u << mode;
    }
    return near;
}

/* On a busy machine one of a few measurements has to be right. */
static void check_preset(const char *preset, bool ready)
{
    struct sp_shape shape;
    struct sp_graph_config cfg = {.sink = sp_starpu_sink(),
                                  .params = &params,
                                  .shape = &shape,
                                  .every = 1,
                                  .ready = ready,
                                  .seed = 3};
    const unsigned all = (1u << SP_RECOMPUTE_MODES) - 1;
    unsigned seen = 0;

    begin(preset, ready);
    sp_shape_init(&shape, &params.model, BATCH, SEQ, M);
    for (int tries = 0; tries < 5 && seen != all; tries++) {
        struct sp_layer_costs c;

        assert_int_equal(sp_profile_layers(&cfg, &place, &c), 0);
        printf("[          ] %s, us: embed %.1f %.1f, pre %.1f, attn %.1f, post %.1f, B %.1f, "
               "W %.1f, head %.1f\n",
               preset, c.embed_fwd_us, c.embed_bwd_us, c.pre_fwd_us, c.attn_fwd_us, c.post_fwd_us,
               c.bwd_us, c.wgrad_us, c.head_us);
        check_costs(&c);
        seen |= predicts(&cfg, &c, preset);
    }
    assert_int_equal(seen, all);
    assert_int_equal(handles, 0);
    end();
}

TEST(gpt)
{
    check_preset("gpt-tiny", false);
}

TEST(llama)
{
    check_preset("llama-tiny", true);
}

/* A graph, two measurements, a graph, all in one StarPU: positions, handles, memory. */
TEST(nothing_stays)
{
    struct sp_shape shape;
    struct sp_graph_config cfg = {
        .sink = sp_starpu_sink(), .params = &params, .shape = &shape, .every = 1, .seed = 3};
    struct sp_layer_costs a, b;
    size_t heap[2];

    begin("gpt-tiny", false);
    sp_shape_init(&shape, &params.model, BATCH, SEQ, M);
    real_step(&cfg);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sp_profile_layers(&cfg, &place, i ? &b : &a), 0);
        assert_int_equal(handles, 0);
        heap[i] = in_use();
    }
    assert_true(starpu_profiling_status_get() == STARPU_PROFILING_ENABLE);
    real_step(&cfg);
    assert_int_equal(handles, 0);
    check_costs(&b);
    printf("[          ] two measurements: layer %.1f and %.1f us, heap %.1f and %.1f KiB\n",
           sp_layer_fwd_us(&a) + sp_layer_bwd_us(&a, SP_RECOMPUTE_NONE),
           sp_layer_fwd_us(&b) + sp_layer_bwd_us(&b, SP_RECOMPUTE_NONE), (double)heap[0] / 1024,
           (double)heap[1] / 1024);
    assert_true(heap[1] < heap[0] + 65536); /* the model's states alone are 1 MiB */
    end();
}

struct sizes {
    double head[2];      /* at 256 and 8192 tokens of vocabulary */
    double layer[2];     /* backward, there */
    double attention[2]; /* over post, at 32 and 512 tokens of sequence */
};

static void measure_sizes(struct sizes *out)
{
    struct sp_shape shape;
    struct sp_graph_config cfg = {
        .sink = sp_starpu_sink(), .params = &params, .shape = &shape, .every = 1, .seed = 3};
    struct sp_model model = params.model;
    struct sp_layer_costs c;

    for (int i = 0; i < 2; i++) {
        sp_params_destroy(&params);
        model.vocab = i ? 8192 : 256;
        assert_int_equal(sp_params_create(&model, &params), 0);
        sp_shape_init(&shape, &model, 1, 32, 1);
        assert_int_equal(sp_profile_layers(&cfg, &place, &c), 0);
        out->head[i] = c.head_us;
        out->layer[i] = c.bwd_us + c.wgrad_us;
        sp_shape_init(&shape, &model, 1, i ? 512 : 32, 1);
        assert_int_equal(sp_profile_layers(&cfg, &place, &c), 0);
        out->attention[i] = c.attn_fwd_us / c.post_fwd_us;
    }
}

/* A larger vocabulary costs the head more and a layer nothing, a longer sequence attention most. On a busy machine one
 * of a few measurements has to show it. */
TEST(follows_sizes)
{
    bool seen = false;

    begin("gpt-tiny", false);
    for (int tries = 0; tries < 4 && !seen; tries++) {
        struct sizes s;

        measure_sizes(&s);
        printf(
            "[          ] at 256 and 8192 tokens: head %.1f and %.1f us, layer backward %.1f and "
            "%.1f; attention over post at 32 and 512: %.2f and %.2f\n",
            s.head[0], s.head[1], s.layer[0], s.layer[1], s.attention[0], s.attention[1]);
        seen = s.layer[1] < 3 * s.layer[0] && s.head[1] > 4 * s.head[0] &&
               s.attention[1] > 1.2 * s.attention[0];
    }
    assert_true(seen);
    end();
}

/* The memory announced for measuring: states and activations of two layers, however many the model
 * has. */
TEST(bytes)
{
    struct sp_model model;
    struct sp_shape shape;
    int64_t bytes, states;

    assert_int_equal(sp_model_load("llama-tiny", &model), 0);
    model.layers = 2;
    states = 8 * sp_model_parameters(&model); /* weights and gradients */
    sp_shape_init(&shape, &model, BATCH, SEQ, M);
    bytes = sp_profile_bytes(&shape);
    printf("[          ] measuring llama-tiny takes %.2f MiB, %.2f of them weights and gradients\n",
           (double)bytes / 1048576, (double)states / 1048576);
    assert_true(bytes > states + 2 * 10 * 4 * (int64_t)shape.rows * model.hidden);
    shape.held.layers = shape.model.layers = 100;
    assert_true(sp_profile_bytes(&shape) == bytes);
}
