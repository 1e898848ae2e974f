/*
 * A path of attention_path.h, for whatever vectors: included once by each attention_ISA.c, after its
 * vectors (vec, v_*), with SP_PAIR, SP_PATH and SP_PATH_NAME, and SP_PRODUCT and SP_ROWS where it has a product of its own.
 */
#ifndef SP_PRODUCT
#include "kernels/cpu/attention/attention_simd_product.h"
#define SP_PRODUCT product
#define SP_ROWS 1
#endif
#include "kernels/cpu/attention/attention_simd_softmax.h"
#include "kernels/cpu/attention/attention_simd_pack.h"

static bool supported(void);

const struct sp_attention_path SP_PATH = {
    .name = SP_PATH_NAME,
    .pair = SP_PAIR,
    .lanes = SP_LANES,
    .rows = SP_ROWS,
    .supported = supported,
    .pack = pack_rows,
    .transpose = transpose,
#if SP_PAIR == 2
    .interleave = interleave,
#endif
    .product = SP_PRODUCT,
    .softmax = softmax,
    .gradient = gradient,
    .scale = scale_rows,
    .store = store_rows,
};
