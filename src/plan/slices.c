#include "plan/slices.h"
#include "policies/families/multiplexed/multiplex.h"
#include "plan/counts.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sp_slice_costs sp_slice_flops(const struct sp_shape *sh)
{
    const struct sp_model *m = &sh->model;

    return (struct sp_slice_costs){
        .token = sp_product_flops(m, SP_ROLE_QKV) + sp_product_flops(m, SP_ROLE_OUT) +
                 sp_product_flops(m, SP_ROLE_UP) + sp_product_flops(m, SP_ROLE_DOWN),
        /* a product and a sum of d for the score, as many for the output, each head */
        .pair = 4.0 * sh->q_width,
    };
}

double sp_slice_cost(const struct sp_slice_costs *c, int first, int len)
{
    double pairs = (double)len * first + 0.5 * len * (len + 1.0);

    return c->token * len + c->pair * pairs;
}

/* The x up to which the tokens of a sequence take `cost`. */
static double boundary(const struct sp_slice_costs *c, double cost)
{
    double a = 0.5 * c->pair, b = c->token + 0.5 * c->pair;

    return a > 0 ? (sqrt(b * b + 4 * a * cost) - b) / (2 * a) : cost / b;
}

void sp_slices_by_flops(const struct sp_slice_costs *c, int seq, int n, int *len)
{
    double all = sp_slice_cost(c, 0, seq);
    int first = 0;

    for (int k = 0; k < n; k++) {
        int end = k == n - 1 ? seq : (int)lrint(boundary(c, all * (k + 1) / n));

        end = end > first + 1 ? end : first + 1;
        end = end < seq - (n - 1 - k) ? end : seq - (n - 1 - k);
        len[k] = end - first;
        first = end;
    }
}

/* ---- TeraPipe ---------------------------------------------------------------------------- */

/* Bounds looked for, and tried above the least one; so many steps of all programs, about. */
enum { SEARCHES = 24, BOUNDS = 16 };
static const double steps = 1e8;
/* With more slices than can be tried in 20 times that they are of equal times. */
static const double most_steps = 2e9;

struct program {
    const struct sp_slice_costs *c;
    int seq, n, cells;
    double *sum; /* [n+1][cells+1] least sum of t of so many slices up to a boundary */
    int *from;   /* the boundary before */
};

static int token_of(const struct program *p, int cell)
{
    return (int)((int64_t)p->seq * cell / p->cells);
}

static double time_of(const struct program *p, int from, int to)
{
    int first = token_of(p, from);

    return sp_slice_cost(p->c, first, token_of(p, to) - first);
}

