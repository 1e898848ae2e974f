/*
 * The mathematics, in plain C on float arrays: no StarPU, no MPI, no global state.
 *
 * Letters: T = b*s rows (tokens) of a micro-batch or slice, h hidden, f MLP width, V vocabulary,
 * a query heads, g key/value heads, d head size. Arrays are row-major and dense unless a leading
 * dimension is given. Weights are [out, in]. "=" overwrites, "+=" accumulates; every output says
 * which. Kernels use the calling thread's OpenMP team and give the same bits for one team size.
 */
#ifndef SP_KERNELS_H
#define SP_KERNELS_H

#include "kernels/activation.h"
#include "kernels/rope.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- products ------------------------------------------------------------------------- */

/* C = alpha op(A) op(B) + beta C, op(A) m x k, op(B) k x n; beta 0 never reads C. */
struct sp_gemm {
    bool trans_a, trans_b;
    int m, n, k;
    int lda, ldb, ldc;
    float alpha, beta;
};

void sp_gemm(const struct sp_gemm *g, const float *A, const float *B, float *C);

/* Name and version of the library behind sp_gemm. */
const char *sp_gemm_backend(void);

/* A linear layer on T rows. Arrays that a structure of this file names are f32 for the functions
 * here, and of the backend's type for those of backend.h. */
struct sp_linear {
    int T, in, out;
    const void *w;    /* (out,in) */
    const void *bias; /* (out), or NULL */
    int ld;           /* leading dimension of y or dy; 0: out */
    bool first;       /* dw = instead of += */
};

static inline int sp_linear_ld(const struct sp_linear *l)
{
    return l->ld ? l->ld : l->out;
}

/* y(T,out) = x(T,in) w(out,in)^T + bias(out) */
void sp_linear(const struct sp_linear *l, const float *x, float *y);

/* y(T,out) = residual(T,out) + x(T,in) w(out,in)^T + bias(out); y is dense. */
void sp_linear_add(const struct sp_linear *l, const float *x, const float *residual, float *y);

/* dx(T,in) = dy(T,out) w; `accumulate`: += instead. */
void sp_linear_dx(const struct sp_linear *l, const float *dy, float *dx, bool accumulate);

/* dw(out,in) += dy^T x; dbias(out) += column sums of dy, if not NULL. Neither w nor bias is read. */
void sp_linear_dw(const struct sp_linear *l, const float *x, const float *dy, float *dw,
                  float *dbias);

/* ---- norms ---------------------------------------------------------------------------- */

/*
 * LayerNorm: y = (x - mean) * rstd * gain + bias, rstd = 1/sqrt(var + eps).
 * RMSNorm (bias == NULL and rms): y = x * rstd * gain, rstd = 1/sqrt(mean(x^2) + eps).
 * stats(T,2) = mean (0 for RMSNorm), rstd; may be NULL.
 */
struct sp_norm {
    bool rms;
    int T, h;
    float eps;        /* of sp_norm alone */
    const void *gain; /* (h) */
    const void *bias; /* (h), or NULL; the backward does not read it */
};

void sp_norm(const struct sp_norm *n, const float *x, float *y, float *stats);

/* y again from x and stats (recompute). */
void sp_norm_apply(const struct sp_norm *n, const float *x, const float *stats, float *y);

/* dx(T,h) = dres + norm'(dy), dgain(h) +=, dbias(h) += */
struct sp_norm_bwd {
    const void *dy;
    const void *dres; /* the residual gradient; may be NULL (0) or alias dx */
    void *dx;
    float *dgain; /* NULL: input gradient only */
    float *dbias; /* NULL for RMSNorm */
};

void sp_norm_bwd(const struct sp_norm *n, const float *x, const float *stats,
                 const struct sp_norm_bwd *g);

/* ---- rotary positions ------------------------------------------------------------------ */

/*
 * Rotates `heads` heads of size d in rows of x (leading dimension ld), in place, the halves
 * convention of Hugging Face: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), angle =
 * (pos0 + t (1 + skip)) / theta^(2i/d), stretched as `rope` says, for row t of each of `batch`
 * sequences of `len` rows.
 * `inverse` rotates back, which is also the backward.
 */
struct sp_rotation {
    int batch, len, heads, d, ld, pos0;
    const struct sp_rope *rope;
    int skip; /* positions between those of two rows */
};

void sp_rope(const struct sp_rotation *r, bool inverse, float *x);

/* ---- attention ------------------------------------------------------------------------ */

/*
 * Causal attention of one slice of queries, rows q_pos .. q_pos+q_len-1 of each sequence,
 * over key/value slices 0..n_kv-1, rows from 0 on in order: as far as the queries, further (what lies after a query
 * is masked) or less far (what is left out is merged with it: sp_attention_merge).
 *
 * q, o, do, dq: (batch, q_len, a*d), leading dimension a*d.
 * kv[j]: (batch, kv_len[j], 2*g*d): keys of all g heads, then values, in each row; dkv alike.
 * lse: (batch, a, q_len), log-sum-exp of the scaled scores.
 * Query head i uses key/value head i / (a/g).
 */
struct sp_attention {
    int batch, heads, kv_heads, head_dim;
    float scale; /* 1/sqrt(d) */
    int q_len, q_pos;
    int n_kv;
    const int *kv_len;
};

