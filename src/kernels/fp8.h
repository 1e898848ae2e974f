/*
 * FP8: the two formats of 8 bits that GPUs multiply ("FP8 Formats for Deep Learning", Micikevicius
 * et al., 2022), and how an array of bf16 is rounded to one of them.
 *
 * A product rounds its operands each time, so there is no state: inputs and weights to E4M3, which
 * has more bits, gradients of outputs to E5M2, which has more range. An array is first multiplied
 * by a power of two, the largest that takes no element beyond the format's largest number. Then
 * scaling is exact, a product can be scaled back exactly, and a CPU finds the numbers of a GPU: the
 * rounded numbers, scaled back, are bf16. Compared with a factor that is no power of two, that gives
 * up less than one of the 18 or 32 binades that a format has.
 */
#ifndef SP_FP8_H
#define SP_FP8_H

#include "kernels/dtype.h"
#include <math.h>

enum sp_fp8_format {
    SP_E4M3, /* 3 bits after the point, up to 448 = 1.75 2^8, from 2^-6 on, and multiples of 2^-9 */
    SP_E5M2  /* 2 bits, up to 57344 = 1.75 2^15, from 2^-14 on, and multiples of 2^-16 */
};

/* Both formats have it, with either sign. */
enum { SP_FP8_NAN = 0x7f };

SP_ANYWHERE static inline float sp_fp8_most(enum sp_fp8_format f)
{
    return f == SP_E4M3 ? 448.0f : 57344.0f;
}

/*
 * Returns the exponent of the power of two for an array whose largest magnitude is the bf16 `amax`,
 * finite and without its sign. Beyond 2^100 an array counts as good as zero: its rounded numbers
 * would be denormal as bf16.
 */
SP_ANYWHERE static inline int sp_fp8_exponent(enum sp_fp8_format f, uint32_t amax)
{
    const int most = 100;
    /* the exponent of amax, or the next one if amax is more than 1.75 times that power */
    int top = (int)((amax + 0x1fu) >> 7) - 127, e = (f == SP_E4M3 ? 8 : 15) - top;

    return e < most ? e : most;
}

/* 2^e, normal */
SP_ANYWHERE static inline float sp_power_of_two(int e)
{
    uint32_t u = (uint32_t)(e + 127) << 23;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* The number of the format nearest to x, ties to even; |x| is at most the largest. */
SP_ANYWHERE static inline float sp_fp8_nearest(enum sp_fp8_format f, float x)
{
    const int drop = f == SP_E4M3 ? 20 : 21; /* bits of an f32 that the format has not */
    const float least = f == SP_E4M3 ? 0x1p-6f : 0x1p-14f;
    /* An f32 of this size has its last bit where the format's small numbers have it. */
    const float round = f == SP_E4M3 ? 0x1.8p14f : 0x1.8p7f;
    float size = fabsf(x), small = (size + round) - round, large;
    uint32_t u;

    memcpy(&u, &size, sizeof u);
    u = (u + ((1u << (drop - 1)) - 1) + (u >> drop & 1)) >> drop << drop;
    memcpy(&large, &u, sizeof large);
    return copysignf(size < least ? small : large, x);
}

/* The code of the number nearest to x; of the largest one for a larger x; SP_FP8_NAN for a NaN. */
SP_ANYWHERE static inline uint8_t sp_fp8_code(enum sp_fp8_format f, float x)
{
    const int drop = f == SP_E4M3 ? 20 : 21, bits = 23 - drop;
    const uint32_t least = f == SP_E4M3 ? 127 - 6 : 127 - 14; /* exponent as an f32 has it */
    float size = fminf(fabsf(x), sp_fp8_most(f));
    uint8_t sign = signbit(x) ? 0x80 : 0;
    uint32_t u;

    if (x != x)
        return SP_FP8_NAN;
    size = sp_fp8_nearest(f, size);
    memcpy(&u, &size, sizeof u);
    if (u >> 23 < least) /* a multiple of the smallest number */
        return (uint8_t)(sign | (uint32_t)(size * (f == SP_E4M3 ? 0x1p9f : 0x1p16f)));
    return (uint8_t)(sign | ((u >> drop) - ((least - 1) << bits)));
}

/* The number of a code; infinities and NaNs too. */
static inline float sp_fp8_value(enum sp_fp8_format f, uint8_t code)
{
    const int bits = f == SP_E4M3 ? 3 : 2, bias = f == SP_E4M3 ? 7 : 15;
    int exponent = (code & 0x7f) >> bits, fraction = code & ((1 << bits) - 1);
    float size = ldexpf((float)(exponent ? fraction + (1 << bits) : fraction),
                        (exponent ? exponent : 1) - bias - bits);

    if (f == SP_E4M3 ? (code & 0x7f) == 0x7f : exponent == 31 && fraction)
        size = NAN;
    else if (f == SP_E5M2 && exponent == 31)
        size = INFINITY;
    return copysignf(size, code & 0x80 ? -1.0f : 1.0f);
}

#endif
