/*
 * A sink receives the tensors, tasks and messages of a graph. Pools, stores and the expansion of
 * ops lie above it and are the same for all sinks. The StarPU sink (sinks/starpu/) runs them. The
 * counting sink (sinks/count.h) computes nothing and has no memory, so that the code that runs also
 * tells beforehand what a graph will make, send and keep.
 */
#ifndef SP_SINK_H
#define SP_SINK_H

#include "sinks/tensor.h"
#include "transport/world.h"

struct sp_move;
struct sp_mover;
struct sp_evicted;
struct sp_disk;
struct sp_place;
struct sp_piece;
struct sp_leave;
struct sp_return;
struct sp_memory_count;
struct sp_task;
struct sp_task_context;

/* Eviction and fetching of tensors. offload/mover.h and offload/evicted.h document the functions.
 * */
struct sp_tier_ops {
    void (*start)(struct sp_mover *m, unsigned tier, int worker);
    void (*stop)(struct sp_mover *m, struct sp_move *moves, size_t n);
    void (*evict)(struct sp_move *move, struct sp_mover *m, struct sp_tensor *const *tensors, int n,
                  struct sp_memory_count count);
    void (*gate)(struct sp_move *move, unsigned position);
    void (*settle)(struct sp_move *move);
    int (*evicted_start)(struct sp_evicted *a, struct sp_mover *m, struct sp_disk *disk);
    void (*evicted_stop)(struct sp_evicted *a);
    struct sp_place *(*place)(struct sp_evicted *a, size_t bytes, const char *name);
    void (*write)(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                  int n, struct sp_leave **leave, struct sp_memory_count count);
    void (*wait)(struct sp_leave *leave, unsigned position);
    void (*read)(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                 int n);
    struct sp_return *(*fetch)(struct sp_evicted *a, struct sp_tensor *buffer,
                               struct sp_place *place, struct sp_memory_count count,
                               struct sp_return *next);
    void (*forget)(struct sp_place *place);
};

struct sp_sink_ops {
    /* ---- tensors ---- */

    /* Makes a tensor whose sizes are set. It gets a buffer when it is first written; or it uses
     * `memory`, which holds its value. */
    void (*make)(struct sp_tensor *t, void *memory, const char *name);
    /* Unmakes a tensor, after the tasks that use it. `value`: its value must end up in `memory`. */
    void (*unmake)(struct sp_tensor *t, bool value);
    /* Says that its value is not read any more: see enum sp_pool_dead. */
    void (*forget)(struct sp_tensor *t, enum sp_pool_dead dead);
    /* Returns its value in main memory, after the tasks submitted so far that write it (or, to
     * write it, also those that read it). NULL member: the sink has no values. */
    void *(*acquire)(struct sp_tensor *t, enum sp_access access);
    void (*release)(struct sp_tensor *t);
    /* Allocates zeros that devices can copy from, as memory for tensors; NULL: no memory. */
    void *(*take_memory)(size_t bytes);
    void (*give_memory)(void *memory, size_t bytes);
    /* Lets devices copy from and to memory of the caller; and undoes that. */
    void (*pin)(void *memory, size_t bytes);
    void (*unpin)(void *memory, size_t bytes);
    /* Makes tensors on n parts of a whole one, of length / n elements; the first length % n parts
     * have one more. `uncut` unmakes them. */
    void (*cut)(struct sp_tensor *whole, int n, struct sp_tensor **part);
    void (*uncut)(struct sp_tensor *whole, int n, struct sp_tensor **part);
    /* Tasks submitted from here on use the parts, or the whole. */
    void (*view)(struct sp_tensor *whole, int n, struct sp_tensor **part, bool parts);

    /* ---- submissions ---- */

    /* Submits a task, at the next position of a worker's program if `ctx` names one. The sink owns
     * it from here on. */
    void (*insert)(const struct sp_task_context *ctx, struct sp_task *task, double flops);
    /* Submit a message to, or from, another process, like sp_transport_send and sp_transport_recv
     * (transport/post.h). */
    void (*send)(struct sp_tensor *t, int rank, int64_t tag, const char *name,
                 struct sp_transfer *times);
    void (*receive)(struct sp_tensor *t, int rank, int64_t tag, struct sp_transfer *times,
                    void (*arrived)(void *arg), void *arg);
    bool (*names_messages)(void); /* true: `name` of send is used */
    bool (*counts_in_int)(void);  /* true: a message has at most INT_MAX bytes */
    /* Tasks submitted from here on belong to a step, numbered from 1 for traces; 0: to none. */
    void (*step)(unsigned long number);
    /* Waits until everything submitted has ended and every message has been sent. */
    void (*wait)(void);

    /* ---- workers ---- */

    /* Bounds the activations of a worker if the order is not strict; forgets those that are alive,
     * because the worker's forwards were undone. */
    void (*bound)(int worker, int64_t bytes);
    void (*discard)(int worker);
    /* Now, in microseconds on the clock of the tasks. */
    double (*now_us)(void);

    const struct sp_tier_ops *tier;
};

enum { SP_SCRATCH_SIZES = 64 };

struct sp_sink {
    const struct sp_sink_ops *ops;
    struct sp_tensor *scratch[SP_SCRATCH_SIZES]; /* buffers of tasks, by size */
    int n_scratch;
    size_t bytes;            /* of all tensors that exist */
    void (*told)(void *arg); /* sinks/count.h: called for every task */
    void *told_arg;
};

/* Returns true if tensors of a sink have values. */
static inline bool sp_sink_computes(const struct sp_sink *s)
{
    return s->ops->acquire != NULL;
}

/* The scratch tensor of n elements of elem_bytes. It is made when it is first asked for. */
struct sp_tensor *sp_sink_scratch(struct sp_sink *s, size_t n, size_t elem_bytes);
/* Unmakes all scratch tensors. Call it before StarPU ends. */
void sp_sink_release_scratch(struct sp_sink *s);

#endif
