/* zb1p and zb2p: equal to published orders, exact formulas, refusals. */
#include "policies/zero_bubble.h"

TEST(zb1p_equals_torch)
{
    static const char *const files[] = {
        "torch_interleavedzb_p2_m4_v1", "torch_interleavedzb_p2_m4_v2",
        "torch_interleavedzb_p2_m8_v1", "torch_interleavedzb_p2_m8_v2",
        "torch_interleavedzb_p2_m8_v4", "torch_interleavedzb_p4_m8_v1",
        "torch_interleavedzb_p4_m8_v2", "torch_interleavedzb_p4_m8_v4"};
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    int ops = 0;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *root = reference_load(files[i]);
        struct sp_layout lay = reference_layout(root);
        struct sp_plan plan;
        struct figures f;

        make_plan_of("zb1p", lay, &plan);
        reference_compare(&plan, root);
        ops += sp_plan_ops(&plan);
        f = simulate(&plan, &unit);
        assert_true(
            fabs(f.makespan * lay.chunks - reference_number(json_object_get(root, "check"),
                                                            "makespan_F1_B1_W1_comm0", -1)) < 1e-9);
        sp_plan_destroy(&plan);
        json_decref(root);
    }
    print_message("%zu orders equal, %d ops\n", sizeof files / sizeof *files, ops);
}

static const struct sp_costs grid_costs[] = {
    {.f = 1, .b = 1, .w = 1}, {.f = 6, .b = 9, .w = 3},    {.f = 10, .b = 12, .w = 8},
    {.f = 4, .b = 4, .w = 1}, {.f = 3, .b = 7, .w = 0},    {.f = 2, .b = 2, .w = 3},
    {.f = 1, .b = 5, .w = 3}, {.f = 7, .b = 2.5, .w = 30},
};
enum { GRID_COSTS = sizeof grid_costs / sizeof *grid_costs };

/* HelixPipe equations 3 and 4. */
TEST(zb1p_formulas)
{
    int exact = 0, none = 0;

    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 20; m++) {
            for (int v = 1; v <= 4; v++) {
                struct sp_layout lay = layout_of(p, m, v, 1);

                if ((p + m + v) % test_every(3))
                    continue;
                for (int c = 0; c < (p * m * v > 200 ? 3 : GRID_COSTS); c++) {
                    const struct sp_costs *k = &grid_costs[c];
                    double formula, eq3 = m * (k->f + k->b + k->w) + (p - 1) * (k->f + k->b - k->w);
                    struct figures f = measure("zb1p", lay, k, &formula);

                    if (formula >= 0 && fabs(f.makespan - formula) > 1e-9 * formula)
                        fail_msg("p=%d m=%d v=%d f:b:w=%g:%g:%g makespan %g, formula %g", p, m, v,
                                 k->f, k->b, k->w, f.makespan, formula);
                    if (m >= p && v == 1 && k->w <= k->f && k->w <= k->b)
                        assert_true(fabs(f.makespan - eq3) < 1e-9 * eq3);
                    if (m >= p && v == 1)
                        assert_int_equal(f.peak, p);
                    assert_true(v > 1 || f.peak <= p);
                    exact += formula >= 0;
                    none += formula < 0;
                }
            }
        }
    }
    print_message("zb1p: %d makespans equal to the formula, %d without one\n", exact, none);
    assert_true(exact > 3 * none);
}

TEST(zb2p_formulas)
{
    int exact = 0;

    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 20; m++) {
            for (int c = 0; c < GRID_COSTS; c++) {
                const struct sp_costs *k = &grid_costs[c];
                double formula, work = m * (k->f + k->b + k->w);
                struct figures f = measure("zb2p", layout(p, m), k, &formula);

                assert_int_equal(f.peak, m < 2 * p - 1 ? m : 2 * p - 1);
                assert_int_equal(formula<0, k->w> k->f || k->w > k->b);
                if (formula < 0)
                    continue;
                assert_true(fabs(f.makespan - formula) < 1e-9 * formula);
                exact++;
                if (m < 2 * p - 1)
                    continue;
                /* the bubble of ZB-H2: none at f = b = w */
                assert_true(fabs(f.span - work - (p - 1) * fmax(0, k->f + k->b - 2 * k->w)) <
                            1e-9 * work);
            }
        }
    }
    print_message("zb2p: %d makespans equal to the formula\n", exact);
}

/* ZB-H2 as published, for m >= 2p-1: stage r has a W from the 2r-th B on, whatever is left to do. */
static void published_zb_h2(int p, int m, struct sp_plan *plan)
{
    make_plan("zb2p", p, m, plan);
    for (int r = 0; r < p; r++) {
        struct sp_program *prog = &plan->programs[r];
        int f = 0, w = 0;

        sp_program_clear(prog);
        while (f < m && f < 2 * (p - 1 - r))
            sp_program_add(prog, SP_F, f++, 0);
        for (int k = 0; k < m; k++) {
            if (f < m)
                sp_program_add(prog, SP_F, f++, 0);
            sp_program_add(prog, SP_B, k, 0);
            if (k >= 2 * r)
                sp_program_add(prog, SP_W, w++, 0);
        }
        while (w < m)
            sp_program_add(prog, SP_W, w++, 0);
    }
    assert_int_equal(sp_plan_index(plan), 0);
}

