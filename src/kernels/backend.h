/*
 * The kernels of one device on tensors of one element type. Codelets call them, so that a codelet's
 * body is written once for every device.
 *
 * `void *` is an array of the backend's element type: activations, their gradients, the weights
 * that products read. `float *` is f32 whatever the type: statistics, log-sum-exp, gradients of
 * parameters, the optimizer's state. Arithmetic is in f32, and each kernel rounds its results once,
 * to the nearest. Names, letters, layouts and results, written (=) or accumulated (+=), are those
 * of kernels.h; comments here tell only the differences.
 *
 * CPU kernels have done their work when they return; CUDA kernels are queued on the stream of the
 * backend, in order, and never wait.
 */
#ifndef SP_BACKEND_H
#define SP_BACKEND_H

#include "kernels/dtype.h"
#include "kernels/kernels.h"

struct sp_cuda; /* kernels/cuda/device/device.h */

/* Copies n rows of `bytes` each, which begin `from` bytes apart in x and `to` bytes in y. */
struct sp_row_copy {
    size_t n, bytes, from, to;
};

struct sp_backend {
    const char *name;       /* "cpu", "cuda" */
    enum sp_dtype dtype;    /* of elements */
    enum sp_dtype products; /* of a layer: the same, or SP_FP8 */
    struct sp_cuda *cuda;   /* stream, libraries and workspace; NULL on the CPU */

    /* ---- products: w in the backend's type, bias too; dw and dbias f32. In the table for fp8 they
     * round w, x and dy first: fp8.h ---- */
    void (*linear)(const struct sp_backend *k, const struct sp_linear *l, const void *x, void *y);
    void (*linear_add)(const struct sp_backend *k, const struct sp_linear *l, const void *x,
                       const void *residual, void *y);
    /* u(T,out) = x w^T + bias and g(T,out) = act(u), in one pass if the device can. */
    void (*linear_act)(const struct sp_backend *k, const struct sp_linear *l,
                       enum sp_activation act, const void *x, void *u, void *g);
    void (*linear_dx)(const struct sp_backend *k, const struct sp_linear *l, const void *dy,
                      void *dx, bool accumulate);
    /* du(T,in) = act'(u) o (dy(T,out) w): the gradient before the activation that fed w. */
    void (*linear_dx_act)(const struct sp_backend *k, const struct sp_linear *l,
                          enum sp_activation act, const void *dy, const void *u, void *du);
    void (*linear_dw)(const struct sp_backend *k, const struct sp_linear *l, const void *x,
                      const void *dy, float *dw, float *dbias);

    /* ---- norms ---- */
    void (*norm)(const struct sp_backend *k, const struct sp_norm *n, const void *x, void *y,
                 float *stats);
    void (*norm_apply)(const struct sp_backend *k, const struct sp_norm *n, const void *x,
                       const float *stats, void *y);
    void (*norm_bwd)(const struct sp_backend *k, const struct sp_norm *n, const void *x,
                     const float *stats, const struct sp_norm_bwd *g);

    /* ---- attention ---- */
    void (*rope)(const struct sp_backend *k, const struct sp_rotation *r, bool inverse, void *x);
    void (*attention)(const struct sp_backend *k, const struct sp_attention *at, const void *q,
                      const void *const *kv, void *o, float *lse);
    /* o is a sum of parts, in f32: it is rounded once, at its end */
    void (*attention_merge)(const struct sp_backend *k, const struct sp_attention *at,
                            const void *part, const float *part_lse, float *o, float *lse);
    void (*attention_bwd)(const struct sp_backend *k, const struct sp_attention *at,
                          const struct sp_attention_bwd *b);

    /* ---- activations ---- */
    void (*act)(const struct sp_backend *k, enum sp_activation act, size_t n, const void *u,
                void *y);
    void (*gated)(const struct sp_backend *k, const struct sp_gated *g, const void *u, void *y);
    void (*gated_bwd)(const struct sp_backend *k, const struct sp_gated *g, const void *u,
                      const void *dy, void *du);

