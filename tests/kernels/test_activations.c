/*
 * The activations over the whole range of floats, against double precision: infinities, NaNs and
 * subnormal numbers too. Errors are relative to the largest of the result and 1.
 */
#include "reference.h"
#include "kernels/cpu/pointwise/activation.h"

enum { N = 1 << 16 };

static float *x, *d, *y, *dx;

/* Block `k` of every STRIDE-th of all floats, of either sign; the last blocks are NaNs. */
enum { STRIDE = 499 };

static size_t fill(uint64_t k)
{
    size_t n = 0;

    for (uint64_t bits = k * N * STRIDE; n < N && bits < (UINT64_C(1) << 32); bits += STRIDE, n++) {
        x[n] = sp_from_bits((uint32_t)bits);
        d[n] = random_at(3, bits);
    }
    return n;
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

/* S of the activation u S(u); 0.5 (1 + tanh z) = sigmoid(2z), which keeps its precision for large -z. */
static double part_of(enum sp_activation kind, double u)
{
    switch (kind) {
    case SP_GELU_TANH:
        return sigmoid(2 * sqrt(2 / M_PI) * (u + 0.044715 * u * u * u));
    case SP_GELU:
        return 0.5 * erfc(-u / sqrt(2));
    case SP_GELU_QUICK:
        return sigmoid(1.702 * u);
    default:
        return sigmoid(u);
    }
}

/* Beyond these, S is 0 or 1. */
static const double far_out[] = {
    [SP_GELU_TANH] = 30, [SP_GELU] = 40, [SP_GELU_QUICK] = 400, [SP_SILU] = 800};

static double gradient_of(enum sp_activation kind, double u)
{
    double s = part_of(kind, u);

    if (fabs(u) > far_out[kind])
        return u > 0;
    switch (kind) {
    case SP_GELU_TANH:
        return s + u * s * (1 - s) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * u * u);
    case SP_GELU:
        return s + u * exp(-u * u / 2) / sqrt(2 * M_PI);
    case SP_GELU_QUICK:
        return s + 1.702 * u * s * (1 - s);
    default:
        return s + u * s * (1 - s);
    }
}

/* The formulas against each other: a central difference of u S(u). */
TEST(reference)
{
    const double step = 1e-5;

    for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++)
        for (double u = -12; u < 12; u += 0.37) {
            double up = (u + step) * part_of(kind, u + step);
            double down = (u - step) * part_of(kind, u - step);

            assert_true(fabs((up - down) / (2 * step) - gradient_of(kind, u)) < 1e-8);
        }
}

struct worst {
    double error, at;
};

/* Finite inputs give finite results, NaN gives NaN; another test covers infinities. */
static void compare(struct worst *w, float in, float got, double want)
{
    double error = fabs((double)got - want) / fmax(1, fabs(want));

    if (isinf(in))
        return;
    if (isnan(in)) {
        if (!isnan(got))
            fail_msg("of NaN %08x: %g", sp_to_bits(in), (double)got);
        return;
    }
    if (!(error <= w->error)) {
        w->error = isnan(error) ? INFINITY : error;
        w->at = (double)in;
    }
}

static void verdict(const char *what, struct worst w, double most)
{
    printf("    %-20s error %.2e, at %g (at most %.1e)\n", what, w.error, w.at, most);
    assert_true(w.error <= most);
}

