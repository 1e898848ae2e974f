/*
 * Zero-bubble orders that are searched (Qi, Wan, Huang, Lin 2023, section 3): given what F, B and W
 * cost on each stage and how many activations a stage may hold, find when each stage runs which.
 *
 * Micro-batches are alike, so on every stage F, B and W each come in ascending order and an order
 * is a word of m F, m B and m W per stage. A word is legal if B k comes after F k, W k after B k,
 * and F k after W k-limit. What is minimised: the end of the last stage to end, or the longest span
 * of a stage from its first op to its last. Stage i starts at the earliest moment, when F 0 reaches
 * it, in every legal order; so both are the latest end of a stage, less what is due to it.
 *
 * No clock is read: the budget counts steps, so that every process finds the same order.
 */
#ifndef SP_ZBAUTO_H
#define SP_ZBAUTO_H

#include "starpipe/schedule.h"
#include <stdbool.h>

struct sp_zb_score {
    double first, second; /* makespan and longest span, or in turn; first < 0: deadlock */
    double mean;          /* of the ends of the stages, to tell orders apart that are equal else */
};

struct sp_zb {
    int p, m, n;               /* n = 3m, ops of a stage */
    int limit;                 /* activations a stage may hold, from F to W */
    bool span;                 /* the span comes first, then the makespan */
    double comm;               /* a tensor's way to the next stage */
    double *cost;              /* [p][SP_PASSES] */
    double *first;             /* [p] when a stage starts */
    double least;              /* no order has a smaller score.first */
    long long budget;          /* steps left; a step plays one op */
    double *start, *end;       /* [p][n] of the word that was played last */
    double *end_f, *end_b;     /* [p][m] */
    int *at_f, *at_b, *pc, *k; /* [p][m] place in the word; [p]; [p][SP_PASSES] */
};

/* 0 or -ENOMEM. Unit costs where the layout has none. */
int sp_zb_create(const struct sp_layout *lay, int limit, bool span, struct sp_zb *zb);
void sp_zb_destroy(struct sp_zb *zb);

/* Plays words[p][n] of enum sp_pass as early as possible. */
struct sp_zb_score sp_zb_play(struct sp_zb *zb, const unsigned char *words);
/* Whether the word of one stage is legal. */
bool sp_zb_legal(const struct sp_zb *zb, const unsigned char *word);
/* Whether a is better than b, by more than rounding. */
bool sp_zb_better(const struct sp_zb_score *a, const struct sp_zb_score *b);

/* List scheduling by the `variant`-th set of rules; false past the last, or if it would take too
 * long. */
bool sp_zb_greedy(struct sp_zb *zb, int variant, unsigned char *words);

/* Moves single ops while that helps, or does no great harm: some `heat` times the mean cost of an op
 * at first, then less and less. Spends at most `steps` of the budget. words and score become the best
 * that was seen. 0 or -ENOMEM. */
int sp_zb_anneal(struct sp_zb *zb, double heat, long long steps, unsigned char *words,
                 struct sp_zb_score *score);

/* The hand-made orders, candidates of the search. */
void sp_zb1p_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);
void sp_zb2p_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);

/* The options limit and budget, which belong to the flag auto: 0, or -EINVAL with the reason. */
int sp_zb_check(const struct sp_layout *lay, char *why, size_t n);

/* The searched order of all stages; `limit` holds unless the layout has another. 0 or -ENOMEM. */
int sp_zb_search(const struct sp_layout *lay, int limit, bool span, struct sp_program *programs);

#endif
