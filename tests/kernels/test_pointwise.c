/*
 * The kernels that stream, of both types and of odd sizes: bf16 gives the bits of the f32 kernel on
 * the widened inputs, rounded once. Outputs start as NaN, and what follows them stays.
 */
#include "reference.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"

static const struct sp_backend *bf16;

/* Random values in both types; the f32 ones are those of the bf16 ones. */
struct both {
    size_t n;
    float *wide;
    uint16_t *low;
};

enum { GUARD = 3 }; /* elements past the end that nobody may write */

static struct both of_size(size_t n)
{
    struct both x = {n, new_nan(n + GUARD), new_bytes((n + GUARD) * sizeof(uint16_t))};

    memset(x.low, 0xff, (n + GUARD) * sizeof(uint16_t));
    return x;
}

static struct both values(size_t n, uint64_t seed, float scale)
{
    struct both x = of_size(n);

    for (size_t i = 0; i < n; i++) {
        x.low[i] = sp_bf16(scale * random_at(seed, i));
        x.wide[i] = sp_bf16_value(x.low[i]);
    }
    return x;
}

static void drop(struct both x)
{
    free(x.wide);
    free(x.low);
}

static void check_both(const char *what, struct both x)
{
    for (size_t i = 0; i < x.n; i++)
        if (x.low[i] != sp_bf16(x.wide[i]) || isnan(x.wide[i]))
            fail_msg("%s[%zu of %zu]: %.9g, not %.9g", what, i, x.n,
                     (double)sp_bf16_value(x.low[i]), (double)x.wide[i]);
    for (size_t i = x.n; i < x.n + GUARD; i++)
        if (x.low[i] != 0xffff || !isnan(x.wide[i]))
            fail_msg("%s: element %zu was written, past %zu", what, i, x.n);
    drop(x);
}

static void check_f32(const char *what, size_t n, float *low, float *wide)
{
    for (size_t i = 0; i < n; i++)
        if (low[i] != wide[i])
            fail_msg("%s[%zu of %zu]: %.9g, not %.9g", what, i, n, (double)low[i], (double)wide[i]);
    free(low);
    free(wide);
}

static const size_t sizes[] = {1, 2, 3, 31, 33, 63, 64, 65, 127, 128, 129, 1001, 20011};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void activation(enum sp_activation kind, size_t n)
{
    struct both u = values(n, 1, 6), dy = values(n, 2, 1), y = of_size(n);

    sp_cpu_activation(bf16, kind, n, u.low, y.low);
    sp_activation(kind, n, u.wide, y.wide);
    check_both("activation", y);
    y = of_size(n);
    sp_cpu_activation_bwd(bf16, kind, n, u.low, dy.low, y.low);
    sp_activation_bwd(kind, n, u.wide, dy.wide, y.wide);
    check_both("activation backward", y);
    /* in place of each input */
    y = values(n, 1, 6);
    sp_cpu_activation_bwd(bf16, kind, n, y.low, dy.low, y.low);
    sp_activation_bwd(kind, n, u.wide, dy.wide, y.wide);
    check_both("activation backward on u", y);
    sp_cpu_activation_bwd(bf16, kind, n, u.low, dy.low, dy.low);
    sp_activation_bwd(kind, n, u.wide, dy.wide, dy.wide);
    check_both("activation backward on dy", dy);
    drop(u);
}

static void test_elementwise(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        struct both u = values(n, 1, 6), dy = values(n, 2, 1), y = values(n, 3, 1);

        for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++)
            activation(kind, n);
        sp_cpu_add(bf16, n, dy.low, y.low);
        sp_add(n, dy.wide, y.wide);
        check_both("add", y);
        y = values(n, 4, 1); /* of three, rounded once */
        sp_cpu_add_parts(bf16, n, 3, (const void *[]){dy.low, u.low, dy.low}, y.low);
        sp_cpu_add_parts(sp_cpu_backend(SP_F32), n, 3, (const void *[]){dy.wide, u.wide, dy.wide},
                         y.wide);
        check_both("add three", y);
        drop(u), drop(dy);
    }
}

