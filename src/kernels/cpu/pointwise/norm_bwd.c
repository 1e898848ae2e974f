/*
 * Backward of LayerNorm and RMSNorm over rows of h.
 *
 *   was: y = n gain + bias, n = (x - mean) rstd          (RMSNorm: mean = 0, no bias)
 *   so, with e = dy gain:
 *   dx = dres + rstd (e - mean(e) - n mean(e n))         (RMSNorm: without mean(e))
 *   dgain += sum over rows of dy n,  dbias += sum over rows of dy
 */
#include "kernels/cpu/pointwise/lanes.h"
#include "kernels/cpu/pointwise/norm.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

struct row {
    size_t h, ahead; /* ahead: elements to the next row, 0 in the last */
    float mean, rstd;
    const float *gain;
    const void *x, *dy, *dres; /* dres may be NULL */
    void *dx;
    float *dgain, *dbias; /* this thread's sums, in the order of steps, or NULL */
};

/* Sums of e and of e n. */
SP_INLINE void row_sums(enum sp_dtype type, struct row r, float *sum_e, float *sum_en)
{
    enum { HALF = SP_LANES / 2 };
    struct sp_lanes e = {{0}}, en = {{0}};
    const float mean = r.mean, rstd = r.rstd;
    const size_t h = r.h, steps = sp_steps(type, SP_LANES);
    size_t j = 0;

    for (; j + SP_LANES <= h; j += SP_LANES) {
        const size_t i = sp_steps(type, j);

        sp_prefetch(sp_from(type, r.x, r.ahead + j), SP_LANES * sp_dtype_bytes(type));
        sp_prefetch(sp_from(type, r.dy, r.ahead + j), SP_LANES * sp_dtype_bytes(type));
#pragma omp simd
        for (size_t k = 0; k < steps; k++) {
            struct sp_pair v = sp_load_step(type, r.x, i + k);
            struct sp_pair d = sp_load_step(type, r.dy, i + k);
            struct sp_pair g = sp_beside(type, r.gain, h, i + k);

            e.at[k] += d.a * g.a;
            en.at[k] += d.a * g.a * ((v.a - mean) * rstd);
            if (type == SP_BF16) {
                e.at[HALF + k] += d.b * g.b;
                en.at[HALF + k] += d.b * g.b * ((v.b - mean) * rstd);
            }
        }
    }
    for (; j < h; j++) {
        float d = sp_load(type, r.dy, j) * r.gain[sp_place(type, h, j)];

        *sp_lane(type, &e, j) += d;
        *sp_lane(type, &en, j) += d * ((sp_load(type, r.x, j) - mean) * rstd);
    }
    *sum_e = sp_sum_lanes(type, &e);
    *sum_en = sp_sum_lanes(type, &en);
}

/* What an element adds to dgain and dbias, and its dx without dres. */
struct terms {
    float gain, bias, dx;
};

SP_INLINE struct terms element(float x, float dy, float gain, struct row r, float mean_e,
                               float mean_en)
{
    float n = (x - r.mean) * r.rstd;

    return (struct terms){dy * n, dy, r.rstd * (dy * gain - mean_e - n * mean_en)};
}

/* The constants say which arrays there are: each combination is a loop without tests. */
SP_INLINE void row_gradients(enum sp_dtype type, bool gain, bool bias, bool dres, struct row r,
                             float mean_e, float mean_en)
{
    const size_t h = r.h, half = h / 2;
    float *dgain = r.dgain, *dbias = r.dbias;

#pragma omp simd
    for (size_t j = 0; j < sp_steps(type, h); j++) {
        struct sp_pair x = sp_load_step(type, r.x, j), dy = sp_load_step(type, r.dy, j);
        struct sp_pair g = sp_beside(type, r.gain, h, j), res = {0, 0};
        struct terms a = element(x.a, dy.a, g.a, r, mean_e, mean_en);
        struct terms b = element(x.b, dy.b, g.b, r, mean_e, mean_en);

        if (gain)
            dgain[j] += a.gain;
        if (gain && type == SP_BF16)
            dgain[half + j] += b.gain;
        if (bias)
            dbias[j] += a.bias;
        if (bias && type == SP_BF16)
            dbias[half + j] += b.bias;
        if (dres)
            res = sp_load_step(type, r.dres, j);
        sp_store_step(type, r.dx, j, dres ? res.a + a.dx : a.dx, dres ? res.b + b.dx : b.dx);
    }
    if (sp_odd(type, h)) {
        struct terms last = element(sp_load(type, r.x, h - 1), sp_load(type, r.dy, h - 1),
                                    r.gain[h - 1], r, mean_e, mean_en);

        if (gain)
            dgain[h - 1] += last.gain;
        if (bias)
            dbias[h - 1] += last.bias;
        sp_store(type, r.dx, h - 1, dres ? sp_load(type, r.dres, h - 1) + last.dx : last.dx);
    }
}

