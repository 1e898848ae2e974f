/*
 * HelixPipe's times: the list simulation against the rounds of helix.h, op by op; the bubble
 * against the bounds of the paper's section 4.5 and against those of 1F1B and ZB1P (its table 2).
 */
#include "policies/helix.h"

static uint32_t seed = 1;

static int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

/* Makespan less the work of the busiest stage. */
static double bubble(const struct oracle *h)
{
    double most = 0;

    for (int s = 0; s < h->p; s++)
        most = h->busy[s] > most ? h->busy[s] : most;
    return h->makespan - most;
}

/* The closed form is an upper bound if p divides L, and negative otherwise. */
static void assert_formula(const struct sp_plan *plan, const struct sp_part_costs *c,
                           const struct oracle *h)
{
    double formula = plan->def->makespan_of_parts(&plan->layout, c), blocks = c->pre + c->post;
    double work =
        h->m * (h->L / h->p) * ((1 + c->backward) * (blocks + c->attn) + c->again * blocks);

    assert_int_equal(plan->def->makespan_is, SP_UPPER_BOUND);
    if (h->L % h->p) {
        assert_true(formula < 0);
        return;
    }
    assert_true(formula == work + h->fold * (h->p - 1) * (1 + c->backward + c->again) * blocks);
    assert_true(h->fold == 1 || h->p == 1 ? formula == h->makespan : formula >= h->makespan);
}

TEST(simulation)
{
    int plans = 0, ops = 0, formulas = 0;

    for (int i = 0; i < 6 * 13 * 3 * 3 * 2; i++) {
        int p = i % 6 + 1, L = i / 6 % 13 + 1, fold = i / 78 % 3 + 1, loops = i / 234 % 3 + 1;
        struct sp_plan plan;
        struct oracle h;

        if (L < p)
            continue;
        helix_legal(helix_name(fold, i / 702), fold, helix_layout(p, L, p * fold * loops), &plan,
                    &h);
        for (int k = 0; k < 4; k++) {
            struct sp_costs c = {.comm = k % 2 ? 0.25 * (pick(20) + 1) : 0,
                                 .parts = {.pre = 0.25 * pick(12),
                                           .attn = 0.25 * pick(40),
                                           .post = 0.25 * (pick(12) + 1),
                                           .backward = k < 2 ? 2 : 0.5 * (pick(6) + 1),
                                           .again = pick(2)}};

            oracle_compare(&h, &c, k < 2 ? SP_UNBOUNDED : SP_FIFO, 0); /* costs are quarters */
            if (c.comm == 0) {
                assert_formula(&plan, &c.parts, &h);
                formulas += L % p == 0;
            }
        }
        plans++;
        ops += 4 * sp_plan_ops(&plan);
        oracle_done(&plan, &h);
    }
    print_message(
        "%d plans, %d ops with the times of the oracle, %d makespans within the formula\n", plans,
        ops, formulas);
}

/* Ratios of pre, attention and post. */
static const struct sp_part_costs ratios[] = {
    {.pre = 1, .post = 2, .attn = 0, .backward = 2},
    {.pre = 1, .post = 2, .attn = 1, .backward = 2},
    {.pre = 1, .post = 2, .attn = 3, .backward = 2},
    {.pre = 2, .post = 1, .attn = 3, .backward = 2},
    {.pre = 3, .post = 5, .attn = 7, .backward = 2},
    {.pre = 1, .post = 0, .attn = 2, .backward = 2},
    {.pre = 0, .post = 1, .attn = 2, .backward = 2},
    {.pre = 0, .post = 0, .attn = 1, .backward = 2},
    {.pre = 1, .post = 2, .attn = 30, .backward = 2},
    {.pre = 1, .post = 2, .attn = 999, .backward = 2},
};
enum { RATIOS = sizeof ratios / sizeof *ratios };

/*
 * Checks a bubble against section 4.5; `most`: the longest, in (p-1)(pre+post). With fold 1 it is
 * known to the bit. Let r = 1 .. p stages have the most blocks: the bubble is the longer of the
 * last micro-batch's ways through the post-attentions and through those stages. That is the paper's
 * (p-1)(pre+post) if r = p.
 */
