/*
 * Causal attention in f32 on every path that the machine has: against double loops over the whole
 * sequence, the same whatever the slices, whatever the team.
 */
#include "attention_cases.h"
#include "kernels/cpu/attention/attention_path.h"
#include <errno.h>

static int team;

/* The team's size may change bits, a second run with the same may not. */
static void vary(unsigned i)
{
    (void)i;
    omp_set_num_threads(team);
}

static struct attention_test in_f32(void)
{
    return (struct attention_test){.backend = sp_cpu_backend(SP_F32),
                                   .vary = vary,
                                   .variants = 2,
                                   .tolerance_o = TOLERANCE,
                                   .tolerance_lse = TOLERANCE,
                                   .tolerance_gradients = TOLERANCE};
}

/* Runs a test on one path after the other; names the paths that the machine lacks. */
static void on_each_path(void (*test)(const struct attention_test *t))
{
    static const char *const paths[] = {"avx512", "avx2", "plain"};
    const struct attention_test t = in_f32();
    int before = omp_get_max_threads();

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (sp_attention_choose(paths[i])) {
            printf("    no %s here\n", paths[i]);
            continue;
        }
        printf("    %s\n", paths[i]);
        assert_string_equal(sp_attention_path(SP_F32)->name, paths[i]);
        test(&t);
        omp_set_num_threads(before);
    }
    assert_int_equal(sp_attention_choose(NULL), 0);
}

static void shapes(const struct attention_test *t)
{
    static const struct attention_shape of[] = {
        {1, 1, 1, 3, {1}},
        {1, 3, 3, 10, {7}},
        {2, 4, 2, 6, {5}},
        {1, 2, 1, 24, {333}},
        {3, 6, 3, 17, {130}},
        {1, 1, 1, 16, {65}},
        {1, 2, 2, 40, {190}},
        {1, 2, 1, 64, {321}},
        {1, 1, 1, 80, {270}},
        {1, 1, 1, 128, {300}},
        {1, 1, 1, 132, {150}},
        {1, 3, 1, 10, {3, 4}},
        {2, 2, 2, 5, {1, 2, 4}},
        {2, 4, 2, 10, {70, 1, 129, 61}},
        {3, 3, 1, 8, {5, 300, 17, 64}},
        {1, 1, 1, 16, {260, 257}}, /* one head: two threads share it by tiles */
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (team = 1; team <= 2; team++)
            attention_check(t, &of[i]);
}

TEST(shapes)
{
    on_each_path(shapes);
}

TEST(names)
{
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

static void keys_beyond(const struct attention_test *t)
{
    attention_check_keys_beyond(t, 6, 5, 4, 20);
}

TEST(keys_beyond)
{
    on_each_path(keys_beyond);
}

TEST(extreme)
{
    on_each_path(attention_check_extreme);
}

/*
 * One head and more threads than cores: the units add to the same tiles of dq and must take turns.
 * The bits must be those of one thread.
 */
static void turns(const struct attention_test *t)
{
    enum { LEN = 1700, D = 4, N = LEN * D, RUNS = 30 };
    void *kv = new_random(2 * N, 2);
    struct attention_arrays a = {.q = new_random(N, 1),
                                 .d_o = new_random(N, 3),
                                 .kv = &kv,
                                 .o = new_nan(N),
                                 .lse = new_nan(LEN)};
    const struct sp_attention at = {.batch = 1,
                                    .heads = 1,
                                    .kv_heads = 1,
                                    .head_dim = D,
                                    .scale = 0.5f,
                                    .q_len = LEN,
                                    .n_kv = 1,
                                    .kv_len = (const int[]){LEN}};
    float *want_dq = NULL, *want_dkv = NULL;

    omp_set_num_threads(1);
    attention_call(t, &at, &a);
    for (int i = 0; i <= RUNS; i++) {
        void *dkv = memset(test_bytes(2 * N * sizeof(float)), 0, 2 * N * sizeof(float));

        a.dq = new_nan(N), a.dkv = &dkv;
        attention_call(t, &at, &a);
        if (!i)
            want_dq = a.dq, want_dkv = dkv;
        assert_same_bits(N, a.dq, want_dq);
        assert_same_bits(2 * N, dkv, want_dkv);
        omp_set_num_threads(2 + i % 5);
    }
}

TEST(turns)
{
    on_each_path(turns);
}