static void gated(enum sp_activation kind, int T, int f)
{
    size_t n = (size_t)T * (size_t)f;
    struct both u = values(2 * n, 1, 6), dy = values(n, 2, 1), y = of_size(n);
    const struct sp_gated g = {.act = kind, .T = T, .f = f};

    sp_cpu_gated(bf16, &g, u.low, y.low);
    sp_gated(&g, u.wide, y.wide);
    check_both("gated", y);
    y = of_size(2 * n);
    sp_cpu_gated_bwd(bf16, &g, u.low, dy.low, y.low);
    sp_gated_bwd(&g, u.wide, dy.wide, y.wide);
    check_both("gated backward", y);
    sp_cpu_gated_bwd(bf16, &g, u.low, dy.low, u.low);
    sp_gated_bwd(&g, u.wide, dy.wide, u.wide);
    check_both("gated backward in place", u);
    drop(dy);
}

static void test_gated(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++)
        for (enum sp_activation kind = 0; kind < SP_ACTIVATIONS; kind++)
            gated(kind, sizes[s] > 5000 ? 2 : 3, (int)sizes[s]);
}

static void norm_backward(bool rms, int T, int h, struct both x, struct both gain, float *stats)
{
    size_t n = (size_t)T * (size_t)h, width = (size_t)h;

    for (int arrays = 0; arrays < 6; arrays++) { /* dres or not; dgain and dbias, dgain, none */
        struct both dy = values(n, 5, 1), dres = values(n, 6, 1), dx = of_size(n);
        float *dg[2] = {new_random(width, 7), new_random(width, 7)};
        float *db[2] = {new_random(width, 8), new_random(width, 8)};
        bool res = arrays % 2, bias = arrays / 2 == 0 && !rms, dgain = arrays / 2 < 2;

        sp_cpu_norm_bwd(bf16, &(struct sp_norm){.rms = rms, .T = T, .h = h, .gain = gain.low},
                        x.low, stats,
                        &(struct sp_norm_bwd){.dy = dy.low,
                                              .dres = res ? dres.low : NULL,
                                              .dx = dx.low,
                                              .dgain = dgain ? dg[0] : NULL,
                                              .dbias = bias ? db[0] : NULL});
        sp_norm_bwd(&(struct sp_norm){.rms = rms, .T = T, .h = h, .gain = gain.wide}, x.wide, stats,
                    &(struct sp_norm_bwd){.dy = dy.wide,
                                          .dres = res ? dres.wide : NULL,
                                          .dx = dx.wide,
                                          .dgain = dgain ? dg[1] : NULL,
                                          .dbias = bias ? db[1] : NULL});
        check_both("norm backward", dx);
        if (!dgain)
            assert_true(dg[0][0] == random_at(7, 0) && db[0][0] == random_at(8, 0));
        check_f32("dgain", width, dg[0], dg[1]);
        check_f32("dbias", width, db[0], db[1]);
        drop(dy), drop(dres);
    }
}

