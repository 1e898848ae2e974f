/* What stages take that share attention of an op: parts of it, and what they send each other. Pure, in seconds. */
#ifndef SP_EXCHANGE_TIMES_H
#define SP_EXCHANGE_TIMES_H

#include "plan/cost/terms.h"
#include "policies/plan.h"
#include "plan/cost/part_times.h"

/* FLOPs of a slice's queries, over their own keys and as many tokens before them. */
double sp_queries_flops(const struct sp_shape *slice, int before);

/* A call of attention of a stage with the shape, by FLOPs of all of it. */
double sp_shared_attention_s(const struct sp_op_terms *terms, const struct sp_shape *sh,
                             enum sp_attention_pass pass, double flops);

/* So many elements are read and written by a stage. */
double sp_merge_s(const struct sp_op_terms *terms, const struct sp_shape *sh, double elements);

/* And sent by one stage to another: each of its devices has a part. */
double sp_exchange_s(const struct sp_op_terms *terms, const struct sp_shape *sh, int from, int to,
                     double elements);

#endif
