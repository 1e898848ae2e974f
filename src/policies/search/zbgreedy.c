/*
 * Zero-bubble search: list scheduling. The stage that is free first decides next, by these rules:
 *
 *   at most `cap` micro-batches are between F and B: the depth of the warm-up and the steady state;
 *   if an F and a B are both ready, `backward_first` decides which runs;
 *   if neither is ready, a W runs if the known gap is at least `fill` times its cost;
 *   if an F is ready but has no room, a W runs at once (`make_room`), or only as above.
 *
 * A stage has no list of ops yet, so the players that follow or change one are of no use here.
 *
 * The paper's heuristic chooses among 8 sets of rules; the variants here are all combinations of
 * the tables below.
 */
#include "policies/search/zbauto.h"
#include <math.h>
#include <string.h>

#define MOST_STEPS                                                                                 \
    400000000 /* of a schedule, some seconds; larger ones use only the hand-made orders */

static const double fills[] = {0, 0.3, 0.6, 1};
static const double depths[] = {0, 0.25, 0.5, 0.75, 1, 1.5, 2};

enum {
    FILLS = sizeof fills / sizeof *fills,
    DEPTHS = sizeof depths / sizeof *depths,
    CAPS = DEPTHS + 3 /* the limit; the round-trip time of a micro-batch, with or without W */
};

struct rules {
    double fill;
    int cap;
    bool backward_first, make_room;
};

static int cap_of(const struct sp_zb *zb, int which, int s)
{
    const double *cost = zb->cost + s * SP_PASSES;
    double cap = zb->limit, away = 0;

    if (which < DEPTHS) {
        cap = zb->p - s + ceil(depths[which] * (zb->p - 1 - s));
    } else if (which > DEPTHS) {
        double cycle = cost[SP_F] + cost[SP_B] + (which == DEPTHS + 1 ? cost[SP_W] : 0);

        for (int i = s; i < zb->p; i++)
            away += zb->cost[i * SP_PASSES + SP_F] + zb->cost[i * SP_PASSES + SP_B] +
                    (i > s ? 2 * zb->comm : 0);
        cap = cycle > 0 ? ceil(away / cycle - 1e-9) : zb->limit;
    }
    if (cap > zb->limit)
        return zb->limit;
    return cap < 1 ? 1 : (int)cap;
}

/* When the input of the next F or B is there; INFINITY: not known yet, or no such op is left. */
static double ready(const struct sp_zb *zb, int s, enum sp_pass pass)
{
    const int *k = zb->k + s * SP_PASSES;
    int mb = k[pass], next = pass == SP_F ? s - 1 : s + 1;

    if (mb == zb->m || (pass == SP_B && mb >= k[SP_F]))
        return INFINITY;
    if (next < 0)
        return 0;
    if (next == zb->p)
        return zb->end_f[s * zb->m + mb];
    if (mb >= zb->k[next * SP_PASSES + pass])
        return INFINITY;
    return (pass == SP_F ? zb->end_f : zb->end_b)[next * zb->m + mb] + zb->comm;
}

/* Chooses the pass that a stage runs at `now`; or -1, with *later the time of the next decision. */
static int decide(const struct sp_zb *zb, const struct rules *r, int s, double now, double *later)
{
    const int *k = zb->k + s * SP_PASSES;
    bool room = k[SP_F] - k[SP_W] < zb->limit, depth = k[SP_F] - k[SP_B] < cap_of(zb, r->cap, s);
    double f = depth ? ready(zb, s, SP_F) : INFINITY, b = ready(zb, s, SP_B), gap;
    bool held = !room && f <= now && k[SP_W] < k[SP_B];

    if (!room)
        f = INFINITY;
    if (b <= now && (r->backward_first || f > now))
        return held && r->make_room && !r->backward_first ? SP_W : SP_B;
    if (f <= now)
        return SP_F;
    gap = fmin(f, b) - now;
    if (k[SP_W] < k[SP_B] &&
        ((held && r->make_room) || gap >= r->fill * zb->cost[s * SP_PASSES + SP_W]))
        return SP_W;
    *later = fmin(f, b);
    return -1;
}

static void wake(double *at, int s, double time)
{
    if (time < at[s])
        at[s] = time;
}

bool sp_zb_greedy(struct sp_zb *zb, int variant, unsigned char *words)
{
    struct rules r = {.fill = fills[variant % FILLS],
                      .backward_first = variant / FILLS % 2,
                      .make_room = variant / FILLS / 2 % 2,
                      .cap = variant / FILLS / 4};
    double *at = zb->start, *free_at = zb->end; /* [p], as scratch */
    int left = zb->p * zb->n;
    long long steps = (long long)left * (4 + zb->p / 4);

    if (r.cap >= CAPS || steps > MOST_STEPS)
        return false;
    memset(words, SP_F, (size_t)left); /* an illegal word, in case the rules get stuck */
    for (int s = 0; s < zb->p; s++) {
        at[s] = s ? INFINITY : 0;
        free_at[s] = 0;
        zb->pc[s] = 0;
        for (int pass = 0; pass < SP_PASSES; pass++)
            zb->k[s * SP_PASSES + pass] = 0;
    }
    zb->budget -= steps;
    while (left > 0) {
        double later = INFINITY, now;
        int s = 0, pass, mb;

        for (int i = 1; i < zb->p; i++) {
            if (at[i] < at[s])
                s = i;
        }
        now = at[s];
        if (isinf(now))
            return true;
        pass = decide(zb, &r, s, now, &later);
        at[s] = later;
        if (pass < 0)
            continue;
        mb = zb->k[s * SP_PASSES + pass]++;
        words[s * zb->n + zb->pc[s]++] = (unsigned char)pass;
        at[s] = free_at[s] = now + zb->cost[s * SP_PASSES + pass];
        if (pass == SP_F) {
            zb->end_f[s * zb->m + mb] = at[s];
            if (s < zb->p - 1)
                wake(at, s + 1, fmax(free_at[s + 1], at[s] + zb->comm));
        } else if (pass == SP_B) {
            zb->end_b[s * zb->m + mb] = at[s];
            if (s > 0)
                wake(at, s - 1, fmax(free_at[s - 1], at[s] + zb->comm));
        }
        left--;
    }
    return true;
}
