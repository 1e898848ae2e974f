/*
 * The zero-bubble search as a whole. The hand-made orders that fit the memory and the list
 * schedules are candidates. The best candidates are annealed, and the best result is annealed once
 * more at a tenth of the heat. The result is never worse than a candidate.
 *
 * The use of each part was measured on 260 cases (p 2..8 and 16, m p..4p, thirteen f:b:w, messages
 * of 0..1, memory p..2p, a fifth with uneven stages), against a search that also solved windows of
 * the order as integer programs. Cases with a makespan, and with a span, more than 0.1 % longer:
 *
 *   list schedules alone                                      22 and 28 cases
 *   forward-backward improvement (squeeze.h) of five orders   11 and 20, by 1.8 and 2.1 % at most
 *   the same, the best of them annealed                        7 and  8, by 1.2 and 2.0 %
 *   list schedules, the best annealed once                     6 and  4, by 0.3 %
 *   list schedules, annealed, the best annealed again         none
 */
#include "policies/search/zbauto.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_PER_MS 150000   /* ops played in a millisecond, roughly */
#define LIST_STEPS 20000000   /* for the list schedules, independent of the budget */
#define KEPT 4                /* candidates that are annealed */
#define MOVES_PER_MS 50       /* at most, for each of them */
#define LAST_MOVES_PER_MS 200 /* at most, for the best of them */
#define HOT 0.3               /* heat of the first annealing, in ops */
#define MOST_MS 600000        /* largest budget; a larger one is a mistake */

struct search {
    struct sp_zb zb;
    size_t size;          /* of the words of all stages */
    unsigned char *words; /* [KEPT + 1][size]: the best, best first, and one to write to */
    struct sp_zb_score score[KEPT + 1];
    int kept;
};

/* Keeps the candidate in the last place of `words`, if it is good and new. */
static void offer(struct search *q)
{
    unsigned char *words = q->words + KEPT * q->size;
    struct sp_zb_score score;
    int at;

    for (int s = 0; s < q->zb.p; s++) {
        if (!sp_zb_legal(&q->zb, words + s * q->zb.n))
            return;
    }
    score = sp_zb_play(&q->zb, words);
    if (score.first < 0)
        return;
    for (int i = 0; i < q->kept; i++) {
        if (!memcmp(q->words + (size_t)i * q->size, words, q->size))
            return;
    }
    for (at = q->kept; at > 0 && sp_zb_better(&score, &q->score[at - 1]); at--)
        ;
    if (at == KEPT)
        return;
    if (q->kept < KEPT)
        q->kept++;
    for (int i = q->kept - 1; i > at; i--) {
        q->score[i] = q->score[i - 1];
        memcpy(q->words + (size_t)i * q->size, q->words + (size_t)(i - 1) * q->size, q->size);
    }
    q->score[at] = score;
    memcpy(q->words + (size_t)at * q->size, words, q->size);
}

static void offer_made(struct search *q, const struct sp_layout *lay,
                       void (*emit)(const struct sp_layout *lay, int stage,
                                    struct sp_program *prog))
{
    for (int s = 0; s < q->zb.p; s++) {
        struct sp_program prog = {0};

        emit(lay, s, &prog);
        for (int i = 0; i < prog.n; i++)
            q->words[KEPT * q->size + (size_t)s * (size_t)q->zb.n + (size_t)i] = prog.ops[i].pass;
        sp_program_clear(&prog);
    }
    offer(q);
}

/* Offers one micro-batch after the other, which fits any memory. */
static void offer_naive(struct search *q)
{
    for (size_t i = 0; i < q->size; i += 3) {
        q->words[KEPT * q->size + i] = SP_F;
        q->words[KEPT * q->size + i + 1] = SP_B;
        q->words[KEPT * q->size + i + 2] = SP_W;
    }
    offer(q);
}

/* Returns true if both figures of a score are as small as possible. */
static bool perfect(const struct sp_zb *zb, const struct sp_zb_score *score)
{
    double most = 0;

    for (int s = 0; s < zb->p; s++) {
        double end = zb->m * (zb->cost[s * SP_PASSES + SP_F] + zb->cost[s * SP_PASSES + SP_B] +
                              zb->cost[s * SP_PASSES + SP_W]) +
                     (zb->span ? zb->first[s] : 0);

        most = end > most ? end : most;
    }
    return score->first <= zb->least * (1 + 1e-9) && score->second <= most * (1 + 1e-9);
}

/* The steps of `moves` moves for each millisecond of the budget `steps`, at most `most`. */
static long long bounded(const struct search *q, long long steps, long long moves, long long most)
{
    long long some = steps / STEPS_PER_MS * moves * (long long)q->size;

    return some < most ? some : most;
}