static void bounded(const struct oracle *h, const struct sp_part_costs *c, double got, double *most)
{
    double blocks = c->pre + c->post, times = 3 + c->again;
    double bound = times * h->fold * (h->p - 1) * blocks;
    double way = (h->L - 1) % h->p * blocks, posts = (h->p - 1) * c->post;

    if (got < 0 || got > bound || (h->fold == 1 && got != times * (way > posts ? way : posts)))
        fail_msg("p=%d L=%d m=%d fold %d, %g:%g:%g, again %g: bubble %g, bound %g", h->p, h->L,
                 h->m, h->fold, c->pre, c->attn, c->post, c->again, got, bound);
    if (h->fold == 1 && h->L % h->p == 0)
        assert_true(got == bound);
    /* below 1F1B's 3(p-1)(pre+attn+post)L/p wherever the bound is */
    if (c->again == 0 && h->p > 1 && (blocks + c->attn) * h->L > h->fold * blocks * h->p)
        assert_true(got * h->p < 3 * (h->p - 1) * (blocks + c->attn) * h->L);
    if (h->p > 1 && blocks > 0 && got / ((h->p - 1) * blocks) > *most)
        *most = got / ((h->p - 1) * blocks);
}

/* The bubble is the same for all numbers of loops and of layers with one remainder, except without
 * attention: then a fold of 3 has less with one loop and one layer a stage. */
static void bubbles_of(int p, int rest, int fold, bool reverse, double most[2][2])
{
    double first[RATIOS][2];

    for (int L = p + rest; L <= 13; L += p) {
        for (int loops = 1; loops <= 2; loops++) {
            struct sp_plan plan;
            struct oracle h;

            helix_legal(helix_name(fold, reverse), fold, helix_layout(p, L, p * fold * loops),
                        &plan, &h);
            for (int i = 0; i < 2 * RATIOS; i++) {
                struct sp_part_costs c = ratios[i / 2];
                double got;

                c.again = i % 2;
                helix_play(&h, &c, 0);
                got = bubble(&h);
                bounded(&h, &c, got, &most[i % 2][rest > 0]);
                if (L == p + rest && loops == 1)
                    first[i / 2][i % 2] = got;
                assert_true(got == first[i / 2][i % 2] || (fold > 2 && c.attn == 0));
            }
            oracle_done(&plan, &h);
        }
    }
}

TEST(bubbles)
{
    for (int fold = 1; fold <= 3; fold++) {
        double most[2][2] = {{0}};

        for (int p = 1; p <= 6; p++) {
            for (int rest = 0; rest < p; rest++) {
                bubbles_of(p, rest, fold, false, most);
                bubbles_of(p, rest, fold, true, most);
            }
        }
        print_message("fold %d: bubbles of at most %.3g (p-1)(pre+post), bound %d; uneven layers "
                      "%.3g; with recompute %.3g and %.3g, bound %d\n",
                      fold, most[0][0], 3 * fold, most[0][1], most[1][0], most[1][1], 4 * fold);
    }
}

TEST(figures)
{
    static const struct {
        int p, L, m, fold, again, comm, makespan;
        double reverse, published; /* makespan, or bubble */
    } table[] = {
        {4, 8, 8, 2, 0, 0, 0, 36, 38},       {4, 8, 8, 2, 1, 0, 0, 51, 54},
        {8, 16, 16, 2, 1, 0, 0, 147, 150},   {8, 32, 16, 1, 0, 0, 1, 1215, 1215},
        {8, 32, 16, 1, 0, 1, 1, 1467, 1467}, {8, 32, 16, 2, 0, 0, 1, 1260, 1262},
        {8, 32, 16, 2, 0, 1, 1, 1266, 1268},
    };

    for (size_t i = 0; i < 2 * sizeof table / sizeof *table; i++) {
        int k = (int)i / 2, reverse = i % 2;
        struct sp_part_costs c = {
            .pre = 1, .attn = 3, .post = 2, .backward = 2, .again = table[k].again};
        struct sp_costs costs = {.comm = table[k].comm, .parts = c};
        double want = reverse ? table[k].reverse : table[k].published, got;
        struct sp_plan plan;
        struct oracle h;

        helix_legal(helix_name(table[k].fold, reverse), table[k].fold,
                    helix_layout(table[k].p, table[k].L, table[k].m), &plan, &h);
        oracle_compare(&h, &costs, SP_FIFO, 0);
        got = table[k].makespan ? h.makespan : bubble(&h);
        print_message("p=%d L=%d m=%d %s%s, comm %d: %s %g\n", h.p, h.L, h.m, plan.options,
                      table[k].again ? ", recompute" : "", table[k].comm,
                      table[k].makespan ? "makespan" : "bubble", got);
        assert_true(got == want);
        oracle_done(&plan, &h);
    }
}

