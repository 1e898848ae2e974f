/*
 * Schedules with a published order that needs no search. They equal, op by op, the orders that the
 * code of their authors, of torch and of Megatron-LM ran, and have the same figures.
 */
#include "policies/play.h"
#include "policies/reference.h"
#include "policies/registry.h"

static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};

/* The pairs issued as one unit, all of them and no others. */
static int compare_overlap(const struct sp_plan *plan, json_t *root)
{
    json_t *overlap = json_object_get(root, "overlap");
    int pairs = 0;

    for (int s = 0; s < plan->layout.stages; s++) {
        json_t *of_stage = overlap ? json_array_get(overlap, (size_t)s) : NULL;
        size_t found = 0;

        for (int k = 0; k < plan->programs[s].n; k++) {
            json_t *pair = json_array_get(of_stage, found);

            if (!plan->programs[s].ops[k].overlap)
                continue;
            assert_int_equal(json_integer_value(json_array_get(pair, 0)), k);
            assert_int_equal(json_integer_value(json_array_get(pair, 1)), k + 1);
            found++;
        }
        assert_int_equal(found, json_array_size(of_stage));
        pairs += (int)found;
    }
    assert_true(!overlap == !plan->paired);
    return pairs;
}

static void compare_placement(const struct sp_plan *plan, json_t *map)
{
    for (int s = 0; s < plan->layout.stages; s++) {
        for (int c = 0; c < plan->layout.chunks; c++)
            assert_int_equal(
                sp_global_stage(&plan->layout, s, c),
                json_integer_value(json_array_get(json_array_get(map, (size_t)s), (size_t)c)));
    }
}

/* In the files an op costs 1, here 1/v of a stage, except where a chunk is a whole stage; and a
 * pair is one op that costs the sum. */
static void compare_figures(const struct sp_plan *plan, json_t *check, int pairs)
{
    int p = plan->layout.stages, per_stage = sp_globals(&plan->layout) / p;
    struct sp_times t;

    play_plan(plan, &unit, SP_PAIRED, &t);
    print_message("%s: makespan %g span %g peak %d pairs %d\n", describe(plan), t.makespan,
                  t.span[0], t.peak_live[0], pairs);
    if (check) {
        assert_true(fabs(t.makespan * per_stage -
                         reference_number(check, "makespan_F1_B1_W1_comm0", -1)) < 1e-9);
        assert_true(fabs(t.bubble_ratio - reference_number(check, "idle_fraction", -1)) < 1e-6);
        for (int s = 0; s < p; s++) {
            assert_true(fabs(t.span[s] * per_stage - reference_number(check, "rank_span", s)) <
                        1e-9);
            assert_int_equal(t.peak_live[s], (int)reference_number(check, "peak_live_until_W", s));
        }
    }
    sp_times_destroy(&t);
}

