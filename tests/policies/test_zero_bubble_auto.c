/* The searched orders of zb1p and zb2p: as good as the authors', the best of small sizes. */
#include "policies/zero_bubble.h"

/* Reads the programs of a file into a plan of its size. */
static void read_plan(json_t *root, struct sp_plan *plan)
{
    json_t *ranks = json_object_get(root, "ranks"), *item;
    size_t k;

    make_plan_of("zb1p", reference_layout(root), plan);
    for (int s = 0; s < plan->layout.stages; s++) {
        sp_program_clear(&plan->programs[s]);
        json_array_foreach(json_array_get(ranks, (size_t)s), k, item)
        {
            struct sp_op op;

            assert_int_equal(sp_op_parse(json_string_value(item), &op), 0);
            sp_program_add_op(&plan->programs[s], op);
        }
    }
    assert_int_equal(sp_plan_index(plan), 0);
}

/* At least as good as the authors' own heuristic, at its costs and in its memory. */
TEST(auto_matches_authors)
{
    static const struct {
        const char *schedule, *file;
        struct sp_costs costs;
    } table[] = {
        {"zb1p:auto", "sail_zb1p_p2_m4_v1", {.f = 1000, .b = 1000, .w = 1000, .comm = 1}},
        {"zb1p:auto", "sail_zb1p_p2_m8_v1", {.f = 1000, .b = 1000, .w = 1000, .comm = 1}},
        {"zb1p:auto", "sail_zb1p_p4_m8_v1", {.f = 1000, .b = 1000, .w = 1000, .comm = 1}},
        {"zb1p:auto",
         "sail_zb1p_f1000b1200w800c50_p4_m8_v1",
         {.f = 1000, .b = 1200, .w = 800, .comm = 50}},
        {"zb2p:auto", "sail_zb2p_p2_m4_v1", {.f = 1000, .b = 1000, .w = 1000, .comm = 1}},
        {"zb2p:auto", "sail_zb2p_p2_m8_v1", {.f = 1000, .b = 1000, .w = 1000, .comm = 1}},
        {"zb2p:auto", "sail_zb2p_p4_m8_v1", {.f = 1000, .b = 1000, .w = 1000, .comm = 1}},
        {"zb2p:auto",
         "sail_zb2p_f1000b1200w800c50_p4_m8_v1",
         {.f = 1000, .b = 1200, .w = 800, .comm = 50}},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *root = reference_load(table[i].file);
        const char *input = json_string_value(json_object_get(root, "scheduler_input"));
        struct figures theirs, ours;
        struct sp_plan plan;
        int limit;

        assert_int_equal(sscanf(strstr(input, "max_mem="), "max_mem=%d", &limit), 1);
        read_plan(root, &plan);
        theirs = simulate(&plan, &table[i].costs);
        ours = measure(table[i].schedule, layout(plan.layout.stages, plan.layout.micro_batches),
                       &table[i].costs, NULL);
        print_message("%-38s makespan %g, was %g; span %g, was %g; peak %d, was %d\n",
                      table[i].file, ours.makespan, theirs.makespan, ours.span, theirs.span,
                      ours.peak, theirs.peak);
        assert_true(ours.makespan <= theirs.makespan && ours.span <= theirs.span);
        assert_true(ours.peak <= limit);
        sp_plan_destroy(&plan);
        json_decref(root);
    }
}

static unsigned seed = 12345;

static double uniform(double low, double high)
{
    seed = seed * 1103515245 + 12345;
    return low + (high - low) * (seed >> 8 & 0xffff) / 65535.0;
}

/* Sizes, costs, uneven stages and limits by chance. */
TEST(auto_is_never_worse)
{
    int cases = 0, better1 = 0, better2 = 0;

    for (int p = 1; p <= 6; p++) {
        for (int m = 1; m <= 11; m += p < 4 ? 2 : 5) {
            double scales[3][6];
            struct sp_costs k = {.f = uniform(1, 4),
                                 .b = uniform(1, 6),
                                 .w = uniform(0, 4),
                                 .comm = cases % 2 ? uniform(0, 0.5) : 0,
                                 .scale_f = scales[0],
                                 .scale_b = scales[1],
                                 .scale_w = scales[2]};
            struct sp_layout lay = layout(p, m);
            struct figures hand, found;

            for (int i = 0; i < 18; i++)
                scales[i / 6][i % 6] = cases % 3 ? 1 : uniform(0.5, 1.5);
            hand = measure("zb1p", lay, &k, NULL);
            found = measure("zb1p:auto,budget=10", lay, &k, NULL);
            assert_true(found.makespan <= hand.makespan * (1 + 1e-9) && found.peak <= p);
            better1 += found.makespan < hand.makespan * (1 - 1e-6);
            hand = measure("zb2p", lay, &k, NULL);
            found = measure("zb2p:auto,budget=10", lay, &k, NULL);
            assert_true(found.span <= hand.span * (1 + 1e-9) && found.peak <= 2 * p);
            better2 += found.span < hand.span * (1 - 1e-6);
            lay.memory = 1.5 + m / 3;
            found = measure("zb1p:auto,budget=10", lay, &k, NULL);
            assert_true(found.peak <= (int)lay.memory);
            found = measure("zb2p:auto,budget=0,limit=1", lay, &k, NULL);
            assert_int_equal(found.peak, 1);
            cases++;
        }
    }
    print_message("%d random cases: makespan below zb1p in %d, span below zb2p in %d\n", cases,
                  better1, better2);
    assert_true(better1 > 0 && better2 > 0);
}

