/*
 * Two ops that overlap, of a stage whose members exchange tensors within layers. They are expanded
 * in turns: where one would wait for what other members send, the tasks of the other come first, so
 * that one computes while the other's tensors travel (as STP does for tensor groups, arXiv
 * 2510.27257). The turns depend on nothing but the ops, so that all members submit the same exchanges
 * in the same order.
 */
#ifndef SP_TURNS_H
#define SP_TURNS_H

#include "graphs/op.h"

/* Expands both ops by `expand`, the first one's tasks first; returns when both have ended. */
void sp_turns_run(struct sp_op_ctx *first, struct sp_op_ctx *second,
                  void (*expand)(struct sp_op_ctx *c));

/* The op has expanded a layer: the other one catches up. */
void sp_turns_layer(struct sp_op_ctx *c);

#endif
