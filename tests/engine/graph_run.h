/*
 * Runs plans on tiny models and returns loss, gradient norm and gradients of three steps. Checks on
 * the way that no activation is alive after a step, that the planned peak holds, and that buffers
 * do not grow after the second step.
 */
#ifndef SP_TESTS_GRAPH_RUN_H
#define SP_TESTS_GRAPH_RUN_H

#include "engine/support.h"
#include "memory.h"
#include "graphs/weights/checkpoint.h"
#include "graphs/step.h"
#include "offload/disk.h"
#include "offload/host.h"
#include "plan/memory.h"
#include "plan/offload/offload.h"
#include "plan/slices.h"
#include "policies/lowering/evictions.h"
#include "policies/plan_create.h"
#include "graphs/create.h"
#include "sinks/starpu/sink.h"
#include <math.h>

enum { BATCH = 2, SEQ = 6, STEPS = 3, MOST = 1 << 17 };

struct run {
    double loss[STEPS], norm[STEPS];
    double left, returned;          /* bytes of the last step, all stages */
    double planned_out, planned_in; /* the same as planned */
    bool streams;                   /* keys and values left too */
    int n;                          /* gradients of the first step */
    float *gradients;
};

/* All stages in one process. */
static inline struct sp_placement one_process(int stages, int workers)
{
    return (struct sp_placement){.world = {.size = 1, .node_size = 1},
                                 .pipelines = 1,
                                 .stages = stages,
                                 .n_local = stages,
                                 .workers = workers,
                                 .threads = 1,
                                 .cores = workers};
}

static char data_path[] = "/tmp/starpipe-test-graph-XXXXXX";
static struct sp_data data;

static inline int make_data(void **state)
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

static inline int close_data(void **state)
{
    (void)state;
    sp_data_close(&data);
    return 0;
}

static inline struct sp_model model_of(int layers, bool llama, bool tied)
{
    return (struct sp_model){.name = "test",
                             .arch = llama ? SP_ARCH_LLAMA : SP_ARCH_GPT2,
                             .layers = layers,
                             .hidden = 24,
                             .heads = 4,
                             .kv_heads = llama ? 2 : 4,
                             .head_dim = 6,
                             .mlp = 35,
                             .vocab = 61,
                             .positions = 64,
                             .tied = tied,
                             .norm_eps = 1e-5f,
                             .rope.theta = 10000};
}

static inline int keep_gradients(void *arg, enum sp_block_kind kind, int layer, const float *w,
                                 size_t n)
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
    int batch, seq;  /* 0: BATCH, SEQ */
    int chunks;      /* 0: what the schedule likes */
    bool few;        /* tensors of a kind cross in a step: the slack of pools fills up later */
    const char *cut; /* --partition-slices; NULL: equal lengths */
    enum sp_offload_mode offload;
    enum sp_offload_keys keys;
    double
        room; /* of a stage, between everything away (0) and nothing away (1); adaptive. Below 0: between all but
                  * keys away (0) and those too (-1) */
    void (*before)(struct sp_graph *g, int k); /* step k; NULL: nothing more */
};

/* The evictions of a plan and the tier that they use; StarPU must be running. */
struct tiers {
    struct sp_offload offload;
    struct sp_plan *plan; /* its `evictions` points here; NULL: nothing is evicted */
    struct sp_disk *disk;
};

static inline int64_t peak_of(const struct sp_offload *o)
{
    int64_t peak = 0;

    for (int s = 0; s < o->stages; s++)
        peak = sp_memory_sum(&o->memory[s]) > peak ? sp_memory_sum(&o->memory[s]) : peak;
    return peak;
}

static inline void start_tiers(const struct sp_plan *plan, const struct setting *set,
                               struct sp_graph_config *cfg, struct tiers *t)
{
    struct sp_offload_request want = {.recompute = cfg->recompute, .every = cfg->every};
    const struct sp_shape *sh = cfg->shape;
    int64_t none, full, least;

