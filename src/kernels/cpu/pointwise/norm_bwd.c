/*
 * Backward of LayerNorm and RMSNorm over rows of h.
 *
 *   forward: y = n gain + bias, n = (x - mean) rstd      (RMSNorm: mean = 0, no bias)
 *   backward, with e = dy gain:
 *   dx = dres + rstd (e - mean(e) - n mean(e n))         (RMSNorm: without mean(e))
 *   dgain += sum over rows of dy n,  dbias += sum over rows of dy
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pointwise/pointwise.h"
#include "kernels/cpu/team.h"

/* Rows that are added to dgain and dbias together: these take longer to read and write than the
 * rows. */
enum { TOGETHER = 4 };

struct arrays {
    size_t h;
    const void *gain;
    float *dgain, *dbias; /* this thread's sums, in the order of steps, or NULL */
};

struct row {
    const void *x, *dy, *dres; /* dres may be NULL */
    void *dx;
    float mean, rstd, mean_e, mean_en;
};

/* Computes the means of e and of e n, and prefetches the next row, `ahead` elements on. */
SP_INLINE void row_means(enum sp_dtype type, size_t h, size_t ahead, const void *gain,
                         struct row *r)
{
    enum { HALF = SP_LANES / 2 };
    struct sp_lanes e = {{0}}, en = {{0}};
    const float mean = r->mean, rstd = r->rstd;
    const void *x = r->x, *dy = r->dy;
    const size_t steps = sp_steps(type, SP_LANES);
    size_t j = 0;

    for (; j + SP_LANES <= h; j += SP_LANES) {
        const size_t i = sp_steps(type, j);

        sp_prefetch(sp_from(type, x, ahead + j), SP_LANES * sp_dtype_bytes(type));
        sp_prefetch(sp_from(type, dy, ahead + j), SP_LANES * sp_dtype_bytes(type));
        if (r->dres)
            sp_prefetch(sp_from(type, r->dres, j), SP_LANES * sp_dtype_bytes(type));
#pragma omp simd
        for (size_t k = 0; k < steps; k++) {
            struct sp_pair v = sp_load_step(type, x, i + k), d = sp_load_step(type, dy, i + k);
            struct sp_pair g = sp_load_step(type, gain, i + k);

            e.at[k] += d.a * g.a;
            en.at[k] += d.a * g.a * ((v.a - mean) * rstd);
            if (type == SP_BF16) {
                e.at[HALF + k] += d.b * g.b;
                en.at[HALF + k] += d.b * g.b * ((v.b - mean) * rstd);
            }
        }
    }
    for (; j < h; j++) {
        float d = sp_load(type, dy, j) * sp_load(type, gain, j);

        *sp_lane(type, &e, j) += d;
        *sp_lane(type, &en, j) += d * ((sp_load(type, x, j) - mean) * rstd);
    }
    r->mean_e = sp_sum_lanes(type, &e) / (float)h;
    r->mean_en = sp_sum_lanes(type, &en) / (float)h;
}

/* Sums of one element for dgain and dbias. */
struct sums {
    float gain, bias;
};

/* Sets *dx and returns `to` plus what this element adds to dgain and dbias. */
SP_INLINE struct sums element(const struct row r, float x, float dy, float gain, struct sums to,
                              float *dx)
{
    float n = (x - r.mean) * r.rstd;

    *dx = r.rstd * (dy * gain - r.mean_e - n * r.mean_en);
    return (struct sums){to.gain + dy * n, to.bias + dy};
}

/* Sums of the two elements of a step. */
struct step {
    struct sums a, b;
};

SP_INLINE struct step row_step(enum sp_dtype type, bool dres, const struct row r, size_t j,
                               struct sp_pair g, struct step to)
{
    struct sp_pair x = sp_load_step(type, r.x, j), dy = sp_load_step(type, r.dy, j), dx, res;

