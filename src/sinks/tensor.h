/* A tensor as a graph sees it: a vector of elements, which may or may not have a buffer
 * somewhere. */
#ifndef SP_TENSOR_HANDLE_H
#define SP_TENSOR_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sp_pool;
struct sp_sink;

/* How a task uses a tensor. */
enum sp_access {
    SP_READ = 1,
    SP_WRITE = 2,
    SP_READ_WRITE = 3,
    SP_SCRATCH = 4, /* without a value before and after */
    SP_ADD = 8      /* += to some of its elements, the only use of a tensor with stale parts */
};

/* How a value dies when its tensor is given back to a pool. */
enum sp_pool_dead {
    SP_POOL_KEEPS,   /* the value stays until the next write: nothing to do, the fastest */
    SP_POOL_FORGETS, /* the buffer stays without a value: a full memory node need not write it
                      * back, and a task that reads it ends the run. Costs two StarPU tasks */
    SP_POOL_FREES,   /* the buffer is freed too, so that only live values take memory */
};

struct sp_tensor {
    struct sp_sink *sink;
    size_t length, elem;  /* elements, as a sink counts them, and bytes of one */
    struct sp_pool *pool; /* the pool it came from; NULL: none */
    int references;       /* how many hold it; the last one returns it to the pool */
    int shelf;            /* of the pool, for tensors of this size */
    unsigned char stale;  /* parts without a value, a bit each: see sp_task_overwrites */
    void *handle;         /* private to the sink */
};

/*
 * Makes a tensor of n elements of elem_bytes, without a value; or in memory of the caller that
 * holds its value. Lengths have 32 bits. For a larger n, an element of the tensor is 2, 4, ... of
 * the caller's; n is rounded up to a multiple, or, in memory of the caller, must be one. `name` is
 * for traces. The run ends if there is no memory for it.
 */
struct sp_tensor *sp_tensor_make(struct sp_sink *s, size_t n, size_t elem_bytes, const char *name);
struct sp_tensor *sp_tensor_make_at(struct sp_sink *s, void *memory, size_t n, size_t elem_bytes,
                                    const char *name);

/* Waits for the tasks that use a tensor and unmakes it. NULL: does nothing. */
void sp_tensor_unmake(struct sp_tensor *t);
/* The same, and leaves its value in the memory that it was made in. */
void sp_tensor_unmake_at(struct sp_tensor *t);

/* Its value in main memory, see sp_sink_ops.acquire. */
void *sp_tensor_acquire(struct sp_tensor *t, enum sp_access access);
void sp_tensor_release(struct sp_tensor *t);

/* The elements of a tensor made for n elements of elem_bytes: bytes of one, and their number. */
size_t sp_tensor_elem(size_t n, size_t elem_bytes);
size_t sp_tensor_length(size_t n);

static inline size_t sp_tensor_size(const struct sp_tensor *t)
{
    return t->length * t->elem;
}

#endif
