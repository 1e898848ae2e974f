/* Times of ops whose attention several stages share. Pure, in seconds. */
#ifndef SP_SHARED_ATTENTION_H
#define SP_SHARED_ATTENTION_H

#include "plan/cost/part_times.h"
#include "policies/plan.h"

/*
 * The change in an op's time because stages assist each other (policies/families/aligned/assist.h):
 * seconds beyond attention of the whole slice, for all layers of the op; negative for an op that is
 * assisted. The stages of a slot come to a layer at the same time. An assisting stage attends to
 * its own slice, then to the queries it has received, one owner after the other. An owner is done
 * when it has received and merged the results of its assisting stages.
 */
double sp_assist_time(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms, int stage, const struct sp_op *op);

/*
 * The change in an op's time because several stages compute a slice's attention
 * (policies/families/multiplexed/key_shares.h): seconds beyond attention of the part's queries over all keys, for all layers of the op; negative
 * if other stages hold most of the keys. The stages come to a layer at the same time. Each attends
 * for its own queries, then for the queries of the others as they arrive. It is done when it has
 * received and merged the results that they send back.
 */
double sp_shared_slice_time(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_op_terms *terms, const struct sp_op *op);

#endif