static void test_norms(void **state)
{
    (void)state;
    for (int rms = 0; rms < 2; rms++)
        for (size_t s = 0; s < SIZES; s++) {
            int h = (int)sizes[s], T = h > 5000 ? 3 : 37;
            size_t n = (size_t)T * (size_t)h;
            struct both x = values(n, 1, 2), gain = values((size_t)h, 2, 1);
            struct both bias = values((size_t)h, 3, 1), y = of_size(n);
            float *stats[2] = {new_nan(2 * (size_t)T), new_nan(2 * (size_t)T)};

            sp_cpu_norm(bf16,
                        &(struct sp_norm){.rms = rms,
                                          .T = T,
                                          .h = h,
                                          .eps = 1e-5f,
                                          .gain = gain.low,
                                          .bias = rms ? NULL : bias.low},
                        x.low, y.low, stats[0]);
            sp_norm(&(struct sp_norm){.rms = rms,
                                      .T = T,
                                      .h = h,
                                      .eps = 1e-5f,
                                      .gain = gain.wide,
                                      .bias = rms ? NULL : bias.wide},
                    x.wide, y.wide, stats[1]);
            check_both("norm", y);
            y = of_size(n);
            sp_cpu_norm_apply(
                bf16,
                &(struct sp_norm){.T = T, .h = h, .gain = gain.low, .bias = rms ? NULL : bias.low},
                x.low, stats[0], y.low);
            sp_norm_apply(
                &(struct sp_norm){
                    .T = T, .h = h, .gain = gain.wide, .bias = rms ? NULL : bias.wide},
                x.wide, stats[1], y.wide);
            check_both("norm again", y);
            norm_backward(rms, T, h, x, gain, stats[1]);
            check_f32("stats", 2 * (size_t)T, stats[0], stats[1]);
            drop(x), drop(gain), drop(bias);
        }
}

/* Halves of heads of odd size; positions across multiples of 32; slices give the bits of the whole. */
static void test_rope(void **state)
{
    const struct sp_rope how = {.theta = 1e4f};
    const int heads_of[] = {2, 6, 24, 64, 130};

    (void)state;
    for (int k = 0; k < 5; k++) {
        int d = heads_of[k], ld = 3 * d + 1, len = 71;
        size_t n = 2 * (size_t)len * (size_t)ld;
        struct both x = values(n, 1, 1), whole = values(n, 1, 1);

        sp_cpu_rope(
            bf16,
            &(struct sp_rotation){
                .batch = 2, .len = len, .heads = 3, .d = d, .ld = ld, .pos0 = 1000, .rope = &how},
            k % 2, x.low);
        sp_rope(
            &(struct sp_rotation){
                .batch = 2, .len = len, .heads = 3, .d = d, .ld = ld, .pos0 = 1000, .rope = &how},
            k % 2, x.wide);
        sp_rope(
            &(struct sp_rotation){
                .batch = 2, .len = len, .heads = 3, .d = d, .ld = ld, .pos0 = 1000, .rope = &how},
            k % 2, whole.wide);
        for (int b = 0; b < 2; b++)
            for (int t = 0; t < len; t += 13) {
                size_t at = (size_t)(b * len + t) * (size_t)ld;
                struct both part = values(n, 1, 1);
                int rows = len - t < 13 ? len - t : 13;

                sp_rope(&(struct sp_rotation){.batch = 1,
                                              .len = rows,
                                              .heads = 3,
                                              .d = d,
                                              .ld = ld,
                                              .pos0 = 1000 + t,
                                              .rope = &how},
                        k % 2, part.wide + at);
                assert_same_bits((size_t)rows * (size_t)ld, part.wide + at, whole.wide + at);
                drop(part);
            }
        check_both("rope", x);
        drop(whole);
    }
}

static void test_embed(void **state)
{
    enum { B = 2, LEN = 21, V = 11 };
    int32_t ids[B * LEN];

    (void)state;
    for (int t = 0; t < B * LEN; t++)
        ids[t] = (t * t + 3) % V;
    for (size_t s = 0; s < SIZES; s++) {
        size_t h = sizes[s], n = B * LEN * h, places = LEN + 2;
        struct both table = values(V * h, 1, 1), pos = values(places * h, 2, 1), x = of_size(n);
        float *dt[2] = {new_random(V * h, 4), new_random(V * h, 4)};
        float *dp[2] = {new_random(places * h, 5), new_random(places * h, 5)};
        const struct sp_embed e = {.batch = B, .len = LEN, .h = (int)h, .pos0 = 2, .ids = ids};

        sp_cpu_embed(bf16, &e, table.low, pos.low, x.low);
        sp_embed(&e, table.wide, pos.wide, x.wide);
        check_both("embed", x);
        x = of_size(n);
        sp_cpu_embed(bf16, &e, table.low, NULL, x.low);
        sp_embed(&e, table.wide, NULL, x.wide);
        check_both("embed without positions", x);
        x = values(n, 3, 1);
        sp_cpu_embed_bwd(bf16, &e, x.low, dt[0], dp[0]);
        sp_embed_bwd(&e, x.wide, dt[1], dp[1]);
        sp_cpu_embed_bwd(bf16, &e, x.low, dt[0], NULL);
        sp_embed_bwd(&e, x.wide, dt[1], NULL);
        check_f32("dtable", V * h, dt[0], dt[1]);
        check_f32("dpositions", places * h, dp[0], dp[1]);
        drop(table), drop(pos), drop(x);
    }
}

