/*
 * fp8: its numbers and their rounding, against a golden file of PyTorch's casts and a search for the
 * nearest number; and each product of the CPU's fp8 table, which must be that of bf16 on operands
 * that another implementation rounded.
 */
#include "emulated_bf16.h"
#include "comparison.h"
#include "kernels/fp8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

enum { FORMATS = 2, FINITE = 127 }; /* numbers that are not negative, at most */

static const char *const names[FORMATS] = {[SP_E4M3] = "e4m3", [SP_E5M2] = "e5m2"};

/* ---- by search ---- */

/* The non-negative finite numbers of each format, ascending: number i has code i. */
static int numbers(enum sp_fp8_format f, double to[FINITE])
{
    int n = 0;

    for (int e = 0; e < (f == SP_E4M3 ? 16 : 31); e++)
        for (int m = 0; m < (f == SP_E4M3 ? 8 : 4) && n < (f == SP_E4M3 ? 127 : 124); m++) {
            double step = f == SP_E4M3 ? ldexp(1, (e ? e : 1) - 10) : ldexp(1, (e ? e : 1) - 17);

            to[n++] = step * (m + (e ? (f == SP_E4M3 ? 8 : 4) : 0));
        }
    return n;
}

/* The code of the number nearest to |x|; of two as near, the even one. */
static int nearest(int n, const double *of, double x)
{
    int low = 0, high = n - 1;

    x = fabs(x);
    while (high - low > 1) {
        int middle = (low + high) / 2;

        if (of[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    if (x - of[low] != of[high] - x)
        return x - of[low] < of[high] - x ? low : high;
    return low % 2 ? high : low;
}

TEST(numbers)
{
    for (int f = 0; f < FORMATS; f++) {
        double number[FINITE];
        int n = numbers((enum sp_fp8_format)f, number);

        assert_true(number[n - 1] == (double)sp_fp8_most((enum sp_fp8_format)f));
        for (int c = 0; c < 256; c++) {
            float x = sp_fp8_value((enum sp_fp8_format)f, (uint8_t)c);

            if ((c & 0x7f) >= n) {
                assert_true(f == SP_E5M2 && (c & 0x7f) == n ? isinf(x) : isnan(x));
                continue;
            }
            assert_true(fabs((double)x) == number[c & 0x7f] && !signbit(x) == (c < 128));
            assert_int_equal(sp_fp8_code((enum sp_fp8_format)f, x), c);
        }
        assert_int_equal(sp_fp8_code((enum sp_fp8_format)f, NAN), SP_FP8_NAN);
        assert_int_equal(sp_fp8_code((enum sp_fp8_format)f, INFINITY), n - 1);
        assert_int_equal(sp_fp8_code((enum sp_fp8_format)f, -1e30f), 0x80 | (n - 1));
    }
}

/* Every bf16, and every f32 half way between two numbers and just beside it. */
TEST(rounding)
{
    int rounded = 0;

    for (int i = 0; i < FORMATS; i++) {
        enum sp_fp8_format f = (enum sp_fp8_format)i;
        double number[FINITE];
        int n = numbers(f, number);

        for (uint32_t b = 0; b < 0x10000; b++) {
            float x = sp_bf16_value((uint16_t)b);
            int code = isnan(x) ? SP_FP8_NAN : nearest(n, number, (double)x);

            assert_int_equal(sp_fp8_code(f, x), !isnan(x) && signbit(x) ? 0x80 | code : code);
            if (!(fabs((double)x) <= number[n - 1]))
                continue;
            assert_true(fabs((double)sp_fp8_nearest(f, x)) == number[code]);
            assert_true(!signbit(sp_fp8_nearest(f, x)) == !signbit(x));
            rounded++;
        }
        for (int c = 0; c < n - 1; c++) {
            float half = (float)((number[c] + number[c + 1]) / 2);

            assert_int_equal(sp_fp8_code(f, half), c + c % 2);
            assert_int_equal(sp_fp8_code(f, nextafterf(half, 0)), c);
            assert_int_equal(sp_fp8_code(f, -nextafterf(half, 1e9f)), 0x80 | (c + 1));
        }
    }
    printf("    %d numbers rounded\n", rounded);
}

/* Numbers and the codes that PyTorch's casts made of them: tests/data/golden/make_fp8.py. */
TEST(golden)
{
    FILE *file = fopen(SP_TESTDATA "/golden/fp8.txt", "r");
    char format[8];
    float x;
    int code, n = 0;

    assert_non_null(file);
    for (; fscanf(file, "%7s %f %d", format, &x, &code) == 3; n++) {
        enum sp_fp8_format f = strcmp(format, names[SP_E4M3]) ? SP_E5M2 : SP_E4M3;

        assert_string_equal(format, names[f]);
        assert_int_equal(sp_fp8_code(f, x), code);
    }
    assert_true(feof(file));
    fclose(file);
    printf("    %d numbers\n", n);
    assert_true(n > 1000);
}

/* The largest power of two that takes no array beyond the format; see fp8.h. */
static int exponent(enum sp_fp8_format f, double amax)
{
    int e = 100;

    while (ldexp(amax, e) > (double)sp_fp8_most(f))
        e--;
    return e;
}

TEST(exponents)
{
    for (int f = 0; f < FORMATS; f++)
        for (uint32_t amax = 0; amax < 0x7f80; amax++) {
            int e = sp_fp8_exponent((enum sp_fp8_format)f, amax);

            assert_int_equal(e, exponent((enum sp_fp8_format)f, sp_bf16_value((uint16_t)amax)));
            assert_true(sp_power_of_two(e) == ldexpf(1, e) && sp_power_of_two(-e) == ldexpf(1, -e));
        }
}

/* ---- products ---- */

/* Scales, rounds, and scales back. */
static uint16_t *rounded(enum sp_fp8_format f, int rows, int width, int ld, const uint16_t *x)
{
    size_t n = (size_t)rows * (size_t)width;
    uint16_t *y = test_bytes((n + 1) * sizeof *y);
    double number[FINITE], amax = 0;
    int all = numbers(f, number), e;
    bool finite = true;

    for (int r = 0; r < rows; r++)
        for (int c = 0; c < width; c++) {
            float size = fabsf(sp_bf16_value(x[(size_t)r * (size_t)ld + (size_t)c]));

            finite = finite && isfinite(size);
            amax = fmax(amax, (double)size);
        }
    e = finite ? exponent(f, amax) : 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < width; c++) {
            double v = (double)sp_bf16_value(x[(size_t)r * (size_t)ld + (size_t)c]);
            double q = finite ? number[nearest(all, number, ldexp(v, e))] : (double)NAN;

            y[(size_t)r * (size_t)width + (size_t)c] = sp_bf16((float)copysign(ldexp(q, -e), v));
        }
    return y;
}

#define K const struct sp_backend *k

static struct sp_linear weights(const struct sp_linear *l)
{
    struct sp_linear to = *l;

    to.w = rounded(SP_E4M3, l->out, l->in, l->in, l->w);
    return to;
}

static uint16_t *inputs(const struct sp_linear *l, const void *x)
{
    return rounded(SP_E4M3, l->T, l->in, l->in, x);
}

static uint16_t *gradients(const struct sp_linear *l, const void *dy)
{
    return rounded(SP_E5M2, l->T, l->out, sp_linear_ld(l), dy);
}

static void linear(K, const struct sp_linear *l, const void *x, void *y)
{
    struct sp_linear to = weights(l);

    emulated_bf16()->linear(k, &to, inputs(l, x), y);
}

static void linear_add(K, const struct sp_linear *l, const void *x, const void *residual, void *y)
{
    struct sp_linear to = weights(l);

    emulated_bf16()->linear_add(k, &to, inputs(l, x), residual, y);
}

static void linear_act(K, const struct sp_linear *l, enum sp_activation act, const void *x, void *u,
                       void *g)
{
    struct sp_linear to = weights(l);

    emulated_bf16()->linear_act(k, &to, act, inputs(l, x), u, g);
}

static void linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate)
{
    struct sp_linear to = weights(l);

    to.ld = 0;
    emulated_bf16()->linear_dx(k, &to, gradients(l, dy), dx, accumulate);
}

static void linear_dx_act(K, const struct sp_linear *l, enum sp_activation act, const void *dy,
                          const void *u, void *du)
{
    struct sp_linear to = weights(l);

    to.ld = 0;
    emulated_bf16()->linear_dx_act(k, &to, act, gradients(l, dy), u, du);
}

/* The bias adds up what was not rounded. */
static void linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                      float *dbias)
{
    struct sp_linear to = *l;

    to.ld = 0;
    emulated_bf16()->linear_dw(k, &to, inputs(l, x), gradients(l, dy), dw, NULL);
    for (int t = 0; dbias && t < l->T; t++)
        for (int j = 0; j < l->out; j++)
            dbias[j] += sp_bf16_value(
                ((const uint16_t *)dy)[(size_t)t * (size_t)sp_linear_ld(l) + (size_t)j]);
}

