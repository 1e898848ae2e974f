/*
 * Causal attention over slices on the emulated device: values, log-sum-exp and gradients against
 * the CPU's over the whole sequence; keys that no query sees; scores far apart.
 */
#include "cuda_test.h"

enum { MAX_SLICES = 300 };

struct whole {
    enum sp_dtype type;
    int batch, len, heads, kv_heads, d;
    int n, lens[MAX_SLICES];
    bool apart; /* each slice of keys by itself, merged */
    void *q, *kv, *d_o, *dkv;
};

/* The kernels' results, computed slice by slice and joined to whole sequences. */
struct result {
    void *o, *dq, *dkv;
    float *lse;
};

static void free_result(struct result *s)
{
    free(s->o), free(s->dq), free(s->dkv), free(s->lse);
}

/* Copies rows [from, from + n) of each of `batch` sequences of `len` rows out, or back in. */
static void cut(bool out, int batch, int len, int from, int n, size_t row_bytes, void *whole,
                void *part)
{
    for (int b = 0; b < batch; b++) {
        char *w = (char *)whole + (size_t)(b * len + from) * row_bytes;
        char *p = (char *)part + (size_t)(b * n) * row_bytes;

        memcpy(out ? p : w, out ? w : p, (size_t)n * row_bytes);
    }
}

/* The same for each slice of keys by itself, merged in f32. */
static void call_apart(const struct sp_attention *at, const struct sp_backend *k, const void *q,
                       const void *const *kv, void *o, float *lse, const void *d_o, void *dq,
                       void *const *dkv, bool first)
{
    size_t rows = (size_t)(at->batch * at->q_len * at->heads), n = rows * (size_t)at->head_dim;
    float *sum = new_nan(n);

    for (int j = 0; j < at->n_kv; j++) {
        struct sp_attention one = *at;
        void *part = new_bytes(n * sp_dtype_bytes(k->dtype));
        float *part_lse = new_nan(rows);

        one.n_kv = 1;
        one.kv_len = &at->kv_len[j];
        one.q_pos = j < at->n_kv - 1 ? at->kv_len[j] : 0;
        if (dkv)
            k->attention_bwd(k, &one,
                             &(struct sp_attention_bwd){.q = q,
                                                        .kv = &kv[j],
                                                        .o = o,
                                                        .lse = lse,
                                                        .d_o = d_o,
                                                        .dq = part,
                                                        .dkv = &dkv[j],
                                                        .first = first});
        else
            k->attention(k, &one, q, &kv[j], part, j ? part_lse : lse);
        if (!j)
            k->clear(k, n * sizeof *sum, sum);
        if (!j || dkv)
            k->add_to_f32(k, n, part, sum);
        else
            k->attention_merge(k, &one, part, part_lse, sum, lse);
        sp_emulated_wait();
        free(part), free(part_lse);
    }
    k->round(k, n, sum, dkv ? dq : o);
    sp_emulated_wait();
    free(sum);
}

/* One slice of queries, forward or backward. The arguments are overwritten before the kernels run.
 * */
static void call(const struct whole *r, int i, int pos, const void *q, void *const *kv, void *o,
                 float *lse, const void *d_o, void *dq, void *const *dkv, bool first)
{
    const struct sp_backend *k = sp_emulated_backend(r->type);
    int lens[MAX_SLICES];
    const void *keys[MAX_SLICES];
    void *grads[MAX_SLICES];
    struct sp_attention at = {.batch = r->batch,
                              .heads = r->heads,
                              .kv_heads = r->kv_heads,
                              .head_dim = r->d,
                              .scale = 1 / sqrtf((float)r->d),
                              .q_len = r->lens[i],
                              .q_pos = pos,
                              .n_kv = i + 1,
                              .kv_len = lens};

    memcpy(lens, r->lens, sizeof lens);
    for (int j = 0; j <= i; j++) {
        keys[j] = kv[j];
        grads[j] = dkv ? dkv[j] : NULL;
    }
    if (r->apart)
        call_apart(&at, k, q, keys, o, lse, d_o, dq, dkv ? grads : NULL, first);
    else if (dkv)
        k->attention_bwd(k, &at,
                         &(struct sp_attention_bwd){.q = q,
                                                    .kv = keys,
                                                    .o = o,
                                                    .lse = lse,
                                                    .d_o = d_o,
                                                    .dq = dq,
                                                    .dkv = grads,
                                                    .first = first});
    else
        k->attention(k, &at, q, keys, o, lse);
    memset(lens, 0xff, sizeof lens);
    memset(keys, 0xff, sizeof keys);
    memset(grads, 0xff, sizeof grads);
    memset(&at, 0xff, sizeof at);
    sp_emulated_wait();
}

