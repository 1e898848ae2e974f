#include "plan/adapipe.h"
#include "plan/cost/layer_costs.h"
#include "policies/families/activations.h"
#include "sp_error.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The search simulates at most so many ops, then takes the best so far: about a second of one
 * core. */
#define MOST_OPS 100000000

struct work {
    const struct sp_adapipe *in;
    int most;                   /* layers a stage may have: every other one takes one */
    struct sp_adapipe_mix *mix; /* [stages][most+1] */
    double *time;               /* [stages][most+1] t_s; INFINITY: does not fit */
    double *f, *b;              /* [stages] of the current partition */
    double *room;               /* [2 stages] */
    double *sum;                /* [layers+1] */
    short *take;                /* [stages][layers+1] */
    int *counts;                /* [stages] the current partition */
    int *best;                  /* [stages] the shortest so far */
    double makespan;            /* of it */
    int64_t ops_left;           /* of MOST_OPS */
};

static size_t at(const struct work *w, int stage, int count)
{
    return (size_t)stage * ((size_t)w->most + 1) + (size_t)count;
}

/* ---- the time of a stage, and of all ----------------------------------------------------- */

static double forward_us(const struct sp_adapipe *in, int stage, int count)
{
    return count * sp_layer_fwd_us(&in->costs) + (stage == 0 ? in->costs.embed_fwd_us : 0);
}

static double backward_us(const struct work *w, int stage, int count)
{
    const struct sp_layer_costs *c = &w->in->costs;
    double us = count * (c->bwd_us + c->wgrad_us) + w->mix[at(w, stage, count)].us;

    if (stage == 0)
        us += c->embed_bwd_us;
    return stage == w->in->stages - 1 ? us + c->head_us : us;
}

static void tabulate(struct work *w)
{
    for (int s = 0; s < w->in->stages; s++) {
        w->time[at(w, s, 0)] = INFINITY;
        for (int k = 1; k <= w->most; k++) {
            sp_adapipe_cheapest(w->in, s, k, &w->mix[at(w, s, k)]);
            w->time[at(w, s, k)] = forward_us(w->in, s, k) + backward_us(w, s, k);
        }
    }
}

/*
 * Round i holds B_(i-p+s) and then F_i of every stage s, in the order of 1F1B on the stage. This B
 * waits for a B of round i-1 on stage s+1, and this F for the F of the same round on stage s-1.
 */
double sp_1f1b_makespan(int stages, int micro_batches, const double *f, const double *b,
                        double *room)
{
    double *free_at = room, *b_end = room + stages;
    int p = stages, m = micro_batches;

    for (int s = 0; s < p; s++)
        free_at[s] = b_end[s] = 0;
    for (int i = 0; i < m + p; i++) {
        double arrives = 0;

        for (int s = 0; s < p; s++) {
            int k = i - p + s;

            if (k >= 0 && k < m) {
                double start = s < p - 1 && b_end[s + 1] > free_at[s] ? b_end[s + 1] : free_at[s];

                free_at[s] = b_end[s] = start + b[s];
            }
            if (i < m) {
                free_at[s] = (arrives > free_at[s] ? arrives : free_at[s]) + f[s];
                arrives = free_at[s];
            }
        }
    }
    return b_end[0];
}

/* The makespan of a partition; INFINITY if it does not fit or is surely not below `worth`. */
static double simulate(struct work *w, const int *counts, double worth)
{
    int p = w->in->stages, m = w->in->micro_batches;
    double before = 0;

    for (int s = 0; s < p; s++) {
        double t = w->time[at(w, s, counts[s])];

        /* stage s starts when those before it have forwarded once, and they end after it */
        if (!(before + m * t < worth))
            return INFINITY;
        before += t;
        w->f[s] = forward_us(w->in, s, counts[s]);
        w->b[s] = backward_us(w, s, counts[s]);
    }
    w->ops_left -= 2 * (int64_t)p * (m + p);
    return sp_1f1b_makespan(p, m, w->f, w->b, w->room);
}

static void keep_if_shorter(struct work *w, double makespan, const int *counts)
{
    if (makespan < w->makespan) {
        w->makespan = makespan;
        memcpy(w->best, counts, (size_t)w->in->stages * sizeof *counts);
    }
}

/* ---- partitions -------------------------------------------------------------------------- */