SP_INLINE void row_bwd(enum sp_dtype type, bool rms, struct row r)
{
    float e, en;

    row_sums(type, r, &e, &en);
    e = rms ? 0 : e / (float)r.h;
    en /= (float)r.h;
    if (r.dgain && r.dbias && r.dres)
        row_gradients(type, true, true, true, r, e, en);
    else if (r.dgain && r.dbias)
        row_gradients(type, true, true, false, r, e, en);
    else if (r.dgain && r.dres)
        row_gradients(type, true, false, true, r, e, en);
    else if (r.dgain)
        row_gradients(type, true, false, false, r, e, en);
    else if (r.dres)
        row_gradients(type, false, false, true, r, e, en);
    else
        row_gradients(type, false, false, false, r, e, en);
}

/* From the first row on, and its statistics. */
SP_INLINE void rows_bwd(enum sp_dtype type, bool rms, size_t rows, struct row r, const float *stats)
{
    for (size_t t = 0; t < rows; t++) {
        r.ahead = t + 1 < rows ? r.h : 0;
        r.mean = stats[2 * t];
        r.rstd = stats[2 * t + 1];
        row_bwd(type, rms, r);
        r.x = sp_from(type, r.x, r.h);
        r.dy = sp_from(type, r.dy, r.h);
        r.dres = r.dres ? sp_from(type, r.dres, r.h) : NULL;
        r.dx = sp_to(type, r.dx, r.h);
    }
}

SP_CLONES static void backward(enum sp_dtype type, bool rms, size_t rows, const struct row *first,
                               const float *stats)
{
    if (type == SP_BF16)
        rows_bwd(SP_BF16, rms, rows, *first, stats);
    else
        rows_bwd(SP_F32, rms, rows, *first, stats);
}

/* sum[lo..hi) += the threads' sums, which are `stride` apart and in the order of steps. */
static void add_partials(enum sp_dtype type, size_t h, size_t lo, size_t hi, int threads,
                         const float *part, size_t stride, float *sum)
{
    for (int k = 0; k < threads; k++, part += stride)
        for (size_t j = lo; j < hi; j++)
            sum[j] += part[sp_place(type, h, j)];
}

/* Each thread sums the gain and bias gradients of its rows; the sums are added in thread order. */
void sp_norm_bwd_typed(enum sp_dtype type, bool rms, int T, int h, const void *x,
                       const float *stats, const void *gain, const void *dy, const void *dres,
                       void *dx, float *dgain, float *dbias)
{
    size_t width = (size_t)h, stride = 2 * ((width + 15) & ~(size_t)15);
    struct sp_affine of = sp_affine(type, width, gain, NULL);
    float *part = NULL;

    if (dgain)
        part = sp_scratch(SP_SCRATCH_TEAM, (size_t)omp_get_max_threads() * stride * sizeof *part);
#pragma omp parallel if ((size_t)T * width > SP_TEAM_WORTH)
    {
        int threads = omp_get_num_threads();
        float *own = part ? part + (size_t)omp_get_thread_num() * stride : NULL;
        size_t lo, hi;

        if (own)
            memset(own, 0, stride * sizeof *own);
        sp_team_share((size_t)T, 1, &lo, &hi);
        backward(type, rms, hi - lo,
                 &(struct row){.h = width,
                               .x = sp_from(type, x, lo * width),
                               .gain = of.gain,
                               .dy = sp_from(type, dy, lo * width),
                               .dres = dres ? sp_from(type, dres, lo * width) : NULL,
                               .dx = sp_to(type, dx, lo * width),
                               .dgain = own,
                               .dbias = own && dbias ? own + stride / 2 : NULL},
                 stats + 2 * lo);
#pragma omp barrier
        sp_team_share(width, 16, &lo, &hi);
        if (dgain)
            add_partials(type, width, lo, hi, threads, part, stride, dgain);
        if (dgain && dbias)
            add_partials(type, width, lo, hi, threads, part + stride / 2, stride, dbias);
    }
}

void sp_norm_bwd(bool rms, int T, int h, const float *x, const float *stats, const float *gain,
                 const float *dy, const float *dres, float *dx, float *dgain, float *dbias)
{
    sp_norm_bwd_typed(SP_F32, rms, T, h, x, stats, gain, dy, dres, dx, dgain, dbias);
}
