/* Activations, rotary positions and column sums on the emulated device, against the CPU's. */
#include "cuda_test.h"
#include "kernels/cuda/pointwise/epilogues.h"
#include "kernels/cuda/pointwise/sums.h"

/* Up to +-40, where e^-2z overflows a float too, and the odd infinity of the exponential. */
static float *new_spread(size_t n, uint64_t seed)
{
    float *x = new_random(n, seed);

    for (size_t i = 0; i < n; i++)
        x[i] *= i % 3 ? 4 : i % 7 ? 40 : 400;
    return x;
}

static void activation(enum sp_activation kind, enum sp_dtype t, size_t n, size_t off)
{
    const struct sp_backend *k = sp_emulated_backend(t);
    float *u = new_spread(n + off, n), *dy = new_random(n + off, n + 1), *y = new_nan(n);
    float *du = new_nan(n);
    void *tu = new_typed(t, n + off, u), *tdy = new_typed(t, n + off, dy);
    void *ty = new_typed_nan(t, n + off + 1), *tdu = new_typed_nan(t, n + off + 1);

    sp_activation(kind, n, u + off, y);
    sp_activation_bwd(kind, n, u + off, dy + off, du);
    k->act(k, kind, n, at(t, tu, off), at(t, ty, off));
    sp_cuda_activation_bwd(k, kind, n, at(t, tu, off), at(t, tdy, off), at(t, tdu, off));
    sp_emulated_wait();
    assert_typed("activation", t, n, at(t, ty, off), y, BOTH);
    assert_typed("activation backward", t, n, at(t, tdu, off), du, BOTH);
    assert_same_bytes(t, 1, at(t, ty, n + off), "\xff\xff\xff\xff");
    assert_same_bytes(t, 1, at(t, tdu, n + off), "\xff\xff\xff\xff");
    sp_emulated_order(1);
    sp_cuda_activation_bwd(k, kind, n, at(t, tu, off), at(t, tdy, off), at(t, tdy, off));
    sp_emulated_wait();
    assert_same_bytes(t, n, at(t, tdy, off), at(t, tdu, off));
    sp_emulated_order(0);
}

TEST(activation)
{
    for (int i = 0; i < SP_ELEMENTS * SP_ACTIVATIONS; i++) {
        enum sp_dtype t = (enum sp_dtype)(i % SP_ELEMENTS);
        enum sp_activation kind = (enum sp_activation)(i / SP_ELEMENTS);

        activation(kind, t, 1, 0);
        activation(kind, t, 16, 0);
        activation(kind, t, 37, 1);
        activation(kind, t, 4099, 0);
        activation(kind, t, 20011, 3);
    }
}

static void gated(enum sp_activation kind, enum sp_dtype t, int T, int f, size_t off)
{
    size_t n = (size_t)T * (size_t)f;
    const struct sp_backend *k = sp_emulated_backend(t);
    float *u = new_spread(2 * n + off, 1), *dy = new_random(n, 2), *y = new_nan(n);
    float *du = new_nan(2 * n);
    void *tu = new_typed(t, 2 * n + off, u), *tdy = new_typed(t, n, dy);
    void *ty = new_typed_nan(t, n + 1), *tdu = new_typed_nan(t, 2 * n + 1);
    const struct sp_gated g = {.act = kind, .T = T, .f = f};

    printf("    %d rows of %d%s\n", T, f, off ? ", not aligned" : "");
    sp_gated(&g, u + off, y);
    sp_gated_bwd(&g, u + off, dy, du);
    k->gated(k, &g, at(t, tu, off), ty);
    k->gated_bwd(k, &g, at(t, tu, off), tdy, tdu);
    sp_emulated_wait();
    assert_typed("gated", t, n, ty, y, BOTH);
    assert_typed("gated backward", t, 2 * n, tdu, du, BOTH);
    assert_same_bytes(t, 1, at(t, ty, n), "\xff\xff\xff\xff");
    assert_same_bytes(t, 1, at(t, tdu, 2 * n), "\xff\xff\xff\xff");
    sp_emulated_order(1);
    k->gated_bwd(k, &g, at(t, tu, off), tdy, at(t, tu, off));
    sp_emulated_wait();
    assert_same_bytes(t, 2 * n, at(t, tu, off), tdu);
    sp_emulated_order(0);
}

TEST(gated)
{
    for (int i = 0; i < SP_ELEMENTS * SP_ACTIVATIONS; i++) {
        enum sp_dtype t = (enum sp_dtype)(i % SP_ELEMENTS);
        enum sp_activation kind = (enum sp_activation)(i / SP_ELEMENTS);

        gated(kind, t, 7, 24, 0);
        gated(kind, t, 5, 24, 1);
        gated(kind, t, 3, 1099, 0);
        gated(kind, t, 2, 2720, 0);
    }
}