    /* ---- embedding and loss ---- id < 0: another device has the row, which counts as 0 ---- */
    void (*embed)(const struct sp_backend *k, const struct sp_embed *e, const void *table,
                  const void *positions, void *x);
    void (*embed_bwd)(const struct sp_backend *k, const struct sp_embed *e, const void *dx,
                      float *dtable, float *dpositions);
    /* loss is in the memory of the device. A row whose target is SP_NO_TARGET adds nothing to the
     * loss and has no gradient, here and below. */
    void (*cross_entropy)(const struct sp_backend *k, const struct sp_logits *l, double *loss,
                          void *dx, float *dw);
    /*
     * The same if w has V rows of a larger vocabulary; a target outside them is -1. For n parts:
     *   logit_stats   stats(T,2) = log(sum e^z), z[target] (0 for -1, NaN for SP_NO_TARGET)
     *   merge_logits  lse(T) = log(sum over all); if not NULL, loss += sum of lse - z[target]
     *   merge_stats   merged(T,2) = the stats of all n as if they were one part
     *   logits_bwd    dx = and dw += of these V rows. `kept`: scratch still has the logits of
     *                 logit_stats, as it does if all rows were taken at a time; saves making them
     */
    void (*logit_stats)(const struct sp_backend *k, const struct sp_logits *l, float *stats);
    void (*merge_logits)(const struct sp_backend *k, int T, int n, const float *const *stats,
                         float *lse, double *loss);
    void (*merge_stats)(const struct sp_backend *k, int T, int n, const float *const *stats,
                        float *merged);
    void (*logits_bwd)(const struct sp_backend *k, const struct sp_logits *l, const float *lse,
                       bool kept, void *dx, float *dw);

    /* ---- parameters and memory ---- */
    void (*add_f32)(const struct sp_backend *k, size_t n, const float *x, float *y); /* y += x */
    void (*add)(const struct sp_backend *k, size_t n, const void *x, void *y);       /* y += x */
    /* y += the sum of all `parts` arrays x, rounded once */
    void (*add_parts)(const struct sp_backend *k, size_t n, int parts, const void *const *x,
                      void *y);
    /* y(n) += x(n) in f32, rounded up or down at random (sp_bf16_at_random), so that sums of
     * many such steps are right on average. Element i uses the i-th bits of the stream. An f32 y
     * is not rounded. */
    void (*add_at_random)(const struct sp_backend *k, size_t n, uint32_t stream, const float *x,
                          void *y);
    /* y(n) += x(n), of the backend's type */
    void (*add_to_f32)(const struct sp_backend *k, size_t n, const void *x, float *y);
    void (*sumsq)(const struct sp_backend *k, size_t n, const float *g, double *sum);
    /* The update of kernels.h on f32 weights. */
    void (*adamw)(const struct sp_backend *k, const struct sp_adamw *hp,
                  const struct sp_adamw_arrays *a);
    /* y(n) = x(n) in the backend's type */
    void (*round)(const struct sp_backend *k, size_t n, const float *x, void *y);
    void (*clear)(const struct sp_backend *k, size_t bytes, void *y);
    void (*copy)(const struct sp_backend *k, size_t bytes, const void *x, void *y);
    void (*copy_rows)(const struct sp_backend *k, const struct sp_row_copy *c, const void *x,
                      void *y);
    /* Index of the first of n elements that is not finite; n if all are. Waits; for debugging. */
    size_t (*first_not_finite)(const struct sp_backend *k, enum sp_dtype dtype, const void *x,
                               size_t n);
};

/* Elements from one row of logits to the next, whatever the vocabulary: whole words of 16 bytes,
 * since kernels read one at a time and fast products need rows of them. */
static inline int sp_logits_ld(int V)
{
    return (V + 7) / 8 * 8;
}

/* The unit that computes the CPU's bf16 products; DNNL_MAX_CPU_ISA in the environment can
 * exclude one. */
enum sp_bf16_unit {
    SP_BF16_THROUGH_F32, /* none: operands are widened, products are f32 */
    SP_BF16_AVX512,
    SP_BF16_AMX
};

#ifdef __cplusplus
extern "C" {
#endif
/* The CPU's table for a run in dtype; with f32 its functions are those of kernels.h. */
const struct sp_backend *sp_cpu_backend(enum sp_dtype dtype);
enum sp_bf16_unit sp_cpu_bf16_unit(void);
#ifdef __cplusplus
}
#endif

static inline const char *sp_bf16_unit_name(enum sp_bf16_unit unit)
{
    return unit == SP_BF16_AMX ? "AMX" : unit == SP_BF16_AVX512 ? "AVX512-BF16" : "emulated";
}

#endif
