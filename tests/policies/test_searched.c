/*
 * Searched orders, in a V or in waves, and Chimera: no worse than those of their authors' code,
 * within the memory of their papers, and found for any size.
 */
#include "policies/play.h"
#include "policies/reference.h"
#include <time.h>

static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
static const char *const searched[] = {"v-half", "v-min", "1f1b-v", "hanayo"};

static int peak(const struct sp_plan *plan, const struct sp_times *t)
{
    int most = 0;

    for (int s = 0; s < plan->layout.stages; s++)
        most = t->peak_live[s] > most ? t->peak_live[s] : most;
    return most;
}

/* Plans a layout with the schedule's own chunks, and simulates it. */
static void plan_and_time(const char *schedule, struct sp_layout lay, struct sp_plan *plan,
                          struct sp_times *t)
{
    lay.chunks = 0;
    make_and_play(schedule, lay, lay.costs ? lay.costs : &unit, plan, t);
}

static double makespan(const char *schedule, int p, int m)
{
    struct sp_plan plan;
    struct sp_times t;
    double is;

    plan_and_time(schedule, layout(p, m), &plan, &t);
    is = t.makespan;
    played_done(&plan, &t);
    return is;
}

/* Compares the makespan, and the span and memory of every stage. An op of a chunk costs 1 in the
 * files. */
