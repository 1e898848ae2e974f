/*
 * Attention context exchange (SlimPipe). Later slices read more keys: slice k reads its own and k
 * slices of keys before it. The stages of a slot share this work out. A stage whose slice reads
 * more sends queries, with keys and values, to one whose slice reads less, so that no stage
 * computes more than one slice of keys more than another. A slice's own keys stay (each query sees
 * half of them on average), and so do the latest before it. The earliest ones go: they live
 * longest. Pure.
 */
#ifndef SP_ASSIST_H
#define SP_ASSIST_H

#include "policies/families/aligned/slots.h"
#include "policies/lowering/tensor.h"

/* Slices of keys. */
struct sp_key_range {
    int first, n;
};

static inline bool sp_key_range_has(const struct sp_key_range *r, int j)
{
    return j >= r->first && j < r->first + r->n;
}

/*
 * The assisting stage computes attention of the owner's slice over the keys that it is given.
 * Keys, values and their gradients stay with the assisting stage as long as the owner's slices
 * keep reading them there, slot after slot of one pass: it `had` some of them in the slot before,
 * and `goes_on` with some in the next one.
 */
struct sp_assist {
    int owner, helper;
    struct sp_op op; /* the owner's */
    int layer;       /* the layer it is in at this step */
    struct sp_key_range keys, had, goes_on;
};

/* A tensor of that layer, of the owner's slice or of a slice of keys. */
static inline struct sp_tensor_id sp_assist_tensor(const struct sp_assist *assist,
                                                   enum sp_tensor_kind kind, int slice)
{
    return (struct sp_tensor_id){.kind = (unsigned char)kind,
                                 .slice = (unsigned short)slice,
                                 .mb = assist->op.mb,
                                 .at = assist->layer};
}

/* The assists of a slot's stages, the neediest owner first, without `layer`, `had` and `goes_on`.
 * Returns how many: fewer than stages. */
int sp_slot_assist(const struct sp_layout *lay, int slot, struct sp_assist assist[SP_SLOT_STAGES]);

/*
 * The same at place `step` of a pass through the layers of each chunk; `layers` is the model's
 * number. Stages whose chunk has fewer layers take no part.
 */
int sp_step_assist(const struct sp_plan *plan, int layers, int slot, int step,
                   struct sp_assist assist[SP_SLOT_STAGES]);

/* The op of a stage in a slot, and the layer that its pass reaches at a step. -1: the stage has no
 * op there, or no more layers. */
int sp_step_layer(const struct sp_plan *plan, int layers, int stage, int slot, int step,
                  struct sp_op *op);

/* Steps of a slot: the layers of its largest chunk. */
int sp_slot_steps(const struct sp_plan *plan, int layers, int slot);

/* Layers of the model; if unknown, one for each global stage. */
int sp_aligned_layers(const struct sp_plan *plan, const struct sp_shape *shape);

#endif