/* With m < 2p-1: as short as can be at f = b = w, never longer than with the W where they are for
 * more micro-batches, nor than zb1p, at any costs here. */
TEST(zb2p_with_few_micro_batches)
{
    int cases = 0, shorter = 0;

    for (int p = 2; p <= 16; p++) {
        for (int m = 1; m < 2 * p - 1; m++) {
            int least = 3 * m + p - 1 + (m < p ? p - m : 0);
            struct sp_plan published;

            published_zb_h2(p, m, &published);
            for (int c = 0; c < (p < 9 ? GRID_COSTS + 2 : 1); c++) {
                struct sp_costs k = c < GRID_COSTS ? grid_costs[c] : grid_costs[c - GRID_COSTS];
                struct figures now, before;

                k.comm = c < GRID_COSTS ? 0 : 0.5;
                before = simulate(&published, &k);
                now = measure("zb2p", layout(p, m), &k, NULL);
                if (c == 0 && now.makespan != least)
                    fail_msg("p=%d m=%d makespan %g, not %d", p, m, now.makespan, least);
                assert_true(now.makespan <= before.makespan * (1 + 1e-9));
                assert_true(now.span <= before.span * (1 + 1e-9));
                assert_true(now.makespan <=
                            measure("zb1p", layout(p, m), &k, NULL).makespan * (1 + 1e-9));
                assert_true(now.peak <= 2 * p - 2);
                shorter += now.makespan < before.makespan * (1 - 1e-9);
                cases++;
            }
            sp_plan_destroy(&published);
        }
    }
    print_message("%d cases, %d of them shorter than with a W from the 2r-th B on\n", cases,
                  shorter);
    assert_true(shorter > cases / 3);
}

/* With m >= 2p-1: op by op. */
TEST(zb2p_is_zb_h2)
{
    int ops = 0;

    for (int p = 1; p <= 9; p++) {
        for (int m = 2 * p - 1; m <= 2 * p + 9; m++) {
            struct sp_plan published, plan;

            published_zb_h2(p, m, &published);
            make_plan("zb2p", p, m, &plan);
            assert_same_programs(&published, &plan);
            ops += sp_plan_ops(&plan);
            sp_plan_destroy(&plan);
            sp_plan_destroy(&published);
        }
    }
    print_message("zb2p: %d ops as published\n", ops);
}

/* The figures of the papers, p = 4, m = 8, f = b = w. */
TEST(known_figures)
{
    struct sp_layout lay = layout(4, 8);
    struct figures f;

    f = measure("zb1p", lay, &grid_costs[0], NULL);
    assert_true(f.makespan == 27 && f.peak == 4);
    f = measure("zb2p", lay, &grid_costs[0], NULL);
    assert_true(f.makespan == 27 && f.span == 24 && f.peak == 7);
    lay.chunks = 2;
    f = measure("zb1p", lay, &grid_costs[0], NULL);
    assert_true(f.makespan == 25.5 && f.peak == 8);
}

static struct sp_layout with_memory(int v, int n, double memory)
{
    struct sp_layout lay = layout_of(4, 8, v, n);

    lay.memory = memory;
    return lay;
}

TEST(refuses)
{
    const struct refusal table[] = {
        {"zb1p", with_memory(1, 2, 0), "zb1p runs whole sequences, not 2 slices; use --slices 1"},
        {"zb1p:group=0", with_memory(1, 1, 0), "group a number of micro-batches, 1 or more"},
        {"zb1p:group=x", with_memory(1, 1, 0), "group a number of micro-batches, 1 or more"},
        {"zb1p:group=3", with_memory(2, 1, 0),
         "groups of 3 micro-batches on 4 stages; use group=4 or more"},
        {"zb1p:limit=3", with_memory(1, 1, 0), "only when its order is searched: add auto"},
        {"zb1p:auto,limit=0", with_memory(1, 1, 0), "needs room for 1 micro-batch, not limit=0"},
        {"zb1p:auto,limit=2x", with_memory(1, 1, 0), "takes whole numbers for limit"},
        {"zb1p:auto,budget=-1", with_memory(1, 1, 0), "budget=-1 milliseconds"},
        {"zb1p:auto,budget=600001", with_memory(1, 1, 0),
         "at most budget=600000 milliseconds, not 600001"},
        {"zb1p:auto,group=4", with_memory(1, 1, 0), "leave auto or group out"},
        {"zb1p:auto", with_memory(2, 1, 0),
         "is searched with 1 chunk per stage, not 2; use --chunks 1"},
        {"zb1p:auto", with_memory(1, 1, 0.9), "the activations of 1 micro-batch, there is for 0.9"},
        {"zb2p", with_memory(2, 1, 0), "has 1 chunk per stage, not 2; use --chunks 1"},
        {"zb2p:budget=3", with_memory(1, 1, 0), "only when its order is searched: add auto"},
        {"zb2p:automatic", with_memory(1, 1, 0), "has no option 'automatic'; it has"},
    };

    assert_no_plans(table);
}
