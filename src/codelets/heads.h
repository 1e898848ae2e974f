/*
 * The QKV product of models that normalise each head of the queries and keys before they are
 * rotated (Qwen 3), on plain arrays; qkv.h calls it in place of the plain product.
 */
#ifndef SP_HEADS_H
#define SP_HEADS_H

#include "kernels/backend.h"
#include "model/shape.h"

/* Offset of kv's rows, and of its biases, which follow q's. */
static inline size_t sp_kv_rows(const struct sp_shape *sh)
{
    return sh->qkv + (size_t)sh->q_width * (size_t)sh->model.hidden;
}

static inline size_t sp_kv_bias(const struct sp_shape *sh)
{
    return sh->qkv_bias == (size_t)-1 ? (size_t)-1 : sh->qkv_bias + (size_t)sh->q_width;
}

/* Elements of scratch that the functions below need; 0: the model has no such norms. */
size_t sp_heads_scratch(const struct sp_shape *sh);

/* q(T,q) = norm(n1 Wq^T + bq), keys likewise, values = n1 Wv^T + bv; kv NULL: only q. */
void sp_heads_forward(const struct sp_backend *k, const struct sp_shape *sh, const void *n1,
                      void *w, void *scratch, void *q, void *kv);

/*
 * Takes dq and the keys of dkv, rotated back, through norm' in place; gains += their gradients. The
 * norms' inputs are computed again from n1, with the same bits: they would take as much memory as q
 * and k.
 */
void sp_heads_backward(const struct sp_backend *k, const struct sp_shape *sh, const void *n1,
                       void *w, void *scratch, void *dq, void *dkv, float *gains);

/* Operations of these products, for T tokens. */
double sp_heads_flops(const struct sp_shape *sh);

#endif
