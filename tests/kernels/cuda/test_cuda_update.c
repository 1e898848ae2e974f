/* The optimizer, sums over whole arrays and memory on the emulated device, against the CPU's. */
#include "cuda_test.h"
#include <sys/mman.h>

/* A step at rate 0 and of unit betas, which changes nothing, keeps the gradient too if told so. */
static void kept_gradient(const struct sp_backend *k, size_t n, size_t off, float *w, float *m,
                          float *v)
{
    struct sp_adamw hp = {0, 1, 1, 1e-8f, 0, 1, 1, 1};
    float *g = new_random(n + off, 4), *was = new_copy(n + off, g);

    k->adamw(k, &hp,
             &(struct sp_adamw_arrays){
                 .n = n, .w = w + off, .g = g + off, .m = m + off, .v = v + off, .keeps_g = true});
    sp_emulated_wait();
    for (size_t i = 0; i < n + off; i++)
        assert_true(g[i] == was[i]);
}

static void adamw(enum sp_dtype t, size_t n, size_t off, bool low)
{
    const struct sp_backend *k = sp_emulated_backend(t);
    size_t all = n + off;
    float *w = new_random(all, 1), *m = new_random(all, 2), *v = new_random(all, 3), *g;
    float *want_w, *want_m, *want_v, *want_g = new_nan(all);
    void *w_low = new_typed_nan(t, all + 1);

    for (size_t i = 0; i < all; i++)
        v[i] *= v[i];
    want_w = new_copy(all, w), want_m = new_copy(all, m), want_v = new_copy(all, v);
    g = new_nan(all);
    for (int step = 1; step <= 3; step++) {
        struct sp_adamw hp = {0.01f,
                              0.9f,
                              0.95f,
                              1e-8f,
                              0.1f,
                              (float)(1 - pow(0.9, step)),
                              (float)(1 - pow(0.95, step)),
                              0.5f};

        for (size_t i = 0; i < n; i++)
            g[off + i] = want_g[off + i] = random_at((uint64_t)step + 10, i);
        sp_adamw(&hp, &(struct sp_adamw_arrays){.n = n,
                                                .w = want_w + off,
                                                .g = want_g + off,
                                                .m = want_m + off,
                                                .v = want_v + off});
        sp_emulated_order((unsigned)step - 1);
        k->adamw(k, &hp,
                 &(struct sp_adamw_arrays){.n = n,
                                           .w = w + off,
                                           .g = g + off,
                                           .m = m + off,
                                           .v = v + off,
                                           .low = low ? at(t, w_low, off) : NULL});
        memset(&hp, 0xff, sizeof hp); /* the caller's, who is gone when the kernel runs */
        sp_emulated_wait();
        for (size_t i = 0; i < n; i++)
            assert_true(g[off + i] == 0);
    }
    kept_gradient(k, n, off, w, m, v);
    sp_emulated_order(0);
    assert_close_floats("weights after 3 steps", all, w, want_w, BOTH);
    assert_close_floats("first moment", all, m, want_m, BOTH);
    assert_close_floats("second moment", all, v, want_v, BOTH);
    if (low) {
        void *rounded = new_typed(t, all, w);

        assert_same_bytes(t, n, at(t, w_low, off), at(t, rounded, off));
    }
    assert_same_bytes(t, 1, at(t, w_low, all), "\xff\xff\xff\xff");
}

TEST(adamw)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        adamw(t, 1, 0, true);
        adamw(t, 37, 1, true);
        adamw(t, 2007, 0, true);
        adamw(t, 2008, 0, false);
        adamw(t, 403, 4, true);
    }
}

static void add(enum sp_dtype t, size_t n, size_t off)
{
    const struct sp_backend *k = sp_emulated_backend(t);
    float *x = new_random(n + off, 1), *y = new_random(n + off, 2), *f32 = new_copy(n + off, y);
    void *tx = new_typed(t, n + off, x), *ty = new_typed(t, n + off, y);
    float *want = new_copy(n + off, y), *want_f32 = new_copy(n + off, f32);

    sp_add(n, x + off, want + off);
    sp_add(n, x + off, want_f32 + off);
    k->add(k, n, at(t, tx, off), at(t, ty, off));
    k->add_f32(k, n, x + off, f32 + off);
    sp_emulated_wait();
    assert_typed("y += x", t, n + off, ty, want, 0);
    assert_same_bits(n + off, f32, want_f32);
}

/* Twenty parts are more than a launch takes: those of bf16 are rounded twice. */
static void add_parts(enum sp_dtype t, size_t n, size_t off, int parts)
{
    const struct sp_backend *k = sp_emulated_backend(t);
    float *y = new_random(n + off, 2), *x[20];
    void *ty = new_typed(t, n + off, y), *tx[20];
    const void *at_x[20];
    float *want = new_copy(n + off, y);

    for (int i = 0; i < parts; i++) {
        x[i] = new_random(n + off, 10 + (unsigned)i);
        tx[i] = new_typed(t, n + off, x[i]);
        at_x[i] = at(t, tx[i], off);
        sp_add(n, x[i] + off, want + off);
    }
    k->add_parts(k, n, parts, at_x, at(t, ty, off));
    sp_emulated_wait();
    if (t == SP_F32)
        assert_typed("y += parts", t, n + off, ty, want, 0);
    else
        assert_typed("y += parts", t, n + off, ty, want, 1e-2);
}

