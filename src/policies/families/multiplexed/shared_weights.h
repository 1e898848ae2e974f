/*
 * What a stage has of another one that it computes for: its weights, and sums of their gradients. A help is a run of
 * consecutive ops of a stage for one other stage.
 *
 *   weights  leave the owner before a help begins and go from process to process, away from it; each process has them
 *            until its stages are through with that help
 *   sums     when its backwards are done a stage's sum is added to that of the next stage on the way to the owner, who
 *            adds what arrives to his own gradients
 *
 * So a stage has weights and sums of the stage that it helps and, on their way, of one more, not of all others. Both go
 * on by one stage while ops run: an owner sends and receives them once for all stages on a side of it, in the order of the
 * stages, whatever process they are in.
 */
#ifndef SP_SHARED_WEIGHTS_H
#define SP_SHARED_WEIGHTS_H

#include "policies/lowering/lowering.h"

/* Of a step: 0 or -ENOMEM. */
int sp_shared_weights_begin(struct sp_lowering *l);
/* Around the actions of the op at place i of the order. */
void sp_shared_weights_before(struct sp_lowering *l, int i);
void sp_shared_weights_after(struct sp_lowering *l, int i);
/* Sums that have not arrived. */
void sp_shared_weights_end(struct sp_lowering *l);

#endif
