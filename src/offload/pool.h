/*
 * Data handles for activations, reused. A handle is taken when the task that writes it is
 * submitted and given back when its last reader was submitted; its next writer waits for that one.
 * Buffers stay, so that after two steps nothing is allocated any more.
 * Handles are pooled by size; few sizes mean few buffers.
 */
#ifndef SP_POOL_H
#define SP_POOL_H

#include "offload/vector.h"
#include <stdbool.h>

struct sp_pool;

/* What becomes of a value when its handle is given back. */
enum sp_pool_dead {
    SP_POOL_KEEPS,   /* it stays until something else is written: nothing to do, the fastest */
    SP_POOL_FORGETS, /* the buffer stays without it: no memory node writes it back when it runs
                      * full, and a task that reads it ends the run. Two tasks of StarPU's own */
    SP_POOL_FREES,   /* the buffer too, so that no more memory is taken than what is alive */
};

/*
 * `slack`: how many handles of a size lie idle before one is taken again, the oldest first. 0
 * takes the latest (warm in cache): right where one worker writes and frees in program order. A
 * tensor written by one worker and freed by another wants 2, or its writer waits for the reader
 * of the tensor that had the buffer before.
 */
struct sp_pool *sp_pool_create(int slack, enum sp_pool_dead dead);

/* From now on, of a pool without slack, the oldest idle handle is taken, or the latest. */
void sp_pool_take_oldest(struct sp_pool *p, bool oldest);

/* Unregisters every handle, waiting for tasks that use them. */
void sp_pool_destroy(struct sp_pool *p);

/* A handle on a vector of n elements of elem_bytes, without a value. `name` for traces. */
starpu_data_handle_t sp_pool_get(struct sp_pool *p, size_t n, size_t elem_bytes, const char *name);

/* One more holder of a handle that a pool gave: it goes back when all have given it back. */
void sp_pool_hold(starpu_data_handle_t handle);

/* Gives a handle back to its pool, after the holder's last reader was submitted. */
void sp_pool_put(starpu_data_handle_t handle);

/* The same of a handle that may be NULL, which it is then. */
void sp_pool_drop(starpu_data_handle_t *handle);

/* Bytes of all handles ever made: flat once a run is steady. Of a pool that frees: of those in use. */
size_t sp_pool_bytes(const struct sp_pool *p);

#endif
