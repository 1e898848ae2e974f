/*
 * Causal attention over slices: values, log-sum-exp and gradients against double loops over the
 * whole sequence, the same whatever the slices, whatever the team.
 */
#include "attention_reference.h"
#include "kernels/cpu/attention/attention_path.h"
#include <errno.h>

static double loss(void *arg)
{
    struct whole *r = arg;
    double sum = 0;

    reference(r, false);
    for (int i = 0; i < r->batch * r->len * r->heads * r->d; i++)
        sum += r->d_o[i] * r->o[i];
    return sum;
}

enum { MAX_SLICES = 5 };

/* The kernels' results, computed slice by slice and joined to whole sequences. */
struct result {
    size_t n_q, n_kv, n_lse;
    float *o, *lse, *dq, *dkv;
};

static void free_result(struct result *s)
{
    free(s->o), free(s->lse), free(s->dq), free(s->dkv);
}

/* Copies rows [from, from + n) of each of `batch` sequences of `len` rows out, or back in. */
static void cut(bool out, int batch, int len, int from, int n, int width, float *whole, float *part)
{
    for (int b = 0; b < batch; b++) {
        float *w = whole + (size_t)(b * len + from) * (size_t)width;
        float *p = part + (size_t)(b * n) * (size_t)width;

        memcpy(out ? p : w, out ? w : p, (size_t)(n * width) * sizeof *p);
    }
}

/* Slice j of the keys alone, for the last slice of queries, which sees all of an earlier slice. */
static struct sp_attention alone(const struct sp_attention *at, int j)
{
    struct sp_attention one = *at;

    one.n_kv = 1;
    one.kv_len = &at->kv_len[j];
    one.q_pos = j < at->n_kv - 1 ? at->kv_len[j] : 0;
    return one;
}

/* `apart`: each slice of keys by itself, merged. */
static void forward(const struct sp_attention *at, bool apart, const float *q,
                    const float *const *kv, float *o, float *lse)
{
    size_t rows = (size_t)(at->batch * at->q_len * at->heads), n = rows * (size_t)at->head_dim;

    if (!apart)
        sp_attention(at, q, kv, o, lse);
    for (int j = 0; apart && j < at->n_kv; j++) {
        struct sp_attention one = alone(at, j);
        float *part = new_nan(n), *part_lse = new_nan(rows);

        sp_attention(&one, q, &kv[j], j ? part : o, j ? part_lse : lse);
        if (j)
            sp_attention_merge(&one, part, part_lse, o, lse);
        free(part), free(part_lse);
    }
}

static void backward(const struct sp_attention *at, bool apart, const float *q,
                     const float *const *kv, const float *o, const float *lse, const float *d_o,
                     float *dq, float *const *dkv)
{
    size_t n = (size_t)(at->batch * at->q_len * at->heads * at->head_dim);

    if (!apart)
        sp_attention_bwd(at, &(struct sp_attention_bwd){.q = q,
                                                        .kv = (const void *const *)kv,
                                                        .o = o,
                                                        .lse = lse,
                                                        .d_o = d_o,
                                                        .dq = dq,
                                                        .dkv = (void *const *)dkv});
    for (int j = 0; apart && j < at->n_kv; j++) {
        struct sp_attention one = alone(at, j);
        float *part = new_nan(n);

        sp_attention_bwd(&one, &(struct sp_attention_bwd){.q = q,
                                                          .kv = (const void *const *)&kv[j],
                                                          .o = o,
                                                          .lse = lse,
                                                          .d_o = d_o,
                                                          .dq = j ? part : dq,
                                                          .dkv = (void *const *)&dkv[j]});
        if (j)
            sp_add(n, part, dq);
        free(part);
    }
}

