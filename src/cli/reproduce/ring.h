/* Weights that travel around a ring as WeiPipe describes it. */
#ifndef SP_REPRODUCE_RING_H
#define SP_REPRODUCE_RING_H

#include "plan/simulation/step_messages.h"

/*
 * Changes the messages of a weight ring, of which ours differ in three ways (Lin et al. 2025, sections 3 and 4):
 *
 *   - gradients travel in two bytes a number, not four;
 *   - weights are passed on in the turn in which they are used. Ours go ahead as soon as they are there, and a
 *     slow link is then busy with what is not wanted yet;
 *   - chunks wait where the ring wants them first, in the order in which it does, and stay where it leaves them.
 *     Ours go from their owner and back: with 4 rounds on 16 workers that is a quarter more.
 */
void sp_ring_as_published(const struct sp_plan *plan, struct sp_step_messages *messages);

#endif
