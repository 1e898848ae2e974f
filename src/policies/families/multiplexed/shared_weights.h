/*
 * Shared weights. A stage that assists another one holds that stage's weights and a sum of their
 * gradients. An assist is a run of consecutive ops of a stage for one other stage.
 *
 *   weights  leave the owner before an assist begins and go outward from process to process; each
 *            process keeps a copy until its stages are done with that assist
 *   sums     when its backwards are done, a stage's sum is added to that of the next stage towards
 *            the owner, which adds the sums that arrive to its own gradients
 *
 * So a stage holds weights and a sum of the stage that it assists, and of one more while they pass
 * through, not of all others. Both move on by one stage while ops run. An owner sends and receives
 * them once for all stages on one side of it, in stage order, whatever processes these are in.
 */
#ifndef SP_SHARED_WEIGHTS_H
#define SP_SHARED_WEIGHTS_H

#include "policies/lowering/lowering.h"

/* Begins a step: 0 or -ENOMEM. */
int sp_shared_weights_begin(struct sp_lowering *l);
/* Around the actions of the op at place i of the order. */
void sp_shared_weights_before(struct sp_lowering *l, int i);
void sp_shared_weights_after(struct sp_lowering *l, int i);
/* Moves the sums that have not arrived. */
void sp_shared_weights_end(struct sp_lowering *l);

#endif
