/*
 * Causal attention on the emulated device, over slices, in every order of blocks and threads; the most
 * slices; keys that no query sees; scores far apart.
 */
#include "../attention_cases.h"
#include "cuda_test.h"

static struct attention_test emulated(enum sp_dtype t)
{
    return (struct attention_test){.backend = sp_emulated_backend(t),
                                   .wait = sp_emulated_wait,
                                   .vary = sp_emulated_order,
                                   .variants = ORDERS,
                                   .tolerance_o = t == SP_BF16 ? 4e-3 : BOTH,
                                   .tolerance_lse = BOTH,
                                   .tolerance_gradients = t == SP_BF16 ? 1.2e-2 : BOTH};
}

TEST(shapes)
{
    static const struct attention_shape shapes[] = {
        {1, 1, 1, 3, {1}},
        {1, 3, 3, 10, {7}},
        {2, 4, 2, 6, {5}},
        {1, 2, 1, 24, {141}},
        {2, 2, 2, 17, {70}},
        {1, 1, 1, 64, {131}},
        {1, 2, 1, 80, {67}},
        {1, 2, 2, 128, {75}},
        {1, 1, 1, 160, {39}},
        {1, 1, 1, 256, {39}},
        {1, 3, 1, 10, {3, 4}},
        {2, 2, 2, 5, {1, 2, 4}},
        {2, 4, 2, 16, {70, 1, 29, 61}},
        {1, 2, 1, 128, {5, 40, 17}},
    };

    for (int t = 0; t < SP_ELEMENTS; t++) {
        const struct attention_test test = emulated(t);

        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            attention_check(&test, &shapes[i]);
    }
}

TEST(many_slices)
{
    const struct attention_test test = emulated(SP_F32);
    struct attention_shape s = {1, 1, 1, 4, {0}};

    for (int i = 0; i < 40; i++)
        s.lens[i] = 1;
    attention_check(&test, &s);
}

/* The most slices there may be; the last one sees all of them, so the gradients of the first are
 * written too. Not even the bits depend on the cuts. */
TEST(most_slices)
{
    enum { N = 256, D = 4, B = 2, Q = 2, ROW = 2 * D };
    const struct attention_test test = emulated(SP_F32);
    int lens[N], len = 0;
    void *kv[N], *dkv[N], *whole_kv, *whole_dkv;
    struct attention_arrays a[2];
    float *dq[2];

    for (int i = 0; i < N; i++)
        len += lens[i] = 1 + i % 2;
    whole_kv = new_random((size_t)(B * len * ROW), 3);
    whole_dkv = new_nan((size_t)(B * len * ROW));
    for (int i = 0, pos = 0; i < N; pos += lens[i++]) {
        size_t n = (size_t)(lens[i] * ROW);
        float *part = kv[i] = new_nan(B * n);

        dkv[i] = new_nan(B * n);
        for (int b = 0; b < B; b++)
            memcpy(part + (size_t)b * n, (float *)whole_kv + (b * len + pos) * ROW,
                   n * sizeof *part);
    }
    for (int whole = 0; whole < 2; whole++) {
        const struct sp_attention at = {.batch = B,
                                        .heads = 1,
                                        .kv_heads = 1,
                                        .head_dim = D,
                                        .scale = 0.5f,
                                        .q_len = Q,
                                        .q_pos = len - Q,
                                        .n_kv = whole ? 1 : N,
                                        .kv_len = whole ? &len : lens};

        a[whole] = (struct attention_arrays){.q = new_random(B * Q * D, 1),
                                             .d_o = new_random(B * Q * D, 2),
                                             .kv = whole ? &whole_kv : kv,
                                             .dkv = whole ? &whole_dkv : dkv,
                                             .o = new_nan(B * Q * D),
                                             .lse = new_nan(B * Q),
                                             .first = true};
        attention_call(&test, &at, &a[whole]);
        a[whole].dq = dq[whole] = new_nan(B * Q * D);
        attention_call(&test, &at, &a[whole]);
    }
    assert_same_bits(B * Q * D, a[0].o, a[1].o);
    assert_same_bits(B * Q, a[0].lse, a[1].lse);
    assert_same_bits(B * Q * D, dq[0], dq[1]);
    for (int i = 0, pos = 0; i < N; pos += lens[i++])
        for (int b = 0; b < B; b++) {
            size_t n = (size_t)(lens[i] * ROW);
            const float *part = (float *)dkv[i] + (size_t)b * n;

            assert_same_bits(n, (float *)whole_dkv + (b * len + pos) * ROW, part);
            assert_false(isnan(part[0]));
        }
}

TEST(keys_beyond)
{
    for (int t = 0; t < SP_ELEMENTS; t++) {
        const struct attention_test test = emulated(t);

        attention_check_keys_beyond(&test, 6, 5, 4, 20);
        attention_check_keys_beyond(&test, 16, 9, 50, 210);
        attention_check_keys_beyond(&test, 128, 9, 30, 110);
    }
}

TEST(extreme)
{
    const struct attention_test test = emulated(SP_F32);

    attention_check_extreme(&test);
}