static struct result run_slices(const struct whole *r, bool apart, int n_slices, const int *lens,
                                float *q, float *kv, float *d_o, float *dkv)
{
    int wq = r->heads * r->d, wkv = 2 * r->kv_heads * r->d, pos[MAX_SLICES + 1] = {0};
    size_t rows = (size_t)(r->batch * r->len);
    struct result s = {
        .n_q = rows * (size_t)wq, .n_kv = rows * (size_t)wkv, .n_lse = rows * (size_t)r->heads};
    float *part_kv[MAX_SLICES], *part_dkv[MAX_SLICES], *part_o[MAX_SLICES], *part_lse[MAX_SLICES];

    s.o = new_nan(s.n_q), s.lse = new_nan(s.n_lse), s.dq = new_nan(s.n_q);
    s.dkv = new_copy(s.n_kv, dkv);
    for (int i = 0; i < n_slices; i++) {
        size_t n = (size_t)(r->batch * lens[i]);

        pos[i + 1] = pos[i] + lens[i];
        part_kv[i] = new_nan(n * (size_t)wkv), part_dkv[i] = new_nan(n * (size_t)wkv);
        part_o[i] = new_nan(n * (size_t)wq), part_lse[i] = new_nan(n * (size_t)r->heads);
        cut(true, r->batch, r->len, pos[i], lens[i], wkv, kv, part_kv[i]);
        cut(true, r->batch, r->len, pos[i], lens[i], wkv, s.dkv, part_dkv[i]);
    }
    assert_int_equal(pos[n_slices], r->len);
    /* Forward in order, backward in reverse, as a schedule runs them. */
    for (int k = 0; k < 2 * n_slices; k++) {
        int i = k < n_slices ? k : 2 * n_slices - 1 - k;
        size_t n_q = (size_t)(r->batch * lens[i] * wq);
        float *part_q = new_nan(n_q), *part_do = new_nan(n_q), *part_dq = new_nan(n_q);
        struct sp_attention at = {.batch = r->batch,
                                  .heads = r->heads,
                                  .kv_heads = r->kv_heads,
                                  .head_dim = r->d,
                                  .scale = 1 / sqrtf((float)r->d),
                                  .q_len = lens[i],
                                  .q_pos = pos[i],
                                  .n_kv = i + 1,
                                  .kv_len = lens};

        cut(true, r->batch, r->len, pos[i], lens[i], wq, q, part_q);
        cut(true, r->batch, r->len, pos[i], lens[i], wq, d_o, part_do);
        if (k < n_slices) {
            forward(&at, apart, part_q, (const float *const *)part_kv, part_o[i], part_lse[i]);
            cut(false, r->batch, r->len, pos[i], lens[i], wq, s.o, part_o[i]);
            cut(false, r->batch * r->heads, r->len, pos[i], lens[i], 1, s.lse, part_lse[i]);
        } else {
            backward(&at, apart, part_q, (const float *const *)part_kv, part_o[i], part_lse[i],
                     part_do, part_dq, part_dkv);
            cut(false, r->batch, r->len, pos[i], lens[i], wq, s.dq, part_dq);
        }
        free(part_q), free(part_do), free(part_dq);
    }
    for (int i = 0; i < n_slices; i++) {
        cut(false, r->batch, r->len, pos[i], lens[i], wkv, s.dkv, part_dkv[i]);
        free(part_kv[i]), free(part_dkv[i]), free(part_o[i]), free(part_lse[i]);
    }
    return s;
}

