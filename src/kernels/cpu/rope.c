/*
 * Rotary positions: every pair (x1, x2) = (x[i], x[i + d/2]) of a head is turned by the angle
 * position / theta^(2i/d), stretched where the model says so. Backward is the rotation by minus the
 * angle.
 *
 * Angles are kept in double and in turns, as position / theta^(2i/d) reaches 1e5 radians on long
 * sequences and would lose its fraction in float.
 */
#include "kernels/kernels.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/vec.h"
#include <math.h>

/*
 * cos and sin of pos * turns[i]: with s, c of half the angle, |half| <= pi/2, by Taylor series to
 * 1e-11, cos = 1 - 2 s^2 and sin = 2 s c.
 */
SP_CLONES static void fill_angles(int n, double pos, double sign, const double *turns,
                                  float *cosine, float *sine)
{
    const double round = 6755399441055744.0; /* 1.5 * 2^52 */

#pragma omp simd
    for (int i = 0; i < n; i++) {
        double f = pos * turns[i], whole = f + round;
        double a, q, s, c;

        whole -= round;
        a = (f - whole) * 3.14159265358979323846;
        q = a * a;
        s = -1.0 / 1307674368000.0;
        s = s * q + 1.0 / 6227020800.0;
        s = s * q - 1.0 / 39916800.0;
        s = s * q + 1.0 / 362880.0;
        s = s * q - 1.0 / 5040.0;
        s = s * q + 1.0 / 120.0;
        s = s * q - 1.0 / 6.0;
        s = a + a * q * s;
        c = 1.0 / 20922789888000.0;
        c = c * q - 1.0 / 87178291200.0;
        c = c * q + 1.0 / 479001600.0;
        c = c * q - 1.0 / 3628800.0;
        c = c * q + 1.0 / 40320.0;
        c = c * q - 1.0 / 720.0;
        c = c * q + 1.0 / 24.0;
        c = c * q - 0.5;
        c = 1.0 + q * c;
        cosine[i] = (float)(1.0 - 2.0 * s * s);
        sine[i] = (float)(sign * 2.0 * s * c);
    }
}

SP_CLONES static void rotate(int heads, int half, const float *cosine, const float *sine, float *x)
{
    for (int head = 0; head < heads; head++) {
        float *x1 = x + (size_t)head * 2 * (size_t)half, *x2 = x1 + half;

#pragma omp simd
        for (int i = 0; i < half; i++) {
            float a = x1[i], b = x2[i];

            x1[i] = a * cosine[i] - b * sine[i];
            x2[i] = b * cosine[i] + a * sine[i];
        }
    }
}

/* Between `low` and `high` turns over the original positions, from one to the other linearly. */
static double stretched(const struct sp_rope *rope, double turns)
{
    double kept;

    switch (rope->type) {
    case SP_ROPE_DEFAULT:
        return turns;
    case SP_ROPE_LINEAR:
        return turns / rope->factor;
    case SP_ROPE_LLAMA3:
        break;
    }
    kept = (rope->original * turns - rope->low) / ((double)rope->high - rope->low);
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return kept * turns + (1 - kept) * turns / rope->factor;
}

void sp_rope_turns(const struct sp_rope *rope, int d, double *turns)
{
    for (int i = 0; i < d / 2; i++)
        turns[i] =
            stretched(rope, pow((double)rope->theta, -2.0 * i / d) / (2 * 3.14159265358979323846));
}

void sp_rope(int batch, int len, int heads, int d, int ld, int pos0, const struct sp_rope *rope,
             bool inverse, float *x)
{
    int half = d / 2;
    double *turns = sp_scratch(SP_SCRATCH_TEAM, (size_t)half * sizeof *turns);

    sp_rope_turns(rope, d, turns);
#pragma omp parallel if ((size_t)batch * (size_t)len * (size_t)(heads * d) > SP_TEAM_WORTH)
    {
        float *cosine = sp_scratch(SP_SCRATCH_OWN, 2 * (size_t)half * sizeof *cosine);
        float *sine = cosine + half;

#pragma omp for
        for (int t = 0; t < len; t++) {
            fill_angles(half, pos0 + t, inverse ? -1 : 1, turns, cosine, sine);
            for (int b = 0; b < batch; b++)
                rotate(heads, half, cosine, sine, x + ((size_t)b * len + t) * (size_t)ld);
        }
    }
}
