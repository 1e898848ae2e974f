/*
 * The times that a step reports: time in which the worker ran another stage is no wait for
 * messages, overlapping steps add up to the time of the run, and waiting for a core is told from
 * work.
 */
#define _GNU_SOURCE /* sched_setaffinity */
#include "engine/graph_run.h"
#include "policies/plan_create.h"
#include "graphs/create.h"
#include "sinks/starpu/sink.h"
#include "sinks/starpu/tensor.h"
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

struct timed {
    struct sp_plan plan;
    struct sp_params params;
    struct sp_graph g;
    struct sp_step_report report;
};

static void set_up(const char *schedule, int stages, int m, int workers, struct timed *t)
{
    struct sp_layout lay = layout(stages, m);
    struct sp_model model = model_of(2 * stages, false, true);
    struct sp_shape shape;
    struct sp_graph_config cfg = {.sink = sp_starpu_sink(),
                                  .params = &t->params,
                                  .plan = &t->plan,
                                  .shape = &shape,
                                  .every = 1,
                                  .seed = 8};
    struct sp_placement place = one_process(stages, workers);

    lay.chunks = 0;
    lay.layers = model.layers;
    assert_int_equal(sp_plan_create(schedule, &lay, &t->plan), 0);
    assert_int_equal(sp_params_create(&model, &t->params), 0);
    start_starpu(workers, &sp_order_strict);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    sp_shape_init(&shape, &model, BATCH, SEQ, lay.micro_batches);
    sp_shape_cut(&shape, 5, 7);
    assert_int_equal(sp_graph_create(&cfg, &place, &t->g), 0);
    assert_int_equal(sp_checkpoint_init(&t->g, NULL), 0);
    assert_int_equal(sp_step_report_create(&t->g, &t->report), 0);
    for (int k = 0; k < 2; k++)
        sp_step_gradients(&t->g, &data, (uint64_t)k, &t->report);
}

static void tear_down_graph(struct timed *t)
{
    sp_step_report_destroy(&t->g, &t->report);
    sp_graph_destroy(&t->g);
}

static void tear_down_rest(struct timed *t)
{
    starpu_shutdown();
    sp_params_destroy(&t->params);
    sp_plan_destroy(&t->plan);
}

static void tear_down(struct timed *t)
{
    tear_down_graph(t);
    tear_down_rest(t);
}

/* One worker runs all stages: it waits whenever it runs no op. */
static void one_worker(const char *schedule, int stages)
{
    struct timed t;
    double busy = 0, wait = 0;

    set_up(schedule, stages, 8, 1, &t);
    for (int s = 0; s < stages; s++) {
        busy += t.report.stages[s].busy_us;
        wait += t.report.stages[s].comm_wait_us;
    }
    printf("[          ] %s, %d stages on a worker: busy %.0f us, waiting %.0f, in all %.0f\n",
           schedule, stages, busy, wait, t.report.span_us);
    assert_true(busy > 0 && busy + wait <= 1.001 * t.report.span_us);
    tear_down(&t);
}

TEST(shared_worker)
{
    one_worker("1f1b", 4);
    one_worker("interleaved", 2);
    one_worker("dualpipe", 4);
}

/* The step of a turn as if every op took 8 us, 10 us after the one before it, and stage 1 were 5 us
 * behind stage 0. `next`: the next step has begun. */
static void report_step(struct timed *t, double start_us, bool next, double idle_0, double idle_1)
{
    struct sp_graph *g = &t->g;

    g->closing = !g->closing;
    g->turn = next ? !g->closing : g->closing;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < g->stages[s].meter[g->closing].n_ops; i++) {
            double start = start_us + 10 * i + 5 * s;

            g->stages[s].meter[g->closing].ops[i] =
                (struct sp_op_record){.start_us = start, .end_us = start + 8, .busy_us = 8};
        }
    sp_step_finish(g, &t->report);
    printf("[          ] step at %.0f us: busy %.0f and %.0f us, idle %.0f and %.0f\n", start_us,
           t->report.stages[0].busy_us, t->report.stages[1].busy_us, t->report.stages[0].idle_us,
           t->report.stages[1].idle_us);
    assert_true(t->report.stages[0].idle_us == idle_0 && t->report.stages[1].idle_us == idle_1);
}

TEST(steps_that_overlap)
{
    struct timed t;

    set_up("1f1b", 2, 2, 2, &t);
    t.g.begun_ahead = false;
    /* from 1000 to 1123: 3 times 32 us busy, 27 idle on either stage */
    report_step(&t, 1000, true, 38 - 32, 43 - 32);
    report_step(&t, 1040, true, 78 - 38 - 32, 83 - 43 - 32);
    report_step(&t, 1080, false, 123 - 78 - 32, 123 - 83 - 32);
    report_step(&t, 1200, false, 43 - 32, 43 - 32);
    tear_down(&t);
}

static bool stop_spinning;

static void *spin(void *arg)
{
    while (!__atomic_load_n(&stop_spinning, __ATOMIC_RELAXED))
        continue;
    return arg;
}

/* The worker shares one core with a thread that never rests, so sooner or later it is preempted in
 * a task. */
TEST(without_a_core)
{
    enum { STEPS_MOST = 5000, ENOUGH_US = 500 };
    double busy = 0, waited = 0;
    cpu_set_t all, one;
    pthread_t spinner;
    struct timed t;
    int cpu = 0, k;

    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&spinner, NULL, spin, NULL), 0);
    set_up("1f1b", 2, 8, 1, &t);
    for (k = 2; k < STEPS_MOST && waited < ENOUGH_US; k++) {
        sp_step_gradients(&t.g, &data, (uint64_t)k, &t.report);
        for (int s = 0; s < 2; s++) {
            const struct sp_stage_report *r = &t.report.stages[s];

            assert_true(r->core_wait_us >= 0 && r->core_wait_us <= r->busy_us);
            busy += r->busy_us;
            waited += r->core_wait_us;
        }
    }
    printf("[          ] %d steps: %.0f us in tasks, %.0f of them without a core\n", k - 2, busy,
           waited);
    assert_true(waited >= ENOUGH_US);
    tear_down(&t);
    __atomic_store_n(&stop_spinning, true, __ATOMIC_RELAXED);
    pthread_join(spinner, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void do_nothing(void *buffers[], void *args)
{
    (void)buffers, (void)args;
}

static void count_late(void *counted)
{
    usleep(100000);
    __atomic_store_n((bool *)counted, true, __ATOMIC_RELAXED);
}

/* A task's data can be acquired before its callback has run; the callback counts in the task's
 * stage. */
TEST(stages_outlast_callbacks)
{
    static struct starpu_codelet nothing = {
        .cpu_funcs = {do_nothing}, .nbuffers = 1, .modes = {STARPU_RW}};
    bool counted = false;
    struct timed t;

    set_up("1f1b", 2, 2, 1, &t);
    assert_int_equal(starpu_task_insert(&nothing, STARPU_RW, sp_handle(t.g.stages[0].tally[0]),
                                        STARPU_CALLBACK_WITH_ARG_NFREE, count_late, &counted, 0),
                     0);
    tear_down_graph(&t);
    assert_true(__atomic_load_n(&counted, __ATOMIC_RELAXED));
    tear_down_rest(&t);
}

TEST_FIXTURE(make_data, close_data)