static void shape(int batch, int heads, int kv_heads, int d, int n_slices, const int *lens)
{
    struct whole r = {.batch = batch, .heads = heads, .kv_heads = kv_heads, .d = d};
    struct result one, again, two, merged;
    size_t n_q, n_kv;
    float *q, *kv, *d_o, *dkv;
    int before = omp_get_max_threads();

    printf("    batch %d, heads %d/%d of %d, slices", batch, heads, kv_heads, d);
    for (int i = 0; i < n_slices; i++) {
        r.len += lens[i];
        printf(" %d", lens[i]);
    }
    printf("\n");
    n_q = (size_t)(batch * r.len * heads * d), n_kv = (size_t)(batch * r.len * 2 * kv_heads * d);
    q = new_random(n_q, 1), kv = new_random(n_kv, 2), d_o = new_random(n_q, 3);
    dkv = new_random(n_kv, 4);
    for (size_t i = 0; i < n_q; i++)
        q[i] *= 4; /* scores spread enough for the maximum to move from tile to tile */
    r.q = new_double(n_q, q), r.kv = new_double(n_kv, kv), r.d_o = new_double(n_q, d_o);
    r.o = new_double(n_q, NULL), r.lse = new_double((size_t)(batch * heads * r.len), NULL);
    r.dq = new_double(n_q, NULL), r.dkv = new_double(n_kv, NULL);
    reference(&r, true);
    if (n_q + n_kv < 700) {
        assert_gradient("reference dq", loss, &r, n_q, r.q, r.dq);
        assert_gradient("reference dkv", loss, &r, n_kv, r.kv, r.dkv);
        reference(&r, false);
    }
    for (size_t i = 0; i < n_kv; i++)
        r.dkv[i] += (double)dkv[i];

    omp_set_num_threads(1);
    one = run_slices(&r, false, n_slices, lens, q, kv, d_o, dkv);
    omp_set_num_threads(2);
    two = run_slices(&r, false, n_slices, lens, q, kv, d_o, dkv);
    again = run_slices(&r, false, n_slices, lens, q, kv, d_o, dkv);
    merged = run_slices(&r, true, n_slices, lens, q, kv, d_o, dkv);
    omp_set_num_threads(before);
    assert_close("o, merged", n_q, merged.o, r.o, TOLERANCE);
    assert_close("lse, merged", merged.n_lse, merged.lse, r.lse, TOLERANCE);
    assert_close("dq, merged", n_q, merged.dq, r.dq, TOLERANCE);
    assert_close("dkv, merged", n_kv, merged.dkv, r.dkv, TOLERANCE);
    assert_close("o", n_q, two.o, r.o, TOLERANCE);
    assert_close("lse", two.n_lse, two.lse, r.lse, TOLERANCE);
    assert_close("dq", n_q, two.dq, r.dq, TOLERANCE);
    assert_close("dkv", n_kv, two.dkv, r.dkv, TOLERANCE);
    assert_same_bits(n_q, again.o, two.o);
    assert_same_bits(n_q, again.dq, two.dq);
    assert_same_bits(n_kv, again.dkv, two.dkv);
    assert_close_floats("o, 2 threads against 1", n_q, two.o, one.o, TOLERANCE);
    assert_close_floats("dq, 2 threads against 1", n_q, two.dq, one.dq, TOLERANCE);
    assert_close_floats("dkv, 2 threads against 1", n_kv, two.dkv, one.dkv, TOLERANCE);
    free_result(&one), free_result(&two), free_result(&again), free_result(&merged);
    free(q), free(kv), free(d_o), free(dkv), free(r.q), free(r.kv), free(r.d_o), free(r.o);
    free(r.lse), free(r.dq), free(r.dkv);
}

#define SHAPE(batch, heads, kv_heads, d, ...)                                                      \
    do {                                                                                           \
        const int lens_[] = {__VA_ARGS__};                                                         \
        shape(batch, heads, kv_heads, d, sizeof lens_ / sizeof lens_[0], lens_);                   \
    } while (0)

static const char *const paths[] = {"avx512", "avx2", "plain"};

/* Runs the following block on one path after the other; names the paths that the machine lacks. */
#define ON_EACH_PATH(i)                                                                            \
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)                                    \
        if (sp_attention_choose(paths[i]))                                                         \
            printf("    no %s here\n", paths[i]);                                                  \
        else if (printf("    %s\n", sp_attention_path(SP_F32)->name))

