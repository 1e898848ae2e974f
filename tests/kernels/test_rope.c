/* Rotary positions: values, inverse, and rows that a slice starts in the middle. */
#include "reference.h"

static void reference(int batch, int len, int heads, int d, int ld, int pos0, double theta,
                      double *x)
{
    for (int b = 0; b < batch; b++)
        for (int t = 0; t < len; t++)
            for (int head = 0; head < heads; head++)
                for (int i = 0; i < d / 2; i++) {
                    double *x1 = x + (b * len + t) * ld + head * d + i, *x2 = x1 + d / 2;
                    double angle = (pos0 + t) / pow(theta, 2.0 * i / d);
                    double a = *x1, c = *x2;

                    *x1 = a * cos(angle) - c * sin(angle);
                    *x2 = c * cos(angle) + a * sin(angle);
                }
}

static void shape(int batch, int len, int heads, int d, int pos0, float theta)
{
    int ld = heads * d + 7;
    size_t n = (size_t)(batch * len) * (size_t)ld;
    float *x = new_random(n, 1), *was = new_copy(n, x);
    double *want = new_double(n, x), *back = new_double(n, x);

    reference(batch, len, heads, d, ld, pos0, (double)theta, want);
    sp_rope(batch, len, heads, d, ld, pos0, theta, false, x);
    assert_close("rope", n, x, want, 3e-7);
    sp_rope(batch, len, heads, d, ld, pos0, theta, true, x);
    assert_close("there and back", n, x, back, 3e-7);
    for (int r = 0; r < batch * len; r++)
        assert_same_bits(7, x + (size_t)r * (size_t)ld + heads * d,
                         was + (size_t)r * (size_t)ld + heads * d);
    free(x), free(was), free(want), free(back);
}

static void test_values(void **state)
{
    (void)state;
    shape(1, 7, 3, 10, 0, 1e4f);
    shape(2, 5, 1, 2, 11, 1e4f);
    shape(3, 37, 6, 64, 5, 5e5f);
    shape(1, 9, 2, 128, 131000, 1e4f); /* angles of 1e5 radians */
}

/* Rotating a whole sequence is rotating its slices. */
static void test_slices(void **state)
{
    enum { LEN = 23, CUT = 9, HEADS = 2, D = 6, LD = HEADS * D };
    float *x = new_random(LEN * LD, 1), *cut = new_copy(LEN * LD, x);

    (void)state;
    sp_rope(1, LEN, HEADS, D, LD, 0, 1e4f, false, x);
    sp_rope(1, CUT, HEADS, D, LD, 0, 1e4f, false, cut);
    sp_rope(1, LEN - CUT, HEADS, D, LD, CUT, 1e4f, false, cut + CUT * LD);
    assert_same_bits(LEN * LD, x, cut);
    free(x), free(cut);
}

TEST_GROUP(rope)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