TEST(equal_to_reference)
{
    static const struct {
        const char *schedule, *file;
    } table[] = {
        {"gpipe:backward=fifo", "torch_gpipe_p2_m4_v1"},
        {"gpipe:backward=fifo", "torch_gpipe_p2_m8_v1"},
        {"gpipe:backward=fifo", "torch_gpipe_p4_m8_v1"},
        {"1f1b", "torch_1f1b_p2_m4_v1"},
        {"1f1b", "torch_1f1b_p2_m8_v1"},
        {"1f1b", "torch_1f1b_p4_m8_v1"},
        {"interleaved", "torch_interleaved1f1b_p2_m4_v1"},
        {"interleaved", "torch_interleaved1f1b_p2_m4_v2"},
        {"interleaved", "torch_interleaved1f1b_p2_m8_v1"},
        {"interleaved", "torch_interleaved1f1b_p2_m8_v2"},
        {"interleaved", "torch_interleaved1f1b_p2_m8_v4"},
        {"interleaved", "torch_interleaved1f1b_p4_m8_v1"},
        {"interleaved", "torch_interleaved1f1b_p4_m8_v2"},
        {"interleaved", "torch_interleaved1f1b_p4_m8_v4"},
        {"interleaved:group=5", "megatron_interleaved1f1b_N5_p4_m8_v2"},
        {"bfs", "torch_loopedbfs_p2_m4_v1"},
        {"bfs", "torch_loopedbfs_p2_m4_v2"},
        {"bfs", "torch_loopedbfs_p2_m8_v1"},
        {"bfs", "torch_loopedbfs_p2_m8_v2"},
        {"bfs", "torch_loopedbfs_p2_m8_v4"},
        {"bfs", "torch_loopedbfs_p4_m8_v1"},
        {"bfs", "torch_loopedbfs_p4_m8_v2"},
        {"bfs", "torch_loopedbfs_p4_m8_v4"},
        {"zbv", "torch_zbv_p2_m4_v2"},
        {"zbv", "torch_zbv_p2_m8_v2"},
        {"zbv", "torch_zbv_p4_m8_v2"},
        {"dualpipe", "deepseek_dualpipe_p2_m4_v2"},
        {"dualpipe", "deepseek_dualpipe_p2_m8_v2"},
        {"dualpipe", "deepseek_dualpipe_p4_m8_v2"},
        {"dualpipev", "deepseek_dualpipev_p2_m4_v2"},
        {"dualpipev", "deepseek_dualpipev_p2_m8_v2"},
        {"dualpipev", "deepseek_dualpipev_p4_m8_v2"},
        {"seq1f1b", "sail_seq1f1b_p4_m1_s4"},
        {"seq1f1b", "sail_seq1f1b_p4_m4_s2"},
        {"seq1f1b", "sail_seq1f1b_p4_m4_s4"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *root = reference_load(table[i].file);
        struct sp_plan plan;

        make_plan_of(table[i].schedule, reference_layout(root), &plan);
        reference_compare(&plan, root);
        if (json_object_get(root, "stage_map"))
            compare_placement(&plan, json_object_get(root, "stage_map"));
        compare_figures(&plan, json_object_get(root, "check"), compare_overlap(&plan, root));
        sp_plan_destroy(&plan);
        json_decref(root);
    }
}

/* Four stages, eight micro-batches, a forward, an input and a weight gradient of 1. */
TEST(results_at_unit_costs)
{
    static const struct {
        const char *schedule;
        int slices;
        double makespan, span; /* span of the last stage */
        int peak;              /* of the first stage */
    } table[] = {
        {"interleaved", 1, 28.5, 24, 11}, {"bfs", 1, 28.5, 24, 16},
        {"zbv", 1, 25.5, 24, 8},          {"dualpipe", 1, 26, 26, 5},
        {"dualpipev", 1, 27, 25.5, 9},    {"seq1f1b", 2, 28.5, 24, 5},
        {"terapipe", 2, 28.5, 24, 16},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_plan plan;
        struct sp_times t;

        make_and_play(table[i].schedule, layout_of(4, 8, 0, table[i].slices), &unit, &plan, &t);
        print_message("%-12s makespan %g, last stage's span %g, peak of the first %d\n",
                      table[i].schedule, t.makespan, t.span[3], t.peak_live[0]);
        assert_true(fabs(t.makespan - table[i].makespan) < 1e-9);
        assert_true(fabs(t.span[3] - table[i].span) < 1e-9);
        assert_int_equal(t.peak_live[0], table[i].peak);
        played_done(&plan, &t);
    }
}

/* No order of TeraPipe is stored: it runs slices forward, and backward in the exact reverse. */
TEST(terapipe_is_a_stack)
{
    struct sp_plan plan;

    make_plan_of("terapipe", layout_of(3, 5, 1, 4), &plan);
    for (int s = 0; s < 3; s++) {
        assert_int_equal(plan.programs[s].n, 40);
        for (int k = 0; k < 20; k++) {
            struct sp_op f = plan.programs[s].ops[k], b = plan.programs[s].ops[39 - k];

            assert_true(f.pass == SP_F && f.mb == k / 4 && f.slice == k % 4);
            assert_true(b.pass == SP_B && b.mb == f.mb && b.slice == f.slice);
        }
    }
    sp_plan_destroy(&plan);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The known peak of each schedule, in activations of a chunk and slice. */
static int known_peak(const struct sp_layout *lay, const char *schedule, int stage)
{
    int p = lay->stages, m = lay->micro_batches, v = lay->chunks, n = lay->slices, group = m;

    switch (schedule[0]) {
    case 'b':
        return m * v;
    case 't':
        return m * n;
    case 's':
        return least(p - stage + n - 1, m * n);
    case 'z':
        return least(2 * p, 2 * m);
    case 'd':
        return strcmp(schedule, "dualpipe") ? 2 * p + 1 : p + 1;
    default:
        for (int rounds = m / p; rounds > 1; rounds--) {
            int size = (m + rounds - 1) / rounds;

            if (m - (rounds - 1) * size >= p) {
                group = size;
                break;
            }
        }
        return least(2 * (p - 1 - stage) + (v - 1) * group + 1, m * v);
    }
}

TEST(memory_over_a_grid)
{
    static const char *const schedules[] = {"interleaved", "bfs",     "zbv",     "dualpipe",
                                            "dualpipev",   "seq1f1b", "terapipe"};

    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        int plans = 0, below = 0;

        for (int at = 0; at < 8 * 20 * 3; at++) {
            bool sliced = strchr("st", schedules[i][0]) != NULL;
            struct sp_layout lay = layout_of(1 + at % 8, 1 + at / 8 % 20, sliced ? 1 : 1 + at / 160,
                                             sliced ? 1 + at / 160 : 1);
            const struct sp_schedule_def *def;
            char why[256] = "";
            struct sp_plan plan;
            struct sp_times t;

            def = sp_schedule_find(schedules[i]);
            if (def->check(&lay, why, sizeof why))
                continue;
            make_and_play(schedules[i], lay, &unit, &plan, &t);
            for (int s = 0; s < lay.stages; s++) {
                int known = known_peak(&lay, schedules[i], s);

                if (t.peak_live[s] > known ||
                    (t.peak_live[s] < known &&
                     !(schedules[i][0] == 'z' && lay.micro_batches < 2 * lay.stages - 1)))
                    fail_msg("%s stage %d: peak %d, known for %d", describe(&plan), s,
                             t.peak_live[s], known);
                below += t.peak_live[s] < known;
            }
            plans++;
            played_done(&plan, &t);
        }
        print_message("%-12s %d plans, %d stages below the known peak\n", schedules[i], plans,
                      below);
        assert_true(plans > 0);
    }
}

/* Last in, first out unless asked otherwise, as in the paper. */
TEST(gpipe_defaults_to_lifo)
{
    struct sp_plan plan, lifo;
    char text[SP_OP_TEXT];

    make_plan("gpipe", 3, 5, &plan);
    make_plan("gpipe:backward=lifo", 3, 5, &lifo);
    for (int s = 0; s < 3; s++) {
        assert_string_equal(sp_op_print(&plan.programs[s].ops[4], 0, text), "F4.0");
        assert_string_equal(sp_op_print(&plan.programs[s].ops[5], 0, text), "B4.0");
        assert_string_equal(sp_op_print(&plan.programs[s].ops[9], 0, text), "B0.0");
        assert_memory_equal(plan.programs[s].ops, lifo.programs[s].ops, 10 * sizeof(struct sp_op));
    }
    sp_plan_destroy(&plan);
    sp_plan_destroy(&lifo);
}
