#include "attention_cases.h"
#include "attention_reference.h"

/* ---- calls ---------------------------------------------------------------------------------- */

static void wait_for(const struct attention_test *t)
{
    if (t->wait)
        t->wait();
}

void attention_call(const struct attention_test *t, const struct sp_attention *at,
                    const struct attention_arrays *a)
{
    const struct sp_backend *k = t->backend;
    struct sp_attention call = *at;
    int lens[MOST_SLICES];
    const void *kv[MOST_SLICES];
    void *dkv[MOST_SLICES];

    for (int j = 0; j < at->n_kv; j++) {
        lens[j] = at->kv_len[j];
        kv[j] = a->kv[j];
        dkv[j] = a->dq ? a->dkv[j] : NULL;
    }
    call.kv_len = lens;
    if (a->dq)
        k->attention_bwd(k, &call,
                         &(struct sp_attention_bwd){.q = a->q,
                                                    .kv = kv,
                                                    .o = a->o,
                                                    .lse = a->lse,
                                                    .d_o = a->d_o,
                                                    .dq = a->dq,
                                                    .dkv = dkv,
                                                    .first = a->first});
    else
        k->attention(k, &call, a->q, kv, a->o, a->lse);
    memset(lens, 0xff, sizeof lens);
    memset(kv, 0xff, sizeof kv);
    memset(dkv, 0xff, sizeof dkv);
    memset(&call, 0xff, sizeof call);
    wait_for(t);
}

/* The same for each slice of keys by itself, merged in f32. The last slice of queries sees all of an earlier slice. */
static void call_apart(const struct attention_test *t, const struct sp_attention *at,
                       const struct attention_arrays *a)
{
    const struct sp_backend *k = t->backend;
    size_t rows = (size_t)(at->batch * at->q_len * at->heads), n = rows * (size_t)at->head_dim;
    float *sum = memset(test_bytes(n * sizeof *sum), 0, n * sizeof *sum);

    for (int j = 0; j < at->n_kv; j++) {
        struct sp_attention one = *at;
        struct attention_arrays part = *a;
        void *result = new_typed_nan(k->dtype, n);

        one.n_kv = 1;
        one.kv_len = &at->kv_len[j];
        one.q_pos = j < at->n_kv - 1 ? at->kv_len[j] : 0;
        part.kv = &a->kv[j];
        if (a->dq) {
            part.dq = result;
            part.dkv = &a->dkv[j];
        } else {
            part.o = result;
            part.lse = j ? new_nan(rows) : a->lse;
        }
        attention_call(t, &one, &part);
        if (j && !a->dq)
            k->attention_merge(k, &one, result, part.lse, sum, a->lse);
        else
            k->add_to_f32(k, n, result, sum);
        wait_for(t);
    }
    k->round(k, n, sum, a->dq ? a->dq : a->o);
    wait_for(t);
}

/* ---- sequences in slices -------------------------------------------------------------------- */

/* Rows from, from + 1, ... of each of `batch` sequences of `len` rows. */
struct cut {
    int batch, len, from, rows;
};

static void copy_cut(struct cut c, size_t row_bytes, bool out, void *whole, void *part)
{
    for (int b = 0; b < c.batch; b++) {
        char *w = (char *)whole + (size_t)(b * c.len + c.from) * row_bytes;
        char *p = (char *)part + (size_t)(b * c.rows) * row_bytes;

        memcpy(out ? p : w, out ? w : p, (size_t)c.rows * row_bytes);
    }
}

static void *cut_out(struct cut c, size_t row_bytes, void *whole)
{
    void *part = test_bytes((size_t)(c.batch * c.rows) * row_bytes);

    copy_cut(c, row_bytes, true, whole, part);
    return part;
}

static void put_back(struct cut c, size_t row_bytes, void *whole, void *part)
{
    copy_cut(c, row_bytes, false, whole, part);
}

struct sequences {
    const struct attention_shape *shape;
    int n, len; /* slices, and rows in all */
    size_t n_q, n_kv, n_lse;
    void *q, *kv, *d_o, *dkv;
};

struct results {
    void *o, *dq, *dkv;
    float *lse;
};

