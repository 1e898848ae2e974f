/*
 * WeiPipe's times: the list simulation against that of weipipe.h, op by op, and closed forms.
 *
 * Without communication the turns make a flow shop in which every worker takes the same time for a
 * turn, so that the makespan is a worker's ops and P-1 times its longest turn, f+b+w: 1F1B's. With
 * one round no turn has both passes, and the longest is max(f, b+w). In the naive order a worker
 * waits for the slower pass of the others wherever it begins the quicker one.
 */
#include "policies/weipipe.h"

static uint32_t seed = 2025;

static double uniform(void)
{
    seed = seed * 1664525u + 1013904223u;
    return 0.05 + (seed >> 8) * (1.0 / (1 << 24));
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9 * (1 + fabs(a));
}

/* Makespan without communication. */
static double closed_form(bool naive, int p, int rounds, double f, double back)
{
    double work = rounds * p * (f + back);

    if (rounds == 1)
        return work + (p - 1) * fmax(f, back);
    if (naive)
        return work + (p - 1) * (fmax(f, back) + (rounds - 1) * fabs(f - back));
    return work + (p - 1) * (f + back);
}

TEST(times)
{
    int played = 0;

    for (int i = 0; i < 2 * 8 * 5; i++) {
        bool naive = i % 2;
        int p = i / 2 % 8 + 1, rounds = i / 16 + 1;
        struct sp_plan plan;
        struct oracle h;

        weipipe_legal(naive, p, rounds, &plan, &h);
        for (int k = 0; k < 12; k++, played++) {
            struct sp_costs c = k ? (struct sp_costs){.f = 2 * uniform(),
                                                      .b = uniform(),
                                                      .w = uniform(),
                                                      .comm = k % 2 ? uniform() : 0}
                                  : sp_costs_unit;

            oracle_compare(&h, &c, SP_UNBOUNDED, 1e-9);
            for (int s = 0; s < p; s++) {
                assert_true(near(h.busy[s], h.m * (c.f + c.b + c.w)));
                assert_int_equal(h.peak[s], p);
            }
            if (c.comm > 0)
                continue;
            assert_true(near(h.makespan, closed_form(naive, p, rounds, c.f, c.b + c.w)));
            if (plan.def->makespan) {
                double said = formula_of(&plan, &c);

                assert_int_equal(plan.def->makespan_is, SP_EXACT);
                if (said >= 0 && !near(said, h.makespan))
                    fail_msg("%s p=%d m=%d f=%g b=%g w=%g: %g by the formula, simulated %g",
                             plan.def->name, p, h.m, c.f, c.b, c.w, said, h.makespan);
            }
        }
        oracle_done(&plan, &h);
    }
    print_message("%d plays of the list simulation as expected\n", played);
}

/* Against 1F1B, and naive against interleaved. */
TEST(makespans)
{
    int slower = 0, equal = 0, quicker = 0;

    for (int i = 0; i < 8 * 5; i++) {
        int p = i % 8 + 1, rounds = i / 8 + 1;
        struct sp_plan weipipe, naive, onef1b;
        double w, n, unit = 3 * (rounds * p + p - 1);

        weipipe_plan(false, p, rounds, &weipipe);
        weipipe_plan(true, p, rounds, &naive);
        make_plan("1f1b", p, p * rounds, &onef1b);
        w = makespan_of(&weipipe, &sp_costs_unit, SP_UNBOUNDED);
        n = makespan_of(&naive, &sp_costs_unit, SP_UNBOUNDED);
        assert_true(near(w, rounds > 1 ? unit : 3 * p + 2 * (p - 1)));
        assert_true(n > w - 1e-9 && (n > w + 1e-9) == (rounds > 2 && p > 1));
        for (int k = 0; k < 20; k++) {
            struct sp_costs c = {.f = 2 * uniform(), .b = uniform(), .w = uniform()};
            double back = c.b + c.w, more;

            w = makespan_of(&weipipe, &c, SP_UNBOUNDED);
            n = makespan_of(&naive, &c, SP_UNBOUNDED);
            if (rounds > 1)
                assert_true(near(w, makespan_of(&onef1b, &c, SP_UNBOUNDED)));
            else
                assert_true(p == 1 || w < makespan_of(&onef1b, &c, SP_UNBOUNDED));
            more = rounds > 1 ? (p - 1) * ((rounds - 1) * fabs(back - c.f) - fmin(c.f, back)) : 0;
            assert_true(near(n - w, more));
            slower += more > 0;
            equal += more == 0;
            quicker += more < 0;
        }
        sp_plan_destroy(&weipipe);
        sp_plan_destroy(&naive);
        sp_plan_destroy(&onef1b);
    }
    print_message("naive is slower %d times, as quick %d times, quicker %d times\n", slower, equal,
                  quicker);
    assert_true(slower > 0 && quicker > 0);
}
