/*
 * Evicted tensors. Each has a place of its own, in the offload file or, for a GPU, in pinned memory
 * of the host. Threads write it there from one StarPU buffer, and later read it into another. They
 * acquire the buffer like a task does, so transfers and tasks wait for each other, and a buffer that
 * tensors use in turns is never overwritten too early. A GPU's buffers are acquired on the GPU, so
 * that a tensor crosses the bus once and no other memory. (StarPU's own prefetches would not do: it
 * runs at most two at a time, and begins them between tasks.)
 */
#ifndef SP_EVICTED_H
#define SP_EVICTED_H

#include "offload/disk.h"
#include "offload/mover.h"
#include "offload/transfers.h"

/* The evicted tensors of a stage. */
struct sp_evicted {
    struct sp_mover *mover;        /* its mutex and counters serve here too */
    struct sp_disk *disk;          /* NULL: places are in pinned memory */
    struct sp_transfers copies[2]; /* to the GPU, to the host */
};

/* The place of an evicted tensor. */
struct sp_place {
    struct sp_evicted *evicted;
    off_t at;
    size_t bytes;
    char name[64];              /* of the tensor, for messages */
    int submitted, done;        /* transfers to and from it; they run in the order of submission */
    bool forgotten;             /* it is freed after the transfers submitted so far */
    struct sp_transit *waiting; /* transfers that wait for their turn */
};

/* A part of a buffer, in bytes from its beginning. */
struct sp_piece {
    struct sp_place *place;
    size_t at;
};

/* 0 or -errno. */
int sp_evicted_create(struct sp_evicted *a, struct sp_mover *mover, struct sp_disk *disk);
void sp_evicted_destroy(struct sp_evicted *a);

/* `name` names the tensor in messages. */
struct sp_place *sp_place_new(struct sp_evicted *a, size_t bytes, const char *name);

/* Frees a place, once the transfers submitted so far are done. */
void sp_place_forget(struct sp_place *place);

/* A write whose end a task waits for. */
struct sp_leave;

/* Writes piece[n] of a buffer to their places, after the tasks submitted so far have written it.
 * `leave`, if not NULL, receives a handle for sp_leave_wait. The pieces are subtracted from
 * the count once they are written. */
void sp_evicted_write(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                      int n, struct sp_leave **leave, struct sp_memory_count count);
/* Holds the task at `position` of the stage's worker until the write is done. Once a write. */
void sp_leave_wait(struct sp_leave *leave, unsigned position);

/* Reads the pieces into a buffer, after the tasks submitted so far are done with it. */
void sp_evicted_read(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                     int n);

/* Reads the whole tensor for the last time, but not before sp_return_begin, which is when the
 * buffer gets memory; the place is freed afterwards. */
struct sp_return;
struct sp_return *sp_evicted_return(struct sp_evicted *a, struct sp_tensor *buffer,
                                    struct sp_place *place, struct sp_memory_count count,
                                    struct sp_return *next);
/* Begins this return and all that follow it by `next`. Called by a worker. */
void sp_return_begin(struct sp_return *first);

#endif
