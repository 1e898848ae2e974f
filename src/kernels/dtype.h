/*
 * Element types of activations and of the weights that products read.
 */
#ifndef SP_DTYPE_H
#define SP_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum sp_dtype {
    SP_F32,
    SP_BF16, /* the upper half of an f32 */
    SP_DTYPES
};

static inline size_t sp_dtype_bytes(enum sp_dtype t)
{
    return t == SP_BF16 ? 2 : 4;
}

static inline const char *sp_dtype_name(enum sp_dtype t)
{
    return t == SP_BF16 ? "bf16" : "f32";
}

/* To the nearest bf16, ties to even, as GPUs round; a NaN stays one. */
static inline uint16_t sp_bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float sp_bf16_value(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
