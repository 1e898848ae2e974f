/*
 * Declarations that the CPU's tables share.
 */
#ifndef SP_KERNELS_CPU_H
#define SP_KERNELS_CPU_H

#include "kernels/backend.h"

/* Runs every kernel through f32 copies of whole arrays: the reference for tests of the bf16
 * kernels. */
extern const struct sp_backend sp_cpu_bf16_emulated;

void sp_cpu_add_at_random(const struct sp_backend *k, size_t n, uint32_t stream, const float *x,
                          void *y);
void sp_cpu_add_to_f32(const struct sp_backend *k, size_t n, const void *x, float *y);
void sp_cpu_clear(const struct sp_backend *k, size_t bytes, void *y);
void sp_cpu_copy(const struct sp_backend *k, size_t bytes, const void *x, void *y);
void sp_cpu_copy_rows(const struct sp_backend *k, const struct sp_row_copy *c, const void *x,
                      void *y);

/* Attention of kernels.h on tensors of a type. */
void sp_cpu_attention(enum sp_dtype type, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse);
void sp_cpu_attention_merge(enum sp_dtype type, const struct sp_attention *at, const void *part,
                            const float *part_lse, float *o, float *lse);
void sp_cpu_attention_bwd(enum sp_dtype type, const struct sp_attention *at,
                          const struct sp_attention_bwd *b);

/* vocabulary.c */
void sp_cpu_logit_stats(const struct sp_backend *k, const struct sp_logits *l, float *stats);
void sp_cpu_merge_logits(const struct sp_backend *k, int T, int n, const float *const *stats,
                         float *lse, double *loss);
void sp_cpu_merge_stats(const struct sp_backend *k, int T, int n, const float *const *stats,
                        float *merged);
void sp_cpu_logits_bwd(const struct sp_backend *k, const struct sp_logits *l, const float *lse,
                       bool kept, void *dx, float *dw);

/* z(V) = scale (softmax(z) - onehot) if `gradient`, else z is lost. Returns -log
 * softmax(z)[target]. */
double sp_row_loss(int V, int target, bool gradient, float scale, float *z);

/* linear_bf16.c, cross_entropy_bf16.c */
#define K const struct sp_backend *k
void sp_bf16_linear(K, const struct sp_linear *l, const void *x, void *y);
void sp_bf16_linear_add(K, const struct sp_linear *l, const void *x, const void *residual, void *y);
void sp_bf16_linear_act(K, const struct sp_linear *l, enum sp_activation act, const void *x,
                        void *u, void *g);
void sp_bf16_linear_dx(K, const struct sp_linear *l, const void *dy, void *dx, bool accumulate);
void sp_bf16_linear_dx_act(K, const struct sp_linear *l, enum sp_activation act, const void *dy,
                           const void *u, void *du);
void sp_bf16_linear_dw(K, const struct sp_linear *l, const void *x, const void *dy, float *dw,
                       float *dbias);
void sp_bf16_cross_entropy(K, const struct sp_logits *l, double *loss, void *dx, float *dw);
#undef K

#endif