static int improve(struct search *q)
{
    long long steps = q->zb.budget, each;
    int ret = 0, best = 0;

    if (steps <= 0 || perfect(&q->zb, &q->score[0]))
        return 0;
    each = bounded(q, steps, MOVES_PER_MS, steps / (2 * q->kept));
    for (int i = 0; i < q->kept && !ret; i++)
        ret = sp_zb_anneal(&q->zb, HOT, each, q->words + (size_t)i * q->size, &q->score[i]);
    for (int i = 1; i < q->kept; i++) {
        if (sp_zb_better(&q->score[i], &q->score[best]))
            best = i;
    }
    if (best > 0) {
        q->score[0] = q->score[best];
        memcpy(q->words, q->words + (size_t)best * q->size, q->size);
    }
    if (ret || perfect(&q->zb, &q->score[0]))
        return ret;
    each = bounded(q, steps, LAST_MOVES_PER_MS, steps / 2);
    return sp_zb_anneal(&q->zb, HOT / 10, each, q->words, &q->score[0]);
}

static void write_program(const unsigned char *word, int n, struct sp_program *prog)
{
    int k[SP_PASSES] = {0};

    for (int i = 0; i < n; i++)
        sp_program_add(prog, word[i], k[word[i]]++, 0);
}

/* The limit in whole micro-batches: from the options, else from the layout, else `known`. */
static int limit_of(const struct sp_layout *lay, int known)
{
    int ok = 1, limit = sp_layout_option_int(lay, "limit", 0, &ok);

    if (limit == 0)
        limit = lay->memory > 0 && lay->memory < lay->micro_batches ? (int)lay->memory
                : lay->memory > 0                                   ? lay->micro_batches
                                                                    : known;
    return limit < lay->micro_batches ? limit : lay->micro_batches;
}

int sp_zb_search(const struct sp_layout *lay, int known, bool span, struct sp_program *programs)
{
    int ok = 1, budget = sp_layout_option_int(lay, "budget", 1000, &ok), ret;
    struct search q = {0};

    ret = sp_zb_create(lay, limit_of(lay, known), span, &q.zb);
    if (ret)
        return ret;
    q.size = (size_t)q.zb.p * (size_t)q.zb.n;
    q.zb.budget = LIST_STEPS;
    q.words = malloc((KEPT + 1) * q.size);
    if (!q.words) {
        sp_zb_destroy(&q.zb);
        return -ENOMEM;
    }
    offer_naive(&q);
    offer_made(&q, lay, sp_zb1p_emit);
    offer_made(&q, lay, sp_zb2p_emit);
    for (int i = 0; q.zb.budget > 0 && sp_zb_greedy(&q.zb, i, q.words + KEPT * q.size); i++)
        offer(&q);
    q.zb.budget = (long long)budget * STEPS_PER_MS;
    ret = improve(&q);
    for (int s = 0; s < q.zb.p && !ret; s++)
        write_program(q.words + (size_t)s * (size_t)q.zb.n, q.zb.n, &programs[s]);
    free(q.words);
    sp_zb_destroy(&q.zb);
    return ret;
}

int sp_zb_check(const struct sp_layout *lay, char *why, size_t n)
{
    int ok = 1, limit = sp_layout_option_int(lay, "limit", 1, &ok);
    int budget = sp_layout_option_int(lay, "budget", 0, &ok);
    char text[32];

    if (!sp_layout_flag(lay, "auto")) {
        if (!sp_layout_option(lay, "limit", text, sizeof text) &&
            !sp_layout_option(lay, "budget", text, sizeof text))
            return 0;
        snprintf(why, n, "takes limit and budget only when its order is searched: add auto");
    } else if (!ok) {
        snprintf(why, n, "takes whole numbers for limit (micro-batches) and budget (milliseconds)");
    } else if (limit < 1) {
        snprintf(why, n, "needs room for 1 micro-batch, not limit=%d", limit);
    } else if (budget < 0) {
        snprintf(why, n, "cannot search for budget=%d milliseconds; 0 takes the best heuristic",
                 budget);
    } else if (budget > MOST_MS) {
        snprintf(why, n, "searches for at most budget=%d milliseconds, not %d", MOST_MS, budget);
    } else if (lay->memory > 0 && lay->memory < 1 &&
               !sp_layout_option(lay, "limit", text, sizeof text)) {
        snprintf(why, n, "needs room for the activations of 1 micro-batch, there is for %g",
                 lay->memory);
    } else if (lay->chunks != 1) {
        snprintf(why, n, "is searched with 1 chunk per stage, not %d; use --chunks 1", lay->chunks);
    } else {
        return 0;
    }
    return -EINVAL;
}