TEST(no_worse_than_reference)
{
    static const struct {
        const char *schedule, *file;
    } table[] = {
        {"v-half", "sail_vhalf_p2_m4_v2"}, {"v-half", "sail_vhalf_p2_m8_v2"},
        {"v-half", "sail_vhalf_p4_m8_v2"}, {"v-min", "sail_vmin_p2_m4_v2"},
        {"v-min", "sail_vmin_p2_m8_v2"},   {"v-min", "sail_vmin_p4_m8_v2"},
        {"1f1b-v", "sail_1f1bv_p2_m4_v2"}, {"1f1b-v", "sail_1f1bv_p2_m8_v2"},
        {"1f1b-v", "sail_1f1bv_p4_m8_v2"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *root = reference_load(table[i].file), *check = json_object_get(root, "check");
        int p = reference_integer(root, "p", 0), m = reference_integer(root, "m", 0);
        double theirs = reference_number(check, "makespan_F1_B1_W1_comm0", -1);
        struct sp_plan plan;
        struct sp_times t;

        plan_and_time(table[i].schedule, layout(p, m), &plan, &t);
        print_message("%-6s p=%d m=%d makespan %g (theirs %g), spans and peaks", table[i].schedule,
                      p, m, 2 * t.makespan, theirs);
        assert_true(2 * t.makespan <= theirs);
        for (int s = 0; s < p; s++) {
            double span = reference_number(check, "rank_span", s);
            int held = (int)reference_number(check, "peak_live_until_W", s);

            print_message(" %g/%g %d/%d", 2 * t.span[s], span, t.peak_live[s], held);
            assert_true(2 * t.span[s] <= span);
            assert_true(t.peak_live[s] <= held);
        }
        print_message("\n");
        played_done(&plan, &t);
        json_decref(root);
    }
}

/* Results of the authors' v1f1b.py at f = b = w, for sizes without a file: the makespan if an op of
 * a chunk takes 1, and the peak. */
TEST(onef1b_v_no_longer_than_its_authors)
{
    static const struct {
        int p, m, makespan, peak;
    } table[] = {
        {2, 7, 46, 4},    {3, 7, 50, 6},    {3, 16, 104, 6},  {4, 7, 57, 6},    {4, 16, 111, 6},
        {5, 7, 60, 8},    {5, 16, 114, 8},  {6, 5, 56, 10},   {6, 7, 64, 10},   {6, 16, 118, 10},
        {7, 7, 72, 10},   {7, 16, 126, 10}, {8, 3, 56, 6},    {8, 7, 75, 12},   {8, 9, 87, 12},
        {8, 11, 99, 12},  {8, 13, 111, 12}, {8, 14, 117, 12}, {8, 16, 129, 12}, {8, 17, 135, 12},
        {8, 24, 177, 12}, {8, 32, 225, 12},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_plan plan;
        struct sp_times t;

        plan_and_time("1f1b-v", layout(table[i].p, table[i].m), &plan, &t);
        if (2 * t.makespan > table[i].makespan || peak(&plan, &t) > table[i].peak)
            fail_msg("1f1b-v p=%d m=%d makespan %g (theirs %d), peak %d (%d)", table[i].p,
                     table[i].m, 2 * t.makespan, table[i].makespan, peak(&plan, &t), table[i].peak);
        played_done(&plan, &t);
    }
    print_message("1f1b-v: %zu sizes no longer than the authors' code\n",
                  sizeof table / sizeof *table);
}

TEST(chimera_is_the_reference)
{
    json_t *root = reference_load("chimera_2pipe_p4_m8_v2"),
           *check = json_object_get(root, "check");
    struct sp_plan plan;
    struct sp_times t;

    plan_and_time("chimera", layout(4, 8), &plan, &t);
    reference_compare(&plan, root);
    for (int s = 0; s < 4; s++) {
        assert_true(t.span[s] == reference_number(check, "rank_span", s));
        assert_int_equal(t.peak_live[s], (int)reference_number(check, "peak_live_until_B", s));
    }
    assert_true(t.makespan == reference_number(check, "makespan_F1_B1_W1_comm0", -1));
    print_message("chimera p=4 m=8 makespan %g, op by op\n", t.makespan);
    played_done(&plan, &t);
    json_decref(root);
}

/* Activations of a chunk that the paper grants a stage. */
static int granted(const char *schedule, int p)
{
    if (!strcmp(schedule, "v-half"))
        return 2 * ((p + 2 + 1) / 2);
    if (!strcmp(schedule, "v-min"))
        return 2 * ((p + 4 + 2) / 3);
    if (!strcmp(schedule, "1f1b-v"))
        return 2 * (2 * p + 3) / 3;
    return 2 * p;
}

TEST(memory_of_the_paper)
{
    print_message("makespan over the least, m(f+b+w) + (p-1)f, and peak in micro-batches\n");
    print_message("  p  m  1f1b");
    for (size_t i = 0; i < sizeof searched / sizeof *searched; i++)
        print_message("%15s", searched[i]);
    print_message("\n");
    for (int p = 4; p <= 12; p++) {
        for (int m = 4; m <= 32; m *= 2) {
            if ((p + m / 4) % test_every(7))
                continue;
            print_message("%3d %2d %5d", p, m, (m + p - 1) * 3 - 3 * m - p + 1);
            for (size_t i = 0; i < sizeof searched / sizeof *searched; i++) {
                struct sp_plan plan;
                struct sp_times t;

                plan_and_time(searched[i], layout(p, m), &plan, &t);
                print_message("   %6.1f %4.1f", t.makespan - 3 * m - (p - 1),
                              peak(&plan, &t) / 2.0);
                assert_true(peak(&plan, &t) <= granted(searched[i], p));
                played_done(&plan, &t);
            }
            print_message("\n");
        }
    }
    assert_true(makespan("v-half", 8, 32) < makespan("1f1b", 8, 32));
}

/* The steady state of a pattern has no bubble, so the idle time does not grow with m. */
TEST(bubble_is_constant)
{
    static const char *const names[] = {"v-half", "v-min", "1f1b-v"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int p = 2; p <= 8; p++) {
            double lost = makespan(names[i], p, 4 * p) - 12 * p;

            assert_true(makespan(names[i], p, 8 * p) - 24 * p <= lost + 1.5);
        }
    }
}

