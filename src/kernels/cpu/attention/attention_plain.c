/* Tiles of attention for any machine: the compiler's vectors of 4 lanes. */
#include "kernels/cpu/attention/attention_path.h"
#include "kernels/cpu/vec.h"

#define SP_TARGET
#define SP_PAIR 1
#define SP_PATH sp_attention_plain
#define SP_PATH_NAME "plain"
#define SP_LANES 4
#define SP_BLOCK_VECTORS 2
#define V_INLINE SP_INLINE

typedef float vec __attribute__((vector_size(16), may_alias));
typedef float unaligned_vec __attribute__((vector_size(16), may_alias, aligned(4)));
typedef int32_t ints __attribute__((vector_size(16)));
typedef uint32_t bits __attribute__((vector_size(16)));

#define v_zero() ((vec){0, 0, 0, 0})
#define v_load(p) ((vec) * (const unaligned_vec *)(const void *)(p))
#define v_store(p, v) (*(unaligned_vec *)(void *)(p) = (unaligned_vec)(v))
#define v_add(a, b) ((a) + (b))
#define v_sub(a, b) ((a) - (b))
#define v_mul(a, b) ((a) * (b))
#define v_fma(a, b, c) ((a) * (b) + (c))
#define v_fms(a, b, c) ((a) * (b) - (c))
#define v_unpack_low(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define v_unpack_high(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define v_pairs_low(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define v_pairs_high(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#define v_word(p) v_all(sp_from_bits(*(p)))
#define v_words(p) v_load(p)
#define v_quads(p, ld) ((void)(ld), v_load(p))

V_INLINE vec v_all(float x)
{
    return (vec){x, x, x, x};
}

V_INLINE vec v_select(ints mask, vec a, vec b)
{
    return (vec)(((ints)a & mask) | ((ints)b & ~mask));
}

/* b where either is a NaN, as x86 has it */
V_INLINE vec v_max(vec a, vec b)
{
    return v_select((ints)(a > b), a, b);
}

/* Adding 1.5 2^23 leaves an integer. */
V_INLINE vec v_round(vec a)
{
    vec big = v_all(12582912.0f);

    return (a + big) - big;
}

/* n = round(x): where x is at least `least`, it is an exponent. */
V_INLINE vec v_power(vec p, vec n, vec x, float least)
{
    bits power = (bits)(n + v_all(12582912.0f)) << 23;

    return v_select((ints)(x < v_all(least)), v_zero(), p * (vec)(power + 0x3f800000u));
}

V_INLINE vec v_fill_below(vec v, int n, float fill)
{
    const ints lane = {0, 1, 2, 3};
    ints limit = {n, n, n, n};

    return v_select((ints)(lane < limit), v_all(fill), v);
}

#include "kernels/cpu/attention/attention_simd.h"

static bool supported(void)
{
    return true;
}
