/*
 * The linear layers and the head of the CPU's bf16 table against those that go through f32 copies:
 * the same sums in another order, so that a result is the same bf16 or the next one.
 */
#include "emulated_bf16.h"
#include "reference.h"
#include "kernels/cpu/cpu.h"

static const struct sp_backend *native, *exact;

struct low {
    size_t n;
    uint16_t *native, *exact;
};

/* The same random values for both, or, with seed 0, NaN: what is not written shows. */
static struct low new_low(size_t n, uint64_t seed)
{
    struct low x = {n, new_bytes(n * sizeof *x.native), new_bytes(n * sizeof *x.exact)};

    for (size_t i = 0; i < n; i++)
        x.native[i] = x.exact[i] = seed ? sp_bf16(random_at(seed, i)) : 0xffff;
    return x;
}

static void drop(struct low *x)
{
    free(x->native), free(x->exact);
}

/* At most one bf16 apart, 2^-7 of the value, or far below the largest. */
static void check_low(const char *what, struct low *x)
{
    double top = 0, worst = 0;
    size_t other = 0;

    for (size_t i = 0; i < x->n; i++)
        top = fmax(top, fabs((double)sp_bf16_value(x->exact[i])));
    for (size_t i = 0; i < x->n; i++) {
        double got = (double)sp_bf16_value(x->native[i]), want = (double)sp_bf16_value(x->exact[i]);

        if (isnan(want) && x->native[i] == x->exact[i])
            continue; /* written by neither */
        other += x->native[i] != x->exact[i];
        worst = fmax(worst, fabs(got - want) - fabs(want) / 128);
        if (!(fabs(got - want) <= fabs(want) / 128 + 1e-5 * top))
            fail_msg("%s[%zu]: %.9g, not %.9g", what, i, got, want);
    }
    printf("    %-24s %7zu elements, %zu rounded to the neighbour\n", what, x->n, other);
    assert_true(other <= x->n / 1000 + 1);
    drop(x);
}

static void check_f32(const char *what, size_t n, float *got, float *want, double tolerance)
{
    assert_close_floats(what, n, got, want, tolerance);
    free(got), free(want);
}

static void forward(int T, int in, int out)
{
    size_t n = (size_t)T * (size_t)out;
    struct low x = new_low((size_t)T * (size_t)in, 1), w = new_low((size_t)out * (size_t)in, 2);
    struct low bias = new_low((size_t)out, 3), r = new_low(n, 4), u, y;

    for (int with = 0; with < 2; with++) {
        const void *b = with ? bias.native : NULL;

        y = new_low((size_t)T * (size_t)(out + 3), 0);
        native->linear(native,
                       &(struct sp_linear){
                           .T = T, .in = in, .out = out, .w = w.native, .bias = b, .ld = out + 3},
                       x.native, y.native);
        exact->linear(exact,
                      &(struct sp_linear){
                          .T = T, .in = in, .out = out, .w = w.native, .bias = b, .ld = out + 3},
                      x.native, y.exact);
        check_low("linear", &y);
        y = new_low(n, 0);
        native->linear_add(
            native, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native, .bias = b},
            x.native, r.native, y.native);
        exact->linear_add(
            exact, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native, .bias = b},
            x.native, r.native, y.exact);
        check_low("linear_add", &y);
        for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
            u = new_low(n, 0), y = new_low(n, 0);
            native->linear_act(
                native, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native, .bias = b},
                act, x.native, u.native, y.native);
            exact->linear_act(
                exact, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native, .bias = b},
                act, x.native, u.exact, y.exact);
            check_low("linear_act u", &u), check_low("linear_act g", &y);
        }
    }
    drop(&x), drop(&w), drop(&bias), drop(&r);
}

