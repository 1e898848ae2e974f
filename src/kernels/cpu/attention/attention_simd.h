/*
 * A path of attention_path.h, for whatever vectors: included once by each attention_ISA.c, after its
 * vectors (vec, v_*), with SP_PAIR, SP_PATH and SP_PATH_NAME.
 */
#include "kernels/cpu/attention/attention_simd_product.h"
#include "kernels/cpu/attention/attention_simd_softmax.h"
#include "kernels/cpu/attention/attention_simd_pack.h"

static bool supported(void);

const struct sp_attention_path SP_PATH = {
    .name = SP_PATH_NAME,
    .pair = SP_PAIR,
    .lanes = SP_LANES,
    .supported = supported,
    .pack = pack,
    .transpose = transpose,
#if SP_PAIR == 2
    .interleave = interleave,
#endif
    .product = product,
    .softmax = softmax,
    .gradient = gradient,
    .scale = scale_rows,
    .store = store,
};
