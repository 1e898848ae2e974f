/*
 * bf16: the rounding, for every value that can be, and each kernel of the CPU's bf16 table, which
 * must give what the f32 kernel gives of the widened inputs, rounded once: the same bits. Attention on
 * bf16 tiles does not: test_attention_bf16.c.
 */
#include "emulated_bf16.h"
#include "reference.h"
#include "kernels/cpu/attention/attention_path.h"
#include "kernels/cpu/cpu.h"

enum { T = 13, IN = 24, OUT = 40, V = 37, ROWS = 5 };

/* exact: products and the head through f32, see test_gemm_bf16.c for those of the CPU. */
static const struct sp_backend *lo, *exact, *hi;

static float from_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static void test_rounding(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x10000; b++) {
        float x = sp_bf16_value((uint16_t)b), next = sp_bf16_value((uint16_t)(b + 1));

        if (isnan(x)) {
            assert_true(isnan(sp_bf16_value(sp_bf16(x))));
            continue;
        }
        assert_int_equal(sp_bf16(x), b);
        if (isinf(x) || (b & 0x7fff) == 0x7f7f)
            continue;
        assert_true(next != x);
        /* half way to the next one: to the even; just before and just after it: to the nearest */
        assert_int_equal(sp_bf16(from_bits(b << 16 | 0x8000)), b + (b & 1));
        assert_int_equal(sp_bf16(from_bits(b << 16 | 0x7fff)), b);
        assert_int_equal(sp_bf16(from_bits(b << 16 | 0x8001)), b + 1);
    }
    assert_int_equal(sp_bf16(from_bits(0x7f7fffff)), 0x7f80); /* beyond the largest: infinite */
    assert_true(isnan(sp_bf16_value(sp_bf16(from_bits(0x7f800001)))));
}

/* Rounded at random: to one of the two next to a value, and so often to the upper one that the mean is right. */
static void test_rounding_at_random(void **state)
{
    enum { TIMES = 65536 };
    const uint32_t values[] = {0x3f801234, 0x3f80ffff, 0xbf812345, 0x00012345, 0x477fe001, 0};

    (void)state;
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        uint32_t x = values[k], up = 0, past = x & 0xffff;
        double deviation = sqrt(TIMES * (past / 65536.0) * (1 - past / 65536.0));

        for (uint32_t i = 0; i < TIMES; i++) {
            uint32_t y = sp_bf16_at_random(x, sp_random_bits(99, i)) >> 16;

            assert_true(y == x >> 16 || y == (x >> 16) + 1);
            up += y != x >> 16;
        }
        assert_true(fabs((double)up - past) <= 4 * deviation);
    }
    for (uint32_t b = 0; b < 0x10000; b++) { /* what is a bf16 stays */
        uint32_t y = sp_bf16_at_random(b << 16, 0xffffffff) >> 16;

        assert_true(y == b || (isnan(sp_bf16_value((uint16_t)b)) && y == (b | 0x40)));
    }
    assert_true(isnan(from_bits(sp_bf16_at_random(0x7f800001, 0xffffffff) & 0xffff0000)));
}

/* Random values, in both types. */
struct pair {
    size_t n;
    float *wide;
    uint16_t *low;
};

static struct pair pair(size_t n, uint64_t seed)
{
    struct pair p = {n, new_random(n, seed), new_bytes(n * sizeof(uint16_t))};

    for (size_t i = 0; i < n; i++) {
        p.low[i] = sp_bf16(p.wide[i]);
        p.wide[i] = sp_bf16_value(p.low[i]);
    }
    return p;
}

/* An output: what is not written shows. */
static struct pair output(size_t n)
{
    struct pair p = {n, new_nan(n), new_bytes(n * sizeof(uint16_t))};

    memset(p.low, 0xff, n * sizeof(uint16_t));
    return p;
}

static void drop(struct pair *p)
{
    free(p->wide);
    free(p->low);
}

static void check_pair(const char *what, struct pair *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->low[i] != sp_bf16(p->wide[i]) && !(isnan(p->wide[i]) && p->low[i] == 0xffff))
            fail_msg("%s[%zu]: %.9g, not %.9g", what, i, (double)sp_bf16_value(p->low[i]),
                     (double)sp_bf16_value(sp_bf16(p->wide[i])));
    drop(p);
}