enum how {
    ADDED,   /* all backwards add to the gradients that there are */
    WRITTEN, /* the first one writes them */
    APART    /* the same with each slice of keys by itself */
};

/* The kernels' results, computed slice by slice and joined to whole sequences. */
static struct results run(const struct attention_test *t, const struct sequences *x, enum how how)
{
    const struct attention_shape *s = x->shape;
    enum sp_dtype type = t->backend->dtype;
    size_t elem = sp_dtype_bytes(type), row = (size_t)(s->heads * s->d) * elem;
    size_t kv_row = (size_t)(2 * s->kv_heads * s->d) * elem;
    void *kv[MOST_SLICES], *dkv[MOST_SLICES], *o[MOST_SLICES];
    float *lse[MOST_SLICES];
    struct cut cuts[MOST_SLICES + 1] = {{.from = 0}};
    struct results all = {new_typed_nan(type, x->n_q), new_typed_nan(type, x->n_q),
                          new_typed_nan(type, x->n_kv), new_nan(x->n_lse)};

    for (int i = 0; i < x->n; i++) {
        size_t rows = (size_t)(s->batch * s->lens[i]);

        cuts[i] = (struct cut){s->batch, x->len, cuts[i].from, s->lens[i]};
        cuts[i + 1].from = cuts[i].from + s->lens[i];
        kv[i] = cut_out(cuts[i], kv_row, x->kv);
        dkv[i] = cut_out(cuts[i], kv_row, how == ADDED ? x->dkv : all.dkv);
        o[i] = new_typed_nan(type, rows * row / elem);
        lse[i] = new_nan(rows * (size_t)s->heads);
    }
    /* Forward in order, backward in reverse, as a schedule runs them. */
    for (int step = 0; step < 2 * x->n; step++) {
        int i = step < x->n ? step : 2 * x->n - 1 - step;
        const struct sp_attention at = {.batch = s->batch,
                                        .heads = s->heads,
                                        .kv_heads = s->kv_heads,
                                        .head_dim = s->d,
                                        .scale = 1 / sqrtf((float)s->d),
                                        .q_len = s->lens[i],
                                        .q_pos = cuts[i].from,
                                        .n_kv = i + 1,
                                        .kv_len = s->lens};
        struct attention_arrays a = {.q = cut_out(cuts[i], row, x->q),
                                     .d_o = cut_out(cuts[i], row, x->d_o),
                                     .kv = kv,
                                     .dkv = dkv,
                                     .o = o[i],
                                     .lse = lse[i],
                                     .first = how != ADDED && i == x->n - 1};

        if (step >= x->n)
            a.dq = cut_out(cuts[i], row, all.dq);
        if (how == APART)
            call_apart(t, &at, &a);
        else
            attention_call(t, &at, &a);
        if (a.dq)
            put_back(cuts[i], row, all.dq, a.dq);
    }
    for (int i = 0; i < x->n; i++) {
        struct cut by_heads = cuts[i];

        by_heads.batch *= s->heads;
        put_back(cuts[i], row, all.o, o[i]);
        put_back(cuts[i], kv_row, all.dkv, dkv[i]);
        put_back(by_heads, sizeof(float), all.lse, lse[i]);
    }
    return all;
}

/* ---- against the reference ------------------------------------------------------------------ */

static double loss(void *arg)
{
    struct whole *r = arg;
    double sum = 0;

    reference(r, false);
    for (int i = 0; i < r->batch * r->len * r->heads * r->d; i++)
        sum += r->d_o[i] * r->o[i];
    return sum;
}

