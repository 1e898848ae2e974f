/* A step's time split by cause: of reports made by hand, in which one cause is at work, or all are. */
#include "engine/support.h"
#include "plan/expected.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <math.h>

enum { P = 2, M = 4 };

struct made {
    struct sp_plan plan;
    struct sp_step_report report;
    struct sp_stage_report stages[P];
    struct sp_op_record ops[P][2 * M];
    struct sp_causes causes;
};

static const int one_process[P] = {0, 0}, two_processes[P] = {0, 1};

/* 1F1B with forwards of 2 ms and backwards of 4, exactly as scheduled: 30 ms of which 24 are busy. */
static void make(struct made *m)
{
    struct sp_costs costs = {.f = 2, .b = 2, .w = 2};
    struct sp_times times;
    char why[128];

    *m = (struct made){0};
    make_plan("1f1b", P, M, &m->plan);
    assert_int_equal(sp_listsim(&m->plan, &costs, SP_RUN, &times, why, sizeof why), 0);
    m->report.stages = m->stages;
    m->report.span_us = 1e3 * times.makespan;
    for (int s = 0; s < P; s++) {
        m->stages[s] = (struct sp_stage_report){.busy_us = 24e3,
                                                .idle_us = 6e3,
                                                .bubble_ratio = 0.2,
                                                .ops = m->ops[s],
                                                .n_ops = 2 * M,
                                                .worker = s};
        for (int i = 0; i < 2 * M; i++) {
            double start = 1e3 * times.start[s][i], end = 1e3 * times.end[s][i];

            m->ops[s][i] = (struct sp_op_record){
                .start_us = start, .end_us = end, .busy_us = end - start, .held_us = end - start};
        }
    }
    sp_times_destroy(&times);
}

/* The report as changed: `measured_ms` long with `busy_ms` of work a stage. The cause at work explains
 * all of it. */
static void split(struct made *m, const char *what, const int *process, double measured_ms,
                  double busy_ms, enum sp_cause cause)
{
    struct sp_causes *c = &m->causes;
    double ms = 0, bubble = 0, own = 30, bubble_own = 0.2;

    for (int s = 0; s < P; s++) {
        m->stages[s].busy_us = 1e3 * busy_ms;
        m->stages[s].idle_us = 1e3 * (measured_ms - busy_ms);
        m->stages[s].bubble_ratio = 1 - busy_ms / measured_ms;
    }
    assert_int_equal(sp_expected_causes(&m->plan, &m->report, process, c), 0);
    printf("[          ] %s:", what);
    for (int k = 0; k < SP_CAUSES; k++) {
        printf(" %+.2f", c->ms[k]);
        ms += c->ms[k];
        bubble += c->bubble[k];
    }
    printf(" ms\n");
    assert_true(fabs(ms - measured_ms) < 1e-9 && fabs(c->measured_ms - measured_ms) < 1e-9);
    assert_true(fabs(bubble - (1 - busy_ms / measured_ms)) < 1e-9);
    assert_true(fabs(c->ms[SP_CAUSE_SCHEDULE] - own) < 1e-9);
    assert_true(fabs(c->bubble[SP_CAUSE_SCHEDULE] - bubble_own) < 1e-9);
    for (int k = 1; k < SP_CAUSES; k++)
        assert_true(fabs(c->ms[k] - (k == (int)cause ? measured_ms - own : 0)) < 1e-9);
    sp_plan_destroy(&m->plan);
}

static void one_cause_each(void **state)
{
    struct made m;

    (void)state;
    make(&m);
    split(&m, "as scheduled", one_process, 30, 24, SP_CAUSE_SCHEDULE);

    make(&m); /* the first forward of stage 0 takes 7 ms more, which all wait for */
    m.ops[0][0].busy_us += 7e3;
    m.ops[0][0].held_us += 7e3;
    split(&m, "an op that took long", one_process, 37, 24 + 3.5, SP_CAUSE_OPS);

    make(&m); /* the same, but its worker had no core */
    m.ops[0][0].busy_us += 7e3;
    m.ops[0][0].held_us += 7e3;
    m.ops[0][0].core_wait_us = 7e3;
    split(&m, "no core", one_process, 37, 24 + 3.5, SP_CAUSE_CORES);

    make(&m);
    m.ops[0][0].held_us += 7e3;
    split(&m, "the runtime", one_process, 37, 24, SP_CAUSE_RUNTIME);

    make(&m); /* the first message comes 7 ms after it was sent */
    m.ops[1][0].arrived_us = m.ops[0][0].end_us + 7e3;
    split(&m, "a message", two_processes, 37, 24, SP_CAUSE_MESSAGES);

    make(&m);
    split(&m, "nothing that is known", two_processes, 37, 24, SP_CAUSE_REST);
}

/* Both stages on one worker: nothing runs at the same time. */
static void shared_worker(void **state)
{
    struct made m;

    (void)state;
    make(&m);
    m.stages[1].worker = 0;
    split(&m, "stages that share a worker", one_process, 48, 24, SP_CAUSE_CORES);
    make(&m); /* the same number, in processes of their own */
    m.stages[1].worker = 0;
    split(&m, "workers of one number", two_processes, 30, 24, SP_CAUSE_SCHEDULE);
}

/* The median of a kind is the schedule's, however long one op of it takes. */
static void outliers(void **state)
{
    struct sp_times times;
    struct made m;

    (void)state;
    make(&m);
    m.ops[1][3].busy_us = 300e3;
    assert_int_equal(sp_expected_times(&m.plan, &m.report, &times), 0);
    printf("[          ] with one op of 300 ms: %.1f ms, bubble %.3f\n", times.makespan,
           times.bubble_ratio);
    assert_true(fabs(times.makespan - 30) < 1e-9 && fabs(times.bubble_ratio - 0.2) < 1e-9);
    sp_times_destroy(&times);
    sp_plan_destroy(&m.plan);
}

TEST_GROUP(causes)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_cause_each),
        cmocka_unit_test(shared_worker),
        cmocka_unit_test(outliers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
