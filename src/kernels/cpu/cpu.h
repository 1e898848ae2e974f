/*
 * Declarations that the CPU's tables share.
 */
#ifndef SP_KERNELS_CPU_H
#define SP_KERNELS_CPU_H

#include "kernels/backend.h"

extern const struct sp_backend sp_cpu_bf16;
/* Runs every kernel through f32 copies of whole arrays: the reference for tests of the bf16
 * kernels. */
extern const struct sp_backend sp_cpu_bf16_emulated;

void sp_cpu_add_f32(const struct sp_backend *k, size_t n, const float *x, float *y);
void sp_cpu_add_parts(const struct sp_backend *k, size_t n, int parts, const void *const *x,
                      void *y);
void sp_cpu_add_at_random(const struct sp_backend *k, size_t n, uint32_t stream, const float *x,
                          void *y);
void sp_cpu_add_to_f32(const struct sp_backend *k, size_t n, const void *x, float *y);
void sp_cpu_sumsq(const struct sp_backend *k, size_t n, const float *g, double *sum);
void sp_cpu_clear(const struct sp_backend *k, size_t bytes, void *y);
void sp_cpu_copy(const struct sp_backend *k, size_t bytes, const void *x, void *y);
void sp_cpu_copy_rows(const struct sp_backend *k, size_t rows, size_t bytes, const void *x,
                      size_t from, void *y, size_t to);
size_t sp_cpu_first_not_finite(const struct sp_backend *k, enum sp_dtype dtype, const void *x,
                               size_t n);

/* Attention of kernels.h on tensors of a type; in the backward, `first` is as in backend.h. */
void sp_cpu_attention(enum sp_dtype type, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse);
void sp_cpu_attention_merge(enum sp_dtype type, const struct sp_attention *at, const void *part,
                            const float *part_lse, float *o, float *lse);
void sp_cpu_attention_bwd(enum sp_dtype type, const struct sp_attention *at, const void *q,
                          const void *const *kv, const void *o, const float *lse, const void *d_o,
                          void *dq, void *const *dkv, bool first);

void sp_cpu_adamw(const struct sp_backend *k, size_t n, const struct sp_adamw *hp, float *w,
                  float *g, float *m, float *v, void *w_low);

/* vocabulary.c */
void sp_cpu_logit_stats(const struct sp_backend *k, int T, int h, int V, int rows, const void *x,
                        const void *w, const int32_t *targets, float *stats, void *scratch);
void sp_cpu_merge_logits(const struct sp_backend *k, int T, int n, const float *const *stats,
                         float *lse, double *loss);
void sp_cpu_merge_stats(const struct sp_backend *k, int T, int n, const float *const *stats,
                        float *merged);
void sp_cpu_logits_bwd(const struct sp_backend *k, int T, int h, int V, int rows, const void *x,
                       const void *w, const int32_t *targets, const float *lse, float scale,
                       bool kept, void *dx, float *dw, void *scratch);

/* z(V) = scale (softmax(z) - onehot) if `gradient`, else z is lost. Returns -log
 * softmax(z)[target]. */
double sp_row_loss(int V, int target, bool gradient, float scale, float *z);

/* linear_bf16.c, cross_entropy_bf16.c */
#define K const struct sp_backend *k
void sp_bf16_linear(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                    void *y, int ldy);
void sp_bf16_linear_add(K, int T, int in, int out, const void *x, const void *w, const void *bias,
                        const void *residual, void *y);
void sp_bf16_linear_act(K, enum sp_activation act, int T, int in, int out, const void *x,
                        const void *w, const void *bias, void *u, void *g);
void sp_bf16_linear_dx(K, int T, int in, int out, const void *dy, int lddy, const void *w, void *dx,
                       bool accumulate);
void sp_bf16_linear_dx_act(K, enum sp_activation act, int T, int in, int out, const void *dy,
                           const void *w, const void *u, void *du);
void sp_bf16_linear_dw(K, int T, int in, int out, const void *x, const void *dy, int lddy,
                       float *dw, float *dbias);
void sp_bf16_cross_entropy(K, int T, int h, int V, int rows, const void *x, const void *w,
                           const int32_t *targets, float scale, double *loss, void *dx, float *dw,
                           void *scratch);
#undef K

/* A table of the file's own functions, named as their places in the table; products have
 * `products` before the name; the functions declared above complete it. */
#define SP_CPU_TABLE(type, products)                                                               \
    {                                                                                              \
        .name = "cpu", .dtype = type, .linear = products##linear,                                  \
        .linear_add = products##linear_add, .linear_act = products##linear_act,                    \
        .linear_dx = products##linear_dx, .linear_dx_act = products##linear_dx_act,                \
        .linear_dw = products##linear_dw, .norm = norm, .norm_apply = norm_apply,                  \
        .norm_bwd = norm_bwd, .rope = rope, .attention = attention,                                \
        .attention_merge = attention_merge, .attention_bwd = attention_bwd, .act = act,            \
        .gated = gated, .gated_bwd = gated_bwd, .embed = embed, .embed_bwd = embed_bwd,            \
        .cross_entropy = products##cross_entropy, .logit_stats = sp_cpu_logit_stats,               \
        .merge_logits = sp_cpu_merge_logits, .merge_stats = sp_cpu_merge_stats,                    \
        .logits_bwd = sp_cpu_logits_bwd, .add = add, .round = round_to, .adamw = sp_cpu_adamw,     \
        .add_f32 = sp_cpu_add_f32, .add_parts = sp_cpu_add_parts,                                  \
        .add_at_random = sp_cpu_add_at_random, .add_to_f32 = sp_cpu_add_to_f32,                    \
        .sumsq = sp_cpu_sumsq, .clear = sp_cpu_clear, .copy = sp_cpu_copy,                         \
        .copy_rows = sp_cpu_copy_rows, .first_not_finite = sp_cpu_first_not_finite,                \
    }

#endif
