/* Times of ops whose attention several stages share: partial attention, merging, and messages
 * between the stages. Pure, in seconds. */
#ifndef SP_SHARED_ATTENTION_H
#define SP_SHARED_ATTENTION_H

#include "plan/cost/terms.h"
#include "policies/plan.h"
#include "plan/cost/part_times.h"

/* FLOPs of attention of a slice's queries over their own keys and `before` tokens before them. */
double sp_queries_flops(const struct sp_shape *slice, int before);

/* One attention call on a stage with this shape; `flops` counts all devices. */
double sp_shared_attention_s(const struct sp_op_terms *terms, const struct sp_shape *sh,
                             enum sp_attention_pass pass, double flops);

/* A stage reads and writes so many elements. */
double sp_merge_s(const struct sp_op_terms *terms, const struct sp_shape *sh, double elements);

/* One stage sends so many elements to another: each of its devices sends its part. */
double sp_exchange_s(const struct sp_op_terms *terms, const struct sp_shape *sh, int from, int to,
                     double elements);

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