/* Finds the partition with the smallest sum of t_s among those with no t_s above `worst` and puts
 * it into w->counts. Returns the sum, INFINITY if there is none. */
static double smallest_sum(struct work *w, double worst)
{
    int p = w->in->stages, L = w->in->layers;
    double sum;

    for (int i = 0; i <= L; i++)
        w->sum[i] = i == L ? 0 : INFINITY;
    for (int s = p - 1; s >= 0; s--) {
        for (int i = s; i <= L - (p - s); i++) { /* ascending: w->sum[i + k] is still of s + 1 */
            double least = INFINITY;

            for (int k = 1; i + k <= L - (p - 1 - s); k++) {
                double t = w->time[at(w, s, k)];

                if (t <= worst && t + w->sum[i + k] < least) {
                    least = t + w->sum[i + k];
                    w->take[(size_t)s * (size_t)L + (size_t)i] = (short)k;
                }
            }
            w->sum[i] = least;
        }
    }
    sum = w->sum[0];
    for (int s = 0, i = 0; isfinite(sum) && s < p; i += w->counts[s++])
        w->counts[s] = w->take[(size_t)s * (size_t)L + (size_t)i];
    return sum;
}

/* The smallest possible largest value of a stage, value[stages][most+1]. */
static double smallest_worst(const struct work *w, const double *value)
{
    int p = w->in->stages, L = w->in->layers;

    for (int i = 0; i <= L; i++)
        w->sum[i] = i == L ? 0 : INFINITY;
    for (int s = p - 1; s >= 0; s--) {
        for (int i = s; i <= L - (p - s); i++) {
            double least = INFINITY;

            for (int k = 1; i + k <= L - (p - 1 - s); k++)
                least = fmin(least, fmax(value[at(w, s, k)], w->sum[i + k]));
            w->sum[i] = least;
        }
    }
    return w->sum[0];
}

/* Starts from w->counts and always makes the best move of a single layer, while the step gets
 * shorter. */
