/*
 * Schedules with a published order over a grid of sizes: each size builds, or is refused with a
 * size that builds. Their makespans are as claimed.
 */
#include "policies/orders/interleave.h"
#include "policies/play.h"
#include "policies/registry.h"

static const char *const schedules[] = {"interleaved", "bfs",     "zbv",     "dualpipe",
                                        "dualpipev",   "seq1f1b", "terapipe"};
#define N_SCHEDULES (sizeof schedules / sizeof *schedules)

/* True if a schedule can do a size, by its paper. */
static bool possible(const char *schedule, const struct sp_layout *lay)
{
    bool whole = lay->slices == 1, two = lay->chunks == 2;
    bool enough = lay->micro_batches >= 2 * lay->stages;

    if (!strcmp(schedule, "seq1f1b") || !strcmp(schedule, "terapipe"))
        return lay->chunks == 1;
    if (!strcmp(schedule, "zbv"))
        return whole && two;
    if (!strcmp(schedule, "dualpipev"))
        return whole && two && enough;
    if (!strcmp(schedule, "dualpipe"))
        return whole && two && enough && lay->stages % 2 == 0 && lay->micro_batches % 2 == 0;
    return whole;
}

static void refused_with_advice(const char *schedule, struct sp_layout lay)
{
    int m = lay.micro_batches;
    struct sp_plan plan;
    const char *line = assert_no_plan(schedule, lay, "");

    assert_true(follow_advice(line, &lay) > 0);
    assert_true(lay.micro_batches >= m);
    if (sp_plan_create(schedule, &lay, &plan))
        fail_msg("does not do what it says: %s", line);
    sp_plan_destroy(&plan);
}

TEST(every_size_builds_or_is_refused)
{
    for (size_t i = 0; i < N_SCHEDULES; i++) {
        int built = 0, refused = 0;

        for (int at = 0; at < 9 * 20 * 4 * 4; at += test_every(7)) {
            struct sp_layout lay =
                layout_of(1 + at % 9, 1 + at / 9 % 20, 1 + at / 180 % 4, 1 + at / 720);
            struct sp_plan plan;

            if (possible(schedules[i], &lay)) {
                make_plan_of(schedules[i], lay, &plan);
                assert_int_equal(plan.layout.micro_batches, lay.micro_batches);
                sp_plan_destroy(&plan);
                built++;
            } else {
                refused_with_advice(schedules[i], lay);
                refused++;
            }
        }
        print_message("%-12s %d sizes built, %d refused\n", schedules[i], built, refused);
    }
}

/* The order of a group size that `check` may refuse, played without it. */
static bool group_runs(struct sp_layout lay, int group)
{
    const struct sp_schedule_def *def = sp_schedule_find("interleaved");
    char options[32], why[256] = "";
    struct sp_plan plan = {.def = def, .family = sp_family_find("layerwise")};
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    struct sp_times t;
    int ret;

    snprintf(options, sizeof options, "group=%d", group);
    lay.options = options;
    plan.layout = lay;
    plan.programs = calloc((size_t)lay.stages, sizeof *plan.programs);
    assert_non_null(plan.programs);
    for (int s = 0; s < lay.stages; s++)
        def->emit(&lay, s, &plan.programs[s]);
    ret = sp_listsim(&plan, &unit, SP_UNBOUNDED, &t, why, sizeof why);
    assert_true(ret == 0 || ret == -EDEADLK);
    if (!ret)
        sp_times_destroy(&t);
    sp_plan_destroy(&plan);
    return ret == 0;
}

/* A group size is refused if and only if its order deadlocks, for the nearest that does not. */
TEST(groups_of_interleaved)
{
    int built = 0, refused = 0;

    for (int at = 0; at < 9 * 20 * 4; at += test_every(7)) {
        struct sp_layout lay = layout_of(1 + at % 9, 1 + at / 9 % 20, 1 + at / 180, 1);
        int m = lay.micro_batches;

        for (int group = 1; group <= m; group++) {
            char schedule[32], why[256] = "";
            struct sp_plan plan;
            int nearest, ret;

            snprintf(schedule, sizeof schedule, "interleaved:group=%d", group);
            lay.options = strchr(schedule, ':') + 1;
            if (group_runs(lay, group)) {
                make_plan_of(schedule, lay, &plan);
                sp_plan_destroy(&plan);
                built++;
                continue;
            }
            ret = sp_schedule_find("interleaved")->check(&lay, why, sizeof why);
            assert_int_equal(ret, -EINVAL);
            assert_int_equal(sscanf(strstr(why, "; use "), "; use group=%d", &nearest), 1);
            assert_true(group_runs(lay, nearest));
            for (int d = 1; d < abs(nearest - group); d++) {
                assert_false(group + d <= m && group_runs(lay, group + d));
                assert_false(group - d >= 1 && group_runs(lay, group - d));
            }
            refused++;
        }
    }
    print_message("%d group sizes built, %d refused: those that deadlock\n", built, refused);
    assert_true(built > 0 && refused > 0);
}

