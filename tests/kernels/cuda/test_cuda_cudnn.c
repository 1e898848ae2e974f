/*
 * Attention by fakes of cuDNN and FlashAttention-3 that compute on the CPU from their strides:
 * slices are gathered and put back, some rows see nothing, a problem runs in parts, and some
 * problems go to the tiled kernels.
 */
#include "../reference.h"
#include "fake_cudart.h"
#include "fake_cudnn.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/pointwise/sums.h"
#include "said.h"
#include "sp_error.h"
#include <stdarg.h>
#include <unistd.h>

#define ROUNDING 3.95e-3 /* of bf16, relative to the largest element */

/* ---- the table before ---- */

static int tiled, copies;

static void tiled_attention(const struct sp_backend *k, const struct sp_attention *at,
                            const void *q, const void *const *kv, void *o, float *lse)
{
    (void)k, (void)at, (void)q, (void)kv, (void)o, (void)lse;
    tiled++;
}

static void tiled_attention_bwd(const struct sp_backend *k, const struct sp_attention *at,
                                const struct sp_attention_bwd *b)
{
    (void)k, (void)at, (void)b;
    tiled += 10;
}

static float bf16_at(const void *x, size_t i)
{
    return sp_bf16_value(((const uint16_t *)x)[i]);
}

static void host_add(const struct sp_backend *k, size_t n, const void *x, void *y)
{
    (void)k;
    for (size_t i = 0; i < n; i++)
        ((uint16_t *)y)[i] = sp_bf16(bf16_at(x, i) + bf16_at(y, i));
}

static void host_clear(const struct sp_backend *k, size_t bytes, void *y)
{
    (void)k;
    memset(y, 0, bytes);
}

/* As cudaMemcpy2DAsync, which refuses rows wider than their distance. */
static void host_copy_rows(const struct sp_backend *k, const struct sp_row_copy *c, const void *x,
                           void *y)
{
    (void)k;
    assert_true(c->bytes <= c->from && c->bytes <= c->to);
    copies++;
    for (size_t i = 0; i < c->n; i++)
        memcpy((char *)y + i * c->to, (const char *)x + i * c->from, c->bytes);
}

static void host_round(const struct sp_backend *k, size_t n, const float *x, void *y)
{
    (void)k;
    for (size_t i = 0; i < n; i++)
        ((uint16_t *)y)[i] = sp_bf16(x[i]);
}

static void host_add_to_f32(const struct sp_backend *k, size_t n, const void *x, float *sum)
{
    (void)k;
    for (size_t i = 0; i < n; i++)
        sum[i] += bf16_at(x, i);
}

/* ---- the workspace, to the byte ---- */

static const char guard[] = "nobody writes here";
static unsigned char *workspace;
static size_t workspace_bytes, most_workspace;

static void free_workspace(void)
{
    if (workspace)
        assert_memory_equal(workspace + workspace_bytes, guard, sizeof guard);
    free(workspace);
    workspace = NULL;
}

void *sp_cuda_workspace(const struct sp_backend *k, size_t bytes)
{
    (void)k;
    free_workspace();
    workspace = aligned_alloc(256, (bytes + sizeof guard + 255) / 256 * 256);
    assert_non_null(workspace);
    memcpy(workspace + bytes, guard, sizeof guard);
    workspace_bytes = bytes;
    most_workspace = bytes > most_workspace ? bytes : most_workspace;
    return workspace;
}

void sp_cuda_fatal(const char *format, ...)
{
    char line[900];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    sp_error(0, "%s", line);
    _exit(1);
}

static struct sp_cuda worker;
static struct sp_backend table;

static bool open_table(void)
{
    memset(&worker, 0, sizeof worker);
    table = (struct sp_backend){.dtype = SP_BF16,
                                .cuda = &worker,
                                .attention = tiled_attention,
                                .attention_bwd = tiled_attention_bwd,
                                .add = host_add,
                                .add_to_f32 = host_add_to_f32,
                                .round = host_round,
                                .clear = host_clear,
                                .copy_rows = host_copy_rows};
    tiled = 0;
    most_workspace = 0;
    return sp_cuda_attention_fused(&worker, &table);
}

