/*
 * Tensors on their way out of memory and back, by StarPU's data management: a tensor leaves when it is
 * acquired on the tier's memory node after its last reader in the forward, and dropped from this one;
 * it returns by a prefetch. Whatever happens to the hints, a task that reads a tensor gets its value.
 */
#ifndef SP_MOVER_H
#define SP_MOVER_H

#include "offload/eviction.h"
#include "sinks/tensor.h"
#include <pthread.h>

/* What is counted of a stage. */
struct sp_moved {
    int64_t left, returned; /* bytes */
};

/* Of a stage. */
struct sp_mover {
    pthread_mutex_t mutex;
    unsigned node, tier; /* where tensors are computed with, where they go */
    int worker;          /* which runs the stage's program */
    struct sp_moved moved;
};

struct sp_move;
struct starpu_task;
struct sp_return; /* offload/evicted.h */

/* One tensor of a unit. */
struct sp_move_tensor {
    struct sp_move *move;
    struct sp_tensor *tensor;
    bool gone;
};

/* One unit. */
struct sp_move {
    struct sp_mover *mover;
    struct sp_move *next; /* of those that return together */
    int64_t *live, *peak; /* bytes in memory, of the stage's meter */
    int n, leaving;       /* tensors; those that have not left yet */
    unsigned held;        /* the worker's position that waits for them; 0: none */
    bool returning;
    struct sp_return *returns; /* these instead, of tensors that are away */
    char name[32];             /* of the unit, for messages: "s0 m1 l2" */
    double left_us, back_us;   /* when the last tensor was written, when they were asked back, of
                              * CLOCK_REALTIME; 0: not yet */
    struct sp_move_tensor *tensors; /* [n] room of whoever has the unit */
    struct starpu_task *reader;     /* in whose name they are fetched: requests keep its address */
};

void sp_mover_init(struct sp_mover *m, unsigned node, unsigned tier, int worker);
/* With n units that it moved, which the caller frees. */
void sp_mover_destroy(struct sp_mover *m, struct sp_move *moves, size_t n);

/* Sends tensors[n] out, once the tasks submitted so far have read them; what leaves is taken off *live.
 * `move`, with room for them and their unit's name, must live until they are dead. */
void sp_move_out(struct sp_move *move, struct sp_mover *m, struct sp_tensor *const *tensors, int n,
                 int64_t *live, int64_t *peak);

/* The task that will be at `position` of the worker is not taken before the tensors have left. */
void sp_move_hold(struct sp_move *move, unsigned position);

/* Begins to bring the tensors back: now, from a worker. */
void sp_move_back(struct sp_move *move);

#endif
