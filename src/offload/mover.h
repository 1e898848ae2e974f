/*
 * Evicts tensors and fetches them back through StarPU's data management. To evict a tensor, it is
 * acquired on the tier's memory node after its last reader in the forward, and its buffer on this
 * node is dropped; a prefetch brings it back. Both are hints: a task that reads a tensor always
 * gets its value.
 */
#ifndef SP_MOVER_H
#define SP_MOVER_H

#include "offload/eviction.h"
#include "sinks/tensor.h"
#include <pthread.h>

/* Transfers of a stage so far. */
struct sp_moved {
    int64_t left, returned; /* bytes evicted, bytes fetched */
};

/* The mover of a stage. */
struct sp_mover {
    pthread_mutex_t mutex;
    unsigned node, tier; /* memory nodes: the worker's, and the one that tensors are evicted to */
    int worker;          /* runs the stage's program */
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

/* Counts a stage's bytes in memory, in its meter. `live` NULL: they are not counted. */
struct sp_memory_count {
    int64_t *live, *peak;
};

/* One unit. */
struct sp_move {
    struct sp_mover *mover;
    struct sp_move *next; /* in the list of units that are fetched together */
    struct sp_memory_count count;
    int n, leaving; /* tensors; tensors that are not written yet */
    unsigned held;  /* the worker's position that waits for them; 0: none */
    bool returning;
    struct sp_return *returns;      /* if not NULL, these are fetched instead (offload/evicted.h) */
    char name[32];                  /* of the unit, for messages: "s0 m1 l2" */
    double left_us, back_us;        /* when the last tensor was written, when the fetch began, on
                                     * CLOCK_REALTIME; 0: not yet */
    struct sp_move_tensor *tensors; /* [n], memory of the caller */
    struct starpu_task *reader;     /* the fetch acts for this task; requests keep its address */
};

void sp_mover_init(struct sp_mover *m, unsigned node, unsigned tier, int worker);
/* `moves`: the n units that it moved; their reader tasks are freed, the caller frees the array. */
void sp_mover_destroy(struct sp_mover *m, struct sp_move *moves, size_t n);

/* Evicts tensors[n], once the tasks submitted so far have read them, and subtracts their bytes from
 * the count. `move`, with room for n tensors and the unit's name set, must live until they are
 * dead. */
void sp_move_out(struct sp_move *move, struct sp_mover *m, struct sp_tensor *const *tensors, int n,
                 struct sp_memory_count count);

/* Holds the task that will be at `position` of the worker until the tensors have left memory. */
void sp_move_hold(struct sp_move *move, unsigned position);

/* Waits until the tensors have left memory. */
void sp_move_settle(struct sp_move *move);

/* Begins to fetch the tensors. Called by a worker. */
void sp_move_back(struct sp_move *move);

#endif
