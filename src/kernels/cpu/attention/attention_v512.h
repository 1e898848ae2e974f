/* Vectors of 16 floats, for attention_simd.h; the includer has set SP_TARGET. */
#ifndef SP_KERNELS_ATTENTION_V512_H
#define SP_KERNELS_ATTENTION_V512_H

#include "kernels/cpu/vec.h"
#include <immintrin.h>

#define SP_LANES 16
#define SP_BLOCK_VECTORS 4 /* 6 x 4 accumulators, 4 vectors of B, 1 of A, of 32 registers */
#define V_INLINE SP_INLINE SP_TARGET

typedef __m512 vec;

#define v_zero() _mm512_setzero_ps()
#define v_all(x) _mm512_set1_ps(x)
#define v_load(p) _mm512_loadu_ps(p)
#define v_store(p, v) _mm512_storeu_ps(p, v)
#define v_add(a, b) _mm512_add_ps(a, b)
#define v_sub(a, b) _mm512_sub_ps(a, b)
#define v_mul(a, b) _mm512_mul_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_fms(a, b, c) _mm512_fmsub_ps(a, b, c)
#define v_max(a, b) _mm512_max_ps(a, b)
#define v_round(a) _mm512_roundscale_ps(a, 8)
#define v_unpack_low(a, b) _mm512_unpacklo_ps(a, b)
#define v_unpack_high(a, b) _mm512_unpackhi_ps(a, b)
#define v_pairs_low(a, b) _mm512_shuffle_ps(a, b, 0x44)
#define v_pairs_high(a, b) _mm512_shuffle_ps(a, b, 0xee)

/* A word in all lanes, and words as they lie. */
#define v_word(p) _mm512_castsi512_ps(_mm512_set1_epi32((int)*(p)))
#define v_words(p) _mm512_loadu_ps((const float *)(const void *)(p))

/* p 2^n, 0 where x < least; x = NaN stays. */
#define v_power(p, n, x, least)                                                                    \
    _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(least), _CMP_NLT_UQ), p, n)

/* v, with `fill` in lanes 0 .. n-1. */
V_INLINE vec v_fill_below(vec v, int n, float fill)
{
    __mmask16 keep = (__mmask16)(n <= 0 ? 0xffff : n >= 16 ? 0 : 0xffff << n);

    return _mm512_mask_blend_ps(keep, _mm512_set1_ps(fill), v);
}

/* Four words each of every fourth row, ld words apart. */
V_INLINE vec v_quads(const uint32_t *p, size_t ld)
{
    vec v = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(const void *)p));

    v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(p + 4 * ld)), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(p + 8 * ld)), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(const void *)(p + 12 * ld)), 3);
}

#endif
