/*
 * The linear layers and the head of the CPU's bf16 table against those that go through f32 copies:
 * the same sums in another order, so that a result is the same bf16 or the next one.
 */
#include "emulated_bf16.h"
#include "comparison.h"
#include "kernels/cpu/cpu.h"

/* At most one bf16 apart, 2^-7 of the value, or far below the largest. */
static void judge_low(const char *what, size_t n, const float *got, const float *want)
{
    double top = 0;
    size_t other = 0;

    for (size_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++) {
        double apart = fabs((double)got[i] - (double)want[i]);

        other += got[i] != want[i];
        if (!(apart <= fabs((double)want[i]) / 128 + 1e-5 * top))
            fail_msg("%s[%zu]: %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
    }
    printf("    %-24s %7zu elements, %zu rounded to the neighbour\n", what, n, other);
    assert_true(other <= n / 1000 + 1);
}

static void judge(const char *what, const struct tensor *x, size_t n, const float *got,
                  const float *want)
{
    if (!x->f32)
        judge_low(what, n, got, want);
    else if (!strcmp(what, "dbias"))
        assert_same_bits(n, got, want); /* added in the same order */
    else
        assert_close_floats(what, n, got, want, TOLERANCE);
}

/* The last has more than one group of rows in linear_act. */
static const struct sp_linear layers[] = {
    {.T = 1, .in = 7, .out = 5},
    {.T = 13, .in = 24, .out = 40},
    {.T = 130, .in = 72, .out = 200},
    {.T = 333, .in = 40, .out = 9001},
};

TEST(forward)
{
    const struct comparison c = {{sp_cpu_backend(SP_BF16), emulated_bf16()}, .judge = judge};

    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        compare_forward(&c, layers[i], 3);
}

TEST(backward)
{
    const struct comparison c = {{sp_cpu_backend(SP_BF16), emulated_bf16()}, .judge = judge};

    for (size_t i = 0; i < 3; i++)
        compare_backward(&c, layers[i], 5);
    compare_backward(&c, (struct sp_linear){.T = 333, .in = 9001, .out = 40}, 5);
}

static float *widened(size_t n, const uint16_t *low)
{
    float *x = new_nan(n);

    for (size_t i = 0; i < n; i++)
        x[i] = sp_bf16_value(low[i]);
    return x;
}

static uint16_t *new_low(size_t n, uint64_t seed)
{
    uint16_t *low = test_bytes(n * sizeof *low);

    for (size_t i = 0; i < n; i++)
        low[i] = sp_bf16(random_at(seed, i));
    return low;
}

/* Logits are rounded, and their gradients: 2e-2 of the largest is the contract of bf16. */
TEST(head)
{
    enum { T = 29, H = 48, V = 1003, ROWS = 8 };
    const struct sp_backend *native = sp_cpu_backend(SP_BF16), *exact = emulated_bf16();
    uint16_t *x = new_low(T * H, 1), *w = new_low(V * H, 2), dx[2][T * H];
    float *dw[2] = {new_random(V * H, 3), new_random(V * H, 3)}, *more = new_random(V * H, 3);
    float *start = new_copy(V * H, more);
    double loss[4] = {0.5, 0.5, 0.5, 0.5};
    int32_t ids[T];
    const struct sp_logits head = {
        .T = T,
        .h = H,
        .V = V,
        .rows = ROWS,
        .x = x,
        .w = w,
        .targets = ids,
        .scale = 0.1f,
        .scratch = test_bytes(ROWS * (size_t)sp_logits_ld(V) * sizeof(uint16_t))};

    memset(dx, 0xff, sizeof dx);
    for (int t = 0; t < T; t++)
        ids[t] = (t * t * 31 + 3) % V;
    native->cross_entropy(native, &head, &loss[0], dx[0], dw[0]);
    exact->cross_entropy(exact, &head, &loss[1], dx[1], dw[1]);
    /* each gradient alone, and the loss alone */
    native->cross_entropy(native, &head, &loss[2], NULL, more);
    native->cross_entropy(native, &head, &loss[3], NULL, NULL);
    printf("    loss %.6f, through f32 %.6f\n", loss[0], loss[1]);
    assert_true(loss[0] == loss[2] && loss[0] == loss[3] && loss[1] > T);
    assert_true(fabs(loss[0] / loss[1] - 1) < 1e-3);
    assert_same_bits(V * H, dw[0], more);
    for (size_t i = 0; i < V * H; i++) { /* what was added */
        dw[0][i] -= start[i];
        dw[1][i] -= start[i];
    }
    assert_close_floats("cross_entropy dx", T * H, widened(T * H, dx[0]), widened(T * H, dx[1]),
                        2e-2);
    assert_close_floats("cross_entropy dw", V * H, dw[0], dw[1], 2e-2);
}
