/* What attention of an op takes more or less for being shared (policies/families/aligned/assist.h). Pure. */
#ifndef SP_ASSIST_TIMES_H
#define SP_ASSIST_TIMES_H

#include "plan/cost/terms.h"
#include "policies/plan.h"

/*
 * Seconds beyond what attention of the whole slice takes, of all layers of the op; negative: it gets help. The stages
 * of a slot come to a layer at the same time. A helper attends to its own slice, then to what came meanwhile, one
 * after the other; an owner is done when it has what its helpers sent back, and has merged it.
 */
double sp_assist_time(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms, int stage, const struct sp_op *op);

#endif
