/* Times of stages that share an op's attention: partial attention, merging, and messages between
 * them. Pure, in seconds. */
#ifndef SP_EXCHANGE_TIMES_H
#define SP_EXCHANGE_TIMES_H

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

#endif
