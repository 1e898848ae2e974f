/*
 * The kernels of the CPU's tables (kernels/backend.h), on tensors of the type of `k`. Kernels that
 * stream through memory compute in f32 registers and round once: a bf16 result is that of the f32
 * kernel on the widened inputs, rounded to the nearest.
 */
#ifndef SP_KERNELS_CPU_H
#define SP_KERNELS_CPU_H

#include "kernels/backend.h"

#define K const struct sp_backend *k

void sp_cpu_norm(K, const struct sp_norm *n, const void *x, void *y, float *stats);
void sp_cpu_norm_apply(K, const struct sp_norm *n, const void *x, const float *stats, void *y);
void sp_cpu_norm_bwd(K, const struct sp_norm *n, const void *x, const float *stats,
                     const struct sp_norm_bwd *g);

void sp_cpu_rope(K, const struct sp_rotation *r, bool inverse, void *x);
void sp_cpu_attention(K, const struct sp_attention *at, const void *q, const void *const *kv,
                      void *o, float *lse);
void sp_cpu_attention_merge(K, const struct sp_attention *at, const void *part,
                            const float *part_lse, float *o, float *lse);
void sp_cpu_attention_bwd(K, const struct sp_attention *at, const struct sp_attention_bwd *b);

void sp_cpu_activation(K, enum sp_activation act, size_t n, const void *u, void *y);
/* du = dy act'(u); du may alias dy or u. In no table. */
void sp_cpu_activation_bwd(K, enum sp_activation act, size_t n, const void *u, const void *dy,
                           void *du);
void sp_cpu_gated(K, const struct sp_gated *g, const void *u, void *y);
void sp_cpu_gated_bwd(K, const struct sp_gated *g, const void *u, const void *dy, void *du);

void sp_cpu_embed(K, const struct sp_embed *e, const void *table, const void *positions, void *x);
void sp_cpu_embed_bwd(K, const struct sp_embed *e, const void *dx, float *dtable,
                      float *dpositions);

void sp_cpu_cross_entropy(K, const struct sp_logits *l, double *loss, void *dx, float *dw);
void sp_cpu_logit_stats(K, const struct sp_logits *l, float *stats);
void sp_cpu_merge_logits(K, int T, int n, const float *const *stats, float *lse, double *loss);
void sp_cpu_merge_stats(K, int T, int n, const float *const *stats, float *merged);
void sp_cpu_logits_bwd(K, const struct sp_logits *l, const float *lse, bool kept, void *dx,
                       float *dw);

void sp_cpu_add(K, size_t n, const void *x, void *y);
void sp_cpu_add_parts(K, size_t n, int parts, const void *const *x, void *y);
void sp_cpu_add_at_random(K, size_t n, uint32_t stream, const float *x, void *y);
void sp_cpu_add_to_f32(K, size_t n, const void *x, float *y);
void sp_cpu_adamw(K, const struct sp_adamw *hp, const struct sp_adamw_arrays *a);
void sp_cpu_clear(K, size_t bytes, void *y);
void sp_cpu_copy(K, size_t bytes, const void *x, void *y);
void sp_cpu_copy_rows(K, const struct sp_row_copy *c, const void *x, void *y);

/* linear_bf16.c */
void sp_bf16_linear(K, const struct sp_linear *l, const void *x, void *y);
void sp_bf16_linear_add(K, const struct sp_linear *l, const void *x, const void *residual, void *y);
void sp_bf16_linear_act(K, const struct sp_linear *l, enum sp_activation act, const void *x,
                        void *u, void *g);
void sp_bf16_linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate);
void sp_bf16_linear_dx_act(K, const struct sp_linear *l, enum sp_activation act, const void *dy,
                           const void *u, void *du);
void sp_bf16_linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                       float *dbias);

/* linear_fp8.c */
void sp_fp8_linear(K, const struct sp_linear *l, const void *x, void *y);
void sp_fp8_linear_add(K, const struct sp_linear *l, const void *x, const void *residual, void *y);
void sp_fp8_linear_act(K, const struct sp_linear *l, enum sp_activation act, const void *x, void *u,
                       void *g);
void sp_fp8_linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate);
void sp_fp8_linear_dx_act(K, const struct sp_linear *l, enum sp_activation act, const void *dy,
                          const void *u, void *du);
void sp_fp8_linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                      float *dbias);
#undef K

#endif
