/*
 * Activations parked on another stage (BPipe: Kim et al. 2023, "BPipe: Memory-Balanced Pipeline
 * Parallelism for Training Large Language Models"): what a stage keeps of a micro-batch goes to a
 * stage that keeps little, as messages, and returns for its backward. Pure; the lowering sends and
 * receives, the layerwise graph takes the tensors out of its activations and puts them back.
 */
#ifndef SP_PARKING_H
#define SP_PARKING_H

#include "model/stash.h"
#include "policies/plan.h"

/* What one forward keeps: SP_TENSOR_STASH of its micro-batch and global stage. */
struct sp_parked {
    int leaves;  /* place of the forward in its stage's program, after which it leaves */
    int asked;   /* place of the op after which it is sent back, */
    int returns; /* and of the backward that reads it */
    int peer;    /* where it is meanwhile */
};

/* The parked activations of a stage. */
struct sp_parking_stage {
    int n;
    struct sp_parked *unit; /* [n] in the order in which they leave */
    int *asked;             /* [n] the same, in the order in which they are sent back */
};

struct sp_parking {
    enum sp_recompute recompute; /* as the run has them */
    int every, stages;
    struct sp_parking_stage *stage; /* [stages] */
};

/* Refuses plans whose activations cannot be parked: 0, or -EINVAL after one line. */
int sp_parking_check(const char *command, const struct sp_plan *plan, const struct sp_shape *sh);

/*
 * Chooses what stages park, so that the fullest ones keep as little as it takes to be no fuller than
 * the emptiest, which take it: the fullest stage with the emptiest one, and so on. Sets
 * plan->parking, NULL if no stage gains. 0 or -ENOMEM.
 */
int sp_parking_create(struct sp_plan *plan, const struct sp_shape *sh, enum sp_recompute recompute,
                      int every);
void sp_parking_destroy(struct sp_parking *parking);

/* What the forward, or the backward, at a place of a stage's program parks or gets back; NULL:
 * nothing. */
const struct sp_parked *sp_parked_at(const struct sp_plan *plan, int stage, int index);

/* The bytes of the tensors that layer i of a chunk, layer `layer` of the model, parks; 0: it keeps no
 * such tensor. The pieces of a message are those that it keeps, layer by layer. */
void sp_parked_layer(const struct sp_plan *plan, const struct sp_shape *sh, int layer, int i,
                     int64_t bytes[SP_STASH_TENSORS]);

#endif
