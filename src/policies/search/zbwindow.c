/*
 * Zero-bubble search: what is free in a window of the order, and between which times. The ops that
 * start in [t0, t1) are free; those before keep their times, those after their order. The head of a
 * free op is when it can start, its tail how long it takes from there to the end of a stage at
 * least, both from all that must come before it and after it.
 */
#include "policies/search/zbwindow.h"
#include <math.h>

/* Whether a comes before b, of the same stage, in every legal order. */
bool sp_zb_implied(const struct sp_zb *zb, const struct sp_zb_op *a, const struct sp_zb_op *b)
{
    if (a->pass == b->pass)
        return a->mb < b->mb;
    return b->mb >= a->mb + (a->pass > b->pass ? zb->limit : 0);
}

/* The stage that needs what an op sends; -1: none. */
static int receiver(const struct sp_zb *zb, int s, int pass)
{
    int to = pass == SP_F ? s + 1 : pass == SP_B ? s - 1 : -1;

    return to < zb->p ? to : -1;
}

/* Where stage `to` has the F or B of a micro-batch in its word. */
static int place(const struct sp_zb *zb, int to, int pass, int mb)
{
    return to * zb->n + (pass == SP_F ? zb->at_f : zb->at_b)[to * zb->m + mb];
}

/* Time by which b follows a at least; negative: it need not follow. */
double sp_zb_follows(const struct sp_zb *zb, const struct sp_zb_op *a, const struct sp_zb_op *b)
{
    if (a->s == b->s)
        return sp_zb_implied(zb, a, b) ? a->cost : -1;
    if (a->pass == b->pass && a->mb == b->mb && receiver(zb, a->s, a->pass) == b->s)
        return a->cost + zb->comm;
    return -1;
}

/* Longest way from the start of each op to the end of a stage, less what is due to that stage. */
static void set_tails(struct sp_zb_window *w)
{
    struct sp_zb *zb = w->zb;
    int left = zb->p * zb->n;

    for (int s = 0; s < zb->p; s++) {
        zb->pc[s] = zb->n - 1;
        for (int pass = 0; pass < SP_PASSES; pass++)
            zb->k[s * SP_PASSES + pass] = zb->m - 1;
    }
    while (left > 0) {
        for (int s = 0; s < zb->p; s++) {
            int *k = zb->k + s * SP_PASSES, i;

            for (; (i = zb->pc[s]) >= 0; zb->pc[s]--, left--) {
                int at = s * zb->n + i, pass = w->words[at], to = receiver(zb, s, pass);
                double tail = i < zb->n - 1 ? w->tail[at + 1] : zb->span ? -zb->first[s] : 0;

                if (to >= 0 && zb->k[to * SP_PASSES + pass] >= k[pass])
                    break;
                if (to >= 0)
                    tail = fmax(tail, zb->comm + w->tail[place(zb, to, pass, k[pass])]);
                w->tail[at] = tail + zb->cost[s * SP_PASSES + pass];
                k[pass]--;
            }
        }
    }
}

static bool is_free(const struct sp_zb_window *w, int at)
{
    return w->zb->start[at] >= w->t0 && w->zb->start[at] < w->t1;
}

/* A free op, with the head and the tail that ops which are not free give it. */
static struct sp_zb_op free_op(const struct sp_zb_window *w, int s, int i, int mb, double before,
                               double after)
{
    const struct sp_zb *zb = w->zb;
    int pass = w->words[s * zb->n + i], to = receiver(zb, s, pass);
    int from = pass == SP_F ? s - 1 : pass == SP_B && s < zb->p - 1 ? s + 1 : -1;
    struct sp_zb_op op = {.s = s,
                          .i = i,
                          .pass = pass,
                          .mb = mb,
                          .cost = zb->cost[s * SP_PASSES + pass],
                          .head = before};

    if (from >= 0 && !is_free(w, place(zb, from, pass, mb)))
        op.head = fmax(before, zb->end[place(zb, from, pass, mb)] + zb->comm);
    if (to >= 0 && !is_free(w, place(zb, to, pass, mb)))
        after = fmax(after, zb->comm + w->tail[place(zb, to, pass, mb)]);
    op.tail = after + op.cost;
    return op;
}

/* What a stage must do before each op and after it takes its time. */
static void add_load(struct sp_zb_window *w, int begin, double before, double after)
{
    for (int a = begin; a < w->n; a++) {
        double head = before, tail = after + w->ops[a].cost;

        for (int b = begin; b < w->n; b++) {
            if (b != a && sp_zb_implied(w->zb, &w->ops[b], &w->ops[a]))
                head += w->ops[b].cost;
            if (b != a && sp_zb_implied(w->zb, &w->ops[a], &w->ops[b]))
                tail += w->ops[b].cost;
        }
        w->ops[a].head = fmax(w->ops[a].head, head);
        w->ops[a].tail = fmax(w->ops[a].tail, tail);
    }
}

/* Lists the free ops; false if they are too many. Sets *least, below which T cannot be. */
static bool collect(struct sp_zb_window *w, double *least)
{
    const struct sp_zb *zb = w->zb;

    w->n = 0;
    *least = 0;
    for (int s = 0; s < zb->p; s++) {
        const unsigned char *word = w->words + s * zb->n;
        double before = 0, after = zb->span ? -zb->first[s] : 0, load;
        int k[SP_PASSES] = {0}, begin = w->n;

        for (int i = 0; i < zb->n; i++) {
            if (zb->start[s * zb->n + i] < w->t0)
                before = zb->end[s * zb->n + i];
            if (zb->start[s * zb->n + i] >= w->t1) {
                after = w->tail[s * zb->n + i];
                break;
            }
        }
        load = before + after;
        for (int i = 0; i < zb->n; i++) {
            int mb = k[word[i]]++;

            if (!is_free(w, s * zb->n + i))
                continue;
            if (w->n == w->ops_cap)
                return false;
            w->ops[w->n++] = free_op(w, s, i, mb, before, after);
            load += w->ops[w->n - 1].cost;
        }
        if (w->n > begin)
            *least = fmax(*least, load);
        add_load(w, begin, before, after);
    }
    return true;
}

/* Heads and tails along what must follow what, until none changes. */
static void propagate(struct sp_zb_window *w)
{
    bool changed = true;

    for (int round = 0; changed && round < w->n; round++) {
        changed = false;
        for (int a = 0; a < w->n; a++) {
            for (int b = 0; b < w->n; b++) {
                struct sp_zb_op *x = &w->ops[a], *y = &w->ops[b];
                double time = a == b ? -1 : sp_zb_follows(w->zb, x, y);

                if (time < 0)
                    continue;
                if (x->head + time > y->head || y->tail + time > x->tail) {
                    y->head = fmax(y->head, x->head + time);
                    x->tail = fmax(x->tail, y->tail + time);
                    changed = true;
                }
            }
        }
    }
}

bool sp_zb_window(struct sp_zb_window *w, double *least)
{
    sp_zb_play(w->zb, w->words);
    set_tails(w);
    if (!collect(w, least))
        return false;
    propagate(w);
    return w->n > 0;
}