static float *narrowed(size_t n, const double *x)
{
    float *y = new_nan(n);

    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

static struct sequences new_sequences(const struct attention_shape *s, enum sp_dtype type,
                                      struct whole *r, float **dkv)
{
    struct sequences x = {.shape = s};
    float *q, *kv, *d_o;

    for (; s->lens[x.n]; x.n++)
        x.len += s->lens[x.n];
    *r = (struct whole){s->batch, x.len, s->heads, s->kv_heads, s->d, .q = NULL};
    x.n_lse = (size_t)(s->batch * x.len * s->heads);
    x.n_q = x.n_lse * (size_t)s->d;
    x.n_kv = (size_t)(s->batch * x.len * 2 * s->kv_heads * s->d);
    q = new_random(x.n_q, 1), kv = new_random(x.n_kv, 2), d_o = new_random(x.n_q, 3);
    *dkv = new_random(x.n_kv, 4);
    for (size_t i = 0; i < x.n_q; i++)
        q[i] *= 4; /* scores spread enough for the maximum to move from tile to tile */
    x.q = new_typed(type, x.n_q, q), x.kv = new_typed(type, x.n_kv, kv);
    x.d_o = new_typed(type, x.n_q, d_o), x.dkv = new_typed(type, x.n_kv, *dkv);
    r->q = new_double(x.n_q, q), r->kv = new_double(x.n_kv, kv), r->d_o = new_double(x.n_q, d_o);
    r->o = new_double(x.n_q, NULL), r->lse = new_double(x.n_lse, NULL);
    r->dq = new_double(x.n_q, NULL), r->dkv = new_double(x.n_kv, NULL);
    reference(r, true);
    if (x.n_q + x.n_kv < 700) {
        assert_gradient("reference dq", loss, r, x.n_q, r->q, r->dq);
        assert_gradient("reference dkv", loss, r, x.n_kv, r->kv, r->dkv);
        reference(r, false);
    }
    return x;
}

/*
 * bf16: o is kept rounded, and with it the mean that dS subtracts; dkv is rounded once for each
 * slice that adds to it. The error is a few 2^-8 of the largest gradient. Parts are rounded before
 * they are merged.
 */
void attention_check(const struct attention_test *t, const struct attention_shape *s)
{
    enum sp_dtype type = t->backend->dtype;
    size_t before = test_held();
    struct whole r;
    struct results kept = {.o = NULL}, other;
    float *dkv, *o, *lse, *dq, *written, *added;
    struct sequences x = new_sequences(s, type, &r, &dkv);
    int roundings = type == SP_BF16 ? x.n : 1;

    printf("    %s, batch %d, heads %d/%d of %d, %d rows in %d slices\n", sp_dtype_name(type),
           s->batch, s->heads, s->kv_heads, s->d, x.len, x.n);
    o = narrowed(x.n_q, r.o), lse = narrowed(x.n_lse, r.lse), dq = narrowed(x.n_q, r.dq);
    written = narrowed(x.n_kv, r.dkv);
    for (size_t i = 0; i < x.n_kv; i++)
        r.dkv[i] += (double)dkv[i];
    added = narrowed(x.n_kv, r.dkv);
    for (unsigned i = 0; i < t->variants; i++) {
        t->vary(i);
        other = run(t, &x, ADDED);
        if (i == 0)
            kept = other;
        assert_same_bytes(type, x.n_q, other.o, kept.o);
        assert_same_bits(x.n_lse, other.lse, kept.lse);
        assert_same_bytes(type, x.n_q, other.dq, kept.dq);
        assert_same_bytes(type, x.n_kv, other.dkv, kept.dkv);
    }
    t->vary(0);
    assert_typed("o", type, x.n_q, kept.o, o, t->tolerance_o);
    assert_close_floats("lse", x.n_lse, kept.lse, lse, t->tolerance_lse);
    assert_typed("dq", type, x.n_q, kept.dq, dq, t->tolerance_gradients);
    assert_typed("dkv +=", type, x.n_kv, kept.dkv, added, t->tolerance_gradients);
    other = run(t, &x, WRITTEN);
    assert_same_bytes(type, x.n_q, other.dq, kept.dq);
    assert_typed("dkv =", type, x.n_kv, other.dkv, written, t->tolerance_gradients);
    other = run(t, &x, APART);
    assert_typed("o, merged", type, x.n_q, other.o, o, t->tolerance_o * roundings);
    assert_close_floats("lse, merged", x.n_lse, other.lse, lse, t->tolerance_lse);
    assert_typed("dq, merged", type, x.n_q, other.dq, dq, t->tolerance_gradients * roundings);
    assert_typed("dkv, merged", type, x.n_kv, other.dkv, written, t->tolerance_gradients);
    test_end_after(before);
}

/* ---- some cases of their own ----------------------------------------------------------------- */

void attention_check_keys_beyond(const struct attention_test *t, int d, int q_len, int q_pos,
                                 int len)
{
    enum sp_dtype type = t->backend->dtype;
    size_t n_q = (size_t)(q_len * d), n_kv = (size_t)(len * 2 * d);
    size_t seen = (size_t)((q_pos + q_len) * 2 * d);
    float *kv = new_random(n_kv, 2), *written;
    void *q = new_typed(type, n_q, new_random(n_q, 1)), *o[2], *dq[2], *added[2], *fresh[2], *keys;
    void *d_o = new_typed(type, n_q, new_random(n_q, 3));
    void *before = new_typed(type, n_kv, new_random(n_kv, 4));

    for (size_t i = seen; i < n_kv; i++)
        kv[i] = NAN;
    keys = new_typed(type, n_kv, kv);
    for (int i = 0; i < 2; i++) {
        int kv_len = i ? q_pos + q_len : len;
        const struct sp_attention at = {.batch = 1,
                                        .heads = 1,
                                        .kv_heads = 1,
                                        .head_dim = d,
                                        .scale = 0.4f,
                                        .q_len = q_len,
                                        .q_pos = q_pos,
                                        .n_kv = 1,
                                        .kv_len = &kv_len};
        struct attention_arrays a = {
            .q = q, .d_o = d_o, .kv = &keys, .lse = new_nan((size_t)q_len)};

        o[i] = a.o = new_typed_nan(type, n_q);
        added[i] = new_bytes_of(n_kv * sp_dtype_bytes(type), before);
        fresh[i] = new_typed_nan(type, n_kv);
        attention_call(t, &at, &a);
        dq[i] = a.dq = new_typed_nan(type, n_q);
        a.dkv = &added[i];
        attention_call(t, &at, &a);
        a.dkv = &fresh[i], a.first = true;
        attention_call(t, &at, &a);
    }
    assert_same_bytes(type, n_q, o[0], o[1]);
    assert_same_bytes(type, n_q, dq[0], dq[1]);
    assert_same_bytes(type, n_kv, added[0], added[1]);
    assert_same_bytes(type, seen, fresh[0], fresh[1]);
    assert_same_bytes(type, n_kv - seen, at(type, added[0], seen), at(type, before, seen));
    written = new_values(type, n_kv, fresh[0]);
    for (size_t i = 0; i < n_kv; i++)
        assert_true(i < seen ? !isnan(written[i]) : written[i] == 0);
    for (int i = 0; i < q_len * d; i++)
        assert_false(isnan(new_values(type, n_q, o[0])[i]) ||
                     isnan(new_values(type, n_q, dq[0])[i]));
}

void attention_check_extreme(const struct attention_test *t)
{
    float q[2] = {1, 1}, kv[4] = {1000, 5, -1000, 7}, o[2], lse[2], dq[2], dkv[4] = {0};
    const float d_o[2] = {1, 1};
    void *keys = kv, *gradients = dkv;
    struct attention_arrays a = {
        .q = q, .d_o = d_o, .kv = &keys, .dkv = &gradients, .o = o, .lse = lse};
    const struct sp_attention at = {.batch = 1,
                                    .heads = 1,
                                    .kv_heads = 1,
                                    .head_dim = 1,
                                    .scale = 1,
                                    .q_len = 2,
                                    .n_kv = 1,
                                    .kv_len = (const int[]){2}};

    attention_call(t, &at, &a);
    a.dq = dq;
    attention_call(t, &at, &a);
    printf("    o %g %g, lse %g %g, dq %g %g\n", (double)o[0], (double)o[1], (double)lse[0],
           (double)lse[1], (double)dq[0], (double)dq[1]);
    assert_true(o[0] == 5 && o[1] == 5 && lse[0] == 1000 && lse[1] == 1000);
    assert_true(dq[0] == 0 && dq[1] == 0 && dkv[1] == 2 && dkv[3] == 0);
    q[1] = NAN;
    a.dq = NULL;
    attention_call(t, &at, &a);
    assert_true(o[0] == 5 && isnan(o[1]) && isnan(lse[1]));
}