static void whole_range(enum sp_activation kind)
{
    static const char *const names[] = {[SP_GELU_TANH] = "GELU-tanh",
                                        [SP_GELU] = "GELU",
                                        [SP_GELU_QUICK] = "quick GELU",
                                        [SP_SILU] = "SiLU"};
    struct worst value = {0, 0}, gradient = {0, 0}, gated = {0, 0}, gate = {0, 0}, up = {0, 0};
    float *u = new_nan(2 * N), *du = new_nan(2 * N);
    size_t n, seen = 0;

    x = new_nan(N), d = new_nan(N), y = new_nan(N), dx = new_nan(N);
    for (uint64_t k = 0; (n = fill(k)) > 0; k++, seen += n) {
        sp_activation(kind, n, x, y);
        sp_activation_bwd(kind, n, x, d, dx);
        memcpy(u, x, n * sizeof *u);
        memcpy(u + n, d, n * sizeof *u); /* ups of at most 1 */
        for (size_t i = 0; i < n; i++) {
            double g = (double)x[i];

            compare(&value, x[i], y[i], g * part_of(kind, g));
            compare(&gradient, x[i], dx[i], (double)d[i] * gradient_of(kind, g));
        }
        sp_gated(&(struct sp_gated){.act = kind, .T = 1, .f = (int)n}, u, y);
        sp_gated_bwd(&(struct sp_gated){.act = kind, .T = 1, .f = (int)n}, u, d, du);
        for (size_t i = 0; i < n; i++) {
            double g = (double)x[i], p = (double)d[i], s = g * part_of(kind, g);

            compare(&gated, x[i], y[i], s * p);
            compare(&gate, x[i], du[i], p * p * gradient_of(kind, g));
            compare(&up, x[i], du[n + i], p * s);
        }
    }
    printf("    %s: %zu floats\n", names[kind], seen);
    assert_true(seen > 8000000);
    verdict("value", value, 3e-7);
    verdict("gradient", gradient, 3e-7);
    verdict("gated", gated, 3e-7);
    verdict("gated, dgate", gate, 3e-7);
    verdict("gated, dup", up, 3e-7);
}

TEST(whole_range)
{
    for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++)
        whole_range(kind);
}

static void check_all(const char *what, size_t n, const float *u, const float *got,
                      const double *want)
{
    struct worst w = {0, 0};

    for (size_t i = 0; i < n; i++)
        compare(&w, u[i], got[i], want[i]);
    verdict(what, w, 5e-7);
}

/* Any number of elements, and in place of each input; up to +-40, where e^-2z overflows a float too. */
static void any_size(enum sp_activation kind, size_t n)
{
    float *u = new_random(n, n), *dy = new_random(n, n + 1), *out = new_nan(n), *du = new_nan(n);
    double *want = new_double(n, NULL), *gradient = new_double(n, NULL);

    for (size_t i = 0; i < n; i++) {
        u[i] *= i % 3 ? 4 : 40;
        want[i] = (double)u[i] * part_of(kind, (double)u[i]);
        gradient[i] = (double)dy[i] * gradient_of(kind, (double)u[i]);
    }
    sp_activation(kind, n, u, out);
    check_all("value", n, u, out, want);
    sp_activation_bwd(kind, n, u, dy, du);
    check_all("gradient", n, u, du, gradient);
    memcpy(out, dy, n * sizeof *out);
    sp_activation_bwd(kind, n, u, out, out);
    assert_same_bits(n, out, du);
    sp_activation_bwd(kind, n, u, dy, u);
    assert_same_bits(n, u, du);
}

TEST(sizes)
{
    for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++)
        for (size_t n = 1; n < 40000; n = n * 7 + 5)
            any_size(kind, n);
}

