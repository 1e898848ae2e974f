/* Pairs of bf16 in vectors of AVX-512, for attention_simd.h. VDPBF16PS takes denormal inputs for 0. */
#ifndef SP_KERNELS_ATTENTION_V512BF16_H
#define SP_KERNELS_ATTENTION_V512BF16_H

#include "kernels/cpu/attention/attention_v512.h"

#define SP_PAIR 2

#define v_dot(sum, a, b)                                                                           \
    _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b))

/* Words (low i, high i), rounded, of two vectors. */
V_INLINE void v_store_pairs(uint32_t *to, vec low, vec high)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);

    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(order, both));
}

/* 32 consecutive values, rounded. */
V_INLINE void v_store_row(uint32_t *to, vec first, vec second)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

SP_TARGET static void interleave(int rows, const uint32_t *tile, int ldt, uint32_t *out, int ldo)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));

    for (int r = 0; r < rows; r += 2, tile += 2 * ldt, out += ldo)
        for (int w = 0; 2 * w < ldo; w += SP_LANES) {
            __m512i a = _mm512_loadu_si512(tile + w), b = _mm512_loadu_si512(tile + ldt + w);

            _mm512_storeu_si512(out + 2 * w, _mm512_permutex2var_epi16(a, low, b));
            if (2 * w + SP_LANES < ldo)
                _mm512_storeu_si512(out + 2 * w + SP_LANES, _mm512_permutex2var_epi16(a, high, b));
        }
}

#endif
