/*
 * Normal values, see random.h. The plain version, with the C library's functions, is the
 * definition. The fast one computes blocks with functions of its own, whose results are within a
 * few units in the last place of a double: rounded to float they are the same, unless the double is
 * that near to the middle between two floats. A block with such a double is computed again, the
 * plain way.
 */
#include "kernels/random.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <math.h>
#include <stdbool.h>

enum { GROUPS = 128, BLOCK = 4 * GROUPS };

static const double two_pi = 6.28318530717958647693;

struct words {
    uint64_t at[4]; /* below 2^32 */
};

/* Works in lanes of 64 bits, because every instruction set can multiply their lower halves. */
SP_INLINE struct words philox(uint64_t key, uint64_t lo, uint64_t hi)
{
    const uint64_t low = UINT64_C(0xffffffff);
    uint64_t c0 = lo & low, c1 = lo >> 32, c2 = hi & low, c3 = hi >> 32;
    uint64_t k0 = key & low, k1 = key >> 32;

#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;

        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1 & low;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0 & low;
        k0 = (k0 + 0x9E3779B9) & low;
        k1 = (k1 + 0xBB67AE85) & low;
    }
    return (struct words){{c0, c1, c2, c3}};
}

/* Maps a word into (0, 1); the half keeps the logarithm away from 0. */
SP_INLINE double uniform(uint64_t word)
{
    return ((uint32_t)word + 0.5) * 0x1p-32;
}

static void plain(uint64_t seed, uint64_t stream, float std, size_t first, size_t n, float *w)
{
    for (size_t i = first; i < first + n; i += 4) {
        struct words r = philox(seed, i / 4, stream);

        for (size_t j = 0; j < 4 && i + j < first + n; j++) {
            double radius = sqrt(-2.0 * log(uniform(r.at[j & 2])));
            double angle = two_pi * uniform(r.at[(j & 2) + 1]);

            w[i + j - first] = (float)(std * (radius * (j % 2 ? sin(angle) : cos(angle))));
        }
    }
}

SP_INLINE uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

SP_INLINE double from_bits(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/*
 * sqrt(-2 log x), x in (0, 1) and normal: x = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); with
 * s = f / (2 + f), log(1 + f) = f - (f^2/2 - s (f^2/2 + R)), R by fdlibm's polynomial in s^2.
 */
SP_INLINE double radius_of(double x)
{
    const uint64_t root_half = UINT64_C(0x3fe6a09e667f3bcd), bias = UINT64_C(1023) << 52;
    uint64_t k = (bits_of(x) - root_half + bias) >> 52; /* and 1023 */
    double f = from_bits(bits_of(x) - (k << 52) + bias) - 1.0, s = f / (2.0 + f), z = s * s;
    double whole = from_bits(UINT64_C(0x4338000000000000) + k) - (0x1.8p52 + 1023.0);
    double half = 0.5 * f * f, p;

    p = 1.479819860511658591e-01;
    p = p * z + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    p = p * z + 6.666666666666735130e-01;
    p = s * (half + p * z) + whole * 1.90821492927058770002e-10;
    return sqrt(-2.0 * (whole * 6.93147180369123816490e-01 - (half - p - f)));
}

/* Cosine and sine of an angle in [0, 2 pi]: less n pi/2, which leaves |y| <= pi/4; fdlibm's
 * polynomials. */
SP_INLINE void cos_sin(double angle, double *cosine, double *sine)
{
    const double round = 0x1.8p52;
    double shifted = angle * 6.36619772367581382433e-01 + round, n = shifted - round;
    double y = (angle - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
    double z = y * y, s, c;
    uint64_t quarter = bits_of(shifted);

    s = 1.58969099521155010221e-10;
    s = s * z - 2.50507602534068634195e-08;
    s = s * z + 2.75573137070700676789e-06;
    s = s * z - 1.98412698298579493134e-04;
    s = s * z + 8.33333333332248946124e-03;
    s = s * z - 1.66666666666666324348e-01;
    s = y + y * z * s;
    c = -1.13596475577881948265e-11;
    c = c * z + 2.08757232129817482790e-09;
    c = c * z - 2.75573143513906633035e-07;
    c = c * z + 2.48015872894767294178e-05;
    c = c * z - 1.38888888888741095749e-03;
    c = c * z + 4.16666666666666019037e-02;
    c = (1.0 - 0.5 * z) + z * z * c;
    *cosine = from_bits(bits_of(quarter & 1 ? s : c) ^ ((quarter + 1) & 2) << 62);
    *sine = from_bits(bits_of(quarter & 1 ? c : s) ^ (quarter & 2) << 62);
}

/* True if the 29 bits that a float lacks are within 64 of the middle between two floats. */
SP_INLINE uint64_t doubtful(double value)
{
    return ((bits_of(value) & 0x1fffffff) - 0x10000000 + 64) <= 128;
}

/* The loops are separate and pass values through memory, because an angle must be rounded before
 * its use. */
SP_CLONES static bool normals(uint64_t seed, uint64_t stream, double std, uint64_t group, float *w)
{
    double radius[2 * GROUPS], angle[2 * GROUPS];
    uint64_t doubt = 0;

#pragma omp simd
    for (size_t g = 0; g < GROUPS; g++) {
        struct words r = philox(seed, group + g, stream);

        radius[g] = uniform(r.at[0]);
        angle[g] = two_pi * uniform(r.at[1]);
        radius[GROUPS + g] = uniform(r.at[2]);
        angle[GROUPS + g] = two_pi * uniform(r.at[3]);
    }
#pragma omp simd
    for (size_t i = 0; i < 2 * GROUPS; i++)
        radius[i] = radius_of(radius[i]);
#pragma omp simd reduction(| : doubt)
    for (size_t i = 0; i < 2 * GROUPS; i++) {
        double c, s;

        cos_sin(angle[i], &c, &s);
        c = std * (radius[i] * c);
        s = std * (radius[i] * s);
        doubt |= doubtful(c) | doubtful(s);
        radius[i] = c;
        angle[i] = s;
    }
    for (size_t g = 0; g < GROUPS; g++) {
        w[4 * g] = (float)radius[g];
        w[4 * g + 1] = (float)angle[g];
        w[4 * g + 2] = (float)radius[GROUPS + g];
        w[4 * g + 3] = (float)angle[GROUPS + g];
    }
    return doubt;
}

void sp_normal(uint64_t seed, uint64_t stream, float std, size_t first, size_t n, float *w)
{
    /* Near subnormal floats the middle between two lies elsewhere, and `doubtful` would miss it. */
    const bool fast = fabsf(std) > 1e-20f;

#pragma omp parallel if (n > SP_TEAM_WORTH)
    {
        size_t lo, hi;

        sp_team_share(n, BLOCK, &lo, &hi);
        for (size_t i = lo; i < hi; i += BLOCK) {
            size_t m = hi - i < BLOCK ? hi - i : BLOCK;

            if (m < BLOCK || !fast || normals(seed, stream, std, (first + i) / 4, w + i))
                plain(seed, stream, std, first + i, m, w + i);
        }
    }
}
