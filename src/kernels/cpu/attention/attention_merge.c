/*
 * Two halves of one attention, each over keys of its own, as one:
 *
 *   m = max(l1, l2),  l = m + log(e^(l1 - m) + e^(l2 - m)),  O = O1 e^(l1 - l) + O2 e^(l2 - l)
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include <math.h>

SP_INLINE void scale_and_add(enum sp_dtype type, size_t d, float a, float b, const void *part,
                             float *o)
{
#pragma omp simd
    for (size_t i = 0; i < d; i++)
        o[i] = a * o[i] + b * sp_load(type, part, i);
}

SP_CLONES static void merge_head(enum sp_dtype type, size_t d, float a, float b, const void *part,
                                 float *o)
{
    if (type == SP_BF16)
        scale_and_add(SP_BF16, d, a, b, part, o);
    else
        scale_and_add(SP_F32, d, a, b, part, o);
}

void sp_cpu_attention_merge(const struct sp_backend *k, const struct sp_attention *at,
                            const void *part, const float *part_lse, float *o, float *lse)
{
    enum sp_dtype type = k->dtype;
    size_t d = (size_t)at->head_dim;

#pragma omp parallel for
    for (int row = 0; row < at->batch * at->q_len; row++)
        for (int head = 0; head < at->heads; head++) {
            size_t stat = (size_t)(row / at->q_len * at->heads + head) * (size_t)at->q_len +
                          (size_t)(row % at->q_len);
            size_t from = ((size_t)row * (size_t)at->heads + (size_t)head) * d;
            float l1 = lse[stat], l2 = part_lse[stat], most = fmaxf(l1, l2);
            float l = most + logf(expf(l1 - most) + expf(l2 - most));

            merge_head(type, d, expf(l1 - l), expf(l2 - l), sp_from(type, part, from), o + from);
            lse[stat] = l;
        }
}

void sp_attention_merge(const struct sp_attention *at, const float *part, const float *part_lse,
                        float *o, float *lse)
{
    sp_cpu_attention_merge(sp_cpu_backend(SP_F32), at, part, part_lse, o, lse);
}
