/*
 * Definitions that the vectorised loops share. Hot loops live in static functions marked SP_CLONES,
 * compiled once per instruction set and chosen at load time, so that one binary runs on any x86-64.
 * A parallel region's outlined body does not inherit the clone's target: keep the loop in the
 * cloned function, called from the region on a share of the data.
 */
#ifndef SP_KERNELS_VEC_H
#define SP_KERNELS_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) &&   \
    __GNUC__ >= 12 && !defined(__SANITIZE_THREAD__) && !defined(SP_NO_CLONES)
#define SP_CLONES                                                                                  \
    __attribute__((noinline, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SP_CLONES __attribute__((noinline))
#endif

#define SP_INLINE static inline __attribute__((always_inline))

SP_INLINE float sp_from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

SP_INLINE uint32_t sp_to_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/*
 * Prefetches memory that is read next. A kernel that goes over a row several times computes from
 * its cache meanwhile, and the processor itself prefetches no further than one row ahead.
 */
SP_INLINE void sp_prefetch(const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const char *)from + i, 0, 2);
}

/* e^x to 1e-7 relative for |x| < 87: x = n ln2 + r, e^r by a polynomial, 2^n in the exponent. */
SP_INLINE float sp_exp_core(float x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves n in the low bits */
    float n = x * 1.44269504088896341f + round, r, p;
    uint32_t shifted = sp_to_bits(n) << 23;

    n -= round;
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * sp_from_bits(shifted + 0x3f800000u);
}

/*
 * e^x for a softmax, x at most 80: 0 below e^-80, before products with it become slow denormals.
 * NaN stays NaN.
 */
SP_INLINE float sp_exp_softmax(float x)
{
    float e = sp_exp_core(x);

    return x < -80.0f ? 0.0f : e;
}

#endif
