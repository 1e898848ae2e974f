/*
 * Zero-bubble search: simulated annealing. A move takes one op of a stage to another place of its
 * word. Half of the moves swap two neighbours on the critical path, the gapless chain of ops that
 * ends last, because no order gets shorter while that chain stays.
 */
#include "policies/search/zbauto.h"
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    struct sp_zb *zb;
    unsigned char *words;
    uint64_t random;
    int *arcs, n_arcs; /* places [stage * n + i] whose op follows i - 1 on the critical path */
};

static uint32_t draw(struct walk *w, uint32_t below)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (uint32_t)((w->random >> 32) * below >> 32);
}

static double energy(const struct sp_zb_score *s)
{
    return s->first + 0.1 * s->second + 0.05 * s->mean;
}

/* The micro-batch whose op is at place i of a word; places ascend. */
static int number(const int *place, int m, int i)
{
    int low = 0, high = m - 1;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (place[middle] < i)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Lists the neighbours on the critical path of the word played last, from its end backwards. */
static void trace(struct walk *w)
{
    const struct sp_zb *zb = w->zb;
    double latest = -1;
    int s = 0, i = zb->n - 1;

    for (int r = 0; r < zb->p; r++) {
        double end = zb->end[r * zb->n + i] - (zb->span ? zb->first[r] : 0);

        if (end > latest) {
            latest = end;
            s = r;
        }
    }
    w->n_arcs = 0;
    while (i >= 0) {
        int at = s * zb->n + i, pass = w->words[at], mb;

        if (i > 0 && zb->start[at] <= zb->end[at - 1]) {
            if (pass != w->words[at - 1])
                w->arcs[w->n_arcs++] = at;
            i--;
            continue;
        }
        /* its producer */
        if (pass == SP_F && s > 0) {
            mb = number(zb->at_f + s * zb->m, zb->m, i);
            i = zb->at_f[--s * zb->m + mb];
        } else if (pass == SP_B && s < zb->p - 1) {
            mb = number(zb->at_b + s * zb->m, zb->m, i);
            i = zb->at_b[++s * zb->m + mb];
        } else {
            break;
        }
    }
}

/* Moves the op at `from` to `to`, and shifts those between by one. */
static void move(unsigned char *word, int from, int to)
{
    unsigned char op = word[from];

    if (from < to)
        memmove(word + from, word + from + 1, (size_t)(to - from));
    else
        memmove(word + to + 1, word + to, (size_t)(from - to));
    word[to] = op;
}

/* Draws a move: stage, from, to; false if it changes nothing. */
static bool propose(struct walk *w, int *s, int *from, int *to)
{
    const struct sp_zb *zb = w->zb;
    int reach = zb->n - 1 < 12 ? zb->n - 1 : 12;

    if (w->n_arcs && draw(w, 2)) {
        int at = w->arcs[draw(w, (uint32_t)w->n_arcs)];

        *s = at / zb->n;
        *from = at % zb->n;
        *to = *from - 1 - (int)draw(w, 2) * (int)draw(w, 4);
    } else {
        *s = (int)draw(w, (uint32_t)zb->p);
        *from = (int)draw(w, (uint32_t)zb->n);
        *to = *from + (int)draw(w, 2 * (uint32_t)reach + 1) - reach;
    }
    return *to >= 0 && *to < zb->n && w->words[*s * zb->n + *from] != w->words[*s * zb->n + *to];
}

static void run(struct walk *w, double heat, long long steps, unsigned char *best,
                struct sp_zb_score *score)
{
    struct sp_zb *zb = w->zb;
    size_t size = (size_t)zb->p * (size_t)zb->n;
    struct sp_zb_score now = sp_zb_play(zb, w->words);
    long long end = zb->budget - steps;
    double hot = 0;

    for (int i = 0; i < zb->p * SP_PASSES; i++)
        hot += zb->cost[i];
    hot *= heat / (3 * zb->p);
    trace(w);
    while (zb->budget > end) {
        double now_hot = hot * (double)(zb->budget - end) / (double)steps, worse;
        struct sp_zb_score next;
        int s, from, to;

        zb->budget -= 1 + zb->n / 8;
        if (!propose(w, &s, &from, &to))
            continue;
        move(w->words + s * zb->n, from, to);
        if (sp_zb_legal(zb, w->words + s * zb->n)) {
            next = sp_zb_play(zb, w->words);
            worse = next.first < 0 ? INFINITY : energy(&next) - energy(&now);
            if (worse <= 0 || (double)draw(w, 1 << 30) < exp(-worse / now_hot) * (1 << 30)) {
                now = next;
                trace(w);
                if (sp_zb_better(&now, score)) {
                    *score = now;
                    memcpy(best, w->words, size);
                }
                continue;
            }
        }
        move(w->words + s * zb->n, to, from);
    }
}

int sp_zb_anneal(struct sp_zb *zb, double heat, long long steps, unsigned char *words,
                 struct sp_zb_score *score)
{
    size_t size = (size_t)zb->p * (size_t)zb->n;
    struct walk w = {.zb = zb, .random = 0x9e3779b97f4a7c15u};
    int ret = 0;

    w.words = malloc(size);
    w.arcs = malloc(size * sizeof *w.arcs);
    if (w.words && w.arcs) {
        memcpy(w.words, words, size);
        run(&w, heat, steps, words, score);
    } else {
        ret = -ENOMEM;
    }
    free(w.words);
    free(w.arcs);
    return ret;
}