/* All legal words of two stages, by recursion. */
struct all {
    struct sp_plan *plan;
    const struct sp_costs *costs;
    int limit;
    struct figures best; /* least makespan, and least span, each by itself */
};

static void enumerate(struct all *a, int s)
{
    struct sp_program *prog = &a->plan->programs[s];
    int m = a->plan->layout.micro_batches, k[SP_PASSES] = {0};

    for (int i = 0; i < prog->n; i++)
        k[prog->ops[i].pass]++;
    if (prog->n == 3 * m && s + 1 < a->plan->layout.stages) {
        enumerate(a, s + 1);
        return;
    }
    if (prog->n == 3 * m) {
        struct sp_times t;
        char why[256];

        if (!sp_listsim(a->plan, a->costs, SP_UNBOUNDED, &t, why, sizeof why)) {
            double span = 0;

            for (int r = 0; r < a->plan->layout.stages; r++)
                span = fmax(span, t.span[r]);
            a->best.makespan = fmin(a->best.makespan, t.makespan);
            a->best.span = fmin(a->best.span, span);
            sp_times_destroy(&t);
        }
        return;
    }
    for (int pass = SP_F; pass <= SP_W; pass++) {
        if (k[pass] == m || (pass == SP_F && k[SP_F] - k[SP_W] == a->limit) ||
            (pass == SP_B && k[SP_B] == k[SP_F]) || (pass == SP_W && k[SP_W] == k[SP_B]))
            continue;
        sp_program_add(prog, (enum sp_pass)pass, k[pass], 0);
        enumerate(a, s);
        prog->n--;
    }
}

TEST(auto_is_best_of_all_orders)
{
    static const int sizes[][3] = {{2, 3, 2}, {2, 3, 3}, {2, 4, 2}, {3, 2, 2}};

    for (int i = 0; i < 12; i++) {
        const int *size = sizes[i % 4];
        struct sp_costs k = {.f = floor(uniform(1, 9)),
                             .b = floor(uniform(1, 9)),
                             .w = floor(uniform(1, 9)),
                             .comm = floor(uniform(0, 3))};
        struct sp_layout lay = layout(size[0], size[1]);
        struct figures found1, found2;
        struct sp_plan plan;
        struct all a = {.plan = &plan,
                        .costs = &k,
                        .limit = size[2],
                        .best = {.makespan = INFINITY, .span = INFINITY}};

        make_plan("zb1p", size[0], size[1], &plan);
        for (int s = 0; s < size[0]; s++)
            plan.programs[s].n = 0;
        enumerate(&a, 0);
        sp_plan_destroy(&plan);
        lay.memory = size[2];
        found1 = measure("zb1p:auto,budget=60", lay, &k, NULL);
        found2 = measure("zb2p:auto,budget=60", lay, &k, NULL);
        if (found1.makespan != a.best.makespan || found2.span != a.best.span)
            fail_msg("p=%d m=%d limit %d f:b:w %g:%g:%g comm %g: makespan %g of %g, span %g of %g",
                     size[0], size[1], size[2], k.f, k.b, k.w, k.comm, found1.makespan,
                     a.best.makespan, found2.span, a.best.span);
    }
    print_message("12 small cases: makespan and span are the least of all orders\n");
}

/*
 * Sizes at which the list schedules, or replays by squeeze.h of simple orders, annealed or not, end
 * 0.1 to 2 % later than the whole search. The shortest makespans known.
 */
TEST(auto_is_short_where_parts_of_it_are_not)
{
    static const struct {
        int p, m, limit;
        struct sp_costs costs;
        double makespan;
    } table[] = {
        {6, 16, 6, {.f = 1, .b = 1.2, .w = 0.8, .comm = 1}, 81.6},
        {7, 19, 8, {.f = 1, .b = 1.2, .w = 0.8, .comm = 0.5}, 74.8},
        {16, 27, 16, {.f = 2, .b = 1, .w = 1.5, .comm = 1}, 204},
        {16, 54, 23, {.f = 1, .b = 1.6, .w = 0.7, .comm = 0.5}, 217.8},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layout lay = layout(table[i].p, table[i].m);
        struct figures found;

        if (i == 3 && test_every(2) > 1) /* the longest search */
            continue;
        lay.memory = table[i].limit;
        found = measure("zb1p:auto", lay, &table[i].costs, NULL);
        print_message("p=%d m=%d limit %d makespan %g, known %g\n", table[i].p, table[i].m,
                      table[i].limit, found.makespan, table[i].makespan);
        assert_true(found.makespan <= 1.001 * table[i].makespan);
        assert_true(found.peak <= table[i].limit);
    }
}

TEST(auto_is_repeatable)
{
    static const struct sp_costs costs = {.f = 1, .b = 1.7, .w = 0.8, .comm = 0.1};
    struct sp_layout lay = layout(5, 9);
    struct sp_plan a, b;

    lay.costs = &costs;
    make_plan_of("zb1p:auto,budget=50", lay, &a);
    make_plan_of("zb1p:auto,budget=50", lay, &b);
    assert_same_programs(&a, &b);
    assert_null(a.layout.costs);
    sp_plan_destroy(&a);
    sp_plan_destroy(&b);
}
