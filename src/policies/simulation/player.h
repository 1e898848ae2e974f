/*
 * Programs played in time. A lane (a stage, a worker, the writer of a slow tier) has a row of ops
 * and runs them in order, each as soon as the one before it ended and all it waits for is there. A
 * queue holds the lanes that may be able to go on; a lane that cannot go on waits for one event
 * and is woken by it: O(ops + events waited for). What the ops are, what they cost and what they
 * wait for is the caller's; so is what an event is: the end of an op, as a rule.
 */
#ifndef SP_PLAYER_H
#define SP_PLAYER_H

#include "policies/simulation/waiters.h"
#include <stdbool.h>

struct sp_player;

/* What the callback `wait` returns instead of an event. */
enum { SP_PLAYER_READY = -1, SP_PLAYER_BLOCKED = -2 };

/* What is played. Ops that run together, as two that overlap do, are one turn of their lane. */
struct sp_player_rules {
    /*
     * Whether op `at`, the next of a lane, can start. SP_PLAYER_READY, and *start, given as when
     * the lane is free, is moved on to when all that the op waits for is there; or the number of
     * an event that has not come; or SP_PLAYER_BLOCKED: no event, the caller uses sp_player_try.
     */
    int (*wait)(struct sp_player *player, int lane, int at, double *start);
    /* Op `at` starts. Returns how many ops of the lane run in this turn, 1 or more; *end is when
     * it ends. Tells the player of what others may wait for: sp_player_wake, sp_player_try. */
    int (*run)(struct sp_player *player, int lane, int at, double start, double *end);
};

struct sp_player {
    const struct sp_player_rules *rules;
    void *arg; /* the caller's */
    int lanes;
    int *ops;        /* [lanes] how many a lane has: the caller fills this in */
    int *next;       /* [lanes] the next op; those before it ran */
    double *free_at; /* [lanes] when the last turn ended */

    struct sp_waiters waiters;
    int *queue;       /* [lanes] ring of lanes to try */
    bool *queued;     /* [lanes] */
    int head, length; /* of the ring */
    int to_go;        /* lanes that have not run all their ops */
};

/* Lanes without ops yet; events have numbers below `events`. 0 or -ENOMEM. */
int sp_player_create(const struct sp_player_rules *rules, void *arg, int lanes, int events,
                     struct sp_player *player);
void sp_player_destroy(struct sp_player *player);


/* Lets every lane go as far as it can; true if all ops ran. May be called again when what blocked
 * a lane has changed. */
bool sp_player_play(struct sp_player *player);

/* The same for the lanes that were told to try again (below) since it was last called. */
bool sp_player_go_on(struct sp_player *player);

/* The event has come: the lanes that wait for it try again. */
void sp_player_wake(struct sp_player *player, int event);

/* The lane tries again. */
void sp_player_try(struct sp_player *player, int lane);

#endif
