/* The order of the slices of a forward with multiplexed slices (struct sp_multiplex_turns). */
#include "policies/families/multiplexed/multiplex.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int phase(const struct sp_layout *lay, int stage, int g, enum sp_phase which, int n,
                 int *global, int *slice)
{
    for (int k = 0; k < lay->slices; k++) {
        int first, last;

        sp_slice_stages(lay, g, k, &first, &last);
        if (sp_slice_phase(lay, g, k) == which && stage >= first && stage <= last) {
            global[n] = g;
            slice[n++] = k;
        }
    }
    return n;
}

/* Lists the slices of which a stage computes parts in a forward, in order: left ones of earlier
 * stages and its own, its steady ones, right ones of its own and of later stages. Returns how many,
 * at most sp_part_stride. */
static int forward(const struct sp_layout *lay, int stage, int *global, int *slice)
{
    int n = 0;

    for (int g = 0; g <= stage; g++)
        n = phase(lay, stage, g, SP_LEFT, n, global, slice);
    n = phase(lay, stage, stage, SP_STEADY, n, global, slice);
    for (int g = stage; g < lay->stages; g++)
        n = phase(lay, stage, g, SP_RIGHT, n, global, slice);
    return n;
}

/* ---- ranks ---------------------------------------------------------------------------------- */

struct slice_start {
    int global, slice, order;
    double start;
};

struct play {
    const struct sp_layout *lay;
    struct sp_multiplex_turns *t;
    int *pc;      /* [stages] */
    double *free; /* [stages] */
    double *end;  /* [stages][slices] -1: not yet */
    struct slice_start *start;
    int n;
};

static double *end_of(const struct play *y, int g, int k)
{
    return &y->end[g * y->lay->slices + k];
}

/* True if the slice is next for all its stages and its producers have ended; *at is when it can
 * begin. */
static bool is_next(const struct play *y, int g, int k, double *at)
{
    int first, last;

    *at = 0;
    if ((g > 0 && *end_of(y, g - 1, k) < 0) || (k > 0 && *end_of(y, g, k - 1) < 0))
        return false;
    if (g > 0)
        *at = *end_of(y, g - 1, k);
    if (k > 0 && *end_of(y, g, k - 1) > *at)
        *at = *end_of(y, g, k - 1);
    sp_slice_stages(y->lay, g, k, &first, &last);
    for (int s = first; s <= last; s++) {
        if (y->t->place[(s * y->lay->stages + g) * y->lay->slices + k] != y->pc[s])
            return false;
        *at = y->free[s] > *at ? y->free[s] : *at;
    }
    return true;
}

/* A slice that q stages share takes time 1/q. */
static void run(struct play *y, int g, int k, double at)
{
    int first, last;

    sp_slice_stages(y->lay, g, k, &first, &last);
    *end_of(y, g, k) = at + 1.0 / (last - first + 1);
    for (int s = first; s <= last; s++) {
        y->pc[s]++;
        y->free[s] = *end_of(y, g, k);
    }
    y->start[y->n] = (struct slice_start){.global = g, .slice = k, .order = y->n, .start = at};
    y->n++;
}

static int by_start(const void *a, const void *b)
{
    const struct slice_start *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->order - y->order;
}

static void rank(struct play *y)
{
    int stride = sp_part_stride(y->lay), before = -1;

    while (y->n > before) {
        before = y->n;
        for (int s = 0; s < y->lay->stages; s++) {
            int at = s * stride + y->pc[s];
            double start;

            if (y->pc[s] < y->t->n[s] && is_next(y, y->t->global[at], y->t->slice[at], &start))
                run(y, y->t->global[at], y->t->slice[at], start);
        }
    }
    qsort(y->start, (size_t)y->n, sizeof *y->start, by_start);
    for (int i = 0; i < y->n; i++)
        y->t->rank[y->start[i].global * y->lay->slices + y->start[i].slice] = i;
}

static void tabulate(const struct sp_layout *lay, struct sp_multiplex_turns *t)
{
    int p = lay->stages, stride = sp_part_stride(lay);

    for (int s = 0; s < p; s++) {
        t->n[s] = forward(lay, s, t->global + s * stride, t->slice + s * stride);
        for (int i = 0; i < t->n[s]; i++)
            t->place[(s * p + t->global[s * stride + i]) * lay->slices + t->slice[s * stride + i]] =
                i;
    }
}

int sp_multiplex_turns_create(const struct sp_layout *lay, struct sp_multiplex_turns *t)
{
    size_t p = (size_t)lay->stages, all = p * (size_t)sp_part_stride(lay);
    size_t slices = p * (size_t)lay->slices;
    struct play y = {.lay = lay, .t = t};
    bool complete;

    *t = (struct sp_multiplex_turns){.global = calloc(all, sizeof *t->global),
                                     .slice = calloc(all, sizeof *t->slice),
                                     .n = calloc(p, sizeof *t->n),
                                     .place = malloc(p * slices * sizeof *t->place),
                                     .rank = calloc(slices, sizeof *t->rank)};
    y.pc = calloc(p, sizeof *y.pc);
    y.free = calloc(p, sizeof *y.free);
    y.end = malloc(slices * sizeof *y.end);
    y.start = calloc(slices, sizeof *y.start);
    complete =
        t->global && t->slice && t->n && t->place && t->rank && y.pc && y.free && y.end && y.start;
    if (complete) {
        memset(t->place, -1, p * slices * sizeof *t->place);
        for (size_t i = 0; i < slices; i++)
            y.end[i] = -1;
        tabulate(lay, t);
        rank(&y);
    }
    free(y.start);
    free(y.end);
    free(y.free);
    free(y.pc);
    if (y.n == (int)slices)
        return 0;
    sp_multiplex_turns_destroy(t);
    return complete ? -EINVAL : -ENOMEM;
}

void sp_multiplex_turns_destroy(struct sp_multiplex_turns *t)
{
    free(t->global);
    free(t->slice);
    free(t->n);
    free(t->place);
    free(t->rank);
    *t = (struct sp_multiplex_turns){0};
}
