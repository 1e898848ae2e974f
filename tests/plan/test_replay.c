/* A replay of measured op times, against the list simulation and by hand. */
#include "plan/replay.h"
#include "policies/common.h"
#include "policies/registry.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include <math.h>

static double *random_ms(const struct sp_plan *plan, uint64_t seed)
{
    int ids = plan->family->ids(&plan->layout);
    double *ms = calloc((size_t)ids, sizeof *ms);

    assert_non_null(ms);
    for (int i = 0; i < ids; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ms[i] = 1 + (double)(seed >> 54) / 256;
    }
    return ms;
}

/* With a worker for each stage and no messages it is the list simulation of a run. */
static void as_list_simulation(void **state)
{
    int cases = 0;

    (void)state;
    for (int i = 0; sp_schedule_at(i); i++)
        for (int p = 2; p <= 4; p += 2) {
            struct sp_layout lay = layout(p, 8);
            struct sp_times replayed, simulated;
            struct sp_replay r = {0};
            struct sp_costs costs = {0};
            struct sp_plan plan;
            char why[256] = "";
            double *ms;

            lay.chunks = 0;
            lay.layers = 8;
            lay.slices = strcmp(sp_schedule_at(i)->name, "sppo") ? 1 : 2;
            if (sp_plan_create(sp_schedule_at(i)->name, &lay, &plan))
                continue;
            ms = random_ms(&plan, (uint64_t)i);
            r.ms = costs.by_op = ms;
            assert_int_equal(sp_replay_times(&plan, &r, &replayed), 0);
            assert_int_equal(sp_listsim(&plan, &costs, SP_RUN, &simulated, why, sizeof why), 0);
            assert_true(fabs(replayed.makespan - simulated.makespan) < 1e-9);
            assert_true(fabs(replayed.bubble_ratio - simulated.bubble_ratio) < 1e-9);
            for (int s = 0; s < p; s++)
                for (int k = 0; k < plan.programs[s].n; k++)
                    assert_true(fabs(replayed.start[s][k] - simulated.start[s][k]) < 1e-9 &&
                                fabs(replayed.end[s][k] - simulated.end[s][k]) < 1e-9);
            sp_times_destroy(&replayed);
            sp_times_destroy(&simulated);
            sp_plan_destroy(&plan);
            free(ms);
            cases++;
        }
    printf("[          ] %d plans as their list simulation has them\n", cases);
    assert_true(cases > 30);
}

static double makespan(const struct sp_plan *plan, const struct sp_replay *r)
{
    struct sp_times t;
    double end;

    assert_int_equal(sp_replay_times(plan, r, &t), 0);
    end = t.makespan;
    sp_times_destroy(&t);
    return end;
}

/* gpipe, two stages, two micro-batches: F F B B | . F F B B, forwards of 2, backwards of 4. */
static void by_hand(void **state)
{
    const int one_worker[] = {0, 0}, apart[] = {0, 1}, together[] = {0, 0};
    double ms[64], part[64], delay[64];
    struct sp_replay r = {.ms = ms};
    struct sp_plan plan;

    (void)state;
    make_plan("gpipe", 2, 2, &plan);
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < 4; k++) {
            int id = plan.family->id(&plan.layout, s, &plan.programs[s].ops[k]);

            assert_true(id >= 0 && id < 64);
            ms[id] = plan.programs[s].ops[k].pass == SP_F ? 2 : 4;
            part[id] = plan.programs[s].ops[k].pass == SP_F ? 1 : 0.5;
            delay[id] = 10;
        }
    assert_true(makespan(&plan, &r) == 18);
    r.part = part; /* a backward hands on its output half way: the last op begins 2 earlier */
    assert_true(makespan(&plan, &r) == 16);
    r.part = NULL;
    r.worker = one_worker;
    assert_true(makespan(&plan, &r) == 24);
    r.worker = NULL;
    r.delay = delay;
    r.process = together;
    assert_true(makespan(&plan, &r) == 18);
    r.process = apart; /* one way and back */
    assert_true(makespan(&plan, &r) == 38);
    sp_plan_destroy(&plan);
}

TEST_GROUP(replay)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_list_simulation),
        cmocka_unit_test(by_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
