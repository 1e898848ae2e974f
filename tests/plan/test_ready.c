/*
 * Stages that overtake, simulated: what every execution must keep, the strict order where it must come out, and orders
 * by hand.
 */
#include "policies/common.h"
#include "plan/predict.h"
#include "policies/families/activations.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/index.h"
#include <math.h>

static const struct {
    const char *name;
    int slices, chunks;
    int vocabulary; /* the head is shared by all stages */
} cases[] = {
    {.name = "naive"},
    {.name = "gpipe"},
    {.name = "1f1b"},
    {.name = "1f1b", .vocabulary = 1},
    {.name = "pipedream"},
    {.name = "pipedream-2bw"},
    {.name = "bfs", .chunks = 2},
    {.name = "interleaved", .chunks = 2},
    {.name = "zb1p"},
    {.name = "zb1p", .vocabulary = 1},
    {.name = "zb2p"},
    {.name = "zbv"},
    {.name = "v-half"},
    {.name = "v-min"},
    {.name = "1f1b-v"},
    {.name = "dualpipe"},
    {.name = "dualpipev"},
    {.name = "chimera"},
    {.name = "hanayo", .chunks = 2},
    {.name = "adapipe"},
    {.name = "seq1f1b", .slices = 4},
    {.name = "seq1f1b", .slices = 4, .vocabulary = 1},
    {.name = "terapipe", .slices = 4},
    {.name = "sppo", .slices = 4},
    {.name = "helix"},
    {.name = "helix:fold=1"},
};
enum { CASES = sizeof cases / sizeof *cases };

static void create(int i, int p, int m, int layers, struct sp_plan *plan)
{
    struct sp_layout lay = {.stages = p,
                            .micro_batches = m,
                            .chunks = cases[i].chunks,
                            .slices = cases[i].slices ? cases[i].slices : 1,
                            .vocabulary_parallel = cases[i].vocabulary,
                            .layers = layers,
                            .options = ""};

    assert_int_equal(sp_plan_create(cases[i].name, &lay, plan), 0);
}

static struct sp_costs costs_of(double comm, double wire)
{
    return (struct sp_costs){.f = 1,
                             .b = 1,
                             .w = 1,
                             .comm = comm,
                             .wire = wire,
                             .parts = {.pre = 1, .attn = 3, .post = 2, .backward = 2}};
}

/* The plan becomes what was run. */
static void overtake(struct sp_plan *plan, const struct sp_costs *costs,
                     const struct sp_variation *variation, int window, struct sp_prediction *p)
{
    const struct sp_ready_rule rule = {.every = 1, .window = window};
    const struct sp_execution execution = {.variation = variation, .ready = &rule, .ran = plan};

    assert_int_equal(sp_predict_costs_of(plan, costs, &execution, p), 0);
}

static double strict_makespan(const struct sp_plan *plan, const struct sp_costs *costs,
                              const struct sp_variation *variation)
{
    const struct sp_execution execution = {.variation = variation};
    struct sp_prediction p;
    double makespan;

    assert_int_equal(sp_predict_costs_of(plan, costs, &execution, &p), 0);
    makespan = p.times.makespan;
    sp_prediction_destroy(&p);
    return makespan;
}

/* ---- what every execution keeps ---------------------------------------------------------------- */

/* Most activations of a stage at once, from F's beginning to the end of what gives them back. */
static double most_alive(const struct sp_plan *plan, const struct sp_times *t, int stage)
{
    const struct sp_program *prog = &plan->programs[stage];
    double most = 0;

    for (int k = 0; k < prog->n; k++) {
        double now = t->start[stage][k], alive = 0;

        for (int i = 0; i < prog->n; i++) {
            double size = sp_activation_of_op(plan, stage, &prog->ops[i]);

            if (size > 0 ? t->start[stage][i] <= now : t->end[stage][i] <= now)
                alive += size;
        }
        most = fmax(most, alive);
    }
    return most;
}