TEST(formulas)
{
    static const struct sp_costs costs[] = {
        {.f = 1, .b = 1, .w = 1}, {.f = 2, .b = 1, .w = 1.5}, {.f = 1, .b = 2, .w = 0.25}};
    static const char *const names[] = {"v-half", "v-min", "1f1b-v", "hanayo", "chimera"};
    int exact = 0;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double most = 1;

        for (int p = 2; p <= 8; p += 2) {
            for (int m = 1; m <= 3 * p; m += p - 1) {
                for (size_t c = 0; c < sizeof costs / sizeof *costs; c++) {
                    struct sp_layout lay = layout(p, m);
                    struct sp_plan plan;
                    struct sp_times t;
                    double formula;

                    lay.costs = &costs[c];
                    plan_and_time(names[i], lay, &plan, &t);
                    formula = formula_of(&plan, &costs[c]);
                    if (plan.def->makespan_is == SP_EXACT && formula >= 0) {
                        assert_true(fabs(t.makespan - formula) < 1e-9);
                        exact++;
                    } else if (formula >= 0) {
                        assert_true(t.makespan >= formula - 1e-9);
                        most = t.makespan / formula > most ? t.makespan / formula : most;
                    }
                    played_done(&plan, &t);
                }
            }
        }
        print_message("%-7s at most %.3f of its bound\n", names[i], most);
    }
    for (int k = 1; k <= 4; k++) {
        struct sp_plan plan;
        struct sp_times t;

        plan_and_time("chimera", layout(6, 6 * k), &plan, &t);
        assert_true(t.makespan == plan.def->makespan(&plan.layout, 1, 1, 1));
        played_done(&plan, &t);
        exact++;
    }
    print_message("chimera exact in %d cases\n", exact);
    assert_true(exact >= 10);
}

/* An order planned for its costs is seldom worse than one planned for others. */
TEST(planned_for_its_costs)
{
    static const struct sp_costs costs = {.f = 1, .b = 1.6, .w = 0.7, .comm = 0.2};
    double own = 0, other = 0;

    for (size_t i = 0; i < sizeof searched / sizeof *searched; i++) {
        for (int p = 3; p <= 8; p++) {
            struct sp_layout lay = layout(p, 2 * p + 1);
            struct sp_plan plan;
            struct sp_times t;

            plan_and_time(searched[i], lay, &plan, &t);
            other += makespan_of(&plan, &costs, SP_PAIRED);
            played_done(&plan, &t);
            lay.costs = &costs;
            plan_and_time(searched[i], lay, &plan, &t);
            own += t.makespan;
            played_done(&plan, &t);
        }
    }
    print_message("planned for its costs %.1f, for unit costs %.1f\n", own, other);
    assert_true(own < other);
}

/* More memory makes a shorter order, and the limit holds; too little is refused, naming an amount
 * that suffices. */
TEST(memory_of_the_layout)
{
    for (size_t i = 0; i < sizeof searched / sizeof *searched; i++) {
        struct sp_layout lay = layout_of(8, 24, 0, 1);
        double is = makespan(searched[i], 8, 24), need;
        struct sp_plan plan;
        struct sp_times t;
        const char *text;

        lay.memory = 9.5;
        plan_and_time(searched[i], lay, &plan, &t);
        print_message("%-6s p=8 m=24 makespan %g, in 9.5 micro-batches %g\n", searched[i], is,
                      t.makespan);
        assert_true(t.makespan <= is && peak(&plan, &t) <= 19);
        played_done(&plan, &t);

        lay.memory = 0.5;
        text = strstr(assert_no_plan(searched[i], lay, "activations of "), "activations of ");
        assert_int_equal(sscanf(text, "activations of %lf", &need), 1);
        lay.memory = need;
        plan_and_time(searched[i], lay, &plan, &t);
        assert_true(peak(&plan, &t) <= 2 * need);
        played_done(&plan, &t);
    }
}