/* `first`: the first backward writes dkv; else all backwards add to r->dkv. */
static struct result run_whole(struct whole *r, bool first)
{
    size_t each = sp_dtype_bytes(r->type), wq = (size_t)(r->heads * r->d) * each;
    size_t wkv = (size_t)(2 * r->kv_heads * r->d) * each, rows = (size_t)(r->batch * r->len);
    void *kv[MAX_SLICES], *dkv[MAX_SLICES], *o[MAX_SLICES];
    float *lse[MAX_SLICES];
    int pos[MAX_SLICES + 1] = {0};
    struct result s = {new_typed_nan(SP_BF16, rows * wq / 2), new_typed_nan(SP_BF16, rows * wq / 2),
                       new_typed_nan(SP_BF16, rows * wkv / 2), new_nan(rows * (size_t)r->heads)};

    for (int i = 0; i < r->n; i++) {
        size_t n = (size_t)(r->batch * r->lens[i]);

        pos[i + 1] = pos[i] + r->lens[i];
        kv[i] = new_bytes(n * wkv), o[i] = memset(new_bytes(n * wq), 0xff, n * wq);
        dkv[i] = memset(new_bytes(n * wkv), 0xff, n * wkv), lse[i] = new_nan(n * (size_t)r->heads);
        cut(true, r->batch, r->len, pos[i], r->lens[i], wkv, r->kv, kv[i]);
        if (!first)
            cut(true, r->batch, r->len, pos[i], r->lens[i], wkv, r->dkv, dkv[i]);
    }
    /* Forward in order, backward in reverse, as a schedule runs them. */
    for (int step = 0; step < 2 * r->n; step++) {
        int i = step < r->n ? step : 2 * r->n - 1 - step, n = r->lens[i];
        size_t bytes = (size_t)(r->batch * n) * wq;
        void *q = new_bytes(bytes), *d_o = new_bytes(bytes);
        void *dq = memset(new_bytes(bytes), 0xff, bytes);

        cut(true, r->batch, r->len, pos[i], n, wq, r->q, q);
        cut(true, r->batch, r->len, pos[i], n, wq, r->d_o, d_o);
        if (step < r->n) {
            call(r, i, pos[i], q, kv, o[i], lse[i], NULL, NULL, NULL, false);
            cut(false, r->batch, r->len, pos[i], n, wq, s.o, o[i]);
            cut(false, r->batch * r->heads, r->len, pos[i], n, sizeof(float), s.lse, lse[i]);
        } else {
            call(r, i, pos[i], q, kv, o[i], lse[i], d_o, dq, dkv, first && i == r->n - 1);
            cut(false, r->batch, r->len, pos[i], n, wq, s.dq, dq);
        }
        free(q), free(d_o), free(dq);
    }
    for (int i = 0; i < r->n; i++) {
        cut(false, r->batch, r->len, pos[i], r->lens[i], wkv, s.dkv, dkv[i]);
        free(kv[i]), free(dkv[i]), free(o[i]), free(lse[i]);
    }
    return s;
}

/*
 * bf16: o is kept rounded, and with it the mean that dS subtracts; dkv is rounded once for each
 * slice that adds to it. The error is a few 2^-8 of the largest gradient.
 */
