/* Attention in one kernel, whoever computes it: its shape, and its tensors. */
#ifndef SP_FUSED_H
#define SP_FUSED_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Letters of kernels.h; everything bf16 but lse, f32. Position t of sequence b lies at element
 *   (b q_rows + t) q_row     in q, o, dO, dq
 *   (b kv_rows + t) kv_row   in k and v,           (b dkv_rows + t) dkv_row   in dk and dv;
 * heads are head_dim apart. lse is a dense (batch, heads, q_len). The queries are the last q_len of
 * kv_len positions; each sees those up to its own. `full`: the queries come after all kv_len
 * positions, and each sees all. Compared as bytes: set unused members to 0.
 */
struct sp_fused_shape {
    int backward, deterministic, full;
    int batch, heads, kv_heads, head_dim;
    int q_len, q_rows, q_row;
    int kv_len, kv_rows, kv_row, dkv_rows, dkv_row;
    float scale;
};

/* Forward: o and lse are written. Backward: dq, dk and dv are; o and lse are of all that the queries
 * saw, also elsewhere. Addresses are aligned to 16. */
struct sp_fused_tensors {
    const void *q, *k, *v;
    void *o, *lse;
    const void *d_o;
    void *dq, *dk, *dv;
};

#endif
