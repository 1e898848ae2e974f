/*
 * Activations parked on another stage (BPipe: Kim et al. 2023, "BPipe: Memory-Balanced Pipeline
 * Parallelism for Training Large Language Models"): what a stage keeps of a micro-batch goes to a
 * stage that keeps little, as messages, and returns for its backward. Pure; the lowering sends and
 * receives, the layerwise graph takes the tensors out of its activations and puts them back.
 */
#ifndef SP_PARKING_H
#define SP_PARKING_H

#include "model/stash.h"

/* Activations of one forward: SP_TENSOR_STASH of its micro-batch and global stage. */
struct sp_parked {
    int leaves;  /* place of the forward in its stage's program, after which they leave */
    int asked;   /* place of the op after which they are sent back, */
    int returns; /* and of the backward that reads them */
    int peer;    /* where they are meanwhile: in its program, */
    int arrives; /* the place of the next op when they arrive, */
    int goes;    /* and when they are sent back */
    int mb, at;  /* of the tensor */
    const unsigned char
        *tensors; /* [layers of the chunk] bit k: tensor k of enum sp_stash_tensor is
                                   * parked; NULL: all are */
};

/* The parked activations of a stage. */
struct sp_parking_stage {
    int n;
    struct sp_parked *unit; /* [n] in the order in which they leave */
    unsigned char *tensors; /* of all units; NULL: all tensors are parked */
};

struct sp_parking {
    enum sp_recompute recompute; /* as the run has them */
    int every, stages;
    struct sp_parking_stage *stage; /* [stages] */
    int globals;
    const struct sp_parked **of; /* [micro-batches][globals] by tensor; NULL: it is not parked */
};

void sp_parking_destroy(struct sp_parking *parking);

/* The activations that the forward at a place of a stage's program parks, or that the backward there
 * gets back; NULL: none, or p is NULL. */
const struct sp_parked *sp_parked_at(const struct sp_parking *p, int stage, int index);

/* The bytes of the tensors that layer i of the chunk parks, which recomputes by `mode`; 0: it parks
 * no such tensor. The pieces of a message are those that are parked, layer by layer. */
void sp_parked_layer(const struct sp_parking *p, const struct sp_parked *parked,
                     const struct sp_shape *sh, enum sp_recompute mode, int i,
                     int64_t bytes[SP_STASH_TENSORS]);

#endif