TEST(bad_groups_are_refused)
{
    const struct sp_layout lay = layout_of(4, 8, 3, 1);
    const struct refusal table[] = {
        {"interleaved:group=0", lay,
         "has groups of 1 .. 8 micro-batches, not group=0; use group=4"},
        {"interleaved:group=-2", lay,
         "has groups of 1 .. 8 micro-batches, not group=-2; use group=4"},
        {"interleaved:group=9", lay,
         "has groups of 1 .. 8 micro-batches, not group=9; use group=8"},
        {"interleaved:group=x", lay, "wants a number of micro-batches in group=; use group=4"},
        {"interleaved:group=2", lay, "use group=4"},
    };

    assert_no_plans(table);
}

/* The default group is p if p divides m, else torch's if torch takes m, and never shorter than
 * p. */
TEST(default_groups)
{
    int of_torch = 0, others = 0;

    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 60; m++) {
            struct sp_layout lay = layout(p, m);
            int ok = 1, group = sp_interleave_group(&lay, &ok), rounds = m / p > 1 ? m / p : 1;

            assert_true(ok);
            if (m % rounds == 0)
                assert_int_equal(group, m / rounds);
            of_torch += m % rounds == 0;
            others += m % rounds != 0;
            assert_true(m < p ? group == m : group >= p && (m % group == 0 || m % group >= p));
        }
    }
    print_message("default group: %d as torch, %d where torch has none\n", of_torch, others);
}

struct compared {
    int plans, equal, above, below;
};

static void compare(const struct sp_plan *plan, const struct sp_costs *cost,
                    enum sp_channel channel, struct compared *seen)
{
    double formula = formula_of(plan, cost), makespan;

    if (formula < 0)
        return;
    makespan = makespan_of(plan, cost, channel);
    seen->plans++;
    if (fabs(makespan - formula) < 1e-9)
        seen->equal++;
    else if (makespan > formula)
        seen->above++;
    else
        seen->below++;
}

TEST(makespans_are_as_claimed)
{
    static const struct sp_costs costs[] = {{.f = 1, .b = 1, .w = 1},
                                            {.f = 1, .b = 2, .w = 0.5},
                                            {.f = 2, .b = 1, .w = 1},
                                            {.f = 1, .b = 1.25, .w = 3}};

    for (size_t i = 0; i < N_SCHEDULES; i++) {
        struct compared all = {0}, even = {0}, enough = {0}, paired = {0};
        enum sp_formula claim = sp_schedule_find(schedules[i])->makespan_is;

        for (int at = 0; at < 8 * 20 * 4 * 4; at += test_every(3)) {
            struct sp_layout lay =
                layout_of(1 + at % 8, 1 + at / 8 % 20, 1 + at / 160 % 4, 1 + at / 640);
            struct sp_plan plan;

            if (!possible(schedules[i], &lay))
                continue;
            make_plan_of(schedules[i], lay, &plan);
            for (size_t c = 0; c < sizeof costs / sizeof *costs; c++)
                compare(&plan, &costs[c], SP_UNBOUNDED, &all);
            compare(&plan, &costs[0], SP_UNBOUNDED, &even);
            if (!strcmp(schedules[i], "zbv") && lay.micro_batches >= 2 * lay.stages - 1)
                compare(&plan, &costs[0], SP_UNBOUNDED, &enough);
            compare(&plan, &costs[0], SP_PAIRED, &paired);
            sp_plan_destroy(&plan);
        }
        print_message("%-12s %d makespans: %d as the formula, %d above, %d below; f=b=w: %d of %d "
                      "as it, %d as it with pairs as one\n",
                      schedules[i], all.plans, all.equal, all.above, all.below, even.equal,
                      even.plans, paired.equal);
        assert_true(all.equal > 0);
        if (claim == SP_EXACT)
            assert_int_equal(all.equal, all.plans);
        if (claim == SP_LOWER_BOUND)
            assert_int_equal(all.below, 0);
        assert_int_equal(enough.equal, enough.plans);
        if (claim == SP_APPROXIMATE) {
            /* DualPipe: exact for even costs and pairs that run as one, never better */
            assert_int_equal(paired.equal, paired.plans);
            assert_int_equal(even.above, 0);
        }
        assert_true(claim != SP_UPPER_BOUND);
    }
}
