/*
 * Attention in bf16 on every path that the machine has: values, log-sum-exp and gradients against
 * double loops on the same rounded inputs, over slices, whatever the sizes; the same bits on every
 * run and for every team.
 */
#include "attention_reference.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention/attention_path.h"

enum { MOST_SLICES = 4 };

/* Relative to the largest element: what the project promises of bf16. */
#define BF16_TOLERANCE 2e-2

static uint16_t *new_low(size_t n, uint64_t seed, float scale)
{
    uint16_t *x = new_bytes(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = sp_bf16(scale * random_at(seed, i));
    return x;
}

static float *wide(size_t n, const uint16_t *x)
{
    float *y = new_bytes(n * sizeof *y);

    for (size_t i = 0; i < n; i++)
        y[i] = sp_bf16_value(x[i]);
    return y;
}

static double *wider(size_t n, const uint16_t *x)
{
    double *y = new_bytes(n * sizeof *y);

    for (size_t i = 0; i < n; i++)
        y[i] = (double)sp_bf16_value(x[i]);
    return y;
}

/* Inputs and outputs of one sequence in slices; batch 1, so that slices are rows of the whole. */
struct sequence {
    int heads, kv_heads, d, n, lens[MOST_SLICES], len;
    size_t n_q, n_kv;
    uint16_t *q, *kv, *d_o, *o, *dq, *dkv;
    float *lse; /* slice after slice (a, len) */
};

static void run_sequence(struct sequence *s)
{
    const struct sp_backend *k = sp_cpu_backend(SP_BF16);
    size_t wq = (size_t)(s->heads * s->d), wkv = (size_t)(2 * s->kv_heads * s->d);
    const void *kv[MOST_SLICES];
    void *dkv[MOST_SLICES];
    size_t pos[MOST_SLICES + 1] = {0};

    memset(s->o, 0xff, s->n_q * 2), memset(s->dq, 0xff, s->n_q * 2);
    memset(s->dkv, 0xff, s->n_kv * 2); /* the last slice's backward creates them all */
    for (int i = 0; i < s->n; i++) {
        pos[i + 1] = pos[i] + (size_t)s->lens[i];
        kv[i] = s->kv + pos[i] * wkv, dkv[i] = s->dkv + pos[i] * wkv;
    }
    for (int step = 0; step < 2 * s->n; step++) {
        int i = step < s->n ? step : 2 * s->n - 1 - step;
        size_t at_q = pos[i] * wq;
        float *lse = s->lse + pos[i] * (size_t)s->heads;
        const struct sp_attention at = {.batch = 1,
                                        .heads = s->heads,
                                        .kv_heads = s->kv_heads,
                                        .head_dim = s->d,
                                        .scale = 1 / sqrtf((float)s->d),
                                        .q_len = s->lens[i],
                                        .q_pos = (int)pos[i],
                                        .n_kv = i + 1,
                                        .kv_len = s->lens};

        if (step < s->n)
            k->attention(k, &at, s->q + at_q, kv, s->o + at_q, lse);
        else
            k->attention_bwd(k, &at,
                             &(struct sp_attention_bwd){.q = s->q + at_q,
                                                        .kv = kv,
                                                        .o = s->o + at_q,
                                                        .lse = lse,
                                                        .d_o = s->d_o + at_q,
                                                        .dq = s->dq + at_q,
                                                        .dkv = dkv,
                                                        .first = i == s->n - 1});
    }
}

/* The kernels' log-sum-exp against the reference's, whose rows are whole sequences. */
static void check_lse(const struct sequence *s, const double *want)
{
    size_t from = 0;
    int pos = 0;

    for (int i = 0; i < s->n; pos += s->lens[i++])
        for (int head = 0; head < s->heads; head++)
            for (int t = 0; t < s->lens[i]; t++, from++)
                assert_true(fabs((double)s->lse[from] - want[head * s->len + pos + t]) < 1e-3);
}

static void check_close(const char *what, size_t n, const uint16_t *got, const double *want)
{
    float *x = wide(n, got);

    assert_close(what, n, x, want, BF16_TOLERANCE);
    free(x);
}

static void compare(const struct sequence *s)
{
    struct whole r = {
        .batch = 1, .len = s->len, .heads = s->heads, .kv_heads = s->kv_heads, .d = s->d};

    r.q = wider(s->n_q, s->q), r.kv = wider(s->n_kv, s->kv), r.d_o = wider(s->n_q, s->d_o);
    r.o = new_double(s->n_q, NULL), r.lse = new_double((size_t)(s->heads * s->len), NULL);
    r.dq = new_double(s->n_q, NULL), r.dkv = new_double(s->n_kv, NULL);
    reference(&r, true);
    check_close("o", s->n_q, s->o, r.o);
    check_close("dq", s->n_q, s->dq, r.dq);
    check_close("dkv", s->n_kv, s->dkv, r.dkv);
    check_lse(s, r.lse);
    free(r.q), free(r.kv), free(r.d_o), free(r.o), free(r.lse), free(r.dq), free(r.dkv);
}

static void shape(int heads, int kv_heads, int d, int n, const int *lens)
{
    struct sequence s = {.heads = heads, .kv_heads = kv_heads, .d = d, .n = n};
    int before = omp_get_max_threads();
    uint16_t *first[3];

    for (int i = 0; i < n; i++)
        s.len += s.lens[i] = lens[i];
    printf("    heads %d/%d of %d, %d rows in %d slices\n", heads, kv_heads, d, s.len, n);
    s.n_q = (size_t)(s.len * heads * d), s.n_kv = (size_t)(s.len * 2 * kv_heads * d);
    s.q = new_low(s.n_q, 1, 4), s.kv = new_low(s.n_kv, 2, 1), s.d_o = new_low(s.n_q, 3, 1);
    s.o = new_bytes(s.n_q * 2), s.dq = new_bytes(s.n_q * 2), s.dkv = new_bytes(s.n_kv * 2);
    s.lse = new_nan((size_t)(s.len * heads));
    omp_set_num_threads(1);
    run_sequence(&s);
    compare(&s);
    first[0] = memcpy(new_bytes(s.n_q * 2), s.o, s.n_q * 2);
    first[1] = memcpy(new_bytes(s.n_q * 2), s.dq, s.n_q * 2);
    first[2] = memcpy(new_bytes(s.n_kv * 2), s.dkv, s.n_kv * 2);
    for (int team = 2; team < 5; team++) {
        omp_set_num_threads(team);
        run_sequence(&s);
        assert_memory_equal(s.o, first[0], s.n_q * 2);
        assert_memory_equal(s.dq, first[1], s.n_q * 2);
        assert_memory_equal(s.dkv, first[2], s.n_kv * 2);
    }
    omp_set_num_threads(before);
    for (int i = 0; i < 3; i++)
        free(first[i]);
    free(s.q), free(s.kv), free(s.d_o), free(s.o), free(s.dq), free(s.dkv), free(s.lse);
}

/* Leaves NaN wherever a thread's scratch has tiles: nothing of that may get into what comes next. */
static void spoil_scratch(void)
{
    struct sequence s = {.heads = 1, .kv_heads = 1, .d = 128, .n = 1, .lens = {320}, .len = 320};
    int before = omp_get_max_threads();

    s.n_q = (size_t)(s.len * s.d), s.n_kv = 2 * s.n_q;
    s.q = new_bytes(s.n_q * 2), s.kv = new_bytes(s.n_kv * 2), s.d_o = new_bytes(s.n_q * 2);
    s.o = new_bytes(s.n_q * 2), s.dq = new_bytes(s.n_q * 2), s.dkv = new_bytes(s.n_kv * 2);
    s.lse = new_nan((size_t)s.len);
    memset(s.q, 0xff, s.n_q * 2), memset(s.kv, 0xff, s.n_kv * 2), memset(s.d_o, 0xff, s.n_q * 2);
    omp_set_num_threads(1);
    run_sequence(&s);
    omp_set_num_threads(before);
    assert_true(isnan(sp_bf16_value(s.dkv[0])));
    free(s.q), free(s.kv), free(s.d_o), free(s.o), free(s.dq), free(s.dkv), free(s.lse);
}

#define SHAPE(heads, kv_heads, d, ...)                                                             \
    do {                                                                                           \
        const int lens_[] = {__VA_ARGS__};                                                         \
                                                                                                   \
        spoil_scratch();                                                                           \
        shape(heads, kv_heads, d, sizeof lens_ / sizeof lens_[0], lens_);                          \
    } while (0)

/* Queries beside keys in slices of other lengths, whose ends lie anywhere among them. */
struct beside {
    int q_len, q_pos, heads, kv_heads, d, n, lens[MOST_SLICES];
};

struct gradients {
    uint16_t *o, *dq, *dkv;
};

static struct gradients run_beside(const struct beside *b, const uint16_t *q, const uint16_t *kv,
                                   const uint16_t *d_o, size_t n_q, size_t n_kv)
{
    const struct sp_backend *k = sp_cpu_backend(SP_BF16);
    struct gradients r = {new_bytes(n_q * 2), new_bytes(n_q * 2), new_bytes(n_kv * 2)};
    float *lse = new_nan((size_t)(b->q_len * b->heads));
    const void *slice[MOST_SLICES];
    void *dslice[MOST_SLICES];
    const struct sp_attention at = {.batch = 1,
                                    .heads = b->heads,
                                    .kv_heads = b->kv_heads,
                                    .head_dim = b->d,
                                    .scale = 1 / sqrtf((float)b->d),
                                    .q_len = b->q_len,
                                    .q_pos = b->q_pos,
                                    .n_kv = b->n,
                                    .kv_len = b->lens};
    size_t from = 0;

    for (int i = 0; i < b->n; from += (size_t)(b->lens[i++] * 2 * b->kv_heads * b->d))
        slice[i] = kv + from, dslice[i] = r.dkv + from;
    memset(r.o, 0xff, n_q * 2), memset(r.dq, 0xff, n_q * 2), memset(r.dkv, 0xff, n_kv * 2);
    k->attention(k, &at, q, slice, r.o, lse);
    k->attention_bwd(k, &at,
                     &(struct sp_attention_bwd){.q = q,
                                                .kv = slice,
                                                .o = r.o,
                                                .lse = lse,
                                                .d_o = d_o,
                                                .dq = r.dq,
                                                .dkv = dslice,
                                                .first = true});
    free(lse);
    return r;
}

static void check_beside(const char *what, size_t n, const uint16_t *got, const uint16_t *want)
{
    double *w = wider(n, want);

    check_close(what, n, got, w);
    free(w);
}

/* The same as the plain path. */
static void compare_beside(const char *path, const struct beside *b)
{
    size_t n_q = (size_t)(b->q_len * b->heads * b->d), n_kv = 0;
    uint16_t *q, *kv, *d_o;
    struct gradients got, want;

    for (int i = 0; i < b->n; i++)
        n_kv += (size_t)(b->lens[i] * 2 * b->kv_heads * b->d);
    q = new_low(n_q, 1, 4), kv = new_low(n_kv, 2, 1), d_o = new_low(n_q, 3, 1);
    assert_int_equal(sp_attention_choose("plain"), 0);
    want = run_beside(b, q, kv, d_o, n_q, n_kv);
    assert_int_equal(sp_attention_choose(path), 0);
    spoil_scratch();
    got = run_beside(b, q, kv, d_o, n_q, n_kv);
    check_beside("o", n_q, got.o, want.o);
    check_beside("dq", n_q, got.dq, want.dq);
    check_beside("dkv", n_kv, got.dkv, want.dkv);
    free(q), free(kv), free(d_o), free(got.o), free(got.dq), free(got.dkv);
    free(want.o), free(want.dq), free(want.dkv);
}

static void on(const char *path)
{
    static const struct beside pieces[] = {
        {200, 0, 1, 1, 64, 2, {37, 163}},    {200, 37, 2, 1, 64, 1, {237}},
        {130, 5, 1, 1, 40, 1, {300}},        {300, 0, 1, 1, 128, 2, {100, 200}},
        {70, 50, 3, 3, 16, 3, {20, 41, 59}}, {64, 7, 1, 1, 160, 2, {9, 62}},
    };

    if (sp_attention_choose(path)) {
        printf("    no %s here\n", path);
#ifdef SP_AMX_EMULATED
        skip();
#endif
        return;
    }
    assert_string_equal(sp_attention_path(SP_BF16)->name, path);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        compare_beside(path, &pieces[i]);
    SHAPE(1, 1, 3, 1);
    SHAPE(2, 1, 16, 37, 64, 5);
    SHAPE(2, 2, 24, 333);
    SHAPE(3, 1, 40, 1, 300, 63);
    SHAPE(4, 2, 64, 129, 190);
    SHAPE(1, 1, 64, 513);
    SHAPE(1, 1, 80, 257, 30);
    SHAPE(2, 1, 128, 70, 201);
    SHAPE(1, 1, 17, 140, 3);
    assert_int_equal(sp_attention_choose(NULL), 0);
}

static void test_amx(void **state)
{
    (void)state;
    on("amx");
}

static void test_avx512bf16(void **state)
{
    (void)state;
    on("avx512bf16");
}

static void test_avx512(void **state)
{
    (void)state;
    on("avx512");
}

static void test_avx2(void **state)
{
    (void)state;
    on("avx2");
}

static void test_plain(void **state)
{
    (void)state;
    on("plain");
}

/* Keys that no query sees are not read; their gradient, if it is written, is 0. */
static void test_keys_beyond(void **state)
{
    enum { D = 16, Q = 5, LEN = 20 };
    const struct sp_backend *k = sp_cpu_backend(SP_BF16);
    uint16_t *q = new_low(Q * D, 1, 1), *kv = new_low(LEN * 2 * D, 2, 1), o[Q * D], dq[Q * D];
    uint16_t dkv[LEN * 2 * D];
    const void *slices[] = {kv};
    void *grads[] = {dkv};
    const int len = LEN;
    float lse[Q];
    const struct sp_attention at = {.batch = 1,
                                    .heads = 1,
                                    .kv_heads = 1,
                                    .head_dim = D,
                                    .scale = 0.25f,
                                    .q_len = Q,
                                    .n_kv = 1,
                                    .kv_len = &len};

    (void)state;
    memset(kv + Q * 2 * D, 0xff, (LEN - Q) * 2 * D * sizeof *kv);
    memset(dkv, 0xff, sizeof dkv);
    k->attention(k, &at, q, slices, o, lse);
    k->attention_bwd(k, &at,
                     &(struct sp_attention_bwd){.q = q,
                                                .kv = slices,
                                                .o = o,
                                                .lse = lse,
                                                .d_o = q,
                                                .dq = dq,
                                                .dkv = grads,
                                                .first = true});
    for (int i = 0; i < Q * D; i++)
        assert_false(isnan(sp_bf16_value(o[i])) || isnan(sp_bf16_value(dq[i])));
    for (int i = 0; i < LEN * 2 * D; i++)
        assert_true(i < Q * 2 * D ? !isnan(sp_bf16_value(dkv[i])) : dkv[i] == 0);
    free(q), free(kv);
}

TEST_GROUP(attention_bf16)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_amx),    cmocka_unit_test(test_avx512bf16),
        cmocka_unit_test(test_avx512), cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_plain),  cmocka_unit_test(test_keys_beyond),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