static void check_f32(const char *what, size_t n, float *low, float *wide)
{
    for (size_t i = 0; i < n; i++)
        if (low[i] != wide[i])
            fail_msg("%s[%zu]: %.9g, not %.9g", what, i, (double)low[i], (double)wide[i]);
    free(low);
    free(wide);
}

static void test_products(void **state)
{
    struct pair x = pair(T * IN, 1), w = pair(OUT * IN, 2), bias = pair(OUT, 3);
    struct pair dy = pair(T * (OUT + 3), 4), r = pair(T * OUT, 5), u, y;
    float *dw[2] = {new_random(OUT * IN, 6), new_random(OUT * IN, 6)};
    float *db[2] = {new_random(OUT, 7), new_random(OUT, 7)};

    (void)state;
    y = output(T * (OUT + 1));
    exact->linear(exact,
                  &(struct sp_linear){
                      .T = T, .in = IN, .out = OUT, .w = w.low, .bias = bias.low, .ld = OUT + 1},
                  x.low, y.low);
    hi->linear(hi,
               &(struct sp_linear){
                   .T = T, .in = IN, .out = OUT, .w = w.wide, .bias = bias.wide, .ld = OUT + 1},
               x.wide, y.wide);
    check_pair("linear", &y);
    y = output(T * OUT);
    exact->linear_add(exact, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.low}, x.low,
                      r.low, y.low);
    hi->linear_add(hi, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.wide}, x.wide,
                   r.wide, y.wide);
    check_pair("linear_add", &y);
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        u = output(T * OUT), y = output(T * OUT);
        exact->linear_act(
            exact, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.low, .bias = bias.low},
            act, x.low, u.low, y.low);
        hi->linear_act(
            hi, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.wide, .bias = bias.wide},
            act, x.wide, u.wide, y.wide);
        check_pair("linear_act u", &u), check_pair("linear_act g", &y);
    }
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        y = accumulate ? pair(T * IN, 8) : output(T * IN);
        exact->linear_dx(
            exact, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.low, .ld = OUT + 3},
            dy.low, y.low, accumulate);
        hi->linear_dx(hi,
                      &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.wide, .ld = OUT + 3},
                      dy.wide, y.wide, accumulate);
        check_pair("linear_dx", &y);
    }
    for (enum sp_activation act = 0; act < SP_ACTIVATIONS; act++) {
        u = pair(T * IN, 9), y = output(T * IN);
        exact->linear_dx_act(exact, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.low},
                             act, r.low, u.low, y.low);
        hi->linear_dx_act(hi, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.wide}, act,
                          r.wide, u.wide, y.wide);
        check_pair("linear_dx_act", &y), drop(&u);
    }
    exact->linear_dw(exact, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .ld = OUT + 3}, x.low,
                     dy.low, dw[0], db[0]);
    hi->linear_dw(hi, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .ld = OUT + 3}, x.wide,
                  dy.wide, dw[1], db[1]);
    check_f32("dw", OUT * IN, dw[0], dw[1]), check_f32("dbias", OUT, db[0], db[1]);
    drop(&x), drop(&w), drop(&bias), drop(&dy), drop(&r);
}