static void shape(enum sp_dtype t, int batch, int heads, int kv_heads, int d, int n,
                  const int *lens)
{
    struct whole r = {
        .type = t, .batch = batch, .heads = heads, .kv_heads = kv_heads, .d = d, .n = n};
    double tolerance = t == SP_BF16 ? 1.2e-2 : BOTH, tolerance_o = t == SP_BF16 ? 4e-3 : BOTH;
    size_t n_q, n_kv, n_lse;
    float *q, *kv, *d_o, *dkv, *o, *lse, *dq, *added, *alone;
    const float *keys[1];
    float *grads[1];
    struct result kept;

    for (int i = 0; i < n; i++)
        r.len += r.lens[i] = lens[i];
    printf("    %s, batch %d, heads %d/%d of %d, %d rows in %d slices\n", sp_dtype_name(t), batch,
           heads, kv_heads, d, r.len, n);
    n_q = (size_t)(batch * r.len * heads * d), n_kv = (size_t)(batch * r.len * 2 * kv_heads * d);
    n_lse = (size_t)(batch * r.len * heads);
    q = new_random(n_q, 1), kv = new_random(n_kv, 2), d_o = new_random(n_q, 3);
    dkv = new_random(n_kv, 4), o = new_nan(n_q), lse = new_nan(n_lse), dq = new_nan(n_q);
    for (size_t i = 0; i < n_q; i++)
        q[i] *= 4; /* scores spread enough for the maximum to move from tile to tile */
    r.q = new_typed(t, n_q, q), r.kv = new_typed(t, n_kv, kv), r.d_o = new_typed(t, n_q, d_o);
    r.dkv = new_typed(t, n_kv, dkv);
    added = new_copy(n_kv, dkv), alone = new_copy(n_kv, dkv);
    memset(alone, 0, n_kv * sizeof *alone);
    {
        const struct sp_attention at = {.batch = batch,
                                        .heads = heads,
                                        .kv_heads = kv_heads,
                                        .head_dim = d,
                                        .scale = 1 / sqrtf((float)d),
                                        .q_len = r.len,
                                        .n_kv = 1,
                                        .kv_len = &r.len};

        keys[0] = kv;
        sp_attention(&at, q, keys, o, lse);
        grads[0] = added;
        sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                         .kv = (const void *const *)keys,
                                                         .o = o,
                                                         .lse = lse,
                                                         .d_o = d_o,
                                                         .dq = dq,
                                                         .dkv = (void *const *)grads});
        grads[0] = alone;
        sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                         .kv = (const void *const *)keys,
                                                         .o = o,
                                                         .lse = lse,
                                                         .d_o = d_o,
                                                         .dq = dq,
                                                         .dkv = (void *const *)grads});
    }
    for (unsigned order = 0; order < ORDERS; order++) {
        struct result s;

        sp_emulated_order(order);
        s = run_whole(&r, false);
        if (order == 0) {
            kept = s;
            assert_typed("o", t, n_q, s.o, o, tolerance_o);
            assert_close_floats("lse", n_lse, s.lse, lse, BOTH);
            assert_typed("dq", t, n_q, s.dq, dq, tolerance);
            assert_typed("dkv +=", t, n_kv, s.dkv, added, tolerance);
            s = run_whole(&r, true);
            assert_typed("dkv =", t, n_kv, s.dkv, alone, tolerance);
            assert_same_bytes(t, n_q, s.dq, kept.dq);
            free_result(&s);
            r.apart = true;
            s = run_whole(&r, true);
            r.apart = false;
            assert_typed("o, merged", t, n_q, s.o, o, tolerance_o * (t == SP_BF16 ? n : 1));
            assert_close_floats("lse, merged", n_lse, s.lse, lse, BOTH);
            assert_typed("dq, merged", t, n_q, s.dq, dq, tolerance * (t == SP_BF16 ? n : 1));
            assert_typed("dkv, merged", t, n_kv, s.dkv, alone, tolerance);
        } else {
            assert_same_bytes(t, n_q, s.o, kept.o);
            assert_same_bits(n_lse, s.lse, kept.lse);
            assert_same_bytes(t, n_q, s.dq, kept.dq);
            assert_same_bytes(t, n_kv, s.dkv, kept.dkv);
        }
        free_result(&s);
    }
    sp_emulated_order(0);
    free_result(&kept);
    free(q), free(kv), free(d_o), free(dkv), free(o), free(lse), free(dq), free(added), free(alone);
    free(r.q), free(r.kv), free(r.d_o), free(r.dkv);
}

#define SHAPE(t, batch, heads, kv_heads, d, ...)                                                   \
    do {                                                                                           \
        const int lens_[] = {__VA_ARGS__};                                                         \
        shape(t, batch, heads, kv_heads, d, sizeof lens_ / sizeof lens_[0], lens_);                \
    } while (0)

static void test_whole(void **state)
{
    (void)state;
    for (int t = 0; t < SP_DTYPES; t++) {
        SHAPE(t, 1, 1, 1, 3, 1);
        SHAPE(t, 1, 3, 3, 10, 7);
        SHAPE(t, 2, 4, 2, 6, 5);
        SHAPE(t, 1, 2, 1, 24, 141);
        SHAPE(t, 2, 2, 2, 17, 70);
        SHAPE(t, 1, 1, 1, 64, 131);
        SHAPE(t, 1, 2, 1, 80, 67);
        SHAPE(t, 1, 2, 2, 128, 75);
        SHAPE(t, 1, 1, 1, 160, 39);
        SHAPE(t, 1, 1, 1, 256, 39);
    }
}