/* The least sum of t where no slice takes more than `bound`; infinite: there is none. */
static double least(struct program *p, double bound)
{
    int w = p->cells + 1;

    for (int i = 0; i < w; i++)
        p->sum[i] = i ? INFINITY : 0;
    for (int k = 1; k <= p->n; k++)
        for (int i = 0; i < w; i++) {
            double *best = &p->sum[k * w + i];

            *best = INFINITY;
            for (int j = i - 1; j >= 0; j--) {
                double t = time_of(p, j, i);

                if (t > bound) /* as would all that begin earlier */
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

/* m sum t + (p-1) max t of lengths. */
static double total(const struct program *p, int stages, int micro_batches, const int *len)
{
    double most = 0;

    for (int k = 0, first = 0; k < p->n; first += len[k++])
        most = fmax(most, sp_slice_cost(p->c, first, len[k]));
    return micro_batches * sp_slice_cost(p->c, 0, p->seq) + (stages - 1) * most;
}

int sp_slices_by_program(const struct sp_slice_costs *c, int seq, int n, int stages,
                         int micro_batches, int *len)
{
    int cells = (int)fmax(2 * n, sqrt(2 * steps / (SEARCHES + BOUNDS) / n));
    size_t states;
    struct program p = {.c = c, .seq = seq, .n = n, .cells = cells < seq ? cells : seq};
    double low = sp_slice_cost(c, 0, seq) / n, high = sp_slice_cost(c, 0, seq);
    int *found, ret = -ENOMEM;

    if ((SEARCHES + BOUNDS) * 0.5 * n * p.cells * p.cells > most_steps) {
        sp_slices_by_flops(c, seq, n, len);
        return 0;
    }
    found = calloc((size_t)n, sizeof *found);
    states = (size_t)(n + 1) * (size_t)(p.cells + 1);
    p.sum = malloc(states * sizeof *p.sum);
    p.from = calloc(states, sizeof *p.from);
    if (!p.sum || !p.from || !found)
        goto out;
    /* the least bound that can be kept, then some between it and none */
    for (int i = 0; i < SEARCHES; i++) {
        double middle = 0.5 * (low + high);

        if (isfinite(least(&p, middle)))
            high = middle;
        else
            low = middle;
    }
    low = high;
    high = sp_slice_cost(c, 0, seq);
    sp_slices_by_flops(c, seq, n, len); /* to begin with: boundaries to the token */
    for (int i = 0; i < BOUNDS; i++) {
        least(&p, low * pow(high / low, (double)i / BOUNDS));
        take(&p, found);
        if (total(&p, stages, micro_batches, found) < total(&p, stages, micro_batches, len))
            memcpy(len, found, (size_t)n * sizeof *len);
    }
    ret = 0;
out:
    free(found);
    free(p.sum);
    free(p.from);
    return ret;
}

/* ---- the plan ---------------------------------------------------------------------------- */

static int cut(const struct sp_plan *plan, const struct sp_shape *sh, const char *how, int *len)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_slice_costs c = sp_slice_flops(sh);
    struct sp_counts want = {.option = "partition-slices",
                             .unit = "tokens",
                             .whole = "the sequence",
                             .parts = "slices",
                             .total = sh->seq,
                             .n = lay->slices};

    if (!strcmp(how, "length")) {
        for (int k = 0; k < lay->slices; k++) /* the first ones take the rest */
            len[k] = sh->seq / lay->slices + (k < sh->seq % lay->slices);
        return 0;
    }
    if (!strcmp(how, "flops")) {
        sp_slices_by_flops(&c, sh->seq, lay->slices, len);
        return 0;
    }
    if (!strcmp(how, "dp"))
        return sp_slices_by_program(&c, sh->seq, lay->slices, lay->stages, lay->micro_batches, len)
                   ? sp_error(ENOMEM, "no memory for the lengths of %d slices", lay->slices)
                   : 0;
    if (!strpbrk(how, "0123456789"))
        return sp_error(EINVAL,
                        "--partition-slices %s: want length, flops, dp or the tokens of each "
                        "slice, as 96,64,48,48",
                        how);
    return sp_counts_parse(how, &want, len);
}

/* The token of a slice at which a part of its work is done. */
static int token_at(const void *costs, int first, int len, double part)
{
    const struct sp_slice_costs *c = costs;
    double want = part * sp_slice_cost(c, first, len);
    int low = 0, high = len;

    while (low < high) {
        int middle = (low + high) / 2;

        if (sp_slice_cost(c, first, middle) + 0.5 * c->token < want)
            low = middle + 1;
        else
            high = middle;
    }
    return first + low;
}

/* Parts of slices that several stages compute: of the same time, or, of equal slices, equal. */
static int cut_parts(struct sp_plan *plan, const struct sp_slice_costs *costs, bool equal)
{
    const struct sp_slice_costs token = {.token = 1};

    return plan->family->cut ? plan->family->cut(plan, token_at, equal ? &token : costs) : 0;
}

int sp_plan_cut(struct sp_plan *plan, const struct sp_shape *sh, const char *how)
{
    int n = plan->layout.slices, first = 0, err;
    struct sp_slice_costs c = sp_slice_flops(sh);
    int *len;
    double *share;

    how = how ? how : plan->def->slicing ? plan->def->slicing : "length";
    if (n > sh->seq)
        return sp_error(EINVAL, "%d slices of a sequence of %d tokens: there are at most %d", n,
                        sh->seq, sh->seq);
    len = calloc((size_t)n, sizeof *len);
    share = calloc((size_t)n, sizeof *share);
    err = len && share ? cut(plan, sh, how, len) : sp_error(ENOMEM, "no memory for %d slices", n);
    for (int k = 0; !err && k < n; k++) {
        share[k] = sp_slice_cost(&c, first, len[k]) / sp_slice_cost(&c, 0, sh->seq);
        first += len[k];
    }
    err = err ? err : sp_plan_slices(plan, len, share);
    err = err ? err : cut_parts(plan, &c, !strcmp(how, "length"));
    free(len);
    free(share);
    return err;
}

void sp_slices_text(const struct sp_plan *plan, int seq, char *text, size_t n)
{
    enum { HEAD = 12, TAIL = 2 };
    int slices = plan->layout.slices;
    size_t used = 0;

    *text = '\0';
    for (int k = 0, first, len; k < slices && used < n; k++) {
        if (k == HEAD && slices > HEAD + TAIL) {
            used += (size_t)snprintf(text + used, n - used, " ...");
            k = slices - TAIL;
        }
        sp_plan_slice_tokens(plan, seq, k, &first, &len);
        if (used < n)
            used += (size_t)snprintf(text + used, n - used, "%s%d", k ? " " : "", len);
    }
}