static void test_norms(void **state)
{
    (void)state;
    for (int rms = 0; rms < 2; rms++) {
        struct pair x = pair(T * IN, 1), gain = pair(IN, 2), bias = pair(IN, 3), y, dx;
        float *stats[2] = {new_nan(2 * T), new_nan(2 * T)};
        float *dg[2] = {new_random(IN, 4), new_random(IN, 4)};
        float *db[2] = {new_random(IN, 5), new_random(IN, 5)};
        struct pair dres = pair(T * IN, 6);

        y = output(T * IN);
        lo->norm(lo,
                 &(struct sp_norm){.rms = rms,
                                   .T = T,
                                   .h = IN,
                                   .eps = 1e-5f,
                                   .gain = gain.low,
                                   .bias = rms ? NULL : bias.low},
                 x.low, y.low, stats[0]);
        hi->norm(hi,
                 &(struct sp_norm){.rms = rms,
                                   .T = T,
                                   .h = IN,
                                   .eps = 1e-5f,
                                   .gain = gain.wide,
                                   .bias = rms ? NULL : bias.wide},
                 x.wide, y.wide, stats[1]);
        check_pair("norm", &y);
        y = output(T * IN);
        lo->norm_apply(
            lo, &(struct sp_norm){.T = T, .h = IN, .gain = gain.low, .bias = rms ? NULL : bias.low},
            x.low, stats[0], y.low);
        hi->norm_apply(
            hi,
            &(struct sp_norm){.T = T, .h = IN, .gain = gain.wide, .bias = rms ? NULL : bias.wide},
            x.wide, stats[1], y.wide);
        check_pair("norm_apply", &y);
        dx = pair(T * IN, 7); /* dy, too */
        lo->norm_bwd(lo, &(struct sp_norm){.rms = rms, .T = T, .h = IN, .gain = gain.low}, x.low,
                     stats[0],
                     &(struct sp_norm_bwd){.dy = dx.low,
                                           .dres = dres.low,
                                           .dx = dx.low,
                                           .dgain = dg[0],
                                           .dbias = rms ? NULL : db[0]});
        hi->norm_bwd(hi, &(struct sp_norm){.rms = rms, .T = T, .h = IN, .gain = gain.wide}, x.wide,
                     stats[1],
                     &(struct sp_norm_bwd){.dy = dx.wide,
                                           .dres = dres.wide,
                                           .dx = dx.wide,
                                           .dgain = dg[1],
                                           .dbias = rms ? NULL : db[1]});
        check_pair("norm_bwd", &dx);
        check_f32("stats", 2 * T, stats[0], stats[1]);
        check_f32("dgain", IN, dg[0], dg[1]), check_f32("dbias", IN, db[0], db[1]);
        drop(&x), drop(&gain), drop(&bias), drop(&dres);
    }
}

/* On a path of f32 tiles: the tiles hold the widened values. */
static void attention_on(const char *path)
{
    enum { B = 2, A = 4, G = 2, D = 8, Q = 5 };
    const int len[] = {3, 6};
    const struct sp_attention at = {.batch = B,
                                    .heads = A,
                                    .kv_heads = G,
                                    .head_dim = D,
                                    .scale = 0.35f,
                                    .q_len = Q,
                                    .q_pos = 3,
                                    .n_kv = 2,
                                    .kv_len = len};
    struct pair q = pair(B * Q * A * D, 1), d_o = pair(B * Q * A * D, 2), o = output(B * Q * A * D);
    struct pair kv[2] = {pair(B * 3 * 2 * G * D, 3), pair(B * 6 * 2 * G * D, 4)};
    const void *klo[] = {kv[0].low, kv[1].low}, *khi[] = {kv[0].wide, kv[1].wide};
    float *lse[2] = {new_nan(B * A * Q), new_nan(B * A * Q)};

    if (sp_attention_choose(path)) {
        printf("    no %s here\n", path);
        path = "plain";
        assert_int_equal(sp_attention_choose(path), 0);
    }
    assert_string_equal(sp_attention_path(SP_BF16)->name, path);
    lo->attention(lo, &at, q.low, klo, o.low, lse[0]);
    hi->attention(hi, &at, q.wide, khi, o.wide, lse[1]);
    for (size_t i = 0; i < o.n; i++) {
        assert_int_equal(o.low[i], sp_bf16(o.wide[i]));
        o.wide[i] = sp_bf16_value(o.low[i]); /* what the backward reads */
    }
    for (int first = 0; first < 2; first++) {
        struct pair dq = output(B * Q * A * D), dkv[2];
        void *dlo[2], *dhi[2];

        for (int j = 0; j < 2; j++) {
            dkv[j] = first ? output(kv[j].n) : pair(kv[j].n, 5 + (uint64_t)j);
            dlo[j] = dkv[j].low, dhi[j] = dkv[j].wide;
        }
        lo->attention_bwd(lo, &at,
                          &(struct sp_attention_bwd){.q = q.low,
                                                     .kv = klo,
                                                     .o = o.low,
                                                     .lse = lse[0],
                                                     .d_o = d_o.low,
                                                     .dq = dq.low,
                                                     .dkv = dlo,
                                                     .first = first});
        hi->attention_bwd(hi, &at,
                          &(struct sp_attention_bwd){.q = q.wide,
                                                     .kv = khi,
                                                     .o = o.wide,
                                                     .lse = lse[1],
                                                     .d_o = d_o.wide,
                                                     .dq = dq.wide,
                                                     .dkv = dhi,
                                                     .first = first});
        check_pair("dq", &dq), check_pair("dkv 0", &dkv[0]), check_pair("dkv 1", &dkv[1]);
    }
    check_f32("lse", B * A * Q, lse[0], lse[1]);
    drop(&q), drop(&d_o), drop(&o), drop(&kv[0]), drop(&kv[1]);
}

