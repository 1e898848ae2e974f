/*
 * Eviction of the keys and values of slices (offload/eviction.h): which leave, when, and the memory
 * and traffic of streaming them through. The keys of slice j stay in memory from its forward to
 * that of slice j+1. Then each later slice streams them through while its attention reads them, in
 * the backward with their gradients. From the slice's own backward on they stay again.
 */
#ifndef SP_OFFLOAD_KEYS_H
#define SP_OFFLOAD_KEYS_H

#include "plan/offload/builder.h"

/* True if a plan has slices whose keys and values may be evicted at all. */
bool sp_keys_may_leave(const struct sp_plan *plan, const struct sp_shape *sh);

/* True if the keys and values of this forward are evicted. */
bool sp_keys_leave(const struct sp_units_builder *b, const struct sp_op *op);

/* Bytes of the gradients of keys and values that may leave, for all slices of a micro-batch in
 * every layer of a chunk: a stage holds so many if nothing is evicted. */
int64_t sp_keys_gradients_bytes(const struct sp_plan *plan, const struct sp_shape *sh, int stage);

/* Counts the gradients of keys of layer i, if this forward's keys are evicted. They are streamed
 * through for the slices after it; from its own backward on they stay. */
void sp_keys_gradients(struct sp_units_builder *b, const struct sp_op *op, int i);

/* Sets when the keys and values of layer i are in memory in a unit whose tensors are known. */
void sp_keys_of_unit(const struct sp_units_builder *b, const struct sp_op *op, int i,
                     struct sp_unit *u);

/* What all visits of a stage take in memory, and bring and take away; and the gradients of keys and values that stay. */
void sp_keys_stream(struct sp_units_builder *b);

#endif