static const struct sp_backend *reference(void)
{
    static struct sp_backend table;

    table = *sp_cpu_backend(SP_BF16);
    table.linear = linear;
    table.linear_add = linear_add;
    table.linear_act = linear_act;
    table.linear_dx = linear_dx;
    table.linear_dx_act = linear_dx_act;
    table.linear_dw = linear_dw;
    return &table;
}

/* The same sums in another order: the same bf16 or the next one. */
static void judge(const char *what, const struct tensor *x, size_t n, const float *got,
                  const float *want)
{
    double top = 0;

    if (x->f32) {
        assert_close_floats(what, n, got, want, TOLERANCE);
        return;
    }
    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= fabs((double)want[i]) / 128 + 1e-5 * top))
            fail_msg("%s[%zu]: %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
}

TEST(products)
{
    const struct comparison c = {{sp_cpu_backend(SP_FP8), reference()}, .judge = judge};
    static const struct sp_linear layers[] = {
        {.T = 1, .in = 7, .out = 5},
        {.T = 13, .in = 24, .out = 40},
        {.T = 130, .in = 72, .out = 200},
        {.T = 33, .in = 4099, .out = 9},
    };

    assert_int_equal(c.backends[TESTED]->dtype, SP_BF16);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int pad = 0; pad < 6; pad += 5) {
            compare_forward(&c, layers[i], pad);
            compare_backward(&c, layers[i], pad);
        }
}