/* Everything an op waits for ended before it began: on other stages, on its own, in its gradients. */
static void check_waits(const struct sp_plan *plan, const struct sp_times *t, double comm,
                        const char *name)
{
    struct sp_index ix;
    int bad;

    assert_int_equal(sp_index_create(plan, &ix, &bad, &bad), 0);
    for (int s = 0; s < plan->layout.stages; s++) {
        const struct sp_program *prog = &plan->programs[s];

        for (int k = 0; k < prog->n; k++) {
            struct sp_dep deps[SP_MAX_DEPS];
            int n = plan->family->deps(&plan->layout, s, &prog->ops[k], deps);

            for (int i = 0; i < n; i++) {
                int j = sp_index_place(&ix, plan, &deps[i]);
                double there = t->end[deps[i].stage][j] + (deps[i].stage != s ? comm : 0);

                if (deps[i].stage == s &&
                    ((j == k + 1 && prog->ops[k].overlap) || (k == j + 1 && prog->ops[j].overlap)))
                    continue;
                if (deps[i].stage != s && plan->family->size)
                    there = t->end[deps[i].stage][j];
                if (t->start[s][k] < there - 1e-9)
                    fail_msg("%s: op %d of stage %d begins at %g, what it waits for is there at %g",
                             name, k, s, t->start[s][k], there);
            }
        }
    }
    sp_index_destroy(&ix);
}

/* A stage does one thing at a time: what it is busy with before any moment fits in it. */
static void check_one_at_a_time(const struct sp_plan *plan, const struct sp_prediction *p,
                                int stage, const char *name)
{
    const struct sp_program *prog = &plan->programs[stage];

    for (int k = 0; k < prog->n; k++) {
        double from = p->times.start[stage][k], until = p->times.end[stage][k], busy = 0;

        for (int i = 0; i < prog->n; i++)
            if (p->times.start[stage][i] >= from - 1e-9 && p->times.end[stage][i] <= until + 1e-9)
                busy += sp_op_cost(plan, &p->costs, stage, &prog->ops[i]);
        if (busy > until - from + 1e-6)
            fail_msg("%s: stage %d is busy for %g between %g and %g", name, stage, busy, from,
                     until);
    }
}

static bool is_same_op(const struct sp_op *a, const struct sp_op *b)
{
    return a->pass == b->pass && a->part == b->part && a->slice == b->slice && a->mb == b->mb &&
           a->chunk == b->chunk;
}

/* Weight gradients of a chunk add up in the order of the program. */
static void check_adders(const struct sp_plan *plan, const struct sp_plan *planned,
                         const struct sp_times *t, const char *name)
{
    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k], *before = NULL, *o;

            if (op->part == SP_ATTN || op->pass == SP_F)
                continue;
            for (o = planned->programs[s].ops; !is_same_op(o, op); o++)
                if (o->pass == op->pass && o->part == op->part && o->chunk == op->chunk)
                    before = o;
            for (int i = 0; before && i < plan->programs[s].n; i++)
                if (is_same_op(&plan->programs[s].ops[i], before) &&
                    t->end[s][i] > t->start[s][k] + 1e-9)
                    fail_msg("%s: stage %d adds gradients of one chunk out of order", name, s);
        }
}

TEST(every_schedule_varied)
{
    int overtakings = 0;

    for (int i = 0; i < CASES; i++)
        for (unsigned k = 0; k < 12; k++) {
            const struct sp_variation v = {.uniform = k % 3 == 0   ? 0.5
                                                      : k % 3 == 1 ? 1
                                                                   : 0,
                                           .lognormal = k % 3 == 2 ? 1.5 : 0,
                                           .seed = k,
                                           .slow_stage = 1,
                                           .stage_by = k % 4 == 1 ? 2 : 0};
            int p = k % 2 ? 4 : 2, window = k % 5 == 4 ? 0 : 6;
            struct sp_costs costs = costs_of(k % 2, k % 4 == 3 ? 0.5 : 0);
            struct sp_plan plan, planned;
            struct sp_prediction got;

            create(i, p, 4 * p, k % 3 ? 2 * p : 4 * p, &plan);
            create(i, p, 4 * p, k % 3 ? 2 * p : 4 * p, &planned);
            overtake(&plan, &costs, &v, window, &got);
            check_waits(&plan, &got.times, costs.comm, cases[i].name);
            check_adders(&plan, &planned, &got.times, cases[i].name);
            for (int s = 0; s < p; s++) {
                double bound = 0, live = 0;

                assert_int_equal(plan.programs[s].n, planned.programs[s].n);
                for (int o = 0; o < planned.programs[s].n; o++) {
                    live += sp_activation_of_op(&planned, s, &planned.programs[s].ops[o]);
                    bound = fmax(bound, live);
                    overtakings +=
                        !is_same_op(&planned.programs[s].ops[o], &plan.programs[s].ops[o]);
                }
                check_one_at_a_time(&plan, &got, s, cases[i].name);
                if (most_alive(&plan, &got.times, s) > bound + 1e-6)
                    fail_msg("%s: stage %d holds %g activations, strict %g", cases[i].name, s,
                             most_alive(&plan, &got.times, s), bound);
            }
            sp_prediction_destroy(&got);
            sp_plan_destroy(&plan);
            sp_plan_destroy(&planned);
        }
    printf("[          ] %d ops elsewhere than in their program\n", overtakings);
    assert_true(overtakings > 1000);
}

