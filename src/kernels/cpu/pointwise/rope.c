/*
 * Rotary positions: every pair (x1, x2) = (x[i], x[i + d/2]) of a head is turned by the angle
 * position / theta^(2i/d), stretched where the model says so. Backward is the rotation by minus the
 * angle.
 *
 * Angles are kept in double and in turns, as position / theta^(2i/d) reaches 1e5 radians on long
 * sequences and would lose its fraction in float. A position is a multiple of STEP and a rest below
 * it: cosines and sines of the rests are computed once a call, those of a multiple once for the
 * rows that share it, and each row adds two angles. So a value depends on its position alone.
 * Arrays of angles are in the order of steps of pointwise.h.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"
#include <math.h>

/*
 * cos and sin of pos * turns[i]: with s, c of half the angle, |half| <= pi/2, by Taylor series to
 * 1e-11, cos = 1 - 2 s^2 and sin = 2 s c.
 */
SP_CLONES static void fill_angles(int n, double pos, const double *turns, double *cosine,
                                  double *sine)
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
        cosine[i] = 1.0 - 2.0 * s * s;
        sine[i] = 2.0 * s * c;
    }
}

/* cos and sign sin of a + b, from those of both. */
SP_CLONES static void add_angles(int n, double sign, const double *a, const double *b,
                                 float *cosine, float *sine)
{
    const double *cos_a = a, *sin_a = a + n, *cos_b = b, *sin_b = b + n;

#pragma omp simd
    for (int i = 0; i < n; i++) {
        cosine[i] = (float)(cos_a[i] * cos_b[i] - sin_a[i] * sin_b[i]);
        sine[i] = (float)(sign * (sin_a[i] * cos_b[i] + cos_a[i] * sin_b[i]));
    }
}

SP_INLINE void rotate_heads(enum sp_dtype type, int heads, int half, const float *cosine,
                            const float *sine, void *x)
{
    const size_t n = (size_t)half;

    for (size_t head = 0; head < (size_t)heads; head++) {
        void *first = sp_to(type, x, head * 2 * n), *second = sp_to(type, x, head * 2 * n + n);
        float last_a = sp_load(type, first, n - 1), last_b = sp_load(type, second, n - 1);

#pragma omp simd
        for (size_t i = 0; i < sp_steps(type, n); i++) {
            struct sp_pair a = sp_load_step(type, first, i), b = sp_load_step(type, second, i);
            struct sp_pair c = sp_beside(type, cosine, n, i), s = sp_beside(type, sine, n, i);

            sp_store_step(type, first, i, a.a * c.a - b.a * s.a, a.b * c.b - b.b * s.b);
            sp_store_step(type, second, i, b.a * c.a + a.a * s.a, b.b * c.b + a.b * s.b);
        }
        if (sp_odd(type, n)) {
            sp_store(type, first, n - 1, last_a * cosine[n - 1] - last_b * sine[n - 1]);
            sp_store(type, second, n - 1, last_b * cosine[n - 1] + last_a * sine[n - 1]);
        }
    }
}

SP_CLONES static void rotate(enum sp_dtype type, int heads, int half, const float *cosine,
                             const float *sine, void *x)
{
    if (type == SP_BF16)
        rotate_heads(SP_BF16, heads, half, cosine, sine, x);
    else
        rotate_heads(SP_F32, heads, half, cosine, sine, x);
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

enum { STEP = 32 };

void sp_cpu_rope(const struct sp_backend *k, const struct sp_rotation *r, bool inverse, void *x)
{
    enum sp_dtype type = k->dtype;
    int len = r->len, pos0 = r->pos0, step = 1 + r->skip, half = r->d / 2;
    size_t n = (size_t)half, batch = (size_t)r->batch;
    double *turns = sp_scratch(SP_SCRATCH_TEAM, (1 + 2 * STEP) * n * sizeof *turns);
    double *rests = turns + n; /* of rest k: n cosines, n sines */

    sp_rope_turns(r->rope, r->d, rests);
    for (size_t i = 0; i < n; i++)
        turns[sp_place(type, n, i)] = rests[i];
    for (int t = 0; t < STEP && t < len; t++) {
        int at = (pos0 + t * step) % STEP;
        double *rest = rests + 2 * n * (size_t)at;

        fill_angles(half, at, turns, rest, rest + n);
    }
#pragma omp parallel if (batch * (size_t)len * (size_t)(r->heads * r->d) > SP_TEAM_WORTH)
    {
        double *whole = sp_scratch(SP_SCRATCH_OWN, 2 * n * (sizeof *whole + sizeof(float)));
        void *after = whole + 2 * n;
        float *cosine = after, *sine = cosine + n;
        int filled = -1;
        size_t lo, hi;

        sp_team_share((size_t)len, 1, &lo, &hi);
        for (size_t t = lo; t < hi; t++) {
            int pos = pos0 + (int)t * step, rest = pos % STEP;

            if (filled != pos - rest)
                fill_angles(half, filled = pos - rest, turns, whole, whole + n);
            add_angles(half, inverse ? -1 : 1, whole, rests + 2 * n * (size_t)rest, cosine, sine);
            for (size_t b = 0; b < batch; b++)
                rotate(type, r->heads, half, cosine, sine,
                       sp_to(type, x, (b * (size_t)len + t) * (size_t)r->ld));
        }
    }
}

void sp_rope(const struct sp_rotation *r, bool inverse, float *x)
{
    sp_cpu_rope(sp_cpu_backend(SP_F32), r, inverse, x);
}
