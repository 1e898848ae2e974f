/* Slots and units of ops that are parts of layers: an op has one slot, what a forward keeps is a unit. Pure. */
#ifndef SP_OFFLOAD_PART_UNITS_H
#define SP_OFFLOAD_PART_UNITS_H

#include "plan/offload/builder.h"

/* What an op takes. */
double sp_part_unit_seconds(struct sp_units_builder *b, const struct sp_op *op);

/* The unit of op `op`, a forward, after which `next` is the stage's next forward, -1: none. */
void sp_part_unit(struct sp_units_builder *b, int op, int next, struct sp_unit *u);

#endif
