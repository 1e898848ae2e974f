/* AdamW over several steps, and the sum of squares behind clipping. */
#include "reference.h"

static void steps(size_t n)
{
    const double lr = 0.01, b1 = 0.9, b2 = 0.95, eps = 1e-8, decay = 0.1, clip = 0.5;
    float *w = new_random(n, 1), *m = test_bytes(n * sizeof *m), *v = test_bytes(n * sizeof *v);
    float *g = new_nan(n);
    double *want = new_double(n, w), *want_m = new_double(n, NULL), *want_v = new_double(n, NULL);

    memset(m, 0, n * sizeof *m);
    memset(v, 0, n * sizeof *v);
    for (int t = 1; t <= 5; t++) {
        struct sp_adamw hp = {(float)lr,
                              (float)b1,
                              (float)b2,
                              (float)eps,
                              (float)decay,
                              (float)(1 - pow(b1, t)),
                              (float)(1 - pow(b2, t)),
                              (float)clip};

        for (size_t i = 0; i < n; i++) {
            double gi;

            g[i] = random_at((uint64_t)t + 10, i);
            gi = clip * (double)g[i];
            want[i] -= lr * decay * want[i];
            want_m[i] = b1 * want_m[i] + (1 - b1) * gi;
            want_v[i] = b2 * want_v[i] + (1 - b2) * gi * gi;
            want[i] -=
                lr * (want_m[i] / (1 - pow(b1, t))) / (sqrt(want_v[i] / (1 - pow(b2, t))) + eps);
        }
        sp_adamw(&hp, &(struct sp_adamw_arrays){.n = n, .w = w, .g = g, .m = m, .v = v});
        for (size_t i = 0; i < n; i++)
            assert_true(g[i] == 0);
    }
    assert_close("weights after 5 steps", n, w, want, TOLERANCE);
    assert_close("first moment", n, m, want_m, TOLERANCE);
    assert_close("second moment", n, v, want_v, TOLERANCE);
}

TEST(steps)
{
    steps(1);
    steps(37);
    steps(20011);
}

TEST(kept_gradient)
{
    enum { N = 53 };
    struct sp_adamw hp = {0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 0.5f};
    float *w = new_random(N, 1), *g = new_random(N, 2), m[N], v[N], *was = new_copy(N, g);
    float *other_w = new_copy(N, w), *other_g = new_copy(N, g), other_m[N], other_v[N];

    memset(m, 0, sizeof m), memset(other_m, 0, sizeof m);
    memset(v, 0, sizeof v), memset(other_v, 0, sizeof v);
    sp_adamw(&hp, &(struct sp_adamw_arrays){.n = N, .w = w, .g = g, .m = m, .v = v});
    sp_adamw(&hp,
             &(struct sp_adamw_arrays){
                 .n = N, .w = other_w, .g = other_g, .m = other_m, .v = other_v, .keeps_g = true});
    assert_same_bits(N, w, other_w);
    assert_same_bits(N, m, other_m);
    assert_same_bits(N, v, other_v);
    assert_same_bits(N, other_g, was);
}

TEST(zero_rate)
{
    enum { N = 53 };
    struct sp_adamw hp = {0, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 1};
    float *w = new_random(N, 1), *was = new_copy(N, w), *g = new_random(N, 2), m[N], v[N];

    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    g[3] = 0;
    sp_adamw(&hp, &(struct sp_adamw_arrays){.n = N, .w = w, .g = g, .m = m, .v = v});
    assert_same_bits(N, w, was);
}

TEST(sumsq)
{
    const size_t sizes[] = {0, 1, 7, 16, 16383, 16385, 100003, 16384 * 257 + 19};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t n = sizes[s];
        float *g = new_random(n, 3);
        long double want = 0; /* a plain double sum would lose as much as the kernel */
        double sum[4];

        for (size_t i = 0; i < n; i++)
            want += (long double)g[i] * g[i];
        for (int threads = 1; threads <= 4; threads++) {
            omp_set_num_threads(threads);
            sum[threads - 1] = 1.5;
            sp_sumsq(n, g, &sum[threads - 1]);
            assert_true(sum[threads - 1] == sum[0]);
        }
        printf("    %zu elements: %.15g, reference %.15Lg\n", n, sum[0] - 1.5, want);
        assert_true(fabsl(sum[0] - 1.5L - want) <= 1e-13L * (want + 1.5L));
    }
    omp_set_num_threads(2);
}