static void test_slices(void **state)
{
    int ones[MAX_SLICES];

    (void)state;
    for (int t = 0; t < SP_DTYPES; t++) {
        SHAPE(t, 1, 3, 1, 10, 3, 4);
        SHAPE(t, 2, 2, 2, 5, 1, 2, 4);
        SHAPE(t, 2, 4, 2, 16, 70, 1, 29, 61);
        SHAPE(t, 1, 2, 1, 128, 5, 40, 17);
    }
    for (int i = 0; i < MAX_SLICES; i++)
        ones[i] = 1;
    shape(SP_F32, 1, 1, 1, 4, 40, ones);
}

/* The most slices there may be; the last one sees all of them, so the gradients of the first are
 * written too. */
static void test_most_slices(void **state)
{
    enum { N = 256, D = 4 };
    struct whole r = {.type = SP_F32, .batch = 2, .heads = 1, .kv_heads = 1, .d = D, .n = N};
    float *whole_kv, *o = new_nan(2 * 2 * D), *o1 = new_nan(2 * 2 * D), lse[4], lse1[4];
    float *q = new_random(2 * 2 * D, 1), *d_o = new_random(2 * 2 * D, 2), *dq = new_nan(2 * 2 * D);
    float *dq1 = new_nan(2 * 2 * D), *whole_dkv;
    void *kv[N], *dkv[N];
    int len = 0, pos = 0;

    (void)state;
    for (int i = 0; i < N; i++)
        len += r.lens[i] = 1 + i % 2;
    whole_kv = new_random((size_t)(2 * len * 2 * D), 3),
    whole_dkv = new_nan((size_t)(2 * len * 2 * D));
    for (int i = 0; i < N; i++) {
        kv[i] = new_bytes((size_t)(2 * r.lens[i] * 2 * D) * sizeof(float));
        dkv[i] = new_nan((size_t)(2 * r.lens[i] * 2 * D));
        cut(true, 2, len, pos, r.lens[i], 2 * D * sizeof(float), whole_kv, kv[i]);
        pos += r.lens[i];
    }
    call(&r, N - 1, len - 2, q, kv, o, lse, NULL, NULL, NULL, false);
    call(&r, N - 1, len - 2, q, kv, o, lse, d_o, dq, dkv, true);
    r.n = 1, r.lens[0] = len;
    {
        const struct sp_backend *k = sp_emulated_backend(SP_F32);
        const void *keys[1] = {whole_kv};
        void *grads[1] = {whole_dkv};
        struct sp_attention at = {.batch = 2,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = D,
                                  .scale = 0.5f,
                                  .q_len = 2,
                                  .q_pos = len - 2,
                                  .n_kv = 1,
                                  .kv_len = &len};

        k->attention(k, &at, q, keys, o1, lse1);
        k->attention_bwd(k, &at,
                         &(struct sp_attention_bwd){.q = q,
                                                    .kv = keys,
                                                    .o = o1,
                                                    .lse = lse1,
                                                    .d_o = d_o,
                                                    .dq = dq1,
                                                    .dkv = grads,
                                                    .first = true});
        sp_emulated_wait();
    }
    /* Not even the bits depend on the cuts. */
    assert_same_bits(2 * 2 * D, o, o1);
    assert_same_bits(4, lse, lse1);
    assert_same_bits(2 * 2 * D, dq, dq1);
    pos = 0;
    for (int i = 0, n; i < N; i++, pos += n) {
        float part[2 * 2 * 2 * D];

        n = 1 + i % 2;
        cut(true, 2, len, pos, n, 2 * D * sizeof(float), whole_dkv, part);
        assert_same_bits((size_t)(2 * n * 2 * D), part, dkv[i]);
        assert_false(isnan(part[0]));
        free(kv[i]), free(dkv[i]);
    }
    free(whole_kv), free(whole_dkv), free(o), free(o1), free(q), free(d_o), free(dq), free(dq1);
}

/* The last slice may hold keys that no query sees; they must not be read into anything, and their
 * gradients are left, or with `first` become 0. */
