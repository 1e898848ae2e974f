/*
 * What stages evict from memory after a forward and fetch again for its backward, as plan/offload chose it.
 * The lowering makes EVICT and FETCH of it. Pure.
 */
#ifndef SP_EVICTIONS_H
#define SP_EVICTIONS_H

#include "policies/lowering/tensor.h"

/* A moment of a stage's program: an op, of two that overlap the first, and how much of it has been done. */
struct sp_moment {
    int index;
    float part; /* 0: it begins; 1: it has ended */
};

struct sp_eviction {
    struct sp_tensor_id tensor; /* SP_TENSOR_STASH */
    int64_t bytes;              /* of it that leave */
    int unit;                   /* its number on the stage (offload/eviction.h); -1: of a visit */
    struct sp_moment leaves;    /* it may be written from here on */
    struct sp_moment gone;      /* its memory is free from here on: the stage waits for that */
    struct sp_moment returns;   /* it may be read back from here on */
    struct sp_moment used;      /* the stage waits for it here */
};

/* Those of a stage. */
struct sp_evictions {
    int n;
    struct sp_eviction *leaving; /* [n] in the order in which they leave */
    int *returning;              /* [n] the same, in the order of the ops with which they return */
    /* What comes for the attention of a layer in an op, all of it together, and what leaves after it: keys and values
     * of slices that visit. Of what comes leaves.index is -1, of what leaves returns.index. By their ops. */
    int n_streams;
    struct sp_eviction *streams; /* [n_streams] */
};

struct sp_evictions *sp_evictions_new(int stages);
/* Room for n on a stage, and so many visits. 0 or -ENOMEM. */
int sp_evictions_reserve(struct sp_evictions *e, int n, int streams);
void sp_evictions_destroy(struct sp_evictions *e, int stages);

/* The first of those that leave after, or return with, op `index` of the program, or a later one. */
int sp_evictions_leaving_from(const struct sp_evictions *e, int index);
int sp_evictions_returning_from(const struct sp_evictions *e, int index);
/* The op of a visit, and the first visit of op `index` or a later one. */
int sp_stream_index(const struct sp_eviction *stream);
int sp_evictions_streams_from(const struct sp_evictions *e, int index);

#endif
