/*
 * Types that a run computes in. The first ones are types of elements: of activations, and of the
 * weights that products read. In fp8 elements are bf16, and only the operands of a layer's products
 * are rounded further (fp8.h).
 */
#ifndef SP_DTYPE_H
#define SP_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum sp_dtype {
    SP_F32,
    SP_BF16, /* the upper half of an f32 */
    SP_ELEMENTS,
    SP_FP8 = SP_ELEMENTS,
    SP_DTYPES
};

/* The type of the elements of a run in t. */
static inline enum sp_dtype sp_dtype_elements(enum sp_dtype t)
{
    return t == SP_FP8 ? SP_BF16 : t;
}

static inline size_t sp_dtype_bytes(enum sp_dtype t)
{
    return t == SP_F32 ? 4 : 2;
}

static inline const char *sp_dtype_name(enum sp_dtype t)
{
    return t == SP_FP8 ? "fp8" : t == SP_BF16 ? "bf16" : "f32";
}

#ifdef __CUDACC__
#define SP_ANYWHERE __host__ __device__
#else
#define SP_ANYWHERE
#endif

/* Rounds to the nearest bf16, ties to even, as GPUs do; a NaN stays a NaN. */
static inline uint16_t sp_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* 32 random bits for element i of a stream: a pure function, the same wherever it is computed.
 * It is the finaliser of MurmurHash3 on a counter. */
SP_ANYWHERE static inline uint32_t sp_random_bits(uint32_t stream, uint32_t i)
{
    uint32_t x = i ^ stream;

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Rounds x to the next or the previous bf16; the probability is proportional to the distance, so
 * that the mean is x. The upper half of the result is the bf16. `random`: any bits; the upper
 * half is used. Infinities and NaNs stay. */
SP_ANYWHERE static inline uint32_t sp_bf16_at_random(uint32_t x, uint32_t random)
{
    uint32_t nan = (x & 0x7fffffffu) > 0x7f800000u ? 0x400000u : 0;

    return (x & 0x7f800000u) == 0x7f800000u ? x | nan : x + (random >> 16);
}

static inline float sp_bf16_value(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
