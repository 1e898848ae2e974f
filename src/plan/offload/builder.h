/* A stage's program on its way to slots and units: what units.c, part_units.c and keys.c share. */
#ifndef SP_OFFLOAD_BUILDER_H
#define SP_OFFLOAD_BUILDER_H

#include "plan/offload/units.h"
#include "plan/slices.h"

struct sp_units_builder {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_offload_request *want;
    int keep; /* slices whose keys and values stay */
    struct sp_slice_costs flops;
    struct sp_op_speed speed;
    const struct sp_program *prog;
    int stage;
    struct sp_eviction_plan *a;
    int *use, *release, *forward; /* [flights] ops */
    struct sp_shape part;         /* that was asked for last; rows 0: none was */
};

/* Slots of the backward of a layer: when it is recomputed, if it is, its own, the one that ends it. */
struct sp_units_backward {
    int begins, own, ends;
};

int sp_units_layers(const struct sp_units_builder *b, const struct sp_op *op);
int sp_units_activations(const struct sp_units_builder *b, const struct sp_op *op);

/* The stage's forward after op `op`, -1: none. */
int sp_units_next_forward(const struct sp_units_builder *b, int op);

/* The slot of layer i in an op: of a forward of layers the first of two. */
int sp_units_slot(const struct sp_units_builder *b, int op, int i);

/* The shape of an op's tokens, until the next one is asked for. */
const struct sp_shape *sp_units_shape(struct sp_units_builder *b, const struct sp_op *op);

/* How layer i of an op is recomputed. */
enum sp_recompute sp_units_recompute(const struct sp_units_builder *b, const struct sp_op *op,
                                     int i);

struct sp_units_backward sp_units_backward_of(const struct sp_units_builder *b,
                                              const struct sp_op *op, int i);

/* Bytes in slots first .. last. Differences from slot to slot, summed up when all are there. */
void sp_units_also(struct sp_units_builder *b, int first, int last, int64_t bytes);

#endif