static void test_attention(void **state)
{
    (void)state;
    attention_on("avx512"), attention_on("avx2"), attention_on("plain");
    assert_int_equal(sp_attention_choose(NULL), 0);
}

static void test_rope(void **state)
{
    struct pair x;

    (void)state;
    x = pair(T * 50, 8); /* two heads of 24 in rows of 50 */
    lo->rope(lo,
             &(struct sp_rotation){.batch = 1,
                                   .len = T,
                                   .heads = 2,
                                   .d = 24,
                                   .ld = 50,
                                   .pos0 = 7,
                                   .rope = &(struct sp_rope){.theta = 1e4f}},
             false, x.low);
    hi->rope(hi,
             &(struct sp_rotation){.batch = 1,
                                   .len = T,
                                   .heads = 2,
                                   .d = 24,
                                   .ld = 50,
                                   .pos0 = 7,
                                   .rope = &(struct sp_rope){.theta = 1e4f}},
             false, x.wide);
    check_pair("rope", &x);
}

static void test_mlp(void **state)
{
    struct pair u = pair(T * 2 * IN, 1), dy = pair(T * IN, 2), y;
    const struct sp_gated g = {.act = SP_SILU, .T = T, .f = IN};

    (void)state;
    y = output(T * 2 * IN);
    lo->act(lo, SP_GELU_TANH, T * 2 * IN, u.low, y.low);
    hi->act(hi, SP_GELU_TANH, T * 2 * IN, u.wide, y.wide);
    check_pair("gelu", &y);
    y = output(T * IN);
    lo->gated(lo, &g, u.low, y.low);
    hi->gated(hi, &g, u.wide, y.wide);
    check_pair("swiglu", &y);
    y = output(T * 2 * IN);
    lo->gated_bwd(lo, &g, u.low, dy.low, y.low);
    hi->gated_bwd(hi, &g, u.wide, dy.wide, y.wide);
    check_pair("swiglu_bwd", &y);
    y = pair(T * IN, 3);
    lo->add(lo, T * IN, dy.low, y.low);
    hi->add(hi, T * IN, dy.wide, y.wide);
    check_pair("add", &y);
    drop(&u), drop(&dy);
}

static void test_tokens(void **state)
{
    struct pair table = pair(V * IN, 1), places = pair((T + 2) * IN, 2), x = pair(T * IN, 3), y;
    float *dt[2] = {new_random(V * IN, 4), new_random(V * IN, 4)};
    float *dp[2] = {new_random((T + 2) * IN, 5), new_random((T + 2) * IN, 5)};
    float *scratch = new_nan(ROWS * (size_t)sp_logits_ld(V));
    double loss[2] = {0.5, 0.5};
    int32_t ids[T];
    const struct sp_embed e = {.batch = 1, .len = T, .h = IN, .pos0 = 2, .ids = ids};

    (void)state;
    for (int t = 0; t < T; t++)
        ids[t] = (t * t + 3) % V;
    y = output(T * IN);
    lo->embed(lo, &e, table.low, places.low, y.low);
    hi->embed(hi, &e, table.wide, places.wide, y.wide);
    check_pair("embed", &y);
    lo->embed_bwd(lo, &e, x.low, dt[0], dp[0]);
    hi->embed_bwd(hi, &e, x.wide, dt[1], dp[1]);
    y = output(T * IN);
    exact->cross_entropy(exact,
                         &(struct sp_logits){.T = T,
                                             .h = IN,
                                             .V = V,
                                             .rows = ROWS,
                                             .x = x.low,
                                             .w = table.low,
                                             .targets = ids,
                                             .scale = 0.1f,
                                             .scratch = scratch},
                         &loss[0], y.low, dt[0]);
    hi->cross_entropy(hi,
                      &(struct sp_logits){.T = T,
                                          .h = IN,
                                          .V = V,
                                          .rows = ROWS,
                                          .x = x.wide,
                                          .w = table.wide,
                                          .targets = ids,
                                          .scale = 0.1f,
                                          .scratch = scratch},
                      &loss[1], y.wide, dt[1]);
    check_pair("cross_entropy dx", &y);
    assert_true(loss[0] == loss[1] && loss[0] > 1);
    check_f32("dtable", V * IN, dt[0], dt[1]);
    check_f32("dpositions", (T + 2) * IN, dp[0], dp[1]);
    drop(&table), drop(&places), drop(&x);
    free(scratch);
}