    *t = (struct tiers){0};
    if (!set->offload)
        return;
    assert_int_equal(sp_offload_create(plan, sh, &want, &t->offload), 0);
    none = peak_of(&t->offload);
    want.mode = SP_OFFLOAD_FULL;
    want.keys = set->offload == SP_OFFLOAD_FULL ? set->keys : SP_KEYS_STAY;
    assert_int_equal(sp_offload_create(plan, sh, &want, &t->offload), 0);
    if (set->offload == SP_OFFLOAD_ADAPTIVE) {
        full = peak_of(&t->offload);
        want.keys = SP_KEYS_AUTO; /* they leave where they may */
        assert_int_equal(sp_offload_create(plan, sh, &want, &t->offload), 0);
        least = peak_of(&t->offload);
        want.mode = SP_OFFLOAD_ADAPTIVE;
        want.limit =
            full + (int64_t)(set->room * (double)(set->room < 0 ? full - least : none - full));
        assert_int_equal(sp_offload_create(plan, sh, &want, &t->offload), 0);
    }
    t->plan = (struct sp_plan *)(uintptr_t)plan;
    assert_int_equal(sp_offload_apply(&t->offload, sh, t->plan), 0);
    assert_int_equal(sp_disk_create("/var/tmp", 1 << 16, _exit, &t->disk), 0);
    cfg->tier = (unsigned)sp_disk_register(t->disk);
    cfg->disk = t->disk;
    cfg->evictions = t->offload.evictions;
}

static inline void stop_tiers(struct tiers *t)
{
    sp_disk_destroy(t->disk);
    sp_offload_destroy(&t->offload);
    if (!t->plan)
        return;
    sp_evictions_destroy(t->plan->evictions, t->plan->layout.stages);
    t->plan->evictions = NULL;
}

/* The most bytes that a stage stashes. With `ready`, stages that share a worker are bounded
 * together: one may stash more if another stashes less. */
static inline int64_t most_stashed(const struct sp_plan *plan, const struct sp_graph *g,
                                   const struct setting *set, int stage)
{
    int worker = sp_stage_worker(&g->place, stage);
    int64_t sum = 0;

    for (int s = 0; s < plan->layout.stages; s++)
        if (s == stage || (set->ready && sp_stage_worker(&g->place, s) == worker))
            sum += sp_stash_peak(plan, &g->shape, set->recompute, set->every ? set->every : 1, s);
    return sum;
}

static inline void run_plan(const struct sp_plan *plan, const struct setting *set, struct run *run)
{
    struct sp_model m = model_of(plan->layout.layers, set->llama, set->tied);
    struct sp_params params;
    struct sp_shape shape;
    struct sp_graph_config cfg = {.sink = sp_starpu_sink(),
                                  .params = &params,
                                  .plan = plan,
                                  .shape = &shape,
                                  .recompute = set->recompute,
                                  .every = set->every ? set->every : 1,
                                  .ready = set->ready,
                                  .window = set->window,
                                  .seed = 8};
    int p = plan->layout.stages, workers = set->workers < p ? set->workers : p;
    struct sp_placement place = one_process(p, workers);
    struct sp_update hp = {.lr = 1e-2f,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .eps = 1e-4f, /* below it gradients that are but rounding move weights */
                           .bias1 = 0.1f,
                           .bias2 = 0.05f,
                           .factor = 1};
    struct sp_memory *memory;
    struct sp_step_report report;
    struct tiers tiers;
    struct sp_graph g;
    double pool = 0;

    *run = (struct run){.gradients = test_bytes(MOST * sizeof(float))};
    assert_int_equal(sp_params_create(&m, &params), 0);
    sp_shape_init(&shape, &m, set->batch ? set->batch : BATCH, set->seq ? set->seq : SEQ,
                  plan->layout.micro_batches);
    sp_shape_cut(&shape, 5, 7);
    if (set->offload)
        sp_host_start(1 << 16, false);
    start_starpu(workers, set->ready ? &sp_order_ready : &sp_order_strict);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    start_tiers(plan, set, &cfg, &tiers);
    for (int s = 0; s < tiers.offload.stages; s++) {
        const struct sp_eviction_plan *a = &tiers.offload.evictions[s];

        run->planned_out += (double)(a->bytes + a->streamed_out);
        run->planned_in += (double)(a->bytes + a->streamed_in);
        run->streams |= a->streamed_in > 0;
    }
    assert_int_equal(sp_graph_create(&cfg, &place, &g), 0);
    memory = test_bytes((size_t)p * sizeof *memory);
    sp_memory_of_plan(plan, &g.shape, set->recompute, cfg.every, memory);
    assert_int_equal(sp_checkpoint_init(&g, NULL), 0);
    assert_int_equal(sp_step_report_create(&g, &report), 0);
    for (int k = 0; k < STEPS; k++) {
        double bytes = 0;

        run->left = run->returned = 0;
        if (set->before)
            set->before(&g, k);

        sp_step_gradients(&g, &data, (uint64_t)k, &report);
        run->loss[k] = report.loss;
        run->norm[k] = report.grad_norm;
        for (int s = 0; s < p; s++) {
            const struct sp_stage_report *st = &report.stages[s];
            int64_t planned = set->offload ? tiers.offload.evictions[s].peak_kept
                                           : most_stashed(plan, &g, set, s);

            assert_true(st->live_bytes == 0);
            run->left += st->left_bytes;
            run->returned += st->returned_bytes;
            if (st->peak_bytes > (double)planned ||
                (!set->ready && !plan->paired && !set->offload &&
                 st->peak_bytes != (double)planned))
                fail_msg("stage %d: peak %.0f, planned %lld", s, st->peak_bytes,
                         (long long)planned);
            for (int i = 0; i < st->n_ops; i++)
                assert_true(st->ops[i].end_us >= st->ops[i].start_us && st->ops[i].busy_us > 0);
            bytes += st->pool_bytes;
            /* The workspace also counts scratch, which is not in pools. */
            if (st->pool_bytes > (double)(memory[s].activations + memory[s].workspace))
                fail_msg("stage %d: pools of %.0f bytes, %lld planned", s, st->pool_bytes,
                         (long long)(memory[s].activations + memory[s].workspace));
        }
        assert_true(k < 2 || bytes == pool || set->few); /* slack fills up in the second step */
        pool = bytes;
        if (k == 0)
            assert_int_equal(sp_checkpoint_each(&g, SP_FIELD_G, keep_gradients, run), 0);
        sp_step_update(&g, &hp, &report);
    }
    sp_step_report_destroy(&g, &report);
    sp_graph_destroy(&g);
    starpu_shutdown();
    stop_tiers(&tiers);
    if (set->offload)
        sp_host_stop();
    sp_params_destroy(&params);
}

