/*
 * A sink is what a graph does to the world. Pools, stores and the expansion of ops lie above it and are the same for all:
 * StarPU (sinks/starpu/) runs what it is given; the count (sinks/count.h) computes nothing and has no memory, so that what a
 * graph makes, sends and keeps is known before it runs, by the code that runs.
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
struct sp_task;
struct sp_task_context;

/* What leaves memory and comes back: offload/mover.h and offload/evicted.h say what each does. */
struct sp_tier_ops {
    void (*start)(struct sp_mover *m, unsigned tier, int worker);
    void (*stop)(struct sp_mover *m, struct sp_move *moves, size_t n);
    void (*evict)(struct sp_move *move, struct sp_mover *m, struct sp_tensor *const *tensors, int n,
                  int64_t *live, int64_t *peak);
    void (*gate)(struct sp_move *move, unsigned position);
    int (*evicted_start)(struct sp_evicted *a, struct sp_mover *m, struct sp_disk *disk);
    void (*evicted_stop)(struct sp_evicted *a);
    struct sp_place *(*place)(struct sp_evicted *a, size_t bytes, const char *name);
    void (*write)(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                  int n, struct sp_leave **leave, int64_t *live, int64_t *peak);
    void (*wait)(struct sp_leave *leave, unsigned position);
    void (*read)(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                 int n);
    struct sp_return *(*fetch)(struct sp_evicted *a, struct sp_tensor *buffer,
                               struct sp_place *place, int64_t *live, int64_t *peak,
                               struct sp_return *next);
};

struct sp_sink_ops {
    /* ---- tensors ---- */

    /* Gives a tensor, whose sizes are set, a buffer when it is first written, or `memory`, where its value is. */
    void (*make)(struct sp_tensor *t, void *memory, const char *name);
    /* After the tasks that use it. `value`: it is wanted, in that memory. */
    void (*unmake)(struct sp_tensor *t, bool value);
    /* Its value is not read any more: see enum sp_pool_dead. */
    void (*forget)(struct sp_tensor *t, enum sp_pool_dead dead);
    /* Its value in main memory, after the tasks submitted so far that write it, or read it; NULL: the sink has none. */
    void *(*acquire)(struct sp_tensor *t, enum sp_access access);
    void (*release)(struct sp_tensor *t);
    /* Zeros that devices can copy from, for tensors in memory of the caller's; NULL: there are none. */
    void *(*take_memory)(size_t bytes);
    void (*give_memory)(void *memory, size_t bytes);
    /* Memory of the caller's, likewise. */
    void (*pin)(void *memory, size_t bytes);
    void (*unpin)(void *memory, size_t bytes);
    /* Tensors on n parts of a whole one, of length / n elements, the first length % n of them one more. */
    void (*cut)(struct sp_tensor *whole, int n, struct sp_tensor **part);
    void (*uncut)(struct sp_tensor *whole, int n, struct sp_tensor **part);
    /* From here on tasks use the parts, or the whole. */
    void (*view)(struct sp_tensor *whole, int n, struct sp_tensor **part, bool parts);

    /* ---- what is submitted ---- */

    /* A task, with its place in the program of a worker; it is the sink's from here on. */
    void (*insert)(const struct sp_task_context *ctx, struct sp_task *task, double flops);
    /* Messages with another process, as sp_transport_send and sp_transport_recv have them (transport/post.h). */
    void (*send)(struct sp_tensor *t, int rank, int64_t tag, const char *name,
                 struct sp_transfer *times);
    void (*receive)(struct sp_tensor *t, int rank, int64_t tag, struct sp_transfer *times,
                    void (*arrived)(void *arg), void *arg);
    bool (*names_messages)(void); /* names are wanted */
    bool (*counts_in_int)(void);  /* a message has at most INT_MAX bytes */
    /* Tasks from here on are of a step, as traces number it from 1; 0: of none. */
    void (*step)(unsigned long number);
    /* Everything submitted has ended, and every message has gone. */
    void (*wait)(void);

    /* ---- workers ---- */

    /* The most that activations of a worker's ops take where the order is not strict; and: its forwards were undone. */
    void (*bound)(int worker, int64_t bytes);
    void (*discard)(int worker);
    /* Microseconds, on the clock of its tasks. */
    double (*now_us)(void);

    const struct sp_tier_ops *tier;
};

enum { SP_SCRATCH_SIZES = 64 };

struct sp_sink {
    const struct sp_sink_ops *ops;
    struct sp_tensor *scratch[SP_SCRATCH_SIZES]; /* buffers of tasks, by size */
    int n_scratch;
    size_t bytes;            /* of all tensors that there are */
    void (*told)(void *arg); /* sinks/count.h: of every task */
    void *told_arg;
};

/* Whether tensors of a sink have values. */
static inline bool sp_sink_computes(const struct sp_sink *s)
{
    return s->ops->acquire != NULL;
}

/* The scratch tensor of so many bytes, which is made when it is first asked for. */
struct sp_tensor *sp_sink_scratch(struct sp_sink *s, size_t n, size_t elem_bytes);
/* Unmakes them; before StarPU ends. */
void sp_sink_release_scratch(struct sp_sink *s);

#endif
