/* Operands of products in fp8: the kernels that round them, and who calls these for a product. */
#ifndef SP_FP8_CUDA_H
#define SP_FP8_CUDA_H

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/gemm_cuda.h"

enum { SP_FP8_PARTS = 512 };

/* x(rows,width), bf16, rows ld apart, and what becomes of it. */
struct sp_fp8_operand {
    enum sp_fp8_format format;
    int rows, width, ld;
    const void *x;
    unsigned *part; /* room for SP_FP8_PARTS; so many are used: */
    int parts;
    bool transposed;
    float *reciprocal; /* in memory of the device */
    void *to;          /* aligned to 16 bytes */
    int ld_to;         /* whole words of 16 codes */
};

#ifdef __cplusplus
extern "C" {
#endif

/* part[parts] = largest magnitudes of parts of x, as bits of bf16. Sets o->parts. */
void sp_cuda_fp8_amax(const struct sp_backend *k, struct sp_fp8_operand *o);

/* From these: to(rows,ld_to) = the codes of x, or to(width,ld_to) = those of its transpose, zeros after them;
 * *reciprocal = what they are to be multiplied with. */
void sp_cuda_fp8_codes(const struct sp_backend *k, const struct sp_fp8_operand *o);

/* From these: to(rows,width) = x, rounded, as bf16. */
void sp_cuda_fp8_numbers(const struct sp_backend *k, const struct sp_fp8_operand *o);

/*
 * Turns a product of bf16 operands into that of the same operands in fp8, A in `format`, B in E4M3,
 * which it rounds into the workspace: nothing else may take that before the product is queued. A
 * product that the device does not have in fp8 stays one in bf16, of the rounded numbers, which
 * gives the same sums.
 */
void sp_fp8_product(const struct sp_backend *k, enum sp_fp8_format format, struct sp_product *p);

#ifdef __cplusplus
}
#endif

#endif
