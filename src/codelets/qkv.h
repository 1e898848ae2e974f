/*
 * The QKV product of a layer on plain arrays: `pre` runs it with the norm, `qkv` next to attention.
 * Weights of q and kv are rows of one matrix: kv's follow q's.
 */
#ifndef SP_QKV_H
#define SP_QKV_H

#include "codelets/heads.h"
#include "kernels/backend.h"
#include "model/documents.h"

/* Llama style: rotates q and the keys by their positions in their documents, or rotates them
 * back. */
static inline void sp_qkv_rotate(const struct sp_backend *k, const struct sp_shape *sh,
                                 const struct sp_documents *d, void *q, void *kv, bool inverse)
{
    const struct sp_model *m = &sh->model;
    struct sp_segment s = {0};

    if (m->arch != SP_ARCH_LLAMA)
        return;
    while (sp_segment_next(sh, d, &s)) {
        k->rope(k,
                &(struct sp_rotation){.batch = s.sequences,
                                      .len = s.len,
                                      .heads = m->heads,
                                      .d = m->head_dim,
                                      .ld = sh->q_width,
                                      .pos0 = s.position,
                                      .rope = &m->rope},
                inverse, sp_skip(sh, q, s.row * (size_t)sh->q_width));
        if (kv)
            k->rope(k,
                    &(struct sp_rotation){.batch = s.sequences,
                                          .len = s.len,
                                          .heads = m->kv_heads,
                                          .d = m->head_dim,
                                          .ld = sh->kv_width,
                                          .pos0 = s.position,
                                          .rope = &m->rope},
                    inverse, sp_skip(sh, kv, s.row * (size_t)sh->kv_width));
    }
}

/* q(T,q) = n1 Wq^T + bq, kv(T,kv) = n1 Wkv^T + bkv, rotated; kv NULL: only q. `scratch` has
 * sp_heads_scratch elements. */
static inline void sp_qkv_forward(const struct sp_backend *k, const struct sp_shape *sh,
                                  const struct sp_documents *d, const void *n1, void *w,
                                  void *scratch, void *q, void *kv)
{
    int T = sh->rows, h = sh->model.hidden;

    if (sh->model.qk_norm) {
        sp_heads_forward(k, sh, n1, w, scratch, q, kv);
        sp_qkv_rotate(k, sh, d, q, kv, false);
        return;
    }
    k->linear(k,
              &(struct sp_linear){.T = T,
                                  .in = h,
                                  .out = sh->q_width,
                                  .w = sp_weight_at(sh, w, sh->qkv),
                                  .bias = sp_weight_at(sh, w, sh->qkv_bias)},
              n1, q);
    if (kv)
        k->linear(k,
                  &(struct sp_linear){.T = T,
                                      .in = h,
                                      .out = sh->kv_width,
                                      .w = sp_weight_at(sh, w, sp_kv_rows(sh)),
                                      .bias = sp_weight_at(sh, w, sp_kv_bias(sh))},
                  n1, kv);
    sp_qkv_rotate(k, sh, d, q, kv, false);
}

/* dn1(T,h) = dq Wq + dkv Wkv; dq and dkv are first brought back to the product's output, in
 * place. If heads have norms, this reads n1 and adds to the gradients of their gains. */
static inline void sp_qkv_backward(const struct sp_backend *k, const struct sp_shape *sh,
                                   const struct sp_documents *d, const void *n1, void *scratch,
                                   float *gains, void *dq, void *dkv, void *w, void *dn1)
{
    int T = sh->rows, h = sh->model.hidden;

    sp_qkv_rotate(k, sh, d, dq, dkv, true);
    if (sh->model.qk_norm)
        sp_heads_backward(k, sh, n1, w, scratch, dq, dkv, gains);
    k->linear_dx(
        k,
        &(struct sp_linear){.T = T, .in = h, .out = sh->q_width, .w = sp_weight_at(sh, w, sh->qkv)},
        dq, dn1, false);
    k->linear_dx(
        k,
        &(struct sp_linear){
            .T = T, .in = h, .out = sh->kv_width, .w = sp_weight_at(sh, w, sp_kv_rows(sh))},
        dkv, dn1, true);
}

/* dWq += dq^T n1, dWkv += dkv^T n1, with gradients that sp_qkv_backward brought back; biases
 * too. */
static inline void sp_qkv_wgrad(const struct sp_backend *k, const struct sp_shape *sh,
                                const void *n1, const void *dq, const void *dkv, float *g)
{
    int T = sh->rows, h = sh->model.hidden;

    k->linear_dw(k, &(struct sp_linear){.T = T, .in = h, .out = sh->q_width}, n1, dq,
                 sp_at(g, sh->qkv), sp_at(g, sh->qkv_bias));
    k->linear_dw(k, &(struct sp_linear){.T = T, .in = h, .out = sh->kv_width}, n1, dkv,
                 sp_at(g, sp_kv_rows(sh)), sp_at(g, sp_kv_bias(sh)));
}

static inline double sp_qkv_flops(const struct sp_shape *sh)
{
    return sh->rows * sp_product_flops(&sh->model, SP_ROLE_QKV);
}

#endif
