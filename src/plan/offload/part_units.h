/* Slots and units of ops that are parts of layers: each op is one slot, each forward one unit.
 * Pure. */
#ifndef SP_OFFLOAD_PART_UNITS_H
#define SP_OFFLOAD_PART_UNITS_H

#include "plan/offload/builder.h"

/* Seconds of an op. */
double sp_part_unit_seconds(struct sp_units_builder *b, const struct sp_op *op);

/* Sets the unit of op `op`, a forward; `next` is the stage's next forward, -1: none. */
void sp_part_unit(struct sp_units_builder *b, int op, int next, struct sp_unit *u);

#endif