static void test_whole(void **state)
{
    (void)state;
    ON_EACH_PATH(i)
    {
        assert_string_equal(sp_attention_path(SP_F32)->name, paths[i]);
        SHAPE(1, 1, 1, 3, 1);
        SHAPE(1, 3, 3, 10, 7);
        SHAPE(2, 4, 2, 6, 5);
        SHAPE(1, 2, 1, 24, 333);
        SHAPE(3, 6, 3, 17, 130);
        SHAPE(1, 1, 1, 16, 65);
        SHAPE(1, 2, 2, 40, 190);
        SHAPE(1, 2, 1, 64, 321);
        SHAPE(1, 1, 1, 80, 270);
        SHAPE(1, 1, 1, 128, 300);
        SHAPE(1, 1, 1, 132, 150);
    }
    assert_int_equal(sp_attention_choose(NULL), 0);
}

static void test_slices(void **state)
{
    (void)state;
    ON_EACH_PATH(i)
    {
        SHAPE(1, 3, 1, 10, 3, 4);
        SHAPE(2, 2, 2, 5, 1, 2, 4);
        SHAPE(2, 4, 2, 10, 70, 1, 129, 61);
        SHAPE(3, 3, 1, 8, 5, 300, 17, 64);
        SHAPE(1, 1, 1, 16, 260, 257); /* one head: two threads share it by tiles */
    }
    assert_int_equal(sp_attention_choose(NULL), 0);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(sp_attention_choose("abacus"), -ENOENT);
    assert_int_equal(sp_attention_choose("plain"), 0);
    assert_string_equal(sp_attention_path(SP_F32)->name, "plain");
    assert_string_equal(sp_attention_path(SP_BF16)->name, "plain");
    if (!sp_attention_choose("avx512bf16")) {
        assert_string_equal(sp_attention_path(SP_BF16)->name, "avx512bf16");
        assert_string_equal(sp_attention_path(SP_F32)->name, "avx512");
    }
    assert_int_equal(sp_attention_choose(NULL), 0);
}

/* The last slice may hold keys that no query sees; they must not be read into anything. */
static void keys_beyond(void **state)
{
    enum { D = 6, Q = 5, POS = 4, LEN = 20, SEEN = POS + Q };
    const int len = LEN, seen = SEEN;
    float *q = new_random(Q * D, 1), *kv = new_random(LEN * 2 * D, 2), *d_o = new_random(Q * D, 3);
    float *dkv = new_random(LEN * 2 * D, 4), *o = new_nan(Q * D), *dq = new_nan(Q * D), lse[Q];
    float *dkv2 = new_copy(LEN * 2 * D, dkv), *o2 = new_nan(Q * D), *dq2 = new_nan(Q * D);
    float *before = new_copy(LEN * 2 * D, dkv);
    const float *slices[1] = {kv};
    float *grads[1] = {dkv}, *grads2[1] = {dkv2};
    struct sp_attention at = {.batch = 1,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = D,
                              .scale = 0.4f,
                              .q_len = Q,
                              .q_pos = POS,
                              .n_kv = 1,
                              .kv_len = &len};

    (void)state;
    for (int i = SEEN * 2 * D; i < LEN * 2 * D; i++)
        kv[i] = NAN;
    sp_attention(&at, q, slices, o, lse);
    sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                     .kv = (const void *const *)slices,
                                                     .o = o,
                                                     .lse = lse,
                                                     .d_o = d_o,
                                                     .dq = dq,
                                                     .dkv = (void *const *)grads});
    at.kv_len = &seen;
    sp_attention(&at, q, slices, o2, lse);
    sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                     .kv = (const void *const *)slices,
                                                     .o = o2,
                                                     .lse = lse,
                                                     .d_o = d_o,
                                                     .dq = dq2,
                                                     .dkv = (void *const *)grads2});
    assert_same_bits(Q * D, o, o2);
    assert_same_bits(Q * D, dq, dq2);
    assert_same_bits(LEN * 2 * D, dkv, dkv2);
    assert_same_bits((LEN - SEEN) * 2 * D, dkv + SEEN * 2 * D, before + SEEN * 2 * D);
    assert_false(isnan(o[0]) || isnan(dq[0]));
    free(q), free(kv), free(d_o), free(dkv), free(o), free(dq), free(dkv2), free(o2), free(dq2);
    free(before);
}