static void stop(void)
{
    sp_cuda_attention_free(worker.attention);
    free_workspace();
    assert_int_equal(sp_fake_cudnn.alive, 0);
    assert_int_equal(sp_fake_cudnn.opened, 0);
    assert_int_equal(sp_fake_cudart.live, 0);
}

static int before(void **state)
{
    (void)state;
    sp_fake_cudart_reset();
    sp_fake_cudart.total_bytes = (size_t)32 << 30;
    memset(&sp_fake_cudnn, 0, sizeof sp_fake_cudnn);
    memset(&sp_fake_flash3, 0, sizeof sp_fake_flash3);
    sp_fake_cudnn.bytes = 2;
    unsetenv("SP_CUDA_FAST");
    unsetenv("SP_CUDA_CUDNN");
    unsetenv("SP_CUDA_ATTENTION_MIB");
    return 0;
}

/* ---- a problem ---- */

enum { MOST_SLICES = 3 };

struct problem {
    int batch, heads, kv_heads, d, q_len, q_pos, n_kv, kv_len[MOST_SLICES];
};

static const struct problem problems[] = {
    {2, 4, 4, 16, 12, 0, 1, {12}},     /* all */
    {3, 6, 2, 8, 7, 5, 1, {12}},       /* the last queries; grouped heads */
    {2, 2, 1, 24, 8, 3, 1, {14}},      /* rows that none sees */
    {2, 4, 2, 8, 8, 7, 3, {5, 4, 6}},  /* slices */
    {2, 3, 3, 8, 4, 9, 3, {5, 4, 9}},  /* slices, the last too long */
    {2, 4, 1, 16, 4, 2, 2, {6, 3}},    /* a slice that none sees */
    {1, 4, 2, 8, 4, 5, 3, {5, 4, 7}},  /* one more */
    {4, 8, 4, 8, 12, 12, 2, {12, 12}}, /* the second slice of two */
    {2, 4, 2, 8, 3, 2, 3, {6, 3, 2}},   {2, 4, 2, 8, 4, 2, 3, {4, 4, 4}},
    {1, 1, 1, 8, 1, 0, 1, {1}},         {2, 4, 2, 8, 5, 12, 1, {12}}, /* all keys are earlier */
    {3, 3, 3, 16, 9, 11, 3, {5, 4, 2}}, /* of several slices, and fewer than there are queries */
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

struct tensor {
    size_t n;
    float *f;
    uint16_t *low; /* f, rounded, which f is too */
};

/* seed 0: NaN */
static struct tensor tensor(size_t n, uint64_t seed)
{
    struct tensor t = {n, seed ? new_random(n, seed) : new_nan(n), NULL};

    t.low = test_aligned(256, 2 * n + 256);
    for (size_t i = 0; i < n; i++) {
        t.low[i] = sp_bf16(t.f[i]);
        t.f[i] = sp_bf16_value(t.low[i]);
    }
    return t;
}

static double worst;

static void compare(const struct tensor *got, const float *want, double tolerance)
{
    float *g = test_bytes(got->n * sizeof *g);
    double *w = new_double(got->n, want), error;

    for (size_t i = 0; i < got->n; i++)
        g[i] = sp_bf16_value(got->low[i]);
    error = error_of(got->n, g, w);
    worst = fmax(worst, error);
    assert_true(error <= tolerance);
}

struct data {
    struct sp_attention at;
    struct tensor q, o, d_o, dq, kv[MOST_SLICES], dkv[MOST_SLICES];
    float *lse, *want_lse;
    const void *kv_low[MOST_SLICES];
    void *dkv_low[MOST_SLICES];
    const float *kv_f[MOST_SLICES];
    float *dkv_f[MOST_SLICES];
};

static void make_data(struct data *x, const struct problem *p, bool first)
{
    size_t n = (size_t)p->batch * (size_t)p->q_len * (size_t)p->heads * (size_t)p->d;
    size_t rows = (size_t)p->batch * (size_t)p->heads * (size_t)p->q_len;

    x->at = (struct sp_attention){p->batch, p->heads, p->kv_heads, p->d,     1 / sqrtf((float)p->d),
                                  p->q_len, p->q_pos, p->n_kv,     p->kv_len};
    x->q = tensor(n, 1);
    x->o = tensor(n, 0);
    x->d_o = tensor(n, 2);
    x->dq = tensor(n, 0);
    x->lse = test_aligned(256, rows * sizeof(float));
    x->want_lse = new_nan(rows);
    for (int j = 0; j < p->n_kv; j++) {
        size_t m = (size_t)p->batch * (size_t)p->kv_len[j] * 2 * (size_t)(p->kv_heads * p->d);

        x->kv[j] = tensor(m, 10 + (uint64_t)j);
        x->dkv[j] = tensor(m, first ? 0 : 20 + (uint64_t)j);
        if (first)
            memset(x->dkv[j].f, 0, m * sizeof(float));
        x->kv_low[j] = x->kv[j].low;
        x->dkv_low[j] = x->dkv[j].low;
        x->kv_f[j] = x->kv[j].f;
        x->dkv_f[j] = x->dkv[j].f;
    }
}

static void compute_backward(struct data *x, uint16_t *dq, bool first)
{
    table.attention_bwd(&table, &x->at,
                        &(struct sp_attention_bwd){.q = x->q.low,
                                                   .kv = x->kv_low,
                                                   .o = x->o.low,
                                                   .lse = x->lse,
                                                   .d_o = x->d_o.low,
                                                   .dq = dq,
                                                   .dkv = x->dkv_low,
                                                   .first = first});
}

static void compute(struct data *x, bool first)
{
    table.attention(&table, &x->at, x->q.low, x->kv_low, x->o.low, x->lse);
    compute_backward(x, x->dq.low, first);
}

/* Forward and backward as sp_attention and sp_attention_bwd compute them. */
static void one_problem(const struct problem *p, bool first)
{
    size_t rows = (size_t)p->batch * (size_t)p->heads * (size_t)p->q_len;
    struct data x;
    double *lse;

    make_data(&x, p, first);
    compute(&x, first);
    sp_attention(&x.at, x.q.f, x.kv_f, x.o.f, x.want_lse);
    compare(&x.o, x.o.f, ROUNDING);
    lse = new_double(rows, x.want_lse);
    assert_true(error_of(rows, x.lse, lse) < TOLERANCE);
    sp_attention_bwd(&x.at, &(struct sp_attention_bwd){.q = x.q.f,
                                                       .kv = (const void *const *)x.kv_f,
                                                       .o = x.o.f,
                                                       .lse = x.want_lse,
                                                       .d_o = x.d_o.f,
                                                       .dq = x.dq.f,
                                                       .dkv = (void *const *)x.dkv_f});
    /* o is rounded for one and not for the other. */
    compare(&x.dq, x.dq.f, 2 * ROUNDING);
    for (int j = 0; j < p->n_kv; j++)
        compare(&x.dkv[j], x.dkv[j].f, 2 * ROUNDING);
}

/* The bytes of workspace that memory is planned with. */
static size_t planned(const struct problem *p)
{
    struct sp_attention at = {p->batch, p->heads, p->kv_heads, p->d,     1,
                              p->q_len, p->q_pos, p->n_kv,     p->kv_len};

    return sp_cuda_attention_bytes(0, &at, sp_fake_cudart.total_bytes);
}

TEST(problems)
{
    for (int i = 0; i < PROBLEMS; i++)
        for (int first = 0; first < 2; first++) {
            assert_true(open_table());
            sp_fake_cudnn.runs = copies = 0;
            one_problem(&problems[i], first);
            assert_int_equal(sp_fake_cudnn.runs, 2);
            if (problems[i].kv_len[0] >= problems[i].q_pos + problems[i].q_len ||
                (problems[i].n_kv == 1 && problems[i].kv_len[0] == problems[i].q_pos))
                assert_int_equal(copies, 0); /* all that is seen lies in one place */
            assert_int_equal(tiled, 0);
            assert_true(most_workspace <= planned(&problems[i]));
            stop();
        }
    printf("    %d problems, largest error %.1e\n", PROBLEMS, worst);
}

/* The first of two slices alone, with lse and o of both: its share of dq, and its dkv. */
TEST(share_of_the_keys)
{
    const struct problem both = {2, 4, 2, 8, 6, 12, 2, {12, 6}}, one = {2, 4, 2, 8, 6, 12, 1, {12}};

    for (int first = 0; first < 2; first++) {
        struct data x, part;

        assert_true(open_table());
        make_data(&x, &both, true);
        sp_attention(&x.at, x.q.f, x.kv_f, x.o.f, x.want_lse);
        make_data(&part, &one, first);
        memcpy(part.lse, x.want_lse, sizeof(float) * 2 * 4 * 6);
        for (size_t i = 0; i < x.o.n; i++) {
            part.o.low[i] = sp_bf16(x.o.f[i]);
            part.o.f[i] = x.o.f[i];
        }
        compute_backward(&part, part.dq.low, first);
        assert_int_equal(tiled, 0);
        sp_attention_bwd(&part.at, &(struct sp_attention_bwd){.q = part.q.f,
                                                              .kv = (const void *const *)part.kv_f,
                                                              .o = part.o.f,
                                                              .lse = x.want_lse,
                                                              .d_o = part.d_o.f,
                                                              .dq = part.dq.f,
                                                              .dkv = (void *const *)part.dkv_f});
        compare(&part.dq, part.dq.f, 2 * ROUNDING);
        compare(&part.dkv[0], part.dkv[0].f, 2 * ROUNDING);
        stop();
    }
}

/* Forward and backward each keep one plan for a shape, wherever the slices lie in memory. */
TEST(plans_are_kept)
{
    struct problem again = {2, 4, 2, 8, 8, 7, 3, {6, 4, 5}};

    assert_true(open_table());
    one_problem(&problems[3], true);
    assert_int_equal(sp_fake_cudnn.created, 2);
    one_problem(&problems[3], false);
    one_problem(&again, true);
    assert_int_equal(sp_fake_cudnn.created, 2);
    one_problem(&problems[4], true);
    assert_int_equal(sp_fake_cudnn.created, 4);
    stop();
}

/* The most bytes of one plan on the device that `before` sets up. */
static const double limit = 512 << 20;

/* Checks the number of runs of a backward whose scores take `whole` times the limit. */
static void in_parts(const struct problem *p, double whole, int runs)
{
    bool earlier = p->kv_len[0] + (p->n_kv > 1 ? p->kv_len[1] : 0) == p->q_pos;
    double keys = p->q_pos + (earlier ? 0 : p->q_len);

    sp_fake_cudnn.bytes = whole * limit / (p->batch * p->heads * p->q_len * keys);
    assert_true(open_table());
    for (int first = 0; first < 2; first++) {
        sp_fake_cudnn.runs = 0;
        one_problem(p, first);
        assert_int_equal(sp_fake_cudnn.runs, 1 + runs);
    }
    assert_int_equal(tiled, 0);
    stop();
}

/* Scores that do not fit are computed for some sequences, then for some heads, at a time. */
TEST(parts)
{
    const struct problem p = {4, 8, 4, 8, 12, 12, 2, {12, 12}};
    const struct problem longer = {2, 4, 2, 8, 8, 2, 1, {13}};
    const struct problem odd = {4, 6, 3, 8, 13, 11, 2, {12, 12}},
                         alone = {5, 1, 1, 8, 7, 1, 1, {8}};

    in_parts(&p, 0.9, 1);
    in_parts(&p, 1.05, 1); /* nearly */
    in_parts(&p, 1.5, 2);
    in_parts(&p, 3.5, 4);
    in_parts(&p, 4.2, 4);
    in_parts(&p, 5, 8);
    in_parts(&p, 15, 16);
    in_parts(&p, 20, 32);           /* and one query head of two */
    in_parts(&longer, 15.0 / 4, 4); /* one slice, longer than what is seen, with gradients apart */
    in_parts(&odd, 2, 2);           /* lse of a part is not aligned */
    in_parts(&odd, 5, 12);
    in_parts(&alone, 3, 5);
    /* Another limit. */
    setenv("SP_CUDA_ATTENTION_MIB", "256", 1);
    in_parts(&p, 0.4, 1);
    in_parts(&p, 0.9, 2);
    sp_error_hold(1);
    setenv("SP_CUDA_ATTENTION_MIB", "256M", 1);
    in_parts(&p, 0.9, 1);
    setenv("SP_CUDA_ATTENTION_MIB", "-1", 1);
    in_parts(&p, 0.9, 1);
    sp_error_hold(0);
    unsetenv("SP_CUDA_ATTENTION_MIB");
    /* If any order of additions will do, no scores are kept. */
    setenv("SP_CUDA_FAST", "1", 1);
    in_parts(&p, 100, 1);
}

/* If the scores of one head do not fit, some of its queries run at a time, with the keys that they
 * see. */
TEST(pieces)
{
    const struct problem p = {2, 2, 2, 8, 300, 40, 1, {340}},
                         tail = {1, 1, 1, 8, 300, 12, 1, {330}};
    const struct problem odd = {1, 3, 3, 16, 301, 40, 2, {200, 141}};
    const struct problem grouped = {2, 6, 2, 8, 300, 40, 1, {340}};
    const struct problem earlier = {2, 2, 2, 8, 300, 340, 2, {200, 140}};
    const struct problem few = {1, 1, 1, 8, 64, 0, 1, {64}};

    in_parts(&p, 4 * 1.05, 4);
    in_parts(&p, 4 * 2.2, 4 * 3); /* 44, 128 and 128 queries */
    in_parts(&tail, 2.2, 3);
    in_parts(&odd, 3 * 1.1, 3 * 2);
    in_parts(&earlier, 4 * 2.2, 4 * 3);
    /* Query heads that share a key head are divided before. */
    in_parts(&grouped, 4 * 1.5, 12);
    if (test_every(2) == 1) {         /* slow under sanitizers */
        in_parts(&p, 4 * 1.2, 4 * 2); /* 44 and 256 */
        in_parts(&odd, 3 * 2.2, 3 * 3);
        in_parts(&grouped, 4 * 1.05, 4);
        in_parts(&grouped, 4 * 3 * 1.2, 12 * 2);
    }
    in_parts(&problems[1], 6 * 1.9, 18); /* 3 sequences of 6 heads */
    /* Nothing is small enough. */
    sp_error_hold(1);
    for (int i = 0; i < 2; i++) {
        const struct problem *none = i ? &few : &p;
        struct data x;

        sp_fake_cudnn.bytes = 100 * limit / (none->batch * none->heads * none->q_len * 64.0);
        assert_true(open_table());
        make_data(&x, none, true);
        compute(&x, true);
        assert_int_equal(tiled, 10);
        stop();
    }
    sp_error_hold(0);
}

/* The planned bytes are enough, and not much more, however the problem is divided. */
TEST(planned)
{
    const struct problem large[] = {{2, 4, 4, 8, 300, 41, 1, {341}},
                                    {1, 4, 4, 8, 700, 100, 1, {800}},
                                    {1, 2, 2, 16, 701, 800, 2, {800, 701}},
                                    {1, 6, 2, 8, 700, 100, 1, {800}},
                                    {2, 4, 1, 24, 500, 0, 1, {512}}};

    setenv("SP_CUDA_ATTENTION_MIB", "1", 1);
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i += (size_t)test_every(2)) {
        size_t bound = planned(&large[i]);

        assert_true(open_table());
        one_problem(&large[i], true);
        printf("    %zu bytes of %zu\n", most_workspace, bound);
        assert_true(most_workspace <= bound &&
                    (double)bound <= 1.8 * (double)most_workspace + (1 << 20));
        assert_int_equal(tiled, 0);
        stop();
    }
    /* If cuDNN runs only the forward, keys are gathered once. */
    {
        struct problem none = {1, 1, 1, 8, 1 << 18, 1 << 18, 2, {1 << 18, 1 << 18}};
        size_t gathered = 2 * 2 * 8 * ((size_t)2 << 18);

        assert_int_equal(planned(&none), gathered);
        setenv("SP_CUDA_ATTENTION_MIB", "100000", 1);
        assert_true(planned(&none) > 2 * gathered);
    }
}

