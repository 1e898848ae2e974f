/*
 * Simulates `--scheduler ready`: a step (simulate.h) whose stages let ops overtake. A free stage
 * runs the earliest op of its program whose inputs are all there, within the memory of the strict
 * order (policies/simulation/overtaking.h). It chooses again after each task of an op, so an op
 * that overtook, or was to be overtaken, waits at most for one task. The player keeps the rules and
 * the state of stages, but leaves the choice of the next op to this. Pure.
 *
 * Besides its messages an op waits for ops of its own stage: those that produce its inputs, and
 * those that add to the same gradients before it, because a run adds in program order. The
 * simulation gives an op three equally long tasks a layer (pre, attn, post); in a run, a backward
 * has more of them. An op whose layers are unknown has the tasks of one layer.
 */
#ifndef SP_READY_H
#define SP_READY_H

#include "model/stash.h"
#include "plan/simulation/step_messages.h"
#include "policies/simulation/times.h"
#include "policies/simulation/heap.h"
#include "policies/simulation/player.h"

enum { SP_READY_WINDOW = 6 }; /* unfinished ops of a stage in a run, by default (`--window`) */

struct sp_network; /* simulate.h */

struct sp_ready_rule {
    const struct sp_shape *shape; /* gives bytes of ops; NULL: they are parts of micro-batches */
    enum sp_recompute recompute;
    int every;
    int window; /* ops that a stage considers, from its first unfinished one on; 0: all */
};

struct sp_ready_request {
    struct sp_plan *plan; /* its programs become the orders that stages ran */
    const struct sp_costs *costs;
    struct sp_step_messages *messages; /* of the plan; updated to the orders that stages ran */
    const struct sp_network *network;
    const struct sp_ready_rule *rule;
};

/* 0; or -EINVAL with the reason in why[n]: `ready` is not simulated for the plan. */
int sp_ready_check(const struct sp_plan *plan, char *why, size_t n);

struct sp_ready {
    const struct sp_plan *plan;
    const struct sp_step_messages *messages;
    int window;
    int64_t *acquire, *release; /* [ops] bytes, by the op numbers of `messages` */
    int64_t *live, *bound;      /* [stages] */
    int *first;                 /* [stages] the first op that has not ended */
    /* [ops] of two ops that overlap, the first counts for both */
    int *tasks; /* tasks that an op has still to run */
    int *all_tasks;
    double *cost;
    double *began; /* [ops] negative: not yet */
    /* [stages] the op that ran last, since when it has run alone, and how many tasks it had left
     * then */
    int *running, *resumed_with;
    double *resumed;
    int *follower;              /* [ops] the first edge of each; -1: none */
    struct sp_ready_edge *edge; /* [n] */
    int n, room;
    double *look_at;     /* [stages + ops] when a stage is free, when an op's inputs are there */
    struct sp_heap look; /* stages and ops by these times, the earliest first */
};

/* An op that waits for another one of its stage. */
struct sp_ready_edge {
    int op;   /* number of the waiting op */
    int next; /* next edge of the same producer; -1: none */
};

/* ---- for sp_simulate_ready ------------------------------------------------------------------- */

/* Adds to missing[ops] the ops of the same stage that each op waits for. 0 or -ENOMEM. */
int sp_ready_create(const struct sp_ready_request *request, unsigned short *missing,
                    struct sp_ready *r);
void sp_ready_destroy(struct sp_ready *r);

/* Makes every stage look for a task at time 0. */
void sp_ready_begin(struct sp_ready *r);
/* Tells that all inputs of an op are there from `time` on. */
void sp_ready_there(struct sp_ready *r, int op, double time);
/* The time at which a stage next looks for a task; INFINITY: none does. */
double sp_ready_next(const struct sp_ready *r);
/* Lets that stage look, and run the task it finds. */
void sp_ready_look(struct sp_ready *r, struct sp_player *player);

/* Sorts programs, messages and times by the starts of ops. 0 or -ENOMEM. */
int sp_ready_reorder(const struct sp_ready_request *request, struct sp_times *times);

#endif
