/* TeraPipe's dynamic program. */
#include "plan/slices.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps of the search for the least bound, and bounds tried above it. */
enum { SEARCHES = 24, BOUNDS = 16 };
/* Cells of a sequence: at least two a slice; and the most slices for which there is time. */
enum { CELLS = 128, MOST_SLICES = 128 };

struct program {
    int seq, n, cells;
    double *t;   /* [cells][cells + 1] time of the slice between two boundaries */
    double *sum; /* [n + 1][cells + 1] least sum of t of the first k slices, up to a boundary */
    int *from;   /* [n + 1][cells + 1] the boundary before that */
};

static int token_of(const struct program *p, int cell)
{
    return (int)((int64_t)p->seq * cell / p->cells);
}

static void price(struct program *p, const struct sp_slice_time *t)
{
    for (int from = 0; from < p->cells; from++)
        for (int to = from + 1; to <= p->cells; to++)
            p->t[from * (p->cells + 1) + to] =
                t->of(t->arg, token_of(p, from), token_of(p, to) - token_of(p, from));
}

/* The least sum of t if no slice takes more than `bound`; infinite: there is none. */
static double least(struct program *p, double bound)
{
    int w = p->cells + 1;

    for (int i = 0; i < w; i++)
        p->sum[i] = i ? INFINITY : 0;
    for (int k = 1; k <= p->n; k++)
        for (int i = 0; i < w; i++) {
            double *best = &p->sum[k * w + i];

            *best = INFINITY;
            for (int j = i - 1; j >= k - 1; j--) {
                double t = p->t[j * w + i];

                if (t > bound) /* slices that begin earlier take longer still */
                    break;
                if (p->sum[(k - 1) * w + j] + t < *best) {
                    *best = p->sum[(k - 1) * w + j] + t;
                    p->from[k * w + i] = j;
                }
            }
        }
    return p->sum[p->n * w + p->cells];
}

static void take(const struct program *p, int *len)
{
    int w = p->cells + 1, i = p->cells;

    for (int k = p->n; k > 0; k--) {
        int j = p->from[k * w + i];

        len[k - 1] = token_of(p, i) - token_of(p, j);
        i = j;
    }
}

/* m sum t + (p-1) max t for given lengths. */
static double total(const struct program *p, const struct sp_slice_time *t, int stages,
                    int micro_batches, const int *len)
{
    double sum = 0, most = 0;

    for (int k = 0, first = 0; k < p->n; first += len[k++]) {
        double one = t->of(t->arg, first, len[k]);

        sum += one;
        most = fmax(most, one);
    }
    return micro_batches * sum + (stages - 1) * most;
}

static void search(struct program *p, const struct sp_slice_time *t, int stages, int micro_batches,
                   int *found, int *len)
{
    double low = 0, high = p->t[p->cells], most = high;
    double best = total(p, t, stages, micro_batches, len), now;

    /* the least feasible bound, then some between it and none */
    for (int i = 0; i < SEARCHES; i++) {
        double middle = 0.5 * (low + high);

        if (isfinite(least(p, middle)))
            high = middle;
        else
            low = middle;
    }
    low = high;
    for (int i = 0; i < BOUNDS; i++) {
        if (!isfinite(least(p, low * pow(most / low, (double)i / BOUNDS))))
            continue;
        take(p, found);
        now = total(p, t, stages, micro_batches, found);
        if (now < best) {
            best = now;
            memcpy(len, found, (size_t)p->n * sizeof *len);
        }
    }
}

int sp_slices_by_program(const struct sp_slice_time *t, int seq, int n, int stages,
                         int micro_batches, int *len)
{
    int cells = 2 * n > CELLS ? 2 * n : CELLS, err = -ENOMEM, *found;
    struct program p = {.seq = seq, .n = n, .cells = cells < seq ? cells : seq};
    size_t states = (size_t)(n + 1) * (size_t)(p.cells + 1);

    if (n > MOST_SLICES)
        return 0;
    found = calloc((size_t)n, sizeof *found);
    p.t = calloc((size_t)p.cells * (size_t)(p.cells + 1), sizeof *p.t);
    p.sum = malloc(states * sizeof *p.sum);
    p.from = calloc(states, sizeof *p.from);
    if (found && p.t && p.sum && p.from) {
        price(&p, t);
        search(&p, t, stages, micro_batches, found, len);
        err = 0;
    }
    free(found);
    free(p.t);
    free(p.sum);
    free(p.from);
    return err;
}
