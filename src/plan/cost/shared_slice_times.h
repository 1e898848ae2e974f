/* Attention time of a slice that several stages compute
 * (policies/families/multiplexed/key_shares.h). Pure. */
#ifndef SP_SHARED_SLICE_TIMES_H
#define SP_SHARED_SLICE_TIMES_H

#include "plan/cost/terms.h"
#include "policies/plan.h"

/*
 * Seconds beyond attention of the part's queries over all keys, for all layers of the op; negative
 * if other stages hold most of the keys. The stages come to a layer at the same time. Each attends
 * for its own queries, then for the queries of the others as they arrive. It is done when it has
 * received and merged the results that they send back.
 */
double sp_shared_slice_time(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_op_terms *terms, const struct sp_op *op);

#endif