/* ---- what the tiled kernels do ---- */

static int two_of(void *arg)
{
    const struct problem *p = arg;
    struct data x;

    if (!open_table())
        return 100;
    for (int i = 0; i < 2; i++) {
        make_data(&x, p, true);
        compute(&x, true);
    }
    return tiled;
}

TEST(tiled)
{
    struct problem odd = {1, 2, 2, 12, 4, 0, 1, {4}}, p = problems[0];
    const struct problem lone = {1, 2, 2, 8, 1, 7, 1, {12}};
    char text[1024];
    struct data x;

    assert_int_equal(said_by(two_of, &odd, text, sizeof text), 22);
    printf("    %s", text);
    assert_true(is_one_line(text));
    sp_fake_cudnn.refuse_shapes = true;
    assert_int_equal(said_by(two_of, &p, text, sizeof text), 22);
    printf("    %s", text);
    assert_true(is_one_line(text));
    assert_non_null(strstr(text, "4 heads of 16, 12 queries on 12 keys"));
    sp_fake_cudnn.refuse_shapes = false;
    sp_fake_cudnn.refuse_runs = true;
    assert_int_equal(said_by(two_of, &p, text, sizeof text), 1);
    printf("    %s", text);
    assert_true(is_one_line(text));
    sp_fake_cudnn.refuse_runs = false;

    /* An address that is not aligned. */
    assert_true(open_table());
    make_data(&x, &p, true);
    table.attention(&table, &x.at, x.q.low + 1, x.kv_low, x.o.low, x.lse);
    assert_int_equal(tiled, 1);
    compute_backward(&x, x.dq.low + 4, true);
    assert_int_equal(tiled, 11);
    assert_int_equal(sp_fake_cudnn.created, 0);

    /* One query behind other tokens, as sampling has with more keys each time. */
    make_data(&x, &lone, true);
    table.attention(&table, &x.at, x.q.low, x.kv_low, x.o.low, x.lse);
    assert_int_equal(tiled, 12);
    assert_int_equal(sp_fake_cudnn.created, 0);
    stop();
}

