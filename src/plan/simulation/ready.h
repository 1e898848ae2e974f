/*
 * What `--scheduler ready` makes of an order: the simulation of a step (simulate.h) with stages that overtake. A stage
 * that is free runs the earliest op of its program for which everything is there, within the memory of the strict
 * order (policies/simulation/overtaking.h). It chooses again after each task of an op: one that overtook, or was to
 * be overtaken, waits no longer than for a task. Pure.
 *
 * Beside what arrives an op waits for what its own stage makes, and for the ops that add to the same gradients before
 * it: a run adds in program order. Tasks of an op take equally long here, three a layer (pre, attn, post); a backward
 * has more of them in a run, an op of unknown layers has those of one.
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
    const struct sp_shape *shape; /* whose bytes ops acquire; NULL: parts of micro-batches */
    enum sp_recompute recompute;
    int every;
    int window; /* ops that a stage looks at, from the first that it has not run; 0: all */
};

struct sp_ready_request {
    struct sp_plan *plan; /* its programs become what stages ran */
    const struct sp_costs *costs;
    struct sp_step_messages *messages; /* of the plan; become those of what stages ran */
    const struct sp_network *network;
    const struct sp_ready_rule *rule;
};

/* 0; or -EINVAL with the reason in why[n]: `ready` is not simulated for the plan. */
int sp_ready_check(const struct sp_plan *plan, char *why, size_t n);

struct sp_ready {
    const struct sp_plan *plan;
    const struct sp_step_messages *messages;
    int window;
    int64_t *acquire, *release; /* [ops] by the numbers of `messages` */
    int64_t *live, *bound;      /* [stages] */
    int *first;                 /* [stages] the first op that has not ended */
    /* [ops] of two that overlap, the first has what is of both */
    int *tasks; /* that an op has still to run */
    int *all_tasks;
    double *cost;
    double *began; /* [ops] negative: it has not */
    /* [stages] the op that ran last, since when without another one in between, and its tasks then */
    int *running, *resumed_with;
    double *resumed;
    int *follower;              /* [ops] the first edge of each; -1: none */
    struct sp_ready_edge *edge; /* [n] */
    int n, room;
    double *look_at; /* [stages + ops] when a stage is free, when everything is there for an op */
    struct sp_heap look; /* of these numbers, the earliest first */
};

/* An op that waits for another one of its stage. */
struct sp_ready_edge {
    int op;   /* its number */
    int next; /* edge of the same other op; -1: none */
};

/* ---- for sp_simulate_ready -------------------------------------------------------------------- */

/* 0 or -ENOMEM. missing[ops] grows by the ops of the same stage that one waits for. */
int sp_ready_create(const struct sp_ready_request *request, unsigned short *missing,
                    struct sp_ready *r);
void sp_ready_destroy(struct sp_ready *r);

/* Every stage looks at time 0. */
void sp_ready_begin(struct sp_ready *r);
/* Everything is there for an op of a stage from `time` on. */
void sp_ready_there(struct sp_ready *r, int op, double time);
/* When a stage looks next for a task to run; INFINITY: none does. */
double sp_ready_next(const struct sp_ready *r);
/* It does, and runs what it finds. */
void sp_ready_look(struct sp_ready *r, struct sp_player *player);

/* Sorts programs, messages and times by the starts of ops. 0 or -ENOMEM. */
int sp_ready_reorder(const struct sp_ready_request *request, struct sp_times *times);

#endif