/* n numbers of 26 binades, more than either format has, all times 2^shift. */
static uint16_t *new_wide(size_t n, uint64_t seed, int shift)
{
    uint16_t *x = test_bytes(n * sizeof *x);

    for (size_t i = 0; i < n; i++) {
        float v = random_at(seed, i);
        int binade = (int)(13 * (random_at(seed + 1000, i) + 1));

        x[i] = sp_bf16(ldexpf(v, shift - binade));
    }
    return x;
}

/* A sum has no negative zero. */
static void assert_same_numbers(size_t n, const uint16_t *a, const uint16_t *b)
{
    for (size_t i = 0; i < n; i++)
        assert_true(sp_bf16_value(a[i]) == sp_bf16_value(b[i]));
}

/* w is the unit matrix, so that y is the input as it was rounded, and dx the gradient. */
TEST(operands)
{
    enum { T = 300, H = 48 };
    static const int shifts[] = {0, 9, -20, 100, 126, -90, -125};
    const struct sp_backend *k = sp_cpu_backend(SP_FP8);
    uint16_t *w = test_bytes(H * H * sizeof *w), *y = test_bytes(T * H * sizeof *y);
    const struct sp_linear l = {.T = T, .in = H, .out = H, .w = w};

    memset(w, 0, H * H * sizeof *w);
    for (size_t i = 0; i < H; i++)
        w[i * H + i] = sp_bf16(1);
    for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
        uint16_t *x = new_wide((size_t)T * H, s, shifts[s]);

        for (int team = 1; team < 4; team++) {
            sp_team_settle(team);
            k->linear(k, &l, x, y);
            assert_same_numbers((size_t)T * H, y, rounded(SP_E4M3, T, H, H, x));
            k->linear_dx(k, &l, x, y, false);
            assert_same_numbers((size_t)T * H, y, rounded(SP_E5M2, T, H, H, x));
        }
    }
}

/* Zeros stay zeros; a product with something that is not finite in it is NaN, all of it. */
TEST(defined)
{
    enum { T = 5, H = 32 };
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    const struct sp_backend *k = sp_cpu_backend(SP_FP8);
    uint16_t *x = new_wide(T * H, 1, 0), *w = new_wide(H * H, 2, 0), y[T * H];
    uint16_t *zero = test_bytes(H * H * sizeof *zero);
    const struct sp_linear l = {.T = T, .in = H, .out = H, .w = w};
    const struct sp_linear none = {.T = T, .in = H, .out = H, .w = zero};
    float dw[H * H] = {0};

    memset(zero, 0, H * H * sizeof *zero);
    k->linear(k, &l, zero, y);
    for (int i = 0; i < T * H; i++)
        assert_int_equal(y[i] & 0x7fff, 0);
    k->linear(k, &none, x, y);
    for (int i = 0; i < T * H; i++)
        assert_int_equal(y[i] & 0x7fff, 0);
    for (size_t s = 0; s < sizeof wrong / sizeof *wrong; s++) {
        uint16_t *in[] = {new_wide(T * H, 1, 0), new_wide(T * H, 3, 0)};

        for (int which = 0; which < 2; which++) {
            uint16_t kept = in[which][37];

            in[which][37] = sp_bf16(wrong[s]);
            memset(dw, 0, sizeof dw);
            k->linear_dw(k, &l, in[0], in[1], dw, NULL);
            for (int i = 0; i < H * H; i++)
                assert_true(isnan(dw[i]));
            k->linear(k, &l, in[which], y);
            for (int i = 0; i < T * H; i++)
                assert_true(isnan(sp_bf16_value(y[i])));
            in[which][37] = kept;
        }
    }
}
