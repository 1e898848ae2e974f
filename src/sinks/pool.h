/*
 * Tensors for activations, reused. A tensor is taken when the task that writes it is
 * submitted and given back when its last reader was submitted; its next writer waits for that one.
 * Buffers stay, so that after two steps nothing is allocated any more.
 * Handles are pooled by size; few sizes mean few buffers.
 */
#ifndef SP_POOL_H
#define SP_POOL_H

#include "sinks/sink.h"

struct sp_pool;

/*
 * `slack`: how many tensors of a size lie idle before one is taken again, the oldest first. 0
 * takes the latest (warm in cache): right where one worker writes and frees in program order. A
 * tensor written by one worker and freed by another wants 2, or its writer waits for the reader
 * of the tensor that had the buffer before.
 */
struct sp_pool *sp_pool_create(struct sp_sink *s, int slack, enum sp_pool_dead dead);

/* From now on, of a pool without slack, the oldest idle tensor is taken, or the latest. */
void sp_pool_take_oldest(struct sp_pool *p, bool oldest);

/* Unregisters every tensor, waiting for tasks that use them. */
void sp_pool_destroy(struct sp_pool *p);

/* A tensor on a vector of n elements of elem_bytes, without a value. `name` for traces. */
struct sp_tensor *sp_pool_get(struct sp_pool *p, size_t n, size_t elem_bytes, const char *name);

/* One more holder of a tensor that a pool gave: it goes back when all have given it back. */
void sp_pool_hold(struct sp_tensor *tensor);

/* Gives a tensor back to its pool, after the holder's last reader was submitted. */
void sp_pool_put(struct sp_tensor *tensor);

/* The same of a tensor that may be NULL, which it is then. */
void sp_pool_drop(struct sp_tensor **tensor);

/* Calls `told` for every tensor that is taken, or whose last holder gives it back, with the number of its size among those that
 * the pool has had; NULL: no more. */
void sp_pool_watch(struct sp_pool *p, void (*told)(void *arg, int shelf, bool taken), void *arg);
/* Sizes so far, and bytes of one; how many idle ones are kept before one is taken again. */
int sp_pool_shelves(const struct sp_pool *p);
size_t sp_pool_shelf_bytes(const struct sp_pool *p, int shelf);
int sp_pool_slack(const struct sp_pool *p);

/* Bytes of all tensors ever made: flat once a run is steady. Of a pool that frees: of those in use. */
size_t sp_pool_bytes(const struct sp_pool *p);

#endif