/* Every bit of the rounding: ties, denormals, what overflows to infinity, NaN. */
static void rounding(enum sp_dtype t, size_t n, size_t off)
{
    const struct sp_backend *k = sp_emulated_backend(t);
    float *x = new_random(n + off, 1);
    void *y = new_typed_nan(t, n + off + 1), *want;
    const float odd[] = {0.0f, -0.0f, 1.00390625f, 1.01171875f, 1e-40f, 3.4e38f, INFINITY, NAN};

    for (size_t i = 0; i < n && i < 8; i++)
        x[off + i] = odd[i];
    k->round(k, n, x + off, at(t, y, off));
    sp_emulated_wait();
    want = new_typed(t, n + off, x);
    assert_same_bytes(t, n, at(t, y, off), at(t, want, off));
    assert_same_bytes(t, 1, at(t, y, n + off), "\xff\xff\xff\xff");
}

TEST(elementwise)
{
    for (int t = 0; t < SP_ELEMENTS; t++)
        for (size_t n = 1; n < 30000; n = n * 7 + 5) {
            add(t, n, 0);
            add(t, n, 1);
            add_parts(t, n, 0, 3);
            add_parts(t, n, 1, n < 1000 ? 20 : 1);
            rounding(t, n, 0);
            rounding(t, n, 3);
        }
}

TEST(sumsq)
{
    const size_t sizes[] = {0, 1, 7, 16, 16383, 16385, 100003, 16384 * 3 + 19};
    const struct sp_backend *k = sp_emulated_backend(SP_F32);

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t n = sizes[s];
        float *g = new_random(n + 1, 3), *shifted = test_bytes((n + 1) * sizeof *g);
        long double want = 0; /* a plain double sum would lose as much as the kernel */
        double sum[ORDERS + 1];

        for (size_t i = 0; i < n; i++)
            want += (long double)g[i] * g[i];
        memcpy(shifted + 1, g, n * sizeof *g);
        for (unsigned order = 0; order <= ORDERS; order++) {
            sum[order] = 1.5;
            sp_emulated_order(order);
            /* n alone decides, not where g lies. */
            k->sumsq(k, n, order == ORDERS ? shifted + 1 : g, &sum[order]);
            sp_emulated_wait();
            assert_true(sum[order] == sum[0]);
        }
        printf("    %zu elements: %.15g, reference %.15Lg\n", n, sum[0] - 1.5, want);
        assert_true(fabsl(sum[0] - 1.5L - want) <= 1e-13L * (want + 1.5L));
    }
    sp_emulated_order(0);
}

/* Rows further apart than CUDA's 2D copies allow. */
TEST(far_rows)
{
    const size_t apart = (size_t)INT32_MAX + 1, bytes = 2 * apart + 4096;
    const struct sp_backend *k = sp_emulated_backend(SP_BF16);
    unsigned char *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char near[16] = "";

    assert_true(x != MAP_FAILED);
    for (size_t r = 0; r < 3; r++)
        memcpy(x + r * apart, "abcdefghi" + 2 * r, 4);
    k->copy_rows(k, &(struct sp_row_copy){.n = 3, .bytes = 4, .from = apart, .to = 5}, x, near);
    k->copy_rows(k, &(struct sp_row_copy){.n = 2, .bytes = 5, .from = 5, .to = apart}, near + 5,
                 x + 8);
    sp_emulated_wait();
    assert_memory_equal(near, "abcd\0cdef\0efgh\0", 15);
    assert_memory_equal(x + 8, "cdef", 5);
    assert_memory_equal(x + apart + 8, "efgh", 5);
    k->copy_rows(k, &(struct sp_row_copy){.n = 1, .bytes = 4, .from = bytes, .to = bytes},
                 x + apart, near); /* a single row is as far as it likes */
    sp_emulated_wait();
    assert_memory_equal(near, "cdef", 4);
    munmap(x, bytes);
}

TEST(memory)
{
    enum { N = 1300000 }; /* more than one piece of the scan */
    const struct sp_backend *k = sp_emulated_backend(SP_BF16);
    float *x = new_random(N, 1), *y = new_nan(N), *was = new_nan(N);
    uint16_t low[3] = {sp_bf16(1), 0x7f7f, 0xff80};

    k->copy(k, 100, x, y);
    k->copy_rows(k, &(struct sp_row_copy){.n = 3, .bytes = 8, .from = 20, .to = 12}, x + 1, y + 30);
    k->clear(k, 12, y + 50);
    k->clear(k, 0, NULL);
    k->copy(k, 0, NULL, NULL);
    k->copy_rows(k, &(struct sp_row_copy){.bytes = 8, .from = 8, .to = 8}, NULL, NULL);
    assert_same_bits(N, y, was); /* queued, not done */
    sp_emulated_wait();
    assert_same_bits(25, y, x);
    for (int r = 0; r < 3; r++) {
        assert_same_bits(2, y + 30 + 3 * r, x + 1 + 5 * r);
        assert_true(isnan(y[32 + 3 * r]));
    }
    assert_true(isnan(y[25]) && isnan(y[49]) && y[50] == 0 && y[52] == 0 && isnan(y[53]));

    assert_true(k->first_not_finite(k, SP_F32, x, N) == N);
    assert_true(k->first_not_finite(k, SP_F32, x, 0) == 0);
    x[N - 2] = NAN;
    x[N - 1] = INFINITY;
    assert_true(k->first_not_finite(k, SP_F32, x, N) == N - 2);
    assert_true(k->first_not_finite(k, SP_F32, x + N - 1, 1) == 0);
    k->copy(k, 4, x + N - 1, x + 7); /* it waits for what is queued */
    assert_true(k->first_not_finite(k, SP_F32, x, N) == 7);
    assert_true(k->first_not_finite(k, SP_BF16, low, 2) == 2);
    assert_true(k->first_not_finite(k, SP_BF16, low, 3) == 2);
}
