/*
 * The QKV product of a layer on plain arrays: `pre` runs it with the norm, `qkv` next to attention.
 * Weights of q and kv are rows of one matrix: kv's follow q's. Some models normalise each head of the
 * queries and keys (Qwen 3), and Llama style rotates them then.
 */
#ifndef SP_QKV_PRODUCT_H
#define SP_QKV_PRODUCT_H

#include "codelets/projections.h"
#include "codelets/task/codelet.h"
#include "model/documents.h"

struct sp_qkv {
    const struct sp_shape *sh;
    const struct sp_documents *documents; /* as in struct sp_task_context */
    void *w;                              /* block of the product */
    const void *n1;                       /* (T,h); the backward reads it if heads have norms */
    void *scratch;                        /* sp_heads_scratch */
    void *q, *kv;                         /* (T,q), (T,kv), or their gradients */
};

/* For a task with these args. */
struct sp_qkv sp_qkv_of(const struct sp_task_args *a, const void *n1, void *w, void *scratch,
                        void *q, void *kv);

/* q = n1 Wq^T + bq, kv = n1 Wkv^T + bkv, with heads' norms, rotated; kv NULL: only q. */
void sp_qkv_forward(const struct sp_backend *k, const struct sp_qkv *p);

/*
 * dn1(T,h) = dq Wq + dkv Wkv; dq and dkv are first brought back to the product's output, in place.
 * If heads have norms, `gains` += the gradients of their gains. The norms' inputs are computed again
 * from n1, with the same bits: they would take as much memory as q and k.
 */
void sp_qkv_backward(const struct sp_backend *k, const struct sp_qkv *p, float *gains, void *dn1);

/* The block's gradient g: dWq += dq^T n1, dWkv += dkv^T n1, or = (sp_projection_wgrad), and biases,
 * with dq and dkv that sp_qkv_backward brought back. */
void sp_qkv_wgrad(const struct sp_backend *k, const struct sp_qkv *p, unsigned overwrites,
                  float *g);

/* Operations of the product; of those of queries and keys that the backward computes again. */
double sp_qkv_flops(const struct sp_shape *sh);
double sp_heads_flops(const struct sp_shape *sh);

/* Elements of scratch for heads' norms; 0: the model has none. */
size_t sp_heads_scratch(const struct sp_shape *sh);

#endif