static void test_update(void **state)
{
    enum { N = 1001 };
    const struct sp_adamw hp = {.lr = 0.01f,
                                .beta1 = 0.9f,
                                .beta2 = 0.95f,
                                .eps = 1e-8f,
                                .weight_decay = 0.1f,
                                .bias1 = 0.1f,
                                .bias2 = 0.05f,
                                .grad_scale = 0.5f};
    float *w[2], *g[2], *m[2], *v[2];
    struct pair low = output(N), again = output(N);

    (void)state;
    for (int i = 0; i < 2; i++) {
        w[i] = new_random(N, 1), g[i] = new_random(N, 2);
        m[i] = new_random(N, 3), v[i] = new_random(N, 4);
        for (int k = 0; k < N; k++)
            v[i][k] = fabsf(v[i][k]);
    }
    lo->adamw(lo, &hp,
              &(struct sp_adamw_arrays){
                  .n = N, .w = w[0], .g = g[0], .m = m[0], .v = v[0], .low = low.low});
    hi->adamw(hi, &hp,
              &(struct sp_adamw_arrays){.n = N, .w = w[1], .g = g[1], .m = m[1], .v = v[1]});
    memcpy(low.wide, w[1], N * sizeof(float));
    memcpy(again.wide, w[1], N * sizeof(float));
    lo->round(lo, N, w[0], again.low);
    check_pair("rounded by the update", &low), check_pair("rounded", &again);
    check_f32("w", N, w[0], w[1]), check_f32("g", N, g[0], g[1]);
    check_f32("m", N, m[0], m[1]), check_f32("v", N, v[0], v[1]);
}

/* y += x many times over, x far below half a step of y: rounded to the nearest, y would never change. */
static void test_adds_at_random(void **state)
{
    enum { N = 4099, TIMES = 1000 };
    float *x = new_random(N, 1), *y = new_random(N, 2);
    double sum = 0, furthest = 0;
    uint16_t *low = new_bytes(N * sizeof *low);

    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = 0x1p-13f;
        low[i] = sp_bf16(1);
    }
    for (uint32_t t = 0; t < TIMES; t++)
        lo->add_at_random(lo, N, sp_random_bits(5, t), x, low);
    for (int i = 0; i < N; i++)
        sum += sp_bf16_value(low[i]) / N;
    /* the deviation of an element is four steps of a bf16, 2^-5, that of the mean 64 times less */
    assert_true(fabs(sum - (1 + TIMES * 0x1p-13)) < 4 * 0x1p-11);
    for (int i = 0; i < N; i++)
        furthest = fmax(furthest, fabs(sp_bf16_value(low[i]) - sum));
    assert_true(furthest > 0x1p-7); /* each for itself */

    lo->add_to_f32(lo, N, low, y);
    memcpy(x, y, N * sizeof *x);
    free(y);
    y = new_random(N, 2);
    for (int i = 0; i < N; i++)
        assert_true(x[i] == y[i] + sp_bf16_value(low[i]));
    hi->add_at_random(hi, N, 5, x, y); /* f32: as it is */
    hi->add_to_f32(hi, N, x, y);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == random_at(2, (size_t)i) + x[i] + x[i]);
    free(x), free(y), free(low);
}

static void test_finite(void **state)
{
    struct pair x = pair(50, 1);

    (void)state;
    assert_int_equal(lo->first_not_finite(lo, SP_BF16, x.low, 50), 50);
    assert_int_equal(hi->first_not_finite(hi, SP_F32, x.wide, 50), 50);
    x.low[17] = 0x7f80, x.wide[18] = NAN;
    assert_int_equal(lo->first_not_finite(lo, SP_BF16, x.low, 50), 17);
    assert_int_equal(hi->first_not_finite(hi, SP_F32, x.wide, 50), 18);
    drop(&x);
}

TEST_GROUP(bf16)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),       cmocka_unit_test(test_products),
        cmocka_unit_test(test_norms),          cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rope),           cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_tokens),         cmocka_unit_test(test_update),
        cmocka_unit_test(test_finite),         cmocka_unit_test(test_rounding_at_random),
        cmocka_unit_test(test_adds_at_random),
    };

    lo = sp_cpu_backend(SP_BF16), exact = emulated_bf16(), hi = sp_cpu_backend(SP_F32);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