/* Any size builds a verified order, or is refused with a size that works. */
TEST(any_size)
{
    static const struct {
        const char *name;
        int chunks, step; /* of the micro-batches */
    } table[] = {{"v-half", 0, 1}, {"v-min", 0, 1},  {"1f1b-v", 0, 1}, {"chimera", 0, 1},
                 {"hanayo", 2, 1}, {"hanayo", 4, 5}, {"hanayo", 3, 19}};
    int built = 0, refused = 0;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        for (int p = 1; p <= 9; p++) {
            for (int m = 1; m <= 20; m += table[i].step) {
                struct sp_layout lay = layout_of(p, m, table[i].chunks, 1);
                struct sp_plan plan;
                struct capture c;
                int ret;

                if ((p + m) % test_every(11))
                    continue;
                ret = CAPTURED(&c, sp_plan_create(table[i].name, &lay, &plan));
                assert_int_equal(!ret, strcmp(table[i].name, "chimera") ? table[i].chunks != 3
                                                                        : p % 2 == 0);
                if (ret) {
                    if (!follow_advice(c.text, &lay))
                        fail_msg("%s p=%d m=%d: %s", table[i].name, p, m, c.text);
                    make_plan_of(table[i].name, lay, &plan);
                    refused++;
                }
                assert_int_equal(plan.layout.micro_batches, m);
                built++;
                sp_plan_destroy(&plan);
            }
        }
    }
    print_message("%d built, %d of them as their refusal said\n", built, refused);
    for (int p = 10; p <= 24; p++) /* the patterns repeat in p */
        for (size_t i = 0; i < 3; i++)
            makespan(table[i].name, p, 3);
}

TEST(same_every_time)
{
    for (size_t i = 0; i < sizeof searched / sizeof *searched; i++) {
        struct sp_layout lay = layout_of(8, 32, 0, 1);
        clock_t from = clock();
        struct sp_plan a, b;
        double seconds;

        make_plan_of(searched[i], lay, &a);
        seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
        make_plan_of(searched[i], lay, &b);
        assert_same_programs(&a, &b);
        print_message("%-6s p=8 m=32 found in %.3f s\n", searched[i], seconds);
        assert_true(seconds < 10); /* a tenth of a second without sanitizers */
        sp_plan_destroy(&a);
        sp_plan_destroy(&b);
    }
}

/* Chunks of stages, drawn anew for each case, and what a stage may hold. */
static int drawn[64], held;

static int drawn_stage(const struct sp_layout *lay, int stage, int chunk)
{
    return drawn[chunk * lay->stages + stage];
}

static int list_order(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    int limit[64];

    for (int s = 0; s < lay->stages; s++)
        limit[s] = held;
    return sp_list_order(lay, limit, sp_layout_flag(lay, "split"), programs, why, n);
}

/* Legal for any placement, cost and memory, or the plan would be refused; within the memory, and not
 * longer than one micro-batch after the other on one device. */
TEST(list_orders_of_any_placement)
{
    static const struct sp_schedule_def def = {.abi = SP_SCHEDULE_ABI,
                                               .name = "drawn",
                                               .summary = "by list scheduling",
                                               .source = "this test",
                                               .family = "layerwise",
                                               .flags = "split",
                                               .default_chunks = 1,
                                               .layerwise.global_stage = drawn_stage,
                                               .emit_all = list_order};
    unsigned seed = 1;
    double bubbles = 0;
    int cases = 0;

    assert_int_equal(sp_schedule_register(&def), 0);
    for (int p = 1; p <= 7; p += 2)
        for (int v = 1; v <= 4; v++)
            for (int m = 1; m <= 9; m += 4)
                for (int split = 0; split < 2; split++, cases++) {
                    struct sp_costs costs = {.f = 1 + m % 2, .b = 1, .w = 1 + v % 2, .comm = 0.25};
                    struct sp_layout lay = layout_of(p, m, v, 1);
                    struct sp_plan plan;
                    struct sp_times t;

                    for (int i = 0; i < p * v; i++) {
                        int k;

                        seed = seed * 1103515245 + 12345;
                        k = (int)(seed >> 16) % (i + 1);
                        drawn[i] = drawn[k];
                        drawn[k] = i;
                    }
                    held = v + cases % (2 * p);
                    lay.costs = &costs;
                    make_and_play(split ? "drawn:split" : "drawn", lay, &costs, &plan, &t);
                    assert_true(peak(&plan, &t) <= held);
                    assert_true(t.makespan <=
                                m * (p * (costs.f + costs.b + costs.w) + 2 * p * v * costs.comm));
                    bubbles += t.bubble_ratio;
                    played_done(&plan, &t);
                }
    print_message("%d orders, a mean bubble of %.1f %%\n", cases, 100 * bubbles / cases);
}
