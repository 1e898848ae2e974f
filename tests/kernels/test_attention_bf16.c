/*
 * Attention in bf16 on every path that the machine has: values, log-sum-exp and gradients against
 * double loops on the same rounded inputs, over slices, whatever the sizes; the same bits on every
 * run and for every team.
 */
#include "attention_cases.h"
#include "kernels/cpu/attention/attention_path.h"

static void *new_low(size_t n, uint64_t seed, float scale)
{
    float *x = new_random(n, seed);

    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
    return new_typed(SP_BF16, n, x);
}

/* Leaves NaN wherever a thread's scratch has tiles: nothing of that may get into what comes next. */
static void spoil_scratch(const struct attention_test *t)
{
    enum { LEN = 320, D = 128 };
    void *kv = new_typed_nan(SP_BF16, 2 * LEN * D), *dkv = new_typed_nan(SP_BF16, 2 * LEN * D);
    struct attention_arrays a = {.q = new_typed_nan(SP_BF16, LEN * D),
                                 .d_o = new_typed_nan(SP_BF16, LEN * D),
                                 .kv = &kv,
                                 .dkv = &dkv,
                                 .o = new_typed_nan(SP_BF16, LEN * D),
                                 .lse = new_nan(LEN),
                                 .first = true};
    const struct sp_attention at = {.batch = 1,
                                    .heads = 1,
                                    .kv_heads = 1,
                                    .head_dim = D,
                                    .scale = 1 / sqrtf(D),
                                    .q_len = LEN,
                                    .n_kv = 1,
                                    .kv_len = (const int[]){LEN}};
    int before = omp_get_max_threads();

    omp_set_num_threads(1);
    attention_call(t, &at, &a);
    a.dq = new_typed_nan(SP_BF16, LEN * D);
    attention_call(t, &at, &a);
    omp_set_num_threads(before);
    assert_true(isnan(*new_values(SP_BF16, 1, dkv)));
}

static void teams(unsigned i)
{
    omp_set_num_threads(1 + (int)i);
}

/* With the rounding of a result, 2e-2 of the largest element: what the project promises of bf16. */
static struct attention_test in_bf16(void)
{
    return (struct attention_test){.backend = sp_cpu_backend(SP_BF16),
                                   .vary = teams,
                                   .variants = 4,
                                   .tolerance_o = 1.6e-2,
                                   .tolerance_lse = 1e-4,
                                   .tolerance_gradients = 1.6e-2};
}

/* Queries beside keys in slices of other lengths, whose ends lie anywhere among them. */
struct beside {
    int q_len, q_pos, heads, kv_heads, d, n, lens[4];
};

/* o, dq and dkv of one path, one after the other. */
static float *run_beside(const struct attention_test *t, const struct beside *b, size_t *n)
{
    size_t n_q = (size_t)(b->q_len * b->heads * b->d), n_kv = 0;
    uint16_t *kv, *results;
    void *keys[4], *gradients[4];
    struct attention_arrays a = {.q = new_low(n_q, 1, 4),
                                 .d_o = new_low(n_q, 3, 1),
                                 .kv = keys,
                                 .dkv = gradients,
                                 .lse = new_nan((size_t)(b->q_len * b->heads)),
                                 .first = true};
    const struct sp_attention at = {.batch = 1,
                                    .heads = b->heads,
                                    .kv_heads = b->kv_heads,
                                    .head_dim = b->d,
                                    .scale = 1 / sqrtf((float)b->d),
                                    .q_len = b->q_len,
                                    .q_pos = b->q_pos,
                                    .n_kv = b->n,
                                    .kv_len = b->lens};

    for (int i = 0; i < b->n; i++)
        n_kv += (size_t)(b->lens[i] * 2 * b->kv_heads * b->d);
    kv = new_low(n_kv, 2, 1);
    n[0] = n[1] = n_q, n[2] = n_kv;
    results = new_typed_nan(SP_BF16, 2 * n_q + n_kv);
    for (int i = 0, row = 0; i < b->n; row += b->lens[i++]) {
        keys[i] = kv + row * 2 * b->kv_heads * b->d;
        gradients[i] = results + 2 * n_q + row * 2 * b->kv_heads * b->d;
    }
    a.o = results;
    attention_call(t, &at, &a);
    a.dq = results + n_q;
    attention_call(t, &at, &a);
    return new_values(SP_BF16, 2 * n_q + n_kv, results);
}

/* The same as the plain path. */
static void compare_beside(const struct attention_test *t, const char *path, const struct beside *b)
{
    static const char *const names[] = {"o", "dq", "dkv"};
    float *got, *want;
    size_t n[3];

    assert_int_equal(sp_attention_choose("plain"), 0);
    want = run_beside(t, b, n);
    assert_int_equal(sp_attention_choose(path), 0);
    spoil_scratch(t);
    got = run_beside(t, b, n);
    for (int i = 0; i < 3; got += n[i], want += n[i], i++)
        assert_close_floats(names[i], n[i], got, want, 2e-2);
}

static void check_path(const char *path)
{
    static const struct beside pieces[] = {
        {200, 0, 1, 1, 64, 2, {37, 163}},    {200, 37, 2, 1, 64, 1, {237}},
        {130, 5, 1, 1, 40, 1, {300}},        {300, 0, 1, 1, 128, 2, {100, 200}},
        {70, 50, 3, 3, 16, 3, {20, 41, 59}}, {64, 7, 1, 1, 160, 2, {9, 62}},
    };
    static const struct attention_shape shapes[] = {
        {1, 1, 1, 3, {1}},           {1, 2, 1, 16, {37, 64, 5}}, {1, 2, 2, 24, {333}},
        {1, 3, 1, 40, {1, 300, 63}}, {1, 4, 2, 64, {129, 190}},  {1, 1, 1, 64, {513}},
        {1, 1, 1, 80, {257, 30}},    {1, 2, 1, 128, {70, 201}},  {1, 1, 1, 17, {140, 3}},
    };
    const struct attention_test t = in_bf16();
    int before = omp_get_max_threads();

    if (sp_attention_choose(path)) {
        printf("    no %s here\n", path);
#ifdef SP_AMX_EMULATED
        skip();
#endif
        return;
    }
    assert_string_equal(sp_attention_path(SP_BF16)->name, path);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        compare_beside(&t, path, &pieces[i]);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        spoil_scratch(&t);
        attention_check(&t, &shapes[i]);
    }
    omp_set_num_threads(before);
    assert_int_equal(sp_attention_choose(NULL), 0);
}

TEST(amx)
{
    check_path("amx");
}

TEST(avx512bf16)
{
    check_path("avx512bf16");
}

TEST(avx512)
{
    check_path("avx512");
}

TEST(avx2)
{
    check_path("avx2");
}

TEST(plain)
{
    check_path("plain");
}

TEST(keys_beyond)
{
    const struct attention_test t = in_bf16();

    attention_check_keys_beyond(&t, 16, 5, 0, 20);
}