static void descend(struct work *w)
{
    int p = w->in->stages, from, to;
    double now = simulate(w, w->counts, INFINITY);

    keep_if_shorter(w, now, w->counts);
    do {
        from = to = -1;
        for (int a = 0; a < p; a++) {
            for (int b = 0; w->counts[a] > 1 && b < p && w->ops_left > 0; b++) {
                double t;

                if (a == b)
                    continue;
                w->counts[a]--;
                w->counts[b]++;
                t = simulate(w, w->counts, now);
                if (t < now) {
                    now = t;
                    from = a;
                    to = b;
                }
                w->counts[a]++;
                w->counts[b]--;
            }
        }
        if (from >= 0) {
            w->counts[from]--;
            w->counts[to]++;
        }
    } while (from >= 0);
    keep_if_shorter(w, now, w->counts);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Descends from the partition of smallest sum under each max t_s that may give the smallest model
 * time, and from the even partition. Returns the smallest model time. */
static double search(struct work *w, double *limits)
{
    int p = w->in->stages, n = p * (w->most + 1);
    double least_sum = smallest_sum(w, INFINITY), model = INFINITY;
    double least_worst = smallest_worst(w, w->time);
    int m = w->in->micro_batches;

    memcpy(limits, w->time, (size_t)n * sizeof *limits);
    qsort(limits, (size_t)n, sizeof *limits, by_value);
    for (int i = 0; i < n && isfinite(limits[i]); i++) {
        double sum;

        if (limits[i] < least_worst || (i > 0 && limits[i] <= limits[i - 1]))
            continue;
        if (least_sum + (m - 1) * limits[i] >= model)
            break;
        sum = smallest_sum(w, limits[i]);
        model = fmin(model, sum + (m - 1) * limits[i]);
        descend(w);
    }
    for (int s = 0, first; s < p; s++)
        sp_partition(w->in->layers, p, s, &first, &w->counts[s]);
    descend(w);
    return model;
}

/* ---- entry ----------------------------------------------------------------------------- */

static int refuse(const struct work *w, double *value)
{
    const double MiB = 1024 * 1024;
    const struct sp_adapipe *in = w->in;
    double needs;

    for (int s = 0; s < in->stages; s++) {
        for (int k = 0; k <= w->most; k++)
            value[at(w, s, k)] = k ? (double)sp_adapipe_least_bytes(in, s, k) : INFINITY;
    }
    needs = smallest_worst(w, value);
    return sp_error(EINVAL,
                    "memory limit %.2f MiB: %d layers on %d stages need %.2f MiB a stage, however "
                    "they are dealt out and recomputed (%.0f bytes)",
                    (double)in->memory.limit_bytes / MiB, in->layers, in->stages,
                    ceil(100 * needs / MiB) / 100, needs);
}

static void report(const struct work *w, int *counts, unsigned char *mode,
                   struct sp_adapipe_figures *fig)
{
    int l = 0;

    fig->makespan_us = w->makespan;
    fig->peak_bytes = 0;
    for (int s = 0; s < w->in->stages; s++) {
        const struct sp_adapipe_mix *x = &w->mix[at(w, s, w->best[s])];

        counts[s] = w->best[s];
        for (int j = SP_RECOMPUTE_MODES - 1; j >= 0; j--) {
            memset(mode + l, j, (size_t)x->n[j]);
            l += x->n[j];
        }
        fig->peak_bytes = x->bytes > fig->peak_bytes ? x->bytes : fig->peak_bytes;
    }
}

static void create(struct work *w)
{
    size_t p = (size_t)w->in->stages, L = (size_t)w->in->layers, n = p * ((size_t)w->most + 1);

    w->mix = calloc(n, sizeof *w->mix);
    w->time = malloc(n * sizeof *w->time);
    w->f = malloc(4 * p * sizeof *w->f);
    w->sum = malloc((L + 1) * sizeof *w->sum);
    w->take = malloc(p * L * sizeof *w->take);
    w->counts = malloc(2 * p * sizeof *w->counts);
    SP_NEED(w->mix && w->time && w->f && w->sum && w->take && w->counts,
            "no memory to plan %d layers on %d stages", w->in->layers, w->in->stages);
    w->b = w->f + p;
    w->room = w->b + p;
    w->best = w->counts + p;
}

static void destroy(struct work *w)
{
    free(w->mix);
    free(w->time);
    free(w->f);
    free(w->sum);
    free(w->take);
    free(w->counts);
}

int sp_adapipe_choose(const struct sp_adapipe *in, int *counts, unsigned char *mode,
                      struct sp_adapipe_figures *figures)
{
    struct work w = {
        .in = in, .most = in->layers - in->stages + 1, .makespan = INFINITY, .ops_left = MOST_OPS};
    struct sp_adapipe_figures fig = {0};
    double *limits;
    int ret = 0;

    if (w.most < 1 || in->layers > SHRT_MAX)
        return sp_error(EINVAL, "%d layers cannot be dealt out to %d stages", in->layers,
                        in->stages);
    limits = malloc((size_t)in->stages * ((size_t)w.most + 1) * sizeof *limits);
    SP_NEED(limits, "no memory to plan %d layers", in->layers);
    create(&w);
    tabulate(&w);
    if (isinf(smallest_worst(&w, w.time)))
        ret = refuse(&w, limits);
    else
        fig.model_us = search(&w, limits);
    if (!ret && isinf(w.makespan)) /* the times sum to infinity, so no partition was kept */
        ret = sp_error(EINVAL, "a step of %d layers on %d stages takes longer than can be computed",
                       in->layers, in->stages);
    if (!ret)
        report(&w, counts, mode, &fig);
    if (!ret && figures)
        *figures = fig;
    destroy(&w);
    free(limits);
    return ret;
}

int sp_adapipe_take(struct sp_plan *plan, const struct sp_shape *shape,
                    const struct sp_machine *machine, int64_t limit)
{
    struct sp_adapipe in = {.stages = plan->layout.stages,
                            .layers = shape->model.layers,
                            .micro_batches = plan->layout.micro_batches};
    int *counts = calloc((size_t)in.stages, sizeof *counts), err = counts ? 0 : -ENOMEM;
    unsigned char *mode = calloc((size_t)in.layers, 1);

    err = mode ? err : -ENOMEM;
    sp_layer_costs_estimate(machine, shape, &in.costs);
    err = err ? err : sp_adapipe_memory_of(shape, in.stages, limit, &in.memory);
    err = err ? err : sp_adapipe_plan(&in, plan, shape, counts, mode, NULL);
    err = err ? err : sp_plan_partition(plan, counts);
    if (!err)
        plan->recompute = mode;
    else
        free(mode);
    free(counts);
    return err;
}
