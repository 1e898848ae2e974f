/*
 * Tensors on their way out of memory and back, by StarPU's data management: a tensor leaves when it is
 * acquired on the tier's memory node after its last reader in the forward, and dropped from this one;
 * it returns by a prefetch. Whatever happens to the hints, a task that reads a tensor gets its value.
 */
#ifndef SP_MOVER_H
#define SP_MOVER_H

#include "offload/eviction.h"
#include <pthread.h>
#include <starpu.h>

/* What is counted of a stage. */
struct sp_moved {
    int64_t left, returned; /* bytes written and read */
};

struct sp_visit;

/* Of a stage. */
struct sp_mover {
    pthread_mutex_t mutex;
    unsigned node, tier; /* where tensors are computed with, where they go */
    int worker;          /* which runs the stage's program */
    struct sp_moved moved;
    struct sp_visit *last[2]; /* visits that may not be over yet, the latest first */
    struct sp_visit *idle;
};

struct sp_move;

/* One tensor of a unit. */
struct sp_move_tensor {
    struct sp_move *move;
    starpu_data_handle_t handle;
    bool gone;
    bool clean; /* the tier has its value already */
};

/* One unit. */
struct sp_move {
    struct sp_mover *mover;
    struct sp_move *next; /* of those that return together */
    int64_t *live,
        *peak;      /* bytes in memory, of the stage's meter; NULL: they are not counted there */
    int n, leaving; /* tensors; those that have not left yet */
    int back;       /* the first so many are brought back */
    struct sp_visit *visit; /* which it is the moves of; NULL: a unit's */
    unsigned held;          /* the worker's position that waits for them; 0: none */
    bool returning;
    double left_us, back_us; /* when the last tensor was written, when they were asked back, of
                              * CLOCK_REALTIME; 0: not yet */
    struct sp_move_tensor *tensors; /* [n] room of whoever has the unit */
    struct starpu_task reader;      /* in whose name they are fetched: requests keep its address */
};

void sp_mover_init(struct sp_mover *m, unsigned node, unsigned tier, int worker);
void sp_mover_destroy(struct sp_mover *m);

/* Sends tensors[n] out, once the tasks submitted so far have read them; what leaves is taken off *live.
 * `move`, with room for them, must live until they are dead. */
void sp_move_out(struct sp_move *move, struct sp_mover *m, const starpu_data_handle_t *tensors,
                 int n, int64_t *live, int64_t *peak);

/* The task that will be at `position` of the worker is not taken before the tensors have left. */
void sp_move_hold(struct sp_move *move, unsigned position);

/* Begins to bring the tensors back: now, from a worker. */
void sp_move_back(struct sp_move *move);

/* Tensors that are away and of which this is the return, to stay. */
void sp_move_return(struct sp_move *move, struct sp_mover *m, const starpu_data_handle_t *tensors,
                    int n);

/*
 * A visit: tensors come for the tasks of a moment, and leave again. While the tasks of one compute, the tensors of the
 * one before leave and those of the next one come, so that no more than three are in memory.
 */
struct sp_visit {
    struct sp_move move;
    struct sp_visit *next; /* of the idle ones */
    int users;             /* the mover, tensors that have not left */
    int room;
    struct sp_move_tensor tensor[]; /* [room] */
};

/* Of tensors[n], of which the first `back` are away and come when move.mover is told so by sp_move_back; of the
 * others tasks of the visit make the values. The first `clean` are only read. */
struct sp_visit *sp_visit_new(struct sp_mover *m, const starpu_data_handle_t *tensors, int n,
                              int back, int clean);
/* The task at `position` of the worker is the visit's first: not before the last visit but one is over. */
void sp_visit_begin(struct sp_mover *m, unsigned position);
/* Its tasks were submitted: it ends with them. */
void sp_visit_end(struct sp_visit *visit);
/* The task at `position` of the worker is not taken before all visits are over. */
void sp_visits_wait(struct sp_mover *m, unsigned position);

#endif
