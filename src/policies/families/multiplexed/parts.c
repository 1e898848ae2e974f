/*
 * Cuts the slices that several stages compute (struct sp_shared_slices: cut). A token costs c, and
 * a query costs a for each key. Keys stay with the stage that computed their part, for all later
 * queries. So in slice k, of T tokens after F others, a token at x costs c + a (T - x), and each
 * key of an earlier slice costs a T on the stage where that slice's cut put it. Let x_k(s) be the
 * tokens of the first share s of the stages. All stages have equal work if
 *
 *   c x_k + a (T x_k - x_k^2 / 2) + a T sum_{j<k} x_j(s) = s (c T + a T^2 / 2 + a T F)
 *
 * for the left slices, the first ones: a quadratic equation for x_k. Right slices read mostly keys
 * that are spread evenly over the stages, so their parts are equal, unless more stages share the
 * slice on the left (fewer than 2p slices). x_k is the same function for any number of stages that
 * share slice k, so parts of two stages overlap as their shares do.
 */
#include "policies/families/multiplexed/multiplex.h"
#include "policies/plan.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST = 4, /* a part has at least a fourth of the tokens of an equal one */
    SHORT = 8, /* a slice with fewer tokens per stage is cut into equal parts */
    MOST = SP_MULTIPLEX_STAGES
};

/* A point j/of at which some stage's slice is cut. */
struct share {
    int j, of;
    double x;    /* tokens of the slice before it */
    double keys; /* the same for all earlier slices */
};

static int by_share(const void *a, const void *b)
{
    const struct share *s = a, *t = b;

    return s->j * t->of - t->j * s->of;
}

static double share_of(const struct share *s)
{
    return (double)s->j / s->of;
}

/* Cuts a slice of T tokens, after F others, at the shares s[n], which ascend to 1. */
static void balance(double token, double pair, double T, double F, struct share *s, int n)
{
    double all = token * T + pair * T * (T / 2 + F), linear = token + pair * T, at = 0, last = 0;

    for (int i = 0; i < n; i++) {
        double work = share_of(&s[i]) * all - pair * T * s[i].keys;
        double root = linear * linear - 2 * pair * work;
        double x = pair > 0 ? (linear - sqrt(root > 0 ? root : 0)) / pair : work / linear;
        double least = at + T * (share_of(&s[i]) - last) / LEAST;

        at = s[i].x = x > least ? x : least;
        last = share_of(&s[i]);
    }
    for (int i = 0; i < n; i++)
        s[i].x *= T / at;
}

/* True if so many stages share the slice for some global stage. */
static bool is_cut(const struct sp_layout *lay, int slice, int of)
{
    for (int g = 0; g < lay->stages; g++) {
        int first, last;

        sp_slice_stages(lay, g, slice, &first, &last);
        if (last - first + 1 == of)
            return true;
    }
    return false;
}

/* Writes the parts of a slice of which `share` has the cuts, each at a multiple of `unit`. */
struct parts {
    const struct sp_layout *lay;
    int unit, *part_token;
    struct share share[MOST * (MOST + 1) / 2];
    int n;
};

static int write_parts(const struct parts *p, int slice, int first, int len)
{
    const struct sp_layout *lay = p->lay;
    int *part_token = p->part_token;

    for (int i = 0; i < p->n; i++) {
        const struct share *s = &p->share[i];
        int *at = &part_token[(s->of * lay->slices + slice) * (lay->stages + 1)];

        at[0] = first;
        at[s->j] = first + (int)floor(s->x / p->unit + 0.5) * p->unit;
    }
    for (int of = 1; of <= lay->stages; of++) {
        const int *at = &part_token[(of * lay->slices + slice) * (lay->stages + 1)];

        for (int j = 1; j <= of; j++)
            if (at[j] <= at[j - 1] && is_cut(lay, slice, of))
                return sp_error(EINVAL,
                                "slice %d of %d tokens cannot be shared out to %d stages%s: take "
                                "longer slices or fewer stages",
                                slice, len, of, p->unit > 1 ? " of devices that share tokens" : "");
    }
    return 0;
}

/* The number of entries of part_token. */
static size_t tokens_of(const struct sp_layout *lay)
{
    return (size_t)lay->slices * (size_t)(lay->stages + 1) * (size_t)(lay->stages + 1);
}

static int allocate(struct sp_multiplex_cut *multiplex, const struct sp_layout *lay)
{
    free(multiplex->part_token);
    multiplex->part_token = calloc(tokens_of(lay), sizeof *multiplex->part_token);
    return multiplex->part_token
               ? 0
               : sp_error(ENOMEM, "no memory for parts of %d slices", lay->slices);
}

int sp_multiplex_cut_like(struct sp_plan *plan, const struct sp_plan *from)
{
    const struct sp_multiplex_cut *cut = sp_multiplex_cut_of(&from->layout);
    struct sp_multiplex_cut *own = sp_multiplex_cut_of(&plan->layout);
    int err = cut->part_token ? allocate(own, &plan->layout) : 0;

    if (!err && cut->part_token)
        memcpy(own->part_token, cut->part_token,
               tokens_of(&plan->layout) * sizeof *own->part_token);
    return err;
}

int sp_multiplex_cut_parts(struct sp_plan *plan, int unit, double token, double pair)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_multiplex_cut *multiplex = sp_multiplex_cut_of(lay);
    struct parts p = {.lay = lay, .unit = unit};
    int err = allocate(multiplex, lay);

    if (err)
        return err;
    p.part_token = multiplex->part_token;
    for (int of = 1; of <= lay->stages; of++)
        for (int j = 1; j <= of; j++)
            p.share[p.n++] = (struct share){.j = j, .of = of};
    qsort(p.share, (size_t)p.n, sizeof *p.share, by_share);
    for (int k = 0; !err && k < lay->slices; k++) {
        int first, len;
        bool equal;

        sp_plan_slice_tokens(plan, 0, k, &first, &len);
        equal = k >= lay->stages - 1 || 2 * k >= lay->slices || len < SHORT * unit * lay->stages;
        balance(equal ? 1 : token, equal ? 0 : pair, len, first, p.share, p.n);
        err = write_parts(&p, k, first, len);
        for (int i = 0; i < p.n; i++)
            p.share[i].keys += p.share[i].x;
    }
    return err;
}
