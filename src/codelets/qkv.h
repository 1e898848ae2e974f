/*
 * The QKV product of a layer on plain arrays, as `pre` computes it beside the norm and `qkv` beside
 * attention. Weights of q and kv are rows of one matrix: kv's follow q's.
 */
#ifndef SP_QKV_H
#define SP_QKV_H

#include "codelets/shape.h"
#include "kernels/kernels.h"

static inline float *sp_kv_rows(const struct sp_shape *sh, float *qkv)
{
    return qkv + sh->qkv + (size_t)sh->q_width * (size_t)sh->model.hidden;
}

static inline float *sp_kv_bias(const struct sp_shape *sh, float *qkv)
{
    float *bias = sp_at(qkv, sh->qkv_bias);

    return bias ? bias + sh->q_width : NULL;
}

/* Llama: rotates q and the keys by their positions, or back. */
static inline void sp_qkv_rotate(const struct sp_shape *sh, float *q, float *kv, bool inverse)
{
    const struct sp_model *m = &sh->model;

    if (m->arch != SP_ARCH_LLAMA)
        return;
    sp_rope(sh->batch, sh->seq, m->heads, m->head_dim, sh->q_width, sh->first, m->rope_theta,
            inverse, q);
    if (kv)
        sp_rope(sh->batch, sh->seq, m->kv_heads, m->head_dim, sh->kv_width, sh->first,
                m->rope_theta, inverse, kv);
}

/* q(T,q) = n1 Wq^T + bq, kv(T,kv) = n1 Wkv^T + bkv, rotated; kv NULL: q alone. */
static inline void sp_qkv_forward(const struct sp_shape *sh, const float *n1, float *w, float *q,
                                  float *kv)
{
    int T = sh->rows, h = sh->model.hidden;

    sp_linear(T, h, sh->q_width, n1, w + sh->qkv, sp_at(w, sh->qkv_bias), q, sh->q_width);
    if (kv)
        sp_linear(T, h, sh->kv_width, n1, sp_kv_rows(sh, w), sp_kv_bias(sh, w), kv, sh->kv_width);
    sp_qkv_rotate(sh, q, kv, false);
}

/* dn1(T,h) = dq Wq + dkv Wkv; dq and dkv are rotated back in place first. */
static inline void sp_qkv_backward(const struct sp_shape *sh, float *dq, float *dkv, float *w,
                                   float *dn1)
{
    int T = sh->rows, h = sh->model.hidden;

    sp_qkv_rotate(sh, dq, dkv, true);
    sp_linear_dx(T, h, sh->q_width, dq, sh->q_width, w + sh->qkv, dn1, false);
    sp_linear_dx(T, h, sh->kv_width, dkv, sh->kv_width, sp_kv_rows(sh, w), dn1, true);
}

/* dWq += dq^T n1, dWkv += dkv^T n1, of gradients rotated back; biases too. */
static inline void sp_qkv_wgrad(const struct sp_shape *sh, const float *n1, const float *dq,
                                const float *dkv, float *g)
{
    int T = sh->rows, h = sh->model.hidden;

    sp_linear_dw(T, h, sh->q_width, n1, dq, sh->q_width, g + sh->qkv, sp_at(g, sh->qkv_bias));
    sp_linear_dw(T, h, sh->kv_width, n1, dkv, sh->kv_width, sp_kv_rows(sh, g), sp_kv_bias(sh, g));
}

static inline double sp_qkv_flops(const struct sp_shape *sh)
{
    return sp_flops_linear(sh->rows, sh->model.hidden, sh->q_width + sh->kv_width);
}

#endif
