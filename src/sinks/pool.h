/*
 * A pool of tensors for activations. A tensor is taken when the task that writes it is submitted,
 * and given back after its last reader was submitted; its next writer waits for that reader.
 * Buffers stay, so that nothing is allocated after two steps. Tensors are pooled by size; few sizes
 * mean few buffers.
 */
#ifndef SP_POOL_H
#define SP_POOL_H

#include "sinks/sink.h"

struct sp_pool;

/*
 * `slack`: how many tensors of a size stay idle before one is reused, the oldest first. 0 reuses
 * the latest (warm in cache), which is right if one worker writes and frees in program order. If
 * one worker writes tensors and another frees them, use 2; otherwise a writer waits for the reader
 * of the tensor that used the buffer before.
 */
struct sp_pool *sp_pool_create(struct sp_sink *s, int slack, enum sp_pool_dead dead);

/* Makes a pool without slack reuse the oldest idle tensor from now on, or the latest. */
void sp_pool_take_oldest(struct sp_pool *p, bool oldest);

/* Unregisters every tensor, waiting for tasks that use them. */
void sp_pool_destroy(struct sp_pool *p);

/* Takes a tensor of n elements of elem_bytes, without a value. `name` is for traces. */
struct sp_tensor *sp_pool_get(struct sp_pool *p, size_t n, size_t elem_bytes, const char *name);

/* Adds a reference to a tensor from a pool. It returns to the pool when all references were given
 * back. */
void sp_pool_hold(struct sp_tensor *tensor);

/* Gives a tensor back to its pool, after the holder's last reader was submitted. */
void sp_pool_put(struct sp_tensor *tensor);

/* The same for *tensor, which may be NULL; sets it to NULL. */
void sp_pool_drop(struct sp_tensor **tensor);

/* Calls `told` for every tensor that is taken, or given back by its last holder. `shelf` is the
 * number of its size among the sizes that the pool has had. NULL: stops that. */
void sp_pool_watch(struct sp_pool *p, void (*told)(void *arg, int shelf, bool taken), void *arg);
/* The number of sizes so far; bytes of a tensor of a size; the pool's slack. */
int sp_pool_shelves(const struct sp_pool *p);
size_t sp_pool_shelf_bytes(const struct sp_pool *p, int shelf);
int sp_pool_slack(const struct sp_pool *p);

/* Bytes of all tensors ever made, constant once a run is steady; for a pool that frees, bytes in
 * use. */
size_t sp_pool_bytes(const struct sp_pool *p);

#endif
