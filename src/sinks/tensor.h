/* A tensor as a graph sees it: a vector of elements, wherever its buffer is and whether it has one. */
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
    SP_SCRATCH = 4 /* without a value before and after */
};

/* What becomes of a value when its tensor is given back to a pool. */
enum sp_pool_dead {
    SP_POOL_KEEPS,   /* it stays until something else is written: nothing to do, the fastest */
    SP_POOL_FORGETS, /* the buffer stays without it: no memory node writes it back when it runs
                      * full, and a task that reads it ends the run. Two tasks of StarPU's own */
    SP_POOL_FREES,   /* the buffer too, so that no more memory is taken than what is alive */
};

struct sp_tensor {
    struct sp_sink *sink;
    size_t length, elem;  /* elements, as a sink counts them, and bytes of one */
    struct sp_pool *pool; /* that gave it; NULL: none */
    int references;       /* who has it of the pool */
    int shelf;            /* of the pool, where those of its size are */
    void *handle;         /* the sink's own */
};

/*
 * A tensor of n elements of elem_bytes, without a value; or in memory of the caller's, where its value is. Lengths have 32
 * bits: beyond, elements are 2, 4, ... of the caller's, and the size is rounded up to them, or, in memory, must divide.
 * `name` for traces. Without memory for it the run ends.
 */
struct sp_tensor *sp_tensor_make(struct sp_sink *s, size_t n, size_t elem_bytes, const char *name);
struct sp_tensor *sp_tensor_make_at(struct sp_sink *s, void *memory, size_t n, size_t elem_bytes,
                                    const char *name);

/* After the tasks that use it, which are waited for. NULL: nothing. */
void sp_tensor_unmake(struct sp_tensor *t);
/* The same; its value is then in the memory that it was made in. */
void sp_tensor_unmake_at(struct sp_tensor *t);

/* Its value in main memory, as sp_sink_ops has it. */
void *sp_tensor_acquire(struct sp_tensor *t, enum sp_access access);
void sp_tensor_release(struct sp_tensor *t);

/* What n elements of elem_bytes become: bytes of one, and how many. */
size_t sp_tensor_elem(size_t n, size_t elem_bytes);
size_t sp_tensor_length(size_t n);

static inline size_t sp_tensor_size(const struct sp_tensor *t)
{
    return t->length * t->elem;
}

#endif