    to.a = element(r, x.a, dy.a, g.a, to.a, &dx.a);
    to.b = element(r, x.b, dy.b, g.b, to.b, &dx.b);
    if (dres) {
        res = sp_load_step(type, r.dres, j);
        dx.a += res.a, dx.b += res.b;
    }
    sp_store_step(type, r.dx, j, dx.a, dx.b);
    return to;
}

/* Handles the last element of rows of an odd length. */
SP_INLINE void last_element(enum sp_dtype type, const struct arrays *w, const struct row *r)
{
    const size_t j = w->h - 1;
    struct sums to = {w->dgain ? w->dgain[j] : 0, w->dbias ? w->dbias[j] : 0};
    float dx;

    to = element(*r, sp_load(type, r->x, j), sp_load(type, r->dy, j), sp_load(type, w->gain, j), to,
                 &dx);
    if (w->dgain)
        w->dgain[j] = to.gain;
    if (w->dbias)
        w->dbias[j] = to.bias;
    sp_store(type, r->dx, j, r->dres ? sp_load(type, r->dres, j) + dx : dx);
}

/* The arrays that there are. */
struct given {
    bool gain, bias, dres;
};

/* Gradients of n rows, 1 or TOGETHER. `given` is constant, so each combination is a loop without
 * tests. */
SP_INLINE void gradients(enum sp_dtype type, const int n, const struct given given,
                         const struct arrays *w, const struct row *rows)
{
    const bool gain = given.gain, bias = given.bias, dres = given.dres;
    const struct row r0 = rows[0], r1 = rows[n > 1], r2 = rows[n > 1 ? 2 : 0];
    const struct row r3 = rows[n > 1 ? 3 : 0];
    const size_t h = w->h, half = type == SP_BF16 ? h / 2 : 0;
    const void *of = w->gain;
    float *dgain = w->dgain, *dbias = w->dbias;

#pragma omp simd
    for (size_t j = 0; j < sp_steps(type, h); j++) {
        struct sp_pair g = sp_load_step(type, of, j);
        struct step to = {{0, 0}, {0, 0}};

        if (gain)
            to.a.gain = dgain[j], to.b.gain = dgain[half + j];
        if (bias)
            to.a.bias = dbias[j], to.b.bias = dbias[half + j];
        to = row_step(type, dres, r0, j, g, to);
        if (n > 1) {
            to = row_step(type, dres, r1, j, g, to);
            to = row_step(type, dres, r2, j, g, to);
            to = row_step(type, dres, r3, j, g, to);
        }
        if (gain && type == SP_BF16)
            dgain[half + j] = to.b.gain;
        if (bias && type == SP_BF16)
            dbias[half + j] = to.b.bias;
        if (gain)
            dgain[j] = to.a.gain;
        if (bias)
            dbias[j] = to.a.bias;
    }
    for (int t = 0; sp_odd(type, h) && t < n; t++)
        last_element(type, w, &rows[t]);
}

SP_INLINE void rows_bwd(enum sp_dtype type, const int n, const struct arrays *w,
                        const struct row *rows)
{
    bool dres = rows->dres;

    if (w->dgain && w->dbias && dres)
        gradients(type, n, (struct given){true, true, true}, w, rows);
    else if (w->dgain && w->dbias)
        gradients(type, n, (struct given){true, true, false}, w, rows);
    else if (w->dgain && dres)
        gradients(type, n, (struct given){true, false, true}, w, rows);
    else if (w->dgain)
        gradients(type, n, (struct given){true, false, false}, w, rows);
    else if (dres)
        gradients(type, n, (struct given){false, false, true}, w, rows);
    else
        gradients(type, n, (struct given){false, false, false}, w, rows);
}