static void keys_beyond(enum sp_dtype t, int d, int q_len, int q_pos, int len)
{
    size_t n_q = (size_t)(q_len * d), n_kv = (size_t)(len * 2 * d);
    size_t seen = (size_t)((q_pos + q_len) * 2 * d);
    float *q = new_random(n_q, 1), *kv = new_random(n_kv, 2), *d_o = new_random(n_q, 3);
    float *dkv = new_random(n_kv, 4), *lse = new_nan((size_t)q_len);
    void *tq, *td_o = new_typed(t, n_q, d_o), *o[2], *dq[2], *grads[2], *fresh[2], *keys;
    void *before = new_typed(t, n_kv, dkv);

    tq = new_typed(t, n_q, q);
    for (size_t i = seen; i < n_kv; i++)
        kv[i] = NAN;
    keys = new_typed(t, n_kv, kv);
    for (int i = 0; i < 2; i++) {
        const struct sp_backend *k = sp_emulated_backend(t);
        int l = i ? q_pos + q_len : len;
        const void *kvs[1] = {keys};
        struct sp_attention at = {.batch = 1,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = d,
                                  .scale = 0.4f,
                                  .q_len = q_len,
                                  .q_pos = q_pos,
                                  .n_kv = 1,
                                  .kv_len = &l};

        o[i] = new_typed_nan(t, n_q), dq[i] = new_typed_nan(t, n_q);
        grads[i] = new_bytes_of(n_kv * sp_dtype_bytes(t), before),
        fresh[i] = new_typed_nan(t, n_kv);
        k->attention(k, &at, tq, kvs, o[i], lse);
        k->attention_bwd(k, &at,
                         &(struct sp_attention_bwd){.q = tq,
                                                    .kv = kvs,
                                                    .o = o[i],
                                                    .lse = lse,
                                                    .d_o = td_o,
                                                    .dq = dq[i],
                                                    .dkv = &grads[i]});
        k->attention_bwd(k, &at,
                         &(struct sp_attention_bwd){.q = tq,
                                                    .kv = kvs,
                                                    .o = o[i],
                                                    .lse = lse,
                                                    .d_o = td_o,
                                                    .dq = dq[i],
                                                    .dkv = &fresh[i],
                                                    .first = true});
        sp_emulated_wait();
    }
    assert_same_bytes(t, n_q, o[0], o[1]);
    assert_same_bytes(t, n_q, dq[0], dq[1]);
    assert_same_bytes(t, n_kv, grads[0], grads[1]);
    assert_same_bytes(t, seen, fresh[0], fresh[1]);
    assert_same_bytes(t, n_kv - seen, at(t, grads[0], seen), at(t, before, seen));
    free(dkv);
    dkv = new_values(t, n_kv, fresh[0]);
    for (size_t i = 0; i < n_kv; i++)
        assert_true(i < seen ? !isnan(dkv[i]) : dkv[i] == 0);
    free(q), free(kv), free(d_o), free(dkv), free(lse), free(tq), free(td_o), free(keys);
    free(before);
    for (int i = 0; i < 2; i++)
        free(o[i]), free(dq[i]), free(grads[i]), free(fresh[i]);
}

static void test_keys_beyond(void **state)
{
    (void)state;
    for (int t = 0; t < SP_DTYPES; t++) {
        keys_beyond(t, 6, 5, 4, 20);
        keys_beyond(t, 16, 9, 50, 210);
        keys_beyond(t, 128, 9, 30, 110);
    }
}

/* Scores a thousand apart: one key takes all, nothing overflows, and a NaN stays, in its row. */
static void test_extreme(void **state)
{
    const struct sp_backend *k = sp_emulated_backend(SP_F32);
    float q[2] = {1, 1}, kv[4] = {1000, 5, -1000, 7}, o[2], lse[2], dq[2], dkv[4] = {0};
    const float d_o[2] = {1, 1};
    const void *slices[1] = {kv};
    void *grads[1] = {dkv};
    int len = 2;
    struct sp_attention at = {.batch = 1,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = 1,
                              .scale = 1,
                              .q_len = 2,
                              .n_kv = 1,
                              .kv_len = &len};

    (void)state;
    k->attention(k, &at, q, slices, o, lse);
    k->attention_bwd(
        k, &at,
        &(struct sp_attention_bwd){
            .q = q, .kv = slices, .o = o, .lse = lse, .d_o = d_o, .dq = dq, .dkv = grads});
    sp_emulated_wait();
    printf("    o %g %g, lse %g %g, dq %g %g\n", (double)o[0], (double)o[1], (double)lse[0],
           (double)lse[1], (double)dq[0], (double)dq[1]);
    assert_true(o[0] == 5 && o[1] == 5 && lse[0] == 1000 && lse[1] == 1000);
    assert_true(dq[0] == 0 && dq[1] == 0 && dkv[1] == 2 && dkv[3] == 0);
    q[1] = NAN;
    k->attention(k, &at, q, slices, o, lse);
    sp_emulated_wait();
    assert_true(o[0] == 5 && isnan(o[1]) && isnan(lse[1]));
}

TEST_GROUP(attention)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),       cmocka_unit_test(test_slices),
        cmocka_unit_test(test_most_slices), cmocka_unit_test(test_keys_beyond),
        cmocka_unit_test(test_extreme),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
