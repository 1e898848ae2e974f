/* zb1p and zb2p: equal to published orders, exact formulas; and the searched orders. */
#include "config.h"
#include "reference.h"
#include "policies/search/zbauto.h"
#include <math.h>

static int integer(json_t *root, const char *key)
{
    json_t *v = json_object_get(root, key);

    assert_true(json_is_integer(v));
    return (int)json_integer_value(v);
}

struct figures {
    double makespan, span;
    int peak;
};

static struct figures simulate(const struct sp_plan *plan, const struct sp_costs *costs)
{
    struct figures f = {0};
    char why[256] = "";
    struct sp_times t;

    if (sp_listsim(plan, costs, SP_UNBOUNDED, &t, why, sizeof why))
        fail_msg("%s", why);
    f.makespan = t.makespan;
    for (int s = 0; s < plan->layout.stages; s++) {
        f.span = fmax(f.span, t.span[s]);
        f.peak = t.peak_live[s] > f.peak ? t.peak_live[s] : f.peak;
    }
    sp_times_destroy(&t);
    return f;
}

/* Makes a plan, plays it and gives it back. */
static struct figures measure(const char *schedule, struct sp_layout lay,
                              const struct sp_costs *costs, double *formula)
{
    struct sp_plan plan;
    struct figures f;

    lay.costs = costs;
    if (sp_plan_create(schedule, &lay, &plan))
        fail_msg("%s p=%d m=%d v=%d is refused", schedule, lay.stages, lay.micro_batches,
                 lay.chunks);
    f = simulate(&plan, costs);
    if (formula)
        *formula = plan.def->makespan(&plan.layout, costs->f, costs->b, costs->w);
    sp_plan_destroy(&plan);
    return f;
}

