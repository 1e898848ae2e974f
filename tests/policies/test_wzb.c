/*
 * The zero-bubble forms of WeiPipe, which the paper only sketches: makespans, the ranking of the
 * four variants, activations. Their orders are in test_ring_chunks.c.
 */
#include "policies/families/weight_ring/ring.h"
#include "policies/play.h"
#include "policies/registry.h"

static double simulate(const char *name, int P, int G, const struct sp_costs *c, int *peak,
                       double *formula)
{
    struct sp_plan plan;
    struct sp_times t;
    double is;

    make_and_play(name, layout(P, G * P), c, &plan, &t);
    *peak = t.peak_live[0];
    for (int s = 1; s < P; s++)
        assert_int_equal(t.peak_live[s], *peak);
    *formula = formula_of(&plan, c);
    is = t.makespan;
    played_done(&plan, &t);
    return is;
}

/* The bubble is one turn of the longest kind for each worker but the first. */
TEST(makespans)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};

    for (int P = 2; P <= 8; P++)
        for (int G = 1; G <= 6; G++) {
            int peak[4];
            double formula[4], one = simulate("wzb1", P, G, &unit, &peak[0], &formula[0]);
            double two = simulate("wzb2", P, G, &unit, &peak[1], &formula[1]);
            double interleave = simulate("weipipe", P, G, &unit, &peak[2], &formula[2]);

            assert_true(two == 3 * G * P + P - 1 && two == formula[1]);
            assert_int_equal(peak[1], P);
            if (G > 1)
                assert_true(two < interleave);
            assert_true(one == 3 * G * P + (P - 1) * (G > 1 ? 2 : 1) && one == formula[0]);
            assert_true(one >= two && (G == 1 || one < interleave));
            /* one and a half micro-batches: figure 5's claim of about 1.5 G M_A */
            assert_int_equal(peak[0], G > 1 ? P + (P + 1) / 2 : P);
            if (P == 4)
                print_message("p=4 m=%d: weipipe %g, wzb1 %g, wzb2 %g, bubble of wzb2 %.1f %%\n",
                              G * P, interleave, one, two, 100 * (1 - 3. * G * P / two));
        }
}

TEST(bounds)
{
    static const struct sp_costs costs[] = {
        {.f = 1, .b = 2, .w = 0.5}, {.f = 2, .b = 1, .w = 1}, {.f = 1, .b = 1.3, .w = 0.9}};

    for (int P = 2; P <= 6; P++)
        for (int G = 1; G <= 5; G++)
            for (size_t c = 0; c < sizeof costs / sizeof *costs; c++) {
                double formula, is;
                int peak;

                is = simulate("wzb1", P, G, &costs[c], &peak, &formula);
                assert_true(is >= formula - 1e-9);
                is = simulate("wzb2", P, G, &costs[c], &peak, &formula);
                assert_true(is >= formula - 1e-9);
            }
}

/* In a turn each worker sends to the next one, and the last one sends nothing to the first: wzb2 is
 * a line, and its worker 0 never waits. */
TEST(line)
{
    for (int P = 1; P <= 6; P++)
        for (int G = 1; G <= 4; G++) {
            struct sp_costs late = {.f = 1, .b = 1, .w = 1, .comm = 0.5};
            struct sp_plan plan;
            struct sp_times t;

            make_and_play("wzb2", layout(P, G * P), &late, &plan, &t);
            assert_int_equal(t.messages, 3 * G * P * (P - 1));
            assert_true(fabs(t.makespan - (3 * G * P + (P - 1) * 1.5)) < 1e-9);
            assert_true(fabs(t.span[0] - 3 * G * P) < 1e-9);
            played_done(&plan, &t);
        }
}

TEST(owners)
{
    struct sp_plan plan;

    make_plan("wzb2", 4, 8, &plan);
    for (int c = 0; c < 4; c++)
        assert_int_equal(sp_ring_owner(sp_ring_of(&plan.layout), c), 3);
    sp_plan_destroy(&plan);
    make_plan("wzb2:owner=each", 4, 8, &plan);
    for (int c = 0; c < 4; c++)
        assert_int_equal(sp_ring_owner(sp_ring_of(&plan.layout), c), (c + 1) % 4);
    sp_plan_destroy(&plan);
    assert_no_plan("wzb2:owner=first", layout(4, 8), "use owner=last or owner=each");
}

static int nobody(const struct sp_layout *lay, int chunk)
{
    return chunk == 2 ? lay->stages : 0;
}

/* A schedule that names wrong owners of chunks is refused. */
TEST(wrong_owners)
{
    struct sp_schedule_def def = *sp_schedule_find("wzb2");
    struct sp_layout lay = layout(4, 8);
    struct sp_ring *ring;
    char why[256] = "";

    def.weight_ring.owner = nobody;
    assert_int_equal(sp_ring_create(&lay, &def.weight_ring, &ring, why, sizeof why), -EINVAL);
    assert_string_equal(why, "gives chunk 2 to worker 4, not in 0 .. 3");
    def = *sp_schedule_find("weipipe");
    def.weight_ring.owner = sp_schedule_find("wzb2")->weight_ring.owner;
    assert_int_equal(sp_ring_create(&lay, &def.weight_ring, &ring, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "come home by themselves"));
}
