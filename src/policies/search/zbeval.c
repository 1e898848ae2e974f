/*
 * Zero-bubble search: the problem, and the score of an order. Orders are played by a special loop
 * that goes down the stages with F and up with B, so that a stage runs many ops at a time. The
 * general player (policies/simulation/player.h) finds the same times but switches stages after
 * nearly every op; searches that play a million orders would take 2.5 times as long.
 */
#include "policies/search/zbauto.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void set_costs(const struct sp_layout *lay, struct sp_zb *zb)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    const struct sp_costs *c = lay->costs ? lay->costs : &unit;
    double at = 0;

    zb->comm = c->comm;
    zb->least = 0;
    for (int s = 0; s < zb->p; s++) {
        double *cost = zb->cost + s * SP_PASSES, sb = c->scale_b ? c->scale_b[s] : 1, sum;

        cost[SP_F] = c->f * (c->scale_f ? c->scale_f[s] : 1);
        cost[SP_B] = c->b * sb;
        cost[SP_W] = c->w * (c->scale_w ? c->scale_w[s] : sb);
        zb->first[s] = at;
        sum = zb->m * (cost[SP_F] + cost[SP_B] + cost[SP_W]) + (zb->span ? 0 : at);
        if (sum > zb->least)
            zb->least = sum;
        at += cost[SP_F] + zb->comm;
    }
}

int sp_zb_create(const struct sp_layout *lay, int limit, bool span, struct sp_zb *zb)
{
    size_t p = (size_t)lay->stages, m = (size_t)lay->micro_batches;
    double *block = calloc(p * (SP_PASSES + 1 + 8 * m), sizeof *block);
    int *ints = calloc(p * (1 + SP_PASSES + 2 * m), sizeof *ints);

    if (!block || !ints) {
        free(block);
        free(ints);
        return -ENOMEM;
    }
    *zb = (struct sp_zb){.p = lay->stages,
                         .m = lay->micro_batches,
                         .n = 3 * lay->micro_batches,
                         .limit = limit,
                         .span = span};
    zb->cost = block;
    zb->first = zb->cost + p * SP_PASSES;
    zb->start = zb->first + p;
    zb->end = zb->start + 3 * p * m;
    zb->end_f = zb->end + 3 * p * m;
    zb->end_b = zb->end_f + p * m;
    zb->pc = ints;
    zb->k = zb->pc + p;
    zb->at_f = zb->k + p * SP_PASSES;
    zb->at_b = zb->at_f + p * m;
    set_costs(lay, zb);
    return 0;
}

void sp_zb_destroy(struct sp_zb *zb)
{
    free(zb->cost);
    free(zb->pc);
}

/* Runs the ops of a stage up to the first that must wait; returns how many ran. */
static int advance(struct sp_zb *zb, const unsigned char *word, int s)
{
    const double *cost = zb->cost + s * SP_PASSES;
    int row = s * zb->m, begin = zb->pc[s], i = begin;
    int *k = zb->k + s * SP_PASSES;
    double *start = zb->start + s * zb->n, *end = zb->end + s * zb->n;
    double t = i ? end[i - 1] : 0;

    for (; i < zb->n; i++) {
        int pass = word[i], mb = k[pass];
        double ready = 0;

        if (pass == SP_F && s > 0) {
            if (mb >= zb->k[(s - 1) * SP_PASSES + SP_F])
                break;
            ready = zb->end_f[row - zb->m + mb] + zb->comm;
        } else if (pass == SP_B && s < zb->p - 1) {
            if (mb >= zb->k[(s + 1) * SP_PASSES + SP_B])
                break;
            ready = zb->end_b[row + zb->m + mb] + zb->comm;
        }
        start[i] = t > ready ? t : ready;
        end[i] = t = start[i] + cost[pass];
        k[pass]++;
        if (pass == SP_F) {
            zb->end_f[row + mb] = t;
            zb->at_f[row + mb] = i;
        } else if (pass == SP_B) {
            zb->end_b[row + mb] = t;
            zb->at_b[row + mb] = i;
        }
    }
    zb->pc[s] = i;
    return i - begin;
}

struct sp_zb_score sp_zb_play(struct sp_zb *zb, const unsigned char *words)
{
    double makespan = 0, span = 0, sum = 0;
    int left = zb->p * zb->n, ran = 1;

    memset(zb->pc, 0, (size_t)zb->p * sizeof *zb->pc);
    memset(zb->k, 0, (size_t)zb->p * SP_PASSES * sizeof *zb->k);
    zb->budget -= left;
    for (bool up = false; left > 0 && ran > 0; up = !up) { /* alternately down and up */
        ran = 0;
        for (int i = 0; i < zb->p; i++) {
            int s = up ? zb->p - 1 - i : i;

            ran += advance(zb, words + s * zb->n, s);
        }
        left -= ran;
    }
    if (left > 0)
        return (struct sp_zb_score){.first = -1};
    for (int s = 0; s < zb->p; s++) {
        double end = zb->end[s * zb->n + zb->n - 1];

        makespan = fmax(makespan, end);
        span = fmax(span, end - zb->start[s * zb->n]);
        sum += end;
    }
    return (struct sp_zb_score){.first = zb->span ? span : makespan,
                                .second = zb->span ? makespan : span,
                                .mean = sum / zb->p};
}

bool sp_zb_legal(const struct sp_zb *zb, const unsigned char *word)
{
    int f = 0, b = 0, w = 0;

    for (int i = 0; i < zb->n; i++) {
        f += word[i] == SP_F;
        b += word[i] == SP_B;
        w += word[i] == SP_W;
        if (b > f || w > b || f - w > zb->limit)
            return false;
    }
    return f == zb->m && b == zb->m && w == zb->m;
}

bool sp_zb_better(const struct sp_zb_score *a, const struct sp_zb_score *b)
{
    double rounding = 1e-9 * fabs(b->first);

    if (a->first < 0 || b->first < 0)
        return a->first >= 0 && b->first < 0;
    if (fabs(a->first - b->first) > rounding)
        return a->first < b->first;
    if (fabs(a->second - b->second) > rounding)
        return a->second < b->second;
    return a->mean < b->mean - rounding;
}