/*
 * One head and more threads than cores: the units add to the same tiles of dq and must take turns.
 * The bits must be those of one thread.
 */
static void turns(void **state)
{
    enum { LEN = 1700, D = 4, N = LEN * D, RUNS = 30 };
    float *q = new_random(N, 1), *kv = new_random(2 * N, 2), *d_o = new_random(N, 3),
          *o = new_nan(N);
    float *lse = new_nan(LEN), *want_dq = new_nan(N), *want_dkv = new_bytes(2 * N * sizeof(float));
    float *dq = new_nan(N), *dkv = new_bytes(2 * N * sizeof(float));
    const float *slices[1] = {kv};
    float *want_grads[1] = {want_dkv}, *grads[1] = {dkv};
    int len = LEN, before = omp_get_max_threads();
    struct sp_attention at = {.batch = 1,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = D,
                              .scale = 0.5f,
                              .q_len = LEN,
                              .n_kv = 1,
                              .kv_len = &len};

    (void)state;
    memset(want_dkv, 0, 2 * N * sizeof(float));
    omp_set_num_threads(1);
    sp_attention(&at, q, slices, o, lse);
    sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                     .kv = (const void *const *)slices,
                                                     .o = o,
                                                     .lse = lse,
                                                     .d_o = d_o,
                                                     .dq = want_dq,
                                                     .dkv = (void *const *)want_grads});
    for (int i = 0; i < RUNS; i++) {
        omp_set_num_threads(2 + i % 5);
        memset(dq, 0xff, N * sizeof(float));
        memset(dkv, 0, 2 * N * sizeof(float));
        sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                         .kv = (const void *const *)slices,
                                                         .o = o,
                                                         .lse = lse,
                                                         .d_o = d_o,
                                                         .dq = dq,
                                                         .dkv = (void *const *)grads});
        assert_same_bits(N, dq, want_dq);
        assert_same_bits(2 * N, dkv, want_dkv);
    }
    omp_set_num_threads(before);
    free(q), free(kv), free(d_o), free(o), free(lse), free(want_dq), free(want_dkv), free(dq);
    free(dkv);
}

/* Scores a thousand apart: one key takes all, nothing overflows, and a NaN stays. */
static void extreme(void **state)
{
    float q[2] = {1, 1}, kv[4] = {1000, 5, -1000, 7}, o[2], lse[2], dq[2], dkv[4] = {0};
    const float d_o[2] = {1, 1}, *slices[1] = {kv};
    float *grads[1] = {dkv};
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
    sp_attention(&at, q, slices, o, lse);
    sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q,
                                                     .kv = (const void *const *)slices,
                                                     .o = o,
                                                     .lse = lse,
                                                     .d_o = d_o,
                                                     .dq = dq,
                                                     .dkv = (void *const *)grads});
    printf("    o %g %g, lse %g %g, dq %g %g\n", (double)o[0], (double)o[1], (double)lse[0],
           (double)lse[1], (double)dq[0], (double)dq[1]);
    assert_true(o[0] == 5 && o[1] == 5 && lse[0] == 1000 && lse[1] == 1000);
    assert_true(dq[0] == 0 && dq[1] == 0 && dkv[1] == 2 && dkv[3] == 0);
    q[1] = NAN;
    sp_attention(&at, q, slices, o, lse);
    assert_true(o[0] == 5 && isnan(o[1]) && isnan(lse[1]));
}

static void on_each_path(void (*test)(void **), void **state)
{
    ON_EACH_PATH(i)
    test(state);
    assert_int_equal(sp_attention_choose(NULL), 0);
}

static void test_keys_beyond(void **state)
{
    on_each_path(keys_beyond, state);
}

static void test_turns(void **state)
{
    on_each_path(turns, state);
}

static void test_extreme(void **state)
{
    on_each_path(extreme, state);
}

TEST_GROUP(attention)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),       cmocka_unit_test(test_slices),
        cmocka_unit_test(test_keys_beyond), cmocka_unit_test(test_turns),
        cmocka_unit_test(test_extreme),     cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
