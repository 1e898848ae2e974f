/*
 * Tensors that are away, each in a place of its own: of the offload file, or, beside a GPU, of main memory. They are
 * written there from buffers of StarPU, and read into others, by threads; a buffer is acquired for that as by a task, so
 * that transfers and tasks wait for each other, and a buffer that is used in turns is never read into too early. (StarPU
 * has two prefetches under way at a time at most, which it begins between tasks.)
 */
#ifndef SP_EVICTED_H
#define SP_EVICTED_H

#include "offload/disk.h"
#include "offload/mover.h"
#include "offload/transfers.h"

/* Of a stage. */
struct sp_evicted {
    struct sp_mover *mover; /* whose mutex and counters are used */
    struct sp_disk *disk;   /* NULL: places are in memory */
    struct sp_transfers memory[2];
};

/* Where a tensor is. */
struct sp_place {
    struct sp_evicted *evicted;
    off_t at;
    size_t bytes;
    char name[64];       /* of the tensor, for messages */
    int submitted, done; /* transfers to and from it: one after the other, as they were submitted */
    struct sp_transit *waiting; /* for their turn */
};

/* A part of a buffer, in bytes from its beginning. */
struct sp_piece {
    struct sp_place *place;
    size_t at;
};

/* 0 or -errno. */
int sp_evicted_create(struct sp_evicted *a, struct sp_mover *mover, struct sp_disk *disk);
void sp_evicted_destroy(struct sp_evicted *a);

/* `name`: of the tensor, for messages. */
struct sp_place *sp_place_new(struct sp_evicted *a, size_t bytes, const char *name);

/* A write whose end somebody waits for. */
struct sp_leave;

/* pieces[n] of a buffer are written when the tasks submitted so far have. `leave`, if not NULL: what sp_leave_wait
 * takes; `live`, if not NULL: bytes in memory, from which they are then taken. */
void sp_evicted_write(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                      int n, struct sp_leave **leave, int64_t *live, int64_t *peak);
/* The task at `position` of the stage's worker is not taken before the write is done. */
void sp_leave_wait(struct sp_leave *leave, unsigned position);

/* They are read when the tasks submitted so far are done with the buffer. */
void sp_evicted_read(struct sp_evicted *a, struct sp_tensor *buffer, const struct sp_piece *piece,
                     int n);

/* The same, but not before sp_return_begin, and for the last time: the place is free then. */
struct sp_return;
struct sp_return *sp_evicted_return(struct sp_evicted *a, struct sp_tensor *buffer,
                                    struct sp_place *place, int64_t *live, int64_t *peak,
                                    struct sp_return *next);
/* `next` of it too. From a worker. */
void sp_return_begin(struct sp_return *first);

#endif
