/*
 * Plays programs in time. A lane (a stage, a worker, the writer of a slow tier) runs its ops in
 * order, each as soon as the one before it has ended and all its inputs are there. A queue holds
 * the lanes that may be able to go on. A lane that cannot go on waits for one event, which wakes
 * it: O(ops + events waited for). The caller defines the ops, their costs and dependencies, and the
 * events; an event is usually the end of an op.
 */
#ifndef SP_PLAYER_H
#define SP_PLAYER_H

#include "policies/simulation/heap.h"
#include <stdbool.h>

struct sp_player;

/* Results of the callback `wait` that are not events. */
enum { SP_PLAYER_READY = -1, SP_PLAYER_BLOCKED = -2 };

/* The caller's rules. Ops that run together, such as two that overlap, are one turn of their
 * lane. */
struct sp_player_rules {
    /*
     * Asks if op `at`, the next of a lane, can start. Returns SP_PLAYER_READY, and moves *start
     * from the time when the lane is free to the time when all inputs of the op are there; or the
     * number of an event that has not come; or SP_PLAYER_BLOCKED: there is no event, and the caller
     * will use sp_player_try.
     */
    int (*wait)(struct sp_player *player, int lane, int at, double *start);
    /* Starts op `at`. Returns how many ops of the lane run in this turn, 1 or more, and sets *end
     * to its end. Tells the player about events of this turn: sp_player_wake, sp_player_try. */
    int (*run)(struct sp_player *player, int lane, int at, double start, double *end);
    /* The order in which lanes take their turns, of those that could; `player` is the player. NULL:
     * a lane takes turns for as long as it can. With an order, no lane is told to try again. */
    sp_heap_before before;
};

struct sp_player {
    const struct sp_player_rules *rules;
    void *arg; /* the caller's */
    int lanes;
    int *ops;        /* [lanes] number of ops, filled in by the caller */
    int *next;       /* [lanes] the next op; those before it have run */
    double *free_at; /* [lanes] when the last turn ended */
    double *start;   /* [lanes] when the next turn of a lane in `ready` starts */

    int *first_waiting;   /* [events] a lane that waits for it, -1: none */
    int *next_waiting;    /* [lanes] another lane that waits for the same event, -1: none */
    bool *waits;          /* [lanes] */
    int *queue;           /* [lanes] ring of lanes to try */
    bool *queued;         /* [lanes] */
    int head, length;     /* of the ring */
    struct sp_heap ready; /* with an order: lanes that could take their turn */
    int to_go;            /* lanes that have not run all their ops */
};

/* Creates a player whose lanes have no ops yet. Events have numbers below `events`. 0 or
 * -ENOMEM. */
int sp_player_create(const struct sp_player_rules *rules, void *arg, int lanes, int events,
                     struct sp_player *player);
void sp_player_destroy(struct sp_player *player);

/* Lets every lane go as far as it can; true if all ops ran. May be called again when a blocked lane
 * may be able to go on. */
bool sp_player_play(struct sp_player *player);

/* The same for the lanes that were told to try again (below) since it was last called. */
bool sp_player_go_on(struct sp_player *player);

/* Reports that an event has come: the lanes that wait for it try again. */
void sp_player_wake(struct sp_player *player, int event);

/* Makes a lane try again. */
void sp_player_try(struct sp_player *player, int lane);

#endif
