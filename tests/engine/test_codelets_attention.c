/* Attention over slices: tasks equal the kernels, bit for bit. */
#include "engine/codelets.h"

/* The last of n slices of keys; n = 11 needs more buffers than StarPU holds in a task. */
static void check_attention(bool llama, const int *kv_len, int n, bool first)
{
    struct sp_shape sh = shape_of(llama, 0, 0);
    int q_len = kv_len[n - 1], q_pos = 0, end = 0;
    size_t nq = (size_t)(BATCH * q_len * sh.q_width);
    size_t nlse = (size_t)(BATCH * q_len * sh.model.heads);
    struct tensor q = random_tensor(nq, 21), o = tensor(nq), lse = tensor(nlse);
    struct tensor d_o = random_tensor(nq, 22), dq = tensor(nq), kv[16], dkv[16];
    struct sp_attn_keys keys[16];
    const float *kv_at[16];
    float *ro = floats(nq), *rlse = floats(nlse), *rdq = floats(nq), *rdkv[16];
    struct sp_attention at = {.batch = BATCH,
                              .heads = sh.model.heads,
                              .kv_heads = sh.model.kv_heads,
                              .head_dim = sh.model.head_dim,
                              .scale = 1.0f / sqrtf((float)sh.model.head_dim),
                              .q_len = q_len,
                              .n_kv = n,
                              .kv_len = kv_len};
    struct sp_attn t;
    struct sp_task_context ctx = test_context();

    for (int j = 0; j < n; j++) {
        size_t nkv = (size_t)(BATCH * kv_len[j] * sh.kv_width);

        kv[j] = random_tensor(nkv, 30 + (uint64_t)j);
        dkv[j] = random_tensor(nkv, 60 + (uint64_t)j);
        rdkv[j] = copy(&dkv[j]);
        if (first)
            memset(rdkv[j], 0, nkv * sizeof(float));
        keys[j] = (struct sp_attn_keys){
            .first = end, .len = kv_len[j], .kv = kv[j].handle, .dkv = dkv[j].handle};
        end += kv_len[j];
        kv_at[j] = kv[j].at;
        q_pos += j < n - 1 ? kv_len[j] : 0;
    }
    at.q_pos = q_pos;
    t = (struct sp_attn){.q_len = q_len,
                         .q_pos = q_pos,
                         .begins = true,
                         .ends = true,
                         .n_keys = n,
                         .keys = keys,
                         .q = q.handle,
                         .o = o.handle,
                         .lse = lse.handle};
    sp_attn_fwd_insert(&ctx, &sh, &t, 0);
    sp_attn_bwd_insert(&ctx, &sh, &t, first, d_o.handle, dq.handle, 0);
    starpu_task_wait_for_all();
    sp_attention(&at, q.at, kv_at, ro, rlse);
    sp_attention_bwd(&at, &(struct sp_attention_bwd){.q = q.at,
                                                     .kv = (const void *const *)kv_at,
                                                     .o = ro,
                                                     .lse = rlse,
                                                     .d_o = d_o.at,
                                                     .dq = rdq,
                                                     .dkv = (void *const *)rdkv});
    assert_same_bits(o.at, ro, nq, "o");
    assert_same_bits(lse.at, rlse, nlse, "lse");
    assert_same_bits(dq.at, rdq, nq, "dq");
    for (int j = 0; j < n; j++) {
        assert_same_bits(dkv[j].at, rdkv[j], dkv[j].n, "dkv");
    }
}

TEST(attention)
{
    static const int lens[] = {3, 5, 2, 4, 1, 3, 2, 5, 1, 2, 4};
    static const int counts[] = {1, 2, 3, 4, 5, 9, 11}; /* 5 + 2n buffers */

    for (int llama = 0; llama < 2; llama++)
        for (int first = 0; first < 2; first++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                check_attention(llama, lens, counts[i], first);
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