/* O = softmax(scale Q K^T + causal) V, lse kept; never stores more than a tile of scores. */
void sp_attention(const struct sp_attention *at, const float *q, const float *const *kv, float *o,
                  float *lse);

/* Attention over some keys, part and part_lse, with that over others: of O and lse each, for all of at's queries
 * new lse = log(e^lse + e^part_lse), O = O e^(lse - new lse) + part e^(part_lse - new lse). */
void sp_attention_merge(const struct sp_attention *at, const float *part, const float *part_lse,
                        float *o, float *lse);

/*
 * Gradient: D = rowsum(dO o O), P = exp(S - lse), dV += P^T dO, dS = P o (dO V^T - D),
 * dQ = scale dS K, dK += scale dS^T Q. dq is written (=), dkv[j] accumulated (+=).
 */
struct sp_attention_bwd {
    const void *q;
    const void *const *kv;
    const void *o;
    const float *lse;
    const void *d_o;
    void *dq;
    void *const *dkv;
    bool first; /* dkv = instead of += */
};

void sp_attention_bwd(const struct sp_attention *at, const struct sp_attention_bwd *b);

/* ---- activations ----------------------------------------------------------------------- */

/* y = act(u), n elements. */
void sp_activation(enum sp_activation kind, size_t n, const float *u, float *y);
/* du = dy act'(u); du may alias dy or u. */
void sp_activation_bwd(enum sp_activation kind, size_t n, const float *u, const float *dy,
                       float *du);

/* u(T,2f) holds gate then up in each row: y(T,f) = act(gate) * up. */
struct sp_gated {
    enum sp_activation act;
    int T, f;
};

void sp_gated(const struct sp_gated *g, const float *u, float *y);
/* du(T,2f) = ; du may alias u. */
void sp_gated_bwd(const struct sp_gated *g, const float *u, const float *dy, float *du);

/* y += x, n elements. */
void sp_add(size_t n, const float *x, float *y);

/* ---- embedding and loss ---------------------------------------------------------------- */

/* x(batch*len,h) = table[ids] (+ positions[pos0 + t (1 + skip)], if not NULL). */
struct sp_embed {
    int batch, len, h;
    int pos0; /* before 0 if the first rows of the table are elsewhere */
    int here; /* rows of `positions`; another device has those of other positions. 0: all are */
    const int32_t *ids;
    int skip; /* positions between those of two rows */
};

/* The position of row t of a sequence. */
static inline int sp_embed_position(const struct sp_embed *e, int t)
{
    return e->pos0 + t * (1 + e->skip);
}

/* The positions that are rows of the table: those of t = *first .. *end-1. */
static inline void sp_embed_here(const struct sp_embed *e, int *first, int *end)
{
    int after = (e->here - e->pos0 + e->skip) / (1 + e->skip);

    *first = e->pos0 < 0 ? (e->skip - e->pos0) / (1 + e->skip) : 0;
    *end = !e->here || after > e->len ? e->len : e->here > e->pos0 ? after : 0;
}

void sp_embed(const struct sp_embed *e, const float *table, const float *positions, float *x);
/* dtable(V,h) +=, dpositions += (if not NULL). Deterministic: rows in order. */
void sp_embed_bwd(const struct sp_embed *e, const float *dx, float *dtable, float *dpositions);

/* The target of a token that is not predicted: its row counts for no loss and has no gradient. */
enum { SP_NO_TARGET = -2 };

/*
 * Logits and cross-entropy, `rows` rows at a time so that only rows x V logits ever live:
 *   loss = sum over T rows of -log softmax(x w^T)[target];   *loss += (double)
 *   dx(T,h) = scale * (softmax - onehot) w     (NULL: not computed)
 *   dw(V,h) += scale * (softmax - onehot)^T x  (NULL: not computed)
 */
struct sp_logits {
    int T, h, V, rows;
    const void *x, *w; /* (T,h), (V,h) */
    const int32_t *targets;
    float scale;   /* of gradients */
    void *scratch; /* rows * V floats; of a backend, rows * sp_logits_ld(V) elements */
};

void sp_cross_entropy(const struct sp_logits *l, double *loss, float *dx, float *dw);

/* ---- optimizer ------------------------------------------------------------------------- */

/* *sum += sum of g^2, in double, in an order that depends on n alone. */
void sp_sumsq(size_t n, const float *g, double *sum);

struct sp_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; /* 1 - beta1^t, 1 - beta2^t */
    float grad_scale;   /* clipping factor */
};

/*
 * AdamW as in PyTorch: w -= lr wd w; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 * w -= lr (m/bias1) / (sqrt(v/bias2) + eps). Then g = 0, ready for the next step.
 */
struct sp_adamw_arrays {
    size_t n;
    float *w, *g, *m, *v;
    bool keeps_g; /* g stays as it is */
    void *low;    /* (n) = the new weights, rounded to the backend's type, if not NULL */
};

void sp_adamw(const struct sp_adamw *hp, const struct sp_adamw_arrays *a);

/* ---- counting -------------------------------------------------------------------------- */

/* Floating-point operations: 2mnk of a product; causal attention counts the visible half. */
double sp_flops_linear(double T, double in, double out);
/* Forward; the backward is 2.5 times. n_kv 0: all keys up to each query are there. */
double sp_flops_attention(const struct sp_attention *at);

#endif