static int start_twice(void *arg)
{
    (void)arg;
    return open_table() + open_table();
}

TEST(absent)
{
    char text[1024];

    sp_fake_cudnn.absent = true;
    assert_int_equal(said_by(start_twice, NULL, text, sizeof text), 0);
    printf("    %s", text);
    assert_true(is_one_line(text));
    assert_int_equal(planned(&problems[0]), 0);
    sp_fake_cudnn.absent = false;
    assert_true(planned(&problems[0]) > 0);
    setenv("SP_CUDA_CUDNN", "0", 1);
    assert_false(open_table());
    assert_int_equal(planned(&problems[0]), 0);
    assert_ptr_equal(table.attention, tiled_attention);
    assert_ptr_equal(table.attention_bwd, tiled_attention_bwd);
    stop();
}

/* FlashAttention-3 computes all problems that it supports, with and without cuDNN for the rest. */
TEST(flash3)
{
    for (int absent = 0; absent < 2; absent++)
        for (int i = 0; i < PROBLEMS; i++)
            for (int first = 0; first < 2; first++) {
                bool taken = problems[i].d == 8;

                sp_fake_cudnn.absent = absent;
                sp_fake_flash3.head_dim = 8;
                setenv("SP_CUDA_FAST", first ? "1" : "0", 1);
                if (absent) /* a warning that another test looks at */
                    setenv("SP_CUDA_CUDNN", "0", 1);
                assert_true(open_table());
                sp_fake_cudnn.runs = sp_fake_flash3.runs = 0;
                if (taken || !absent)
                    one_problem(&problems[i], first);
                assert_int_equal(sp_fake_flash3.runs, taken ? 2 : 0);
                assert_int_equal(sp_fake_cudnn.runs, taken || absent ? 0 : 2);
                assert_int_equal(sp_fake_flash3.deterministic, taken && !first);
                assert_int_equal(tiled, 0);
                if (first || problems[i].n_kv > 1) /* a lone slice is the first */
                    assert_true(most_workspace <= planned(&problems[i]));
                sp_fake_flash3.deterministic = 0;
                stop();
                unsetenv("SP_CUDA_CUDNN");
            }
}

static int refused_run(void *arg)
{
    struct data x;

    (void)arg;
    sp_fake_flash3.head_dim = 8;
    sp_fake_flash3.refuse_runs = true;
    open_table();
    make_data(&x, &problems[1], true);
    compute(&x, true);
    return 0;
}

TEST(flash3_refuses)
{
    char text[1024];

    assert_int_equal(said_by(refused_run, NULL, text, sizeof text), 1);
    printf("    %s", text);
    assert_true(is_one_line(text));
    assert_non_null(strstr(text, "it was told to; SP_CUDA_FLASH3=0"));
}

TEST_SETUP(before)