/* True if `reverse` ends before `published`. Checks that it never ends later and that no stage
 * holds more. */
static bool is_faster(const struct sp_plan *reverse, const struct sp_plan *published,
                      const struct sp_costs *c)
{
    struct sp_times a, b;
    bool faster;

    play_plan(reverse, c, SP_FIFO, &a);
    play_plan(published, c, SP_FIFO, &b);
    if (a.makespan > b.makespan)
        fail_msg("%s: %g, published %g", describe(reverse), a.makespan, b.makespan);
    for (int s = 0; s < reverse->layout.stages; s++)
        assert_int_equal(a.peak_live[s], b.peak_live[s]);
    faster = a.makespan < b.makespan;
    sp_times_destroy(&a);
    sp_times_destroy(&b);
    return faster;
}

TEST(reverse_is_never_slower)
{
    int cases = 0, faster = 0;

    for (int p = 2; p <= 8; p++) {
        for (int i = 0; i < 2 * 3 * 2; i++) { /* layers, folds, loops */
            int L = p * (i % 2 + 1), fold = i / 2 % 3 + 1, m = p * fold * (i / 6 + 1);
            struct sp_plan reverse, published;

            helix_plan(helix_name(fold, true), p, L, m, &reverse);
            helix_plan(helix_name(fold, false), p, L, m, &published);
            for (int k = p % 2; k < RATIOS; k += p < 5 ? 1 : 3) {
                struct sp_costs c = {.parts = ratios[k], .comm = i % 3 ? 0.75 : 0};
                bool is;

                c.parts.again = k % 2;
                is = is_faster(&reverse, &published, &c);
                assert_true(fold > 1 || !is);
                cases++;
                faster += is;
            }
            sp_plan_destroy(&reverse);
            sp_plan_destroy(&published);
        }
    }
    print_message("%d cases, reverse faster in %d\n", cases, faster);
    assert_true(faster > cases / 3);
}

/* At 1:3:2 the bubble is always below 1F1B's. It is below ZB1P's (p-1)(pre+3attn+post)L/p except
 * for a fold of 2 with one layer a stage on 4 stages or more. */
TEST(against_others)
{
    static const struct sp_part_costs c = {.pre = 1, .attn = 3, .post = 2, .backward = 2};
    int layouts = 0, not_below = 0;

    for (int p = 2; p <= 8; p++) {
        for (int i = 4 * p; i < 4 * 27; i++) {
            int L = i / 4, fold = i % 2 + 1;
            struct sp_plan plan;
            struct oracle h;

            helix_legal(helix_name(fold, i / 2 % 2), fold, helix_layout(p, L, p * fold), &plan, &h);
            helix_play(&h, &c, 0);
            assert_true(bubble(&h) * p < 3 * (p - 1) * (1 + 3 + 2) * L);
            assert_int_equal(bubble(&h) * p < (p - 1) * (1 + 3 * 3 + 2) * L,
                             fold == 1 || L > p || p < 4);
            layouts++;
            not_below += bubble(&h) * p >= (p - 1) * (1 + 3 * 3 + 2) * L;
            oracle_done(&plan, &h);
        }
    }
    print_message("%d layouts below 1F1B's bubble, all but %d below ZB1P's\n", layouts, not_below);
}
