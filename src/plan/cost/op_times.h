/* What the ops of a plan take on a machine. Pure. */
#ifndef SP_OP_TIMES_H
#define SP_OP_TIMES_H

#include "plan/cost/terms.h"
#include "policies/plan.h"

/* Milliseconds of every op, by the number that its family gives it, as `by_op` of struct sp_costs; to be
 * freed. NULL: no memory. */
double *sp_op_times(const struct sp_plan *plan, const struct sp_shape *sh,
                    const struct sp_op_terms *terms);

/* The same without what devices of a stage send each other: what they compute. Likewise. */
double *sp_op_times_alone(const struct sp_plan *plan, const struct sp_shape *sh,
                          const struct sp_op_terms *terms);

/* Of these, what an op computes again before it wants what other stages send, as `again_by_op` of struct sp_costs;
 * likewise. */
double *sp_op_times_again(const struct sp_plan *plan, const struct sp_shape *sh,
                          const struct sp_op_terms *terms);

/* Of the optimizer on the stage that takes longest, in milliseconds. */
double sp_update_times(const struct sp_plan *plan, const struct sp_shape *sh,
                       const struct sp_op_terms *terms);

/* Until the gradients of all pipelines are summed, and updated weights gathered where they share the update
 * out, on the stage that takes longest, in milliseconds: with nothing hidden behind the last backwards or first
 * forwards. 0 of one pipeline. sp_share_time: of a device with so many parameters. */
double sp_share_time(const struct sp_shape *sh, const struct sp_op_terms *terms, double elements);
double sp_share_times(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms);

#endif
