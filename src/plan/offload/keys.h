/*
 * Keys and values of slices that leave memory (offload/eviction.h): which, when, and what their visits take. Of slice j
 * they are in memory from its forward to that of slice j+1, for the moment in which attention of each slice after that
 * reads them, in the backward with their gradients, and from the slice's own backward on.
 */
#ifndef SP_OFFLOAD_KEYS_H
#define SP_OFFLOAD_KEYS_H

#include "plan/offload/builder.h"

/* Whether a plan has slices whose keys and values may leave at all. */
bool sp_keys_may_leave(const struct sp_plan *plan, const struct sp_shape *sh);

/* Whether those of a forward do. */
bool sp_keys_leave(const struct sp_units_builder *b, const struct sp_op *op);

/* Bytes of the gradients of those that may leave, of all slices of a micro-batch in every layer of a chunk: what a stage holds
 * of them if nothing leaves. */
int64_t sp_keys_gradients_bytes(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Those of layer i of a forward whose keys leave, in the slots where they are there: they visit the slices after it, and stay
 * from its own backward on. */
void sp_keys_gradients(struct sp_units_builder *b, const struct sp_op *op, int i);

/* When they are in memory, of layer i, into the unit, whose tensors are known. */
void sp_keys_of_unit(const struct sp_units_builder *b, const struct sp_op *op, int i,
                     struct sp_unit *u);

/* What all visits of a stage take in memory, and bring and take away; and the gradients of keys and values that stay. */
void sp_keys_stream(struct sp_units_builder *b);

#endif