/* ---- against the strict order ------------------------------------------------------------------ */

/* Looking at one op alone is the strict order, whatever times vary. */
TEST(a_window_of_one_is_strict)
{
    for (int i = 0; i < CASES; i++)
        for (unsigned seed = 0; seed < 4; seed++) {
            const struct sp_variation v = {.uniform = 0.7, .seed = seed};
            struct sp_costs costs = costs_of(seed % 2, seed / 2);
            struct sp_prediction got;
            struct sp_plan plan;
            double want;

            create(i, 4, 8, 8, &plan);
            want = strict_makespan(&plan, &costs, &v);
            overtake(&plan, &costs, &v, 1, &got);
            if (fabs(got.times.makespan - want) > 1e-9 * want)
                fail_msg("%s: %g, strict %g", cases[i].name, got.times.makespan, want);
            sp_prediction_destroy(&got);
            sp_plan_destroy(&plan);
        }
}

/* At times as planned, an order without idle has nothing to overtake; all others may gain, never lose much. */
TEST(at_planned_times)
{
    for (int i = 0; i < CASES; i++) {
        struct sp_costs costs = costs_of(0, 0);
        struct sp_prediction got;
        struct sp_plan plan;
        double want;

        create(i, 4, 16, 32, &plan);
        want = strict_makespan(&plan, &costs, NULL);
        overtake(&plan, &costs, NULL, SP_READY_WINDOW, &got);
        if (got.times.makespan > 1.01 * want)
            fail_msg("%s: %g, strict %g", cases[i].name, got.times.makespan, want);
        if ((!strcmp(cases[i].name, "1f1b") || !strcmp(cases[i].name, "gpipe")) &&
            got.times.makespan != want)
            fail_msg("%s: %g, not %g", cases[i].name, got.times.makespan, want);
        sp_prediction_destroy(&got);
        sp_plan_destroy(&plan);
    }
}

/* Two stages by hand. The message of F0 takes 5, so stage 1 has nothing to overtake with; W0 of stage 0 fills its wait. */
TEST(two_stages_by_hand)
{
    static const char *const lines[] = {"F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1"};
    struct sp_costs costs = {.f = 3, .b = 3, .w = 3};
    struct sp_variation v = {.slow_stage = 1, .stage_by = 2};
    struct sp_layout lay = layout(2, 2);
    struct sp_prediction got;
    struct sp_plan plan;
    double want;

    lay.layers = 2;
    write_plan(lay, lines, &plan);
    plan.def = NULL;
    /* Stage 1: F0 3-9, B0 9-15, F1 15-21, B1 21-27, W0 27-33, W1 33-39.
     * Stage 0 strict: F0 0-3, F1 3-6, B0 15-18, B1 27-30, W0 30-33, W1 33-36. Ready: W0 18-21. */
    want = strict_makespan(&plan, &costs, &v);
    assert_true(fabs(want - 39) < 1e-9);
    overtake(&plan, &costs, &v, SP_READY_WINDOW, &got);
    assert_true(fabs(got.times.makespan - 39) < 1e-9);
    assert_int_equal(plan.programs[0].ops[3].pass, SP_W);
    assert_true(fabs(got.times.start[0][3] - 18) < 1e-9);
    assert_true(fabs(got.times.end[0][5] - 33) < 1e-9);
    sp_prediction_destroy(&got);
    sp_plan_destroy(&plan);
}