/* Every upper half, with lower halves below, at and above the middle between two bf16. */
static void test_convert(void **state)
{
    const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    const size_t n = 6 * 0x10000;
    uint32_t *x = new_bytes(n * sizeof *x);
    uint16_t *y = new_bytes(n * sizeof *y);
    float *back = new_nan(n);

    (void)state;
    for (size_t i = 0; i < n; i++)
        x[i] = (uint32_t)(i / 6) << 16 | lower[i % 6];
    memset(y, 0xff, n * sizeof *y);
    sp_convert(SP_F32, SP_BF16, n, x, y);
    sp_convert(SP_BF16, SP_F32, n, y, back);
    for (size_t i = 0; i < n; i++) {
        float value;

        memcpy(&value, &x[i], sizeof value);
        assert_int_equal(y[i], sp_bf16(value));
        assert_true(isnan(back[i]) == isnan(value));
        assert_true(isnan(value) || back[i] == sp_bf16_value(y[i]));
    }
    free(x), free(y), free(back);
}

/* A NaN of every bf16 kernel reaches its output, whatever its bits. */
static void test_nan(void **state)
{
    const uint16_t nans[] = {0x7f81, 0x7fc0, 0x7fff, 0xff81, 0xffc0, 0xffff};

    (void)state;
    for (size_t k = 0; k < sizeof nans / sizeof nans[0]; k++)
        for (int at = 0; at < 5; at++) {
            uint16_t u[5], y[5], dy[5], du[10], wide[10] = {0};
            bool bad[4];

            for (int i = 0; i < 5; i++)
                u[i] = dy[i] = sp_bf16((float)i - 2);
            u[at] = wide[at] = nans[k];
            sp_cpu_activation(bf16, SP_GELU_TANH, 5, u, y);
            bad[0] = isnan(sp_bf16_value(y[at]));
            sp_cpu_activation_bwd(bf16, SP_GELU_TANH, 5, u, dy, y);
            bad[1] = isnan(sp_bf16_value(y[at]));
            sp_cpu_gated(bf16, &(struct sp_gated){.act = SP_SILU, .T = 1, .f = 5}, wide, y);
            bad[2] = isnan(sp_bf16_value(y[at]));
            sp_cpu_gated_bwd(bf16, &(struct sp_gated){.act = SP_SILU, .T = 1, .f = 5}, wide, dy,
                             du);
            bad[3] = isnan(sp_bf16_value(du[at])) && isnan(sp_bf16_value(du[5 + at]));
            assert_true(bad[0] && bad[1] && bad[2] && bad[3]);
            memcpy(y, dy, sizeof y);
            sp_cpu_add(bf16, 5, u, y);
            assert_true(isnan(sp_bf16_value(y[at])) && !isnan(sp_bf16_value(y[(at + 1) % 5])));
        }
}

TEST_GROUP(pointwise)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_gated),
        cmocka_unit_test(test_norms),       cmocka_unit_test(test_rope),
        cmocka_unit_test(test_embed),       cmocka_unit_test(test_convert),
        cmocka_unit_test(test_nan),
    };

    bf16 = sp_cpu_backend(SP_BF16);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
