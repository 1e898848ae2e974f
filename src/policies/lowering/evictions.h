/*
 * Tensors that stages evict from memory after a forward and fetch again for its backward, as chosen
 * by plan/offload. The lowering turns them into EVICT and FETCH. Pure.
 */
#ifndef SP_EVICTIONS_H
#define SP_EVICTIONS_H

#include "policies/lowering/tensor_id.h"

/* A moment of a stage's program: an op (the first, if two overlap), and how much of it is done. */
struct sp_moment {
    int index;
    float part; /* 0: it begins; 1: it has ended */
};

struct sp_eviction {
    struct sp_tensor_id tensor; /* SP_TENSOR_STASH */
    int64_t bytes;              /* of the tensor, that leave memory */
    int unit;                   /* number on the stage (offload/eviction.h); -1: streamed */
    struct sp_moment leaves;    /* it may be written from here on */
    struct sp_moment gone;      /* its memory is free from here on: the stage waits for that */
    struct sp_moment returns;   /* it may be read back from here on */
    struct sp_moment used;      /* the stage waits for it here */
};

/* The evictions of a stage. */
struct sp_evictions {
    int n;
    struct sp_eviction *leaving; /* [n] in the order in which they leave */
    int *returning;              /* [n] the same, in the order of the ops with which they return */
    /* Keys and values of slices that are streamed through memory: for the attention of a layer in
     * an op, one entry for all that is fetched before it (leaves.index is -1), one for all that is
     * evicted after it (returns.index is -1). By op. */
    int n_streams;
    struct sp_eviction *streams; /* [n_streams] */
};

struct sp_evictions *sp_evictions_new(int stages);
/* Makes room for n evictions and so many `streams` on a stage. 0 or -ENOMEM. */
int sp_evictions_reserve(struct sp_evictions *e, int n, int streams);
void sp_evictions_destroy(struct sp_evictions *e, int stages);

#endif
