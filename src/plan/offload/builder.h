/* The state in which units.c, part_units.c and keys.c turn a stage's program into slots and
 * units. */
#ifndef SP_OFFLOAD_BUILDER_H
#define SP_OFFLOAD_BUILDER_H

#include "plan/offload/units.h"
#include "plan/slices.h"

struct sp_units_builder {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_offload_request *want;
    int keep; /* the first so many slices keep their keys and values in memory */
    struct sp_slice_costs flops;
    struct sp_op_speed speed;
    const struct sp_program *prog;
    int stage;
    struct sp_eviction_plan *a;
    int *use, *release, *forward; /* [flights] ops */
    struct sp_shape part;         /* of the last request; rows 0: none yet */
};

/* Slots of a layer's backward: the one that recomputes it, if any, its own, and its last one. */
struct sp_units_backward {
    int begins, own, ends;
};

int sp_units_layers(const struct sp_units_builder *b, const struct sp_op *op);
int sp_units_activations(const struct sp_units_builder *b, const struct sp_op *op);

/* The stage's next forward after op `op`; -1: none. */
int sp_units_next_forward(const struct sp_units_builder *b, int op);

/* The slot of layer i in an op; a forward of layers has two each, and this is the first. */
int sp_units_slot(const struct sp_units_builder *b, int op, int i);

/* The shape of an op's tokens; valid until the next call. */
const struct sp_shape *sp_units_shape(struct sp_units_builder *b, const struct sp_op *op);

/* How layer i of an op is recomputed. */
enum sp_recompute sp_units_recompute(const struct sp_units_builder *b, const struct sp_op *op,
                                     int i);

struct sp_units_backward sp_units_backward_of(const struct sp_units_builder *b,
                                              const struct sp_op *op, int i);

/* Adds bytes in slots first .. last. also[] holds differences from slot to slot; they are summed up
 * at the end. */
void sp_units_also(struct sp_units_builder *b, int first, int last, int64_t bytes);

#endif