static void backward(int T, int in, int out)
{
    size_t n = (size_t)T * (size_t)in, m = (size_t)in * (size_t)out;
    struct low x = new_low(n, 1), w = new_low(m, 2), u = new_low(n, 3), y;
    struct low dy = new_low((size_t)T * (size_t)(out + 5), 4),
               dense = new_low((size_t)T * (size_t)out, 5);
    float *dw[2] = {new_random(m, 6), new_random(m, 6)};
    float *db[2] = {new_random((size_t)out, 7), new_random((size_t)out, 7)};

    for (int accumulate = 0; accumulate < 2; accumulate++) {
        y = new_low(n, accumulate ? 8 : 0);
        native->linear_dx(
            native, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native, .ld = out + 5},
            dy.native, y.native, accumulate);
        exact->linear_dx(
            exact, &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native, .ld = out + 5},
            dy.native, y.exact, accumulate);
        check_low(accumulate ? "linear_dx +=" : "linear_dx", &y);
    }
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        y = new_low(n, 0);
        native->linear_dx_act(native,
                              &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native}, act,
                              dense.native, u.native, y.native);
        exact->linear_dx_act(exact,
                             &(struct sp_linear){.T = T, .in = in, .out = out, .w = w.native}, act,
                             dense.native, u.native, y.exact);
        check_low("linear_dx_act", &y);
    }
    native->linear_dw(native, &(struct sp_linear){.T = T, .in = in, .out = out, .ld = out + 5},
                      x.native, dy.native, dw[0], db[0]);
    exact->linear_dw(exact, &(struct sp_linear){.T = T, .in = in, .out = out, .ld = out + 5},
                     x.native, dy.native, dw[1], db[1]);
    native->linear_dw(native, &(struct sp_linear){.T = T, .in = in, .out = out}, x.native,
                      dense.native, dw[0], NULL);
    exact->linear_dw(exact, &(struct sp_linear){.T = T, .in = in, .out = out}, x.native,
                     dense.native, dw[1], NULL);
    check_f32("linear_dw", m, dw[0], dw[1], TOLERANCE);
    assert_same_bits((size_t)out, db[0], db[1]); /* added in the same order */
    free(db[0]), free(db[1]);
    drop(&x), drop(&w), drop(&u), drop(&dy), drop(&dense);
}

/* The last has more than one group of rows in linear_act. */
static const int sizes[][3] = {{1, 7, 5}, {13, 24, 40}, {130, 72, 200}, {333, 40, 9001}};

static void test_forward(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        forward(sizes[s][0], sizes[s][1], sizes[s][2]);
}

static void test_backward(void **state)
{
    (void)state;
    for (size_t s = 0; s < 3; s++)
        backward(sizes[s][0], sizes[s][1], sizes[s][2]);
    backward(333, 9001, 40);
}

/* Logits are rounded, and their gradients: 2e-2 of the largest is the contract of bf16. */
static void test_head(void **state)
{
    enum { T = 29, H = 48, V = 1003, ROWS = 8 };
    struct low x = new_low(T * H, 1), w = new_low(V * H, 2), dx = new_low(T * H, 0);
    float *dw[2] = {new_random(V * H, 3), new_random(V * H, 3)}, *more = new_random(V * H, 3);
    float *start = new_copy(V * H, more), *wide[2] = {new_nan(T * H), new_nan(T * H)};
    uint16_t *scratch = new_bytes(ROWS * (size_t)sp_logits_ld(V) * sizeof *scratch);
    double loss[4] = {0.5, 0.5, 0.5, 0.5};
    int32_t ids[T];
    const struct sp_logits head = {.T = T,
                                   .h = H,
                                   .V = V,
                                   .rows = ROWS,
                                   .x = x.native,
                                   .w = w.native,
                                   .targets = ids,
                                   .scale = 0.1f,
                                   .scratch = scratch};

    (void)state;
    for (int t = 0; t < T; t++)
        ids[t] = (t * t * 31 + 3) % V;
    native->cross_entropy(native, &head, &loss[0], dx.native, dw[0]);
    exact->cross_entropy(exact, &head, &loss[1], dx.exact, dw[1]);
    /* each gradient alone, and the loss alone */
    native->cross_entropy(native, &head, &loss[2], NULL, more);
    native->cross_entropy(native, &head, &loss[3], NULL, NULL);
    printf("    loss %.6f, through f32 %.6f\n", loss[0], loss[1]);
    assert_true(loss[0] == loss[2] && loss[0] == loss[3] && loss[1] > T);
    assert_true(fabs(loss[0] / loss[1] - 1) < 1e-3);
    assert_same_bits(V * H, dw[0], more);
    for (size_t i = 0; i < V * H; i++) /* what was added */
        dw[0][i] -= start[i], dw[1][i] -= start[i];
    for (size_t i = 0; i < T * H; i++)
        wide[0][i] = sp_bf16_value(dx.native[i]), wide[1][i] = sp_bf16_value(dx.exact[i]);
    check_f32("cross_entropy dx", T * H, wide[0], wide[1], 2e-2);
    check_f32("cross_entropy dw", V * H, dw[0], dw[1], 2e-2);
    drop(&x), drop(&w), drop(&dx);
    free(more), free(start), free(scratch);
}

TEST_GROUP(linear_bf16)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_head),
    };

    native = sp_cpu_backend(SP_BF16);
    exact = emulated_bf16();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