/* Goes over `left` rows from r on, with their statistics. */
SP_INLINE void all_bwd(enum sp_dtype type, bool rms, size_t left, const float *stats,
                       const struct arrays *w, struct row r)
{
    struct row rows[TOGETHER];

    while (left > 0) {
        int n = left >= TOGETHER ? TOGETHER : 1;

        for (int t = 0; t < n; t++, left--, stats += 2) {
            r.mean = stats[0];
            r.rstd = stats[1];
            rows[t] = r;
            row_means(type, w->h, left > 1 ? w->h : 0, w->gain, &rows[t]);
            if (rms)
                rows[t].mean_e = 0;
            r.x = sp_from(type, r.x, w->h);
            r.dy = sp_from(type, r.dy, w->h);
            r.dres = r.dres ? sp_from(type, r.dres, w->h) : NULL;
            r.dx = sp_to(type, r.dx, w->h);
        }
        if (n > 1)
            rows_bwd(type, TOGETHER, w, rows);
        else
            rows_bwd(type, 1, w, rows);
    }
}

SP_CLONES static void backward(enum sp_dtype type, bool rms, size_t rows, const float *stats,
                               const struct arrays *w, struct row first)
{
    if (type == SP_BF16)
        all_bwd(SP_BF16, rms, rows, stats, w, first);
    else
        all_bwd(SP_F32, rms, rows, stats, w, first);
}

/* The sums that threads keep, in the order of steps. */
struct partials {
    enum sp_dtype type;
    size_t h,
        stride; /* elements of a thread's: for the gain, and from stride / 2 on for the bias */
    float *of;  /* of thread 0; NULL: none */
};

/* sum[lo..hi) += those of all threads, from `offset` on */
static void add_partials(const struct partials *p, size_t lo, size_t hi, int threads, size_t offset,
                         float *sum)
{
    const float *part = p->of + offset;

    for (int k = 0; k < threads; k++, part += p->stride)
        for (size_t j = lo; j < hi; j++)
            sum[j] += part[sp_place(p->type, p->h, j)];
}

/* Each thread sums the gain and bias gradients of its rows; the sums are added in thread order. */
void sp_cpu_norm_bwd(const struct sp_backend *k, const struct sp_norm *n, const void *x,
                     const float *stats, const struct sp_norm_bwd *g)
{
    enum sp_dtype type = k->dtype;
    size_t width = (size_t)n->h;
    struct partials part = {
        .type = type, .h = width, .stride = 2 * ((width + 15) & ~(size_t)15), .of = NULL};

    if (g->dgain)
        part.of = sp_scratch(SP_SCRATCH_TEAM,
                             (size_t)omp_get_max_threads() * part.stride * sizeof *part.of);
#pragma omp parallel if ((size_t)n->T * width > SP_TEAM_WORTH)
    {
        int threads = omp_get_num_threads();
        float *own = part.of ? part.of + (size_t)omp_get_thread_num() * part.stride : NULL;
        size_t lo, hi;

        if (own)
            memset(own, 0, part.stride * sizeof *own);
        sp_team_share((size_t)n->T, 1, &lo, &hi);
        backward(type, n->rms, hi - lo, stats + 2 * lo,
                 &(struct arrays){.h = width,
                                  .gain = n->gain,
                                  .dgain = own,
                                  .dbias = own && g->dbias ? own + part.stride / 2 : NULL},
                 (struct row){.x = sp_from(type, x, lo * width),
                              .dy = sp_from(type, g->dy, lo * width),
                              .dres = g->dres ? sp_from(type, g->dres, lo * width) : NULL,
                              .dx = sp_to(type, g->dx, lo * width)});
#pragma omp barrier
        sp_team_share(width, 16, &lo, &hi);
        if (g->dgain)
            add_partials(&part, lo, hi, threads, 0, g->dgain);
        if (g->dgain && g->dbias)
            add_partials(&part, lo, hi, threads, part.stride / 2, g->dbias);
    }
}

void sp_norm_bwd(const struct sp_norm *n, const float *x, const float *stats,
                 const struct sp_norm_bwd *g)
{
    sp_cpu_norm_bwd(sp_cpu_backend(SP_F32), n, x, stats, g);
}