/* An op that overtook gives way after the task that it is at. */
TEST(tasks_are_overtaken)
{
    static const char *const lines[] = {"F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1"};
    struct sp_costs costs = {.f = 3, .b = 3, .w = 30};
    struct sp_layout lay = layout(2, 2);
    struct sp_prediction got;
    struct sp_plan plan;

    lay.layers = 2;
    write_plan(lay, lines, &plan);
    /* Stage 1: F0 3-6, B0 6-9, F1 9-12, B1 12-15. Stage 0: F0, F1 until 6, B0 9-12, W0 12-22 (a task of three), B1
     * 22-25 as it is there since 15, W0 25-45, W1 45-75. */
    overtake(&plan, &costs, NULL, SP_READY_WINDOW, &got);
    assert_int_equal(plan.programs[0].ops[3].pass, SP_W);
    assert_true(fabs(got.times.start[0][3] - 12) < 1e-9);
    assert_true(fabs(got.times.end[0][3] - 45) < 1e-9);
    assert_int_equal(plan.programs[0].ops[4].pass, SP_B);
    assert_true(fabs(got.times.start[0][4] - 22) < 1e-9);
    assert_true(fabs(got.times.end[0][4] - 25) < 1e-9);
    sp_prediction_destroy(&got);
    sp_plan_destroy(&plan);
}

/* ---- variation --------------------------------------------------------------------------------- */

TEST(factors_have_their_means)
{
    static const struct sp_variation all[] = {
        {.uniform = 0.5, .seed = 1}, {.lognormal = 0.5, .seed = 1}, {.lognormal = 0.3, .seed = 9}};

    for (int i = 0; i < 3; i++) {
        double sum = 0, squares = 0, deviation;
        int n = 0;

        for (int s = 0; s < 64; s++)
            for (int k = 0; k < 2000; k++, n++) {
                double f = sp_variation_factor(&all[i], s, k);

                assert_true(f > 0 && (!all[i].uniform || fabs(f - 1) <= all[i].uniform));
                sum += f;
                squares += f * f;
            }
        deviation = sqrt(squares / n - sum / n * sum / n);
        assert_true(fabs(sum / n - 1) < 0.01);
        assert_true(fabs(deviation -
                         (all[i].uniform ? all[i].uniform / sqrt(3) : all[i].lognormal)) < 0.01);
    }
}

TEST(variations_are_read)
{
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "varies nothing"},
        {"uniform=0", "varies nothing"},
        {"seed=3", "seed= draws nothing"},
        {"uniform=1.5", "uniform=1.5 is not a number in 0 .. 1"},
        {"uniform=0.1,uniform=0.2", "uniform is given twice"},
        {"uniform", "'uniform' is not one of"},
        {"jitter=1", "'jitter=1' is not one of"},
        {"stage=4x2", "stage=4x2 is not a stage"},
        {"stage=2", "stage=2 is not a stage"},
        {"stage=2x0", "stage=2x0 is not a stage"},
        {"link=3x2", "link=3x2 is not a stage before the last"},
        {"uniform=0.1,seed=1.5", "seed=1.5 is not a whole number"},
    };
    struct sp_variation v;
    struct capture c;

    assert_int_equal(sp_variation_parse("show", "uniform=0.25,seed=7,stage=3x1.5,link=2x4", 4, &v),
                     0);
    assert_true(v.uniform == 0.25 && v.seed == 7 && v.slow_stage == 3 && v.stage_by == 1.5 &&
                v.slow_link == 2 && v.link_by == 4 && v.lognormal == 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_says(&c, sp_variation_parse("show", wrong[i].text, 4, &v), -EINVAL, wrong[i].message,
                    wrong[i].text);
}

/* A slow link delays what crosses it, both ways, and nothing else. */
TEST(slow_links)
{
    struct sp_costs costs = costs_of(1, 0);
    const struct sp_variation last = {.slow_link = 2, .link_by = 3}, none = {.slow_link = 2};
    struct sp_plan plan;

    make_plan("naive", 4, 1, &plan);
    /* F and B of one micro-batch one after the other: six messages, two of them over the link. */
    assert_true(fabs(strict_makespan(&plan, &costs, &none) - (4 * 3 + 6)) < 1e-9);
    assert_true(fabs(strict_makespan(&plan, &costs, &last) - (4 * 3 + 6 + 2 * 2)) < 1e-9);
    sp_plan_destroy(&plan);
}