/* Largest difference of the gradients, relative to the largest of them. */
static inline double distance(const struct run *a, const struct run *b)
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

static inline void compare(const struct run *run, const struct run *one, const char *what)
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

static inline void destroy_plan(void *plan)
{
    sp_plan_destroy(plan);
}

/* The plan of a schedule, in slices if the setting has a cut; it lasts as long as the test. */
static inline struct sp_plan *new_plan(const char *schedule, const struct sp_layout *lay,
                                       const struct setting *set)
{
    struct sp_model m = model_of(lay->layers, set->llama, set->tied);
    struct sp_plan *plan = test_bytes(sizeof *plan);
    struct sp_shape sh;

    assert_int_equal(sp_plan_create(schedule, lay, plan), 0);
    test_at_end(destroy_plan, plan);
    sp_shape_init(&sh, &m, set->batch ? set->batch : BATCH, set->seq ? set->seq : SEQ,
                  lay->micro_batches);
    if (set->cut)
        assert_int_equal(sp_plan_cut(plan, &sh, set->cut, NULL), 0);
    return plan;
}

/* A schedule by name, on a model of so many layers. */
static inline void run_named(const char *schedule, int stages, int mbs, int layers,
                             struct setting set, struct run *run)
{
    struct sp_layout lay = layout(stages, mbs);

    lay.layers = layers;
    lay.chunks = set.chunks;
    run_plan(new_plan(schedule, &lay, &set), &set, run);
}

/* One stage with the same model and data. */
static inline struct setting plain_setting(const struct setting *set)
{
    return (struct setting){
        .llama = set->llama, .tied = set->tied, .workers = 1, .batch = set->batch, .seq = set->seq};
}

/* The same, against one stage. */
static inline void check_named(const char *schedule, int stages, int mbs, int layers,
                               struct setting set)
{
    struct run run, one;
    char what[160];

    snprintf(what, sizeof what, "%s, %d stages, %d micro-batches, %d layers, recompute %d",
             schedule, stages, mbs, layers, set.recompute);
    run_named("1f1b", 1, mbs, layers, plain_setting(&set), &one);
    run_named(schedule, stages, mbs, layers, set, &run);
    compare(&run, &one, what);
}

static inline void assert_same_run(const struct run *a, const struct run *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->gradients, b->gradients, sizeof(float) * (size_t)a->n);
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->norm, b->norm, sizeof a->norm);
}

/* Settings that may change nothing but time. */
static const struct setting anywhere[] = {{.tied = true, .workers = 4},
                                          {.tied = true, .workers = 3, .window = 1},
                                          {.tied = true, .workers = 1}};

/* Checks that all settings give the same bits. */
static inline void check_bits(const char *schedule, int stages, int mbs, int layers,
                              const struct setting *sets, int n)
{
    struct run first, run;

    run_named(schedule, stages, mbs, layers, sets[0], &first);
    for (int i = 1; i < n; i++) {
        run_named(schedule, stages, mbs, layers, sets[i], &run);
        assert_same_run(&run, &first);
    }
}

#endif
