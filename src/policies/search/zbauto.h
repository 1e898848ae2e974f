/*
 * Search for zero-bubble orders (Qi, Wan, Huang, Lin 2023, section 3): given the costs of F, B and
 * W on each stage and the activations that a stage may hold, find the order of each stage's ops.
 *
 * Micro-batches are alike, so on every stage F, B and W each come in ascending order, and an order
 * is a word of m F, m B and m W per stage. A word is legal if B k comes after F k, W k after B k,
 * and F k after W k-limit. The search minimises either the makespan or the longest span of a stage
 * from its first op to its last. In every legal order stage i can start when F 0 reaches it at the
 * earliest, so a span is the end of the stage less that fixed start.
 *
 * No clock is read: the budget counts steps, so that every process finds the same order.
 */
#ifndef SP_ZBAUTO_H
#define SP_ZBAUTO_H

#include "starpipe/schedule.h"
#include <stdbool.h>

struct sp_zb_score {
    double first, second; /* makespan and longest span, or the reverse; first < 0: deadlock */
    double mean;          /* mean of the ends of the stages, which breaks ties */
};

struct sp_zb {
    int p, m, n;               /* n = 3m, ops of a stage */
    int limit;                 /* activations a stage may hold, from F to W */
    bool span;                 /* minimise the span first, then the makespan */
    double comm;               /* latency of a tensor's message to the next stage */
    double *cost;              /* [p][SP_PASSES] */
    double *first;             /* [p] when a stage starts */
    double least;              /* no order has a smaller score.first */
    long long budget;          /* steps left; a step plays one op */
    double *start, *end;       /* [p][n] times of the word played last */
    double *end_f, *end_b;     /* [p][m] */
    int *at_f, *at_b, *pc, *k; /* [p][m] place in the word; [p]; [p][SP_PASSES] */
};

/* Uses unit costs if the layout has none. 0 or -ENOMEM. */
int sp_zb_create(const struct sp_layout *lay, int limit, bool span, struct sp_zb *zb);
void sp_zb_destroy(struct sp_zb *zb);

/* Plays words[p][n] of enum sp_pass as early as possible. */
struct sp_zb_score sp_zb_play(struct sp_zb *zb, const unsigned char *words);
/* Returns true if the word of one stage is legal. */
bool sp_zb_legal(const struct sp_zb *zb, const unsigned char *word);
/* Returns true if a is better than b, by more than rounding. */
bool sp_zb_better(const struct sp_zb_score *a, const struct sp_zb_score *b);

/* List scheduling by the `variant`-th set of rules; false past the last, or if it would take too
 * long. */
bool sp_zb_greedy(struct sp_zb *zb, int variant, unsigned char *words);

/* Simulated annealing: moves single ops if that gains or costs little, at first about `heat`
 * times the mean cost of an op, then less and less. Spends at most `steps` of the budget. words and
 * score become the best seen. 0 or -ENOMEM. */
int sp_zb_anneal(struct sp_zb *zb, double heat, long long steps, unsigned char *words,
                 struct sp_zb_score *score);

/* The hand-made orders, which are candidates of the search. */
void sp_zb1p_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);
void sp_zb2p_emit(const struct sp_layout *lay, int stage, struct sp_program *prog);

/* Checks the options limit and budget, which require the flag auto: 0, or -EINVAL with the
 * reason. */
int sp_zb_check(const struct sp_layout *lay, char *why, size_t n);

/* Searches the order of all stages. `limit` applies unless the layout has another. 0 or -ENOMEM. */
int sp_zb_search(const struct sp_layout *lay, int limit, bool span, struct sp_program *programs);

#endif
