/* Which step of a run stands for it. */
#include "cli/train/typical_step.h"
#include "policies/common.h"
#include <math.h>

/* Durations in milliseconds of steps 0 to n - 1; the step that stands for them. */
static int copies; /* of reports, by the last call */

static int typical_of(const double *ms, int n, struct sp_typical *t)
{
    *t = (struct sp_typical){0};
    copies = 0;
    for (int k = 0; k < n; k++) {
        int at = sp_typical_offer(t, k, 1e3 * ms[k]);

        assert_true(at >= -1 && at < SP_TYPICAL_KEPT);
        assert_true(at < 0 || t->kept[at].step == k);
        copies += at >= 0;
    }
    assert_true(sp_typical_best(t) >= 0);
    return t->kept[sp_typical_best(t)].step;
}

TEST(last_step_is_an_outlier)
{
    static const double ms[] = {900, 500, 300, 45, 47, 44, 46, 48, 299};
    double least, median, most;
    struct sp_typical t;

    assert_int_equal(typical_of(ms, 9, &t), 6);
    sp_typical_range(&t, &least, &median, &most);
    printf("[          ] %g to %g us, median %g, of %d\n", least, most, median, t.n);
    assert_true(least == 44e3 && median == 46e3 && most == 299e3 && t.n == 6);
}

/* The first steps count where there are no others. */
TEST(short_runs)
{
    static const double ms[] = {900, 500, 300, 70};
    struct sp_typical t = {0};

    assert_int_equal(sp_typical_best(&t), -1);
    assert_int_equal(typical_of(ms, 1, &t), 0);
    assert_int_equal(typical_of(ms, 2, &t), 1);
    assert_int_equal(typical_of(ms, 3, &t), 1);
    assert_int_equal(typical_of(ms, 4, &t), 3);
    assert_int_equal(t.n, 1);
}

/* A run that gets slower: what stood for it is too old, and far from its median. */
TEST(moves_on)
{
    double ms[200];
    struct sp_typical t;
    int step;

    for (int k = 0; k < 200; k++)
        ms[k] = 10 + k + (k % 7 == 0 ? 500 : 0);
    step = typical_of(ms, 200, &t);
    printf("[          ] step %d of 200 that get longer\n", step);
    assert_true(step >= 200 - SP_TYPICAL_STEPS && ms[step] < 500);
}

/* In a run of equals with outliers now and then, never an outlier, wherever it ends; always one of
 * the last steps, and near their median. */
TEST(any_end)
{
    uint64_t seed = 5;
    double ms[400];
    double off = 0;

    for (int k = 0; k < 400; k++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        ms[k] = 40 + (double)(seed >> 44) / (1 << 16) + ((seed >> 40) % 5 == 0 ? 250 : 0);
    }
    for (int n = SP_TYPICAL_WARM_UP + 6; n <= 400; n++) {
        double least, median, most;
        struct sp_typical t;
        int step = typical_of(ms, n, &t);

        sp_typical_range(&t, &least, &median, &most);
        assert_true(step > n - 1 - t.n && ms[step] < 100);
        off += fabs(ms[step] - 1e-3 * median) / 391;
    }
    printf("[          ] steps of 40 to 56 ms: %.2f ms off the median in the mean\n", off);
    printf("[          ] %d of 400 reports were kept for a while\n", copies);
    assert_true(off < 0.5 && copies < 200);
}