static void column_sums(enum sp_dtype t, int T, int n, int ld)
{
    size_t all = (size_t)T * (size_t)ld, width = (size_t)n;
    const struct sp_backend *k = sp_emulated_backend(t);
    float *x = new_random(all, 1), *sum = new_random(width, 2), *kept = NULL;
    void *tx = new_typed(t, all, x);
    double *want = new_double(width, sum);

    for (int r = 0; r < T; r++)
        for (int j = 0; j < n; j++)
            want[j] += (double)x[(size_t)r * (size_t)ld + (size_t)j];
    for (unsigned order = 0; order < ORDERS; order++) {
        float *got = new_copy(width, sum);

        sp_emulated_order(order);
        sp_cuda_column_sums(k, T, n, tx, ld, got);
        sp_emulated_wait();
        if (order == 0) {
            printf("    %s, %d rows of %d\n", sp_dtype_name(t), T, n);
            assert_close("column sums +=", width, got, want, TOLERANCE);
            kept = got;
        } else {
            assert_same_bits(width, got, kept);
        }
    }
    sp_emulated_order(0);
}

TEST(column_sums)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        column_sums(t, 1, 3, 3);
        column_sums(t, 67, 24, 32);
        column_sums(t, 333, 700, 707);
        column_sums(t, 8300, 40, 40); /* more rows than the parts can have PART_ROWS of */
    }
}

static void accumulate(enum sp_dtype t, size_t n, size_t off)
{
    const struct sp_backend *k = sp_emulated_backend(t);
    float *x = new_random(n + off, 1), *sum = new_random(n + 1, 2), *was = new_copy(n + 1, sum);
    void *tx = new_typed(t, n + off, x); /* which rounds x */

    printf("    %s, %zu elements from %zu on\n", sp_dtype_name(t), n, off);
    k->add_to_f32(k, n, at(t, tx, off), sum);
    sp_emulated_wait();
    for (size_t i = 0; i < n; i++)
        assert_true(sum[i] == was[i] + x[off + i]);
    assert_true(sum[n] == was[n]);
}

TEST(accumulate)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        accumulate(t, 0, 0);
        accumulate(t, 7, 0);
        accumulate(t, 4096, 0);
        accumulate(t, 5003, 0);
        accumulate(t, 5003, 1);
    }
}

/* `gap`: elements between rows */
static void rope(enum sp_dtype t, struct sp_rotation r, int gap)
{
    int width = r.heads * r.d, ld = r.ld = width + gap;
    size_t n = (size_t)(r.batch * r.len) * (size_t)ld;
    const struct sp_backend *k = sp_emulated_backend(t);
    float *x = new_random(n, 1), *want, *back;
    void *tx = new_typed(t, n, x), *tback = new_bytes_of(n * sp_dtype_bytes(t), tx);

    want = new_copy(n, x), back = new_copy(n, x);
    printf("    %d x %d rows, %d heads of %d, from %d\n", r.batch, r.len, r.heads, r.d, r.pos0);
    sp_rope(&r, false, want);
    sp_rope(&r, true, back);
    k->rope(k, &r, false, tx);
    sp_emulated_order(1);
    sp_emulated_wait();
    k->rope(k, &r, true, tback);
    sp_emulated_wait();
    sp_emulated_order(0);
    assert_typed("rope", t, n, tx, want, 6e-7);
    assert_typed("rope back", t, n, tback, back, 6e-7);
    /* The gaps between rows keep their bits. */
    for (int row = 0; row < r.batch * r.len; row++)
        for (int j = width; j < ld; j++) {
            float *now = new_values(t, 1, at(t, tx, (size_t)row * (size_t)ld + (size_t)j));

            assert_true(*now == x[row * ld + j]);
        }
}

TEST(rope)
{
    static const struct sp_rope plain = {.theta = 1e4f}, large = {.theta = 5e5f},
                                llama3 = {5e5f, SP_ROPE_LLAMA3, 8, 1, 4, 8192};

    for (int t = 0; t < SP_ELEMENTS; t++) {
        rope(t, (struct sp_rotation){1, 7, 3, 10, 0, 0, &plain, 0}, 7);
        rope(t, (struct sp_rotation){2, 5, 1, 2, 0, 11, &plain, 0}, 0);
        rope(t, (struct sp_rotation){3, 37, 6, 64, 0, 5, &large, 3}, 8);
        rope(t, (struct sp_rotation){1, 9, 2, 128, 0, 77, &llama3, 0}, 3);
        rope(t, (struct sp_rotation){2, 3, 40, 128, 0, 131000, &plain, 3},
             16); /* angles of 1e5 radians */
        rope(t, (struct sp_rotation){1, 9, 2, 256, 0, 77, &plain, 0}, 3);
    }
}
