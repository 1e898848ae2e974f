/*
 * Medians of few and of many repetitions, and the number of samples after which a median counts as
 * known, against medians of many draws of noisy samples.
 */
#include "model/support.h"
#include "train/calibrate/quality.h"
#include <math.h>

static uint64_t state = 7;

/* Draws from 0 .. 1. */
static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 40) / (1 << 24);
}

TEST(medians)
{
    struct sp_steady s = {0};
    const double samples[] = {5, 1, 4, 2, 3, 6, 0.5, 7}, want[] = {5, 1, 4, 2, 3, 3, 3, 3};

    for (int i = 0; i < 8; i++) {
        sp_steady_add(&s, samples[i]);
        assert_true(fabs(sp_steady_value(&s) - want[i]) < 1e-12);
        for (int j = 1; j < s.n; j++)
            assert_true(s.sorted[j - 1] <= s.sorted[j]);
    }
    assert_true(fabs(s.fastest - 0.5) < 1e-12);
    for (int i = 0; i < SP_STEADY_MOST; i++) /* more than there is room for */
        sp_steady_add(&s, 2);
    assert_true(s.n == SP_STEADY_MOST && fabs(sp_steady_value(&s) - 2) < 1e-12);
}

/* The number of samples of 1 +- `noise` until the median is steady; 0: even the most are not
 * enough. */
static int needed(double noise, double *value)
{
    struct sp_steady s = {0};

    while (s.n < SP_STEADY_MOST && !sp_steady_reached(&s))
        sp_steady_add(&s, 1 + noise * (2 * draw() - 1));
    *value = sp_steady_value(&s);
    return sp_steady_reached(&s) ? s.n : 0;
}

/* More noise takes more samples, and too much is never steady. A steady median is right. */
TEST(samples_needed)
{
    static const double noise[] = {0, 0.04, 0.08, 0.9};
    enum { KINDS = 4, RUNS = 200 };
    double mean[KINDS] = {0}, most = 0;
    int wrong = 0, never[KINDS] = {0};

    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < RUNS; i++) {
            double value, off;
            int n = needed(noise[k], &value);

            never[k] += !n;
            mean[k] += (n ? n : SP_STEADY_MOST) / (double)RUNS;
            if (!n || noise[k] > 0.5) /* so much noise looks steady now and then */
                continue;
            off = fabs(value - 1);
            wrong += off > 0.1;
            most = fmax(most, off);
        }
    print_message("noise of 0, 4, 8, 90 %%: %.1f, %.1f, %.1f, %.1f samples; %d of %d medians "
                  "more than 10 %% off, the worst %.1f %%\n",
                  mean[0], mean[1], mean[2], mean[3], wrong, KINDS * RUNS, 100 * most);
    assert_true(mean[0] < mean[2] && mean[1] < mean[2] && mean[2] < mean[3]);
    assert_true(never[0] + never[1] + never[2] == 0 && never[3] > RUNS / 2);
    assert_true(wrong <= KINDS * RUNS / 20);
}

/* Lengthened samples, wherever they fall, do not move the median while half of all are right. */
TEST(outliers)
{
    struct sp_steady s = {0};

    for (int i = 0; i < 40; i++)
        sp_steady_add(&s, i % 2 ? 50 : 1 + 0.01 * draw());
    assert_true(sp_steady_reached(&s) && sp_steady_value(&s) < 1.01);
}

/* Disturbed samples do not count. */
TEST(disturbed)
{
    struct sp_steady s = {0};

    for (int i = 0; i < 1000; i++)
        sp_steady_disturbed(&s, i % 3 ? 9 : 2);
    assert_true(s.n == 0 && s.disturbed == 1000 && fabs(s.fastest - 2) < 1e-12);
    assert_true(!sp_steady_reached(&s) && sp_steady_spoilt(&s));
    for (int i = 0; i < SP_STEADY_LEAST; i++)
        sp_steady_add(&s, 3);
    assert_true(sp_steady_reached(&s) && !sp_steady_spoilt(&s));
    assert_true(fabs(sp_steady_value(&s) - 3) < 1e-12);
}

/* Samples of ten calls count unless threads waited for a core for more than 5 % of the time. */
TEST(taken)
{
    struct sp_steady s = {0};

    sp_steady_take(&s, 2, 0.09, 10);
    sp_steady_take(&s, 1, 0.06, 10);
    assert_true(s.n == 1 && s.disturbed == 1 && fabs(s.sorted[0] - 0.2) < 1e-12);
    assert_true(fabs(s.fastest - 0.1) < 1e-12);
    assert_true(fabs(s.took_s - 3) < 1e-12 && fabs(s.waited_s - 0.15) < 1e-12);
}

/* A few shorter samples change nothing. If more than a quarter are much shorter, the median is not
 * steady until others are short too. */
TEST(shorter)
{
    struct sp_steady s = {0};

    for (int i = 0; i < 40; i++)
        sp_steady_add(&s, i < 9 ? 1 : 2);
    assert_true(sp_steady_reached(&s) && fabs(sp_steady_value(&s) - 2) < 1e-12);
    for (int i = 0; i < 6; i++)
        sp_steady_add(&s, 1);
    assert_true(!sp_steady_reached(&s) && fabs(sp_steady_doubt(&s) - 0.5) < 1e-12);
    for (int i = 0; i < 20; i++)
        sp_steady_add(&s, 1.01);
    assert_true(sp_steady_reached(&s) && sp_steady_value(&s) < 1.02);
}