static void gated_rows(enum sp_activation kind, int T, int f)
{
    size_t n = (size_t)T * (size_t)f;
    const struct sp_gated rows = {.act = kind, .T = T, .f = f};
    float *u = new_random(2 * n, 11), *dy = new_random(n, 12), *out = new_nan(n);
    float *du = new_nan(2 * n);
    double *want = new_double(n, NULL), *gradient = new_double(2 * n, NULL);

    /* Gates to where e^-g overflows; ups stay near 1, as errors are relative to max(1, |want|). */
    for (size_t i = 0; i < 2 * n; i++)
        u[i] *= (int)(i % (2 * (size_t)f)) < f && i % 5 == 0 ? 100 : 2;
    for (size_t i = 0; i < n; i++) {
        size_t gate = i / (size_t)f * 2 * (size_t)f + i % (size_t)f, up = gate + (size_t)f;
        double g = (double)u[gate], value = g * part_of(kind, g);

        want[i] = value * (double)u[up];
        gradient[gate] = (double)dy[i] * (double)u[up] * gradient_of(kind, g);
        gradient[up] = (double)dy[i] * value;
    }
    sp_gated(&rows, u, out);
    check_all("gated", n, dy, out, want);
    sp_gated_bwd(&rows, u, dy, du);
    check_all("gated, gradients", 2 * n, u, du, gradient);
    sp_gated_bwd(&rows, u, dy, u);
    assert_same_bits(2 * n, u, du);
}

TEST(rows)
{
    for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++) {
        gated_rows(kind, 7, 10);
        gated_rows(kind, 101, 99);
    }
}

/* A NaN upstream must reach the loss, not vanish in a saturated exponential. */
TEST(nan)
{
    float u[5] = {1, NAN, 2, 3, 4}, out[5], dy[5] = {1, 1, 1, 1, 1};

    sp_activation(SP_GELU_TANH, 5, u, out);
    assert_true(isnan(out[1]) && !isnan(out[0]) && !isnan(out[2]));
    sp_activation_bwd(SP_GELU_TANH, 5, u, dy, out);
    assert_true(isnan(out[1]) && !isnan(out[0]));
    sp_gated(&(struct sp_gated){.act = SP_SILU, .T = 1, .f = 2}, u, out);
    assert_true(isnan(out[1]) && !isnan(out[0]));
}

/* Infinities follow the formulas: +inf gives inf, and an infinity times 0 gives NaN. */
TEST(infinities)
{
    float in[2] = {INFINITY, -INFINITY}, one[2] = {1, 1}, got[2],
          rows[4] = {INFINITY, 1, -INFINITY, 1};
    float du[4];

    for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++) {
        sp_activation(kind, 2, in, got);
        assert_true(isinf(got[0]) && got[0] > 0 && isnan(got[1]));
        sp_activation_bwd(kind, 2, in, one, got);
        assert_true(isnan(got[0]) && isnan(got[1]));
        sp_gated(&(struct sp_gated){.act = kind, .T = 2, .f = 1}, rows, got);
        assert_true(isinf(got[0]) && got[0] > 0 && isnan(got[1]));
        sp_gated_bwd(&(struct sp_gated){.act = kind, .T = 2, .f = 1}, rows, one, du);
        for (int i = 0; i < 4; i++)
            assert_true(isnan(du[i]));
    }
}

TEST(exp2)
{
    double error = 0;

    for (double t = -126; t <= 127.5; t += 0.0000613) {
        double want = exp2((double)(float)t);

        error = fmax(error, fabs((double)sp_exp2((float)t) - want) / want);
    }
    printf("    2^t: relative error %.2e\n", error);
    assert_true(error < 1.8e-7);
    assert_true(sp_exp2(0) == 1 && sp_exp2(-126) == 0x1p-126f && isinf(sp_exp2(128)));
    assert_true(isinf(sp_exp2_saturated(1e30f)) && isinf(sp_exp2_saturated(INFINITY)));
    assert_true(sp_exp2_saturated(-1e30f) == 0x1p-126f);
    assert_true(sp_exp2_saturated(-INFINITY) == 0x1p-126f);
    for (float limit = 0.5f; limit < 200; limit *= 3) {
        assert_true(sp_at_most(limit, limit / 2) == limit / 2 && sp_at_most(limit, 1e9f) == limit);
        assert_true(sp_at_most(limit, -1e9f) == -1e9f && sp_at_least(-limit, 1e9f) == 1e9f);
        assert_true(sp_at_least(-limit, -1e9f) == -limit && sp_at_least(-limit, 0) == 0);
    }
}
