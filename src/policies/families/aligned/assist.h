/*
 * Attention context exchange (SlimPipe). The later a slice is, the more keys its attention reads: slice k reads k
 * slices of keys before it, and its own. The stages of a slot share these out: those whose slices read more send
 * their queries, with keys and values, to those whose slices read less, so that no stage computes more than one slice
 * of keys more than another. Queries' own keys, half of which they see, stay, as do the latest ones before them: what
 * goes are the earliest, which are there longest. Pure.
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
 * The helper computes attention of the owner's slice over keys that it is given. Keys and values stay with it as long
 * as the owner's slices go on reading them there, slot after slot of one pass, and so do their gradients: it had some
 * of them in the slot before, and goes on with some in the next one.
 */
struct sp_assist {
    int owner, helper;
    struct sp_op op; /* the owner's */
    int layer;       /* that it comes to at the step */
    struct sp_key_range keys, had, goes_on;
};

/* A tensor of that layer, of the owner's slice or of one of keys. */
static inline struct sp_tensor_id sp_assist_tensor(const struct sp_assist *assist,
                                                   enum sp_tensor_kind kind, int slice)
{
    return (struct sp_tensor_id){.kind = (unsigned char)kind,
                                 .slice = (unsigned short)slice,
                                 .mb = assist->op.mb,
                                 .at = assist->layer};
}

/* Of the stages of a slot, the neediest owner first; without layers, and without what was and will be. Returns how
 * many, fewer than stages. */
int sp_slot_assist(const struct sp_layout *lay, int slot, struct sp_assist assist[SP_SLOT_STAGES]);

/*
 * The same of the layers that chunks have at place `step` of a pass's order, of `layers` of the model: stages whose
 * chunk has fewer have no part in it.
 */
int sp_step_assist(const struct sp_plan *plan, int layers, int slot, int step,
                   struct sp_assist assist[SP_SLOT_STAGES]);

/* The op of a stage in a slot, and the layer that its pass comes to at a step; -1: it has no op there, or no more
 * layers. */
int sp_step_layer(const struct sp_plan *plan, int layers, int stage, int slot, int step,
                  struct sp_op *op);

/* Steps of a slot: layers of its largest chunk. */
int sp_slot_steps(const struct sp_plan *plan, int layers, int slot);

/* Layers of the model; where they are not known, one for each global stage. */
int sp_aligned_layers(const struct sp_plan *plan, const struct sp_shape *shape);

#endif
