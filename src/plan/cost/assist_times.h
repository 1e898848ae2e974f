/* The change in an op's time because stages share attention (policies/families/aligned/assist.h).
 * Pure. */
#ifndef SP_ASSIST_TIMES_H
#define SP_ASSIST_TIMES_H

#include "plan/cost/terms.h"
#include "policies/plan.h"

/*
 * Seconds beyond attention of the whole slice, for all layers of the op; negative for an op that is
 * assisted. The stages of a slot come to a layer at the same time. An assisting stage attends to
 * its own slice, then to the queries it has received, one owner after the other. An owner is done
 * when it has received and merged the results of its assisting stages.
 */
double sp_assist_time(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms, int stage, const struct sp_op *op);

#endif
