/* Tiles of attention with AVX2 and FMA: 12 accumulators of 8 lanes. */
#include "kernels/cpu/attention/attention_path.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include "kernels/cpu/vec.h"
#include <immintrin.h>

#define SP_TARGET __attribute__((target("avx2,fma")))
#define SP_PAIR 1
#define SP_PATH sp_attention_avx2
#define SP_PATH_NAME "avx2"
#define SP_LANES 8
#define SP_BLOCK_VECTORS 2 /* 6 x 2 accumulators, 2 vectors of B, 1 of A, of 16 registers */
#define V_INLINE SP_INLINE SP_TARGET

typedef __m256 vec;

#define v_zero() _mm256_setzero_ps()
#define v_all(x) _mm256_set1_ps(x)
#define v_load(p) _mm256_loadu_ps(p)
#define v_store(p, v) _mm256_storeu_ps(p, v)
#define v_add(a, b) _mm256_add_ps(a, b)
#define v_sub(a, b) _mm256_sub_ps(a, b)
#define v_mul(a, b) _mm256_mul_ps(a, b)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_fms(a, b, c) _mm256_fmsub_ps(a, b, c)
#define v_max(a, b) _mm256_max_ps(a, b)
#define v_round(a) _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_unpack_low(a, b) _mm256_unpacklo_ps(a, b)
#define v_unpack_high(a, b) _mm256_unpackhi_ps(a, b)
#define v_pairs_low(a, b) _mm256_shuffle_ps(a, b, 0x44)
#define v_pairs_high(a, b) _mm256_shuffle_ps(a, b, 0xee)
#define v_word(p) _mm256_castsi256_ps(_mm256_set1_epi32((int)*(p)))
#define v_words(p) _mm256_loadu_ps((const float *)(const void *)(p))

V_INLINE vec v_power(vec p, vec n, vec x, float least)
{
    __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    vec scaled = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));

    return _mm256_and_ps(scaled, _mm256_cmp_ps(x, _mm256_set1_ps(least), _CMP_NLT_UQ));
}

V_INLINE vec v_fill_below(vec v, int n, float fill)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256 below = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));

    return _mm256_blendv_ps(v, _mm256_set1_ps(fill), below);
}

V_INLINE vec v_quads(const uint32_t *p, size_t ld)
{
    vec v = _mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)p));

    return _mm256_insertf128_ps(v, _mm_loadu_ps((const float *)(const void *)(p + 4 * ld)), 1);
}

#include "kernels/cpu/attention/attention_simd.h"

static bool supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#include "kernels/cpu/attention/attention_absent.h"
SP_ATTENTION_ABSENT(sp_attention_avx2, "avx2", 1)
#endif