static void zb1p_equals_torch(void **state)
{
    static const char *const files[] = {
        "torch_interleavedzb_p2_m4_v1", "torch_interleavedzb_p2_m4_v2",
        "torch_interleavedzb_p2_m8_v1", "torch_interleavedzb_p2_m8_v2",
        "torch_interleavedzb_p2_m8_v4", "torch_interleavedzb_p4_m8_v1",
        "torch_interleavedzb_p4_m8_v2", "torch_interleavedzb_p4_m8_v4"};
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    int ops = 0;

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *root = reference_load(files[i]);
        json_t *check = json_object_get(root, "check");
        struct sp_layout lay = layout(integer(root, "p"), integer(root, "m"));
        struct sp_plan plan;
        struct figures f;

        lay.chunks = integer(root, "v");
        assert_int_equal(sp_plan_create("zb1p", &lay, &plan), 0);
        reference_compare(&plan, root);
        ops += sp_plan_ops(&plan);
        f = simulate(&plan, &unit);
        assert_true(fabs(f.makespan * lay.chunks - json_number_value(json_object_get(
                                                       check, "makespan_F1_B1_W1_comm0"))) < 1e-9);
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
static void zb1p_formulas(void **state)
{
    int exact = 0, none = 0;

    (void)state;
    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 20; m++) {
            for (int v = 1; v <= 4; v++) {
                struct sp_layout lay = layout(p, m);

                lay.chunks = v;
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

static void zb2p_formulas(void **state)
{
    int exact = 0;

    (void)state;
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
static void zb2p_with_few_micro_batches(void **state)
{
    int cases = 0, shorter = 0;

    (void)state;
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
static void zb2p_is_zb_h2(void **state)
{
    int ops = 0;

    (void)state;
    for (int p = 1; p <= 9; p++) {
        for (int m = 2 * p - 1; m <= 2 * p + 9; m++) {
            struct sp_plan published, plan;
            const struct sp_op *a, *b;

            published_zb_h2(p, m, &published);
            make_plan("zb2p", p, m, &plan);
            for (int r = 0; r < p; r++) {
                assert_int_equal(published.programs[r].n, plan.programs[r].n);
                a = published.programs[r].ops;
                b = plan.programs[r].ops;
                for (int i = 0; i < 3 * m; i++, ops++)
                    assert_true(a[i].pass == b[i].pass && a[i].mb == b[i].mb);
            }
            sp_plan_destroy(&plan);
            sp_plan_destroy(&published);
        }
    }
    print_message("zb2p: %d ops as published\n", ops);
}

/* The figures of the papers, p = 4, m = 8, f = b = w. */
static void known_figures(void **state)
{
    struct sp_layout lay = layout(4, 8);
    struct figures f;

    (void)state;
    f = measure("zb1p", lay, &grid_costs[0], NULL);
    assert_true(f.makespan == 27 && f.peak == 4);
    f = measure("zb2p", lay, &grid_costs[0], NULL);
    assert_true(f.makespan == 27 && f.span == 24 && f.peak == 7);
    lay.chunks = 2;
    f = measure("zb1p", lay, &grid_costs[0], NULL);
    assert_true(f.makespan == 25.5 && f.peak == 8);
}

/* Reads the programs of a file into a plan of its size. */
static void read_plan(json_t *root, struct sp_plan *plan)
{
    json_t *ranks = json_object_get(root, "ranks"), *item;
    size_t k;

    make_plan("zb1p", integer(root, "p"), integer(root, "m"), plan);
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
static void auto_matches_authors(void **state)
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

    (void)state;
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
static void auto_is_never_worse(void **state)
{
    int cases = 0, better1 = 0, better2 = 0;

    (void)state;
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

static void auto_is_best_of_all_orders(void **state)
{
    static const int sizes[][3] = {{2, 3, 2}, {2, 3, 3}, {2, 4, 2}, {3, 2, 2}};

    (void)state;
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

/* The integer programs alone, from one micro-batch after the other, against the whole search. */
static void programs_alone_find_the_best(void **state)
{
#ifdef HAVE_GLPK
    static const int sizes[][3] = {{2, 4, 2}, {3, 4, 3}, {2, 7, 3}, {4, 8, 4}};

    (void)state;
    for (int i = 0; i < 4; i++) {
        const int *size = sizes[i];
        struct sp_layout lay = layout(size[0], size[1]);
        struct sp_costs k = {.f = 4, .b = 5, .w = 3, .comm = i < 3 ? 1 : 0};
        unsigned char words[4 * 3 * 8];
        struct sp_zb_score score;
        struct figures found;
        struct sp_zb zb;
        double naive;

        lay.costs = &k;
        lay.memory = size[2];
        found = measure("zb1p:auto", lay, &k, NULL);
        assert_int_equal(sp_zb_create(&lay, size[2], false, &zb), 0);
        for (int j = 0; j < zb.p * zb.n; j++)
            words[j] = (unsigned char)(j % 3);
        score = sp_zb_play(&zb, words);
        naive = score.first;
        zb.budget = 150000000;
        assert_int_equal(sp_zb_ilp(&zb, zb.budget, words, &score), 0);
        for (int s = 0; s < zb.p; s++)
            assert_true(sp_zb_legal(&zb, words + s * zb.n));
        print_message("p=%d m=%d limit %d: %g by integer programs from %g, %g by the search\n",
                      size[0], size[1], size[2], score.first, naive, found.makespan);
        assert_true(sp_zb_play(&zb, words).first == score.first);
        /* exact where all of it is one window */
        assert_true(i < 3 ? score.first == found.makespan : score.first < naive / 2);
        sp_zb_destroy(&zb);
    }
#else
    (void)state;
    skip();
#endif
}

static void auto_is_repeatable(void **state)
{
    static const struct sp_costs costs = {.f = 1, .b = 1.7, .w = 0.8, .comm = 0.1};
    struct sp_layout lay = layout(5, 9);
    struct sp_plan a, b;

    (void)state;
    lay.costs = &costs;
    assert_int_equal(sp_plan_create("zb1p:auto,budget=50", &lay, &a), 0);
    assert_int_equal(sp_plan_create("zb1p:auto,budget=50", &lay, &b), 0);
    for (int s = 0; s < 5; s++)
        assert_memory_equal(a.programs[s].ops, b.programs[s].ops, 27 * sizeof(struct sp_op));
    assert_null(a.layout.costs);
    sp_plan_destroy(&a);
    sp_plan_destroy(&b);
}

static void refuses(void **state)
{
    static const struct {
        const char *schedule;
        int v, n;
        double memory;
        const char *line;
    } table[] = {
        {"zb1p", 1, 2, 0, "zb1p runs whole sequences, not 2 slices; use --slices 1"},
        {"zb1p:group=0", 1, 1, 0, "group a number of micro-batches, 1 or more"},
        {"zb1p:group=x", 1, 1, 0, "group a number of micro-batches, 1 or more"},
        {"zb1p:group=3", 2, 1, 0, "groups of 3 micro-batches on 4 stages; use group=4 or more"},
        {"zb1p:limit=3", 1, 1, 0, "only when its order is searched: add auto"},
        {"zb1p:auto,limit=0", 1, 1, 0, "needs room for 1 micro-batch, not limit=0"},
        {"zb1p:auto,limit=2x", 1, 1, 0, "takes whole numbers for limit"},
        {"zb1p:auto,budget=-1", 1, 1, 0, "budget=-1 milliseconds"},
        {"zb1p:auto,budget=600001", 1, 1, 0, "at most budget=600000 milliseconds, not 600001"},
        {"zb1p:auto,group=4", 1, 1, 0, "leave auto or group out"},
        {"zb1p:auto", 2, 1, 0, "is searched with 1 chunk per stage, not 2; use --chunks 1"},
        {"zb1p:auto", 1, 1, 0.9, "the activations of 1 micro-batch, there is for 0.9"},
        {"zb2p", 2, 1, 0, "has 1 chunk per stage, not 2; use --chunks 1"},
        {"zb2p:budget=3", 1, 1, 0, "only when its order is searched: add auto"},
        {"zb2p:automatic", 1, 1, 0, "has no option 'automatic'; it has"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layout lay = layout(4, 8);
        struct sp_plan plan;
        struct catch c;
        int ret;

        lay.chunks = table[i].v;
        lay.slices = table[i].n;
        lay.memory = table[i].memory;
        catch_begin(&c);
        ret = sp_plan_create(table[i].schedule, &lay, &plan);
        catch_end(&c);
        if (ret != -EINVAL || !strstr(c.text, table[i].line))
            fail_msg("%s: %d, '%s'", table[i].schedule, ret, c.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zb1p_equals_torch),
        cmocka_unit_test(zb1p_formulas),
        cmocka_unit_test(zb2p_formulas),
        cmocka_unit_test(zb2p_with_few_micro_batches),
        cmocka_unit_test(zb2p_is_zb_h2),
        cmocka_unit_test(known_figures),
        cmocka_unit_test(auto_matches_authors),
        cmocka_unit_test(auto_is_never_worse),
        cmocka_unit_test(auto_is_best_of_all_orders),
        cmocka_unit_test(programs_alone_find_the_best),
        cmocka_unit_test(auto_is_repeatable),
        cmocka_unit_test(refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
