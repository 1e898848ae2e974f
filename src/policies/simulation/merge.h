/* One order for the ops of all stages. */
#ifndef SP_MERGE_H
#define SP_MERGE_H

#include "policies/simulation/times.h"

/* All ops of all stages by start time, then by stage: a topological order even if ops take no
 * time, the order of submission. The caller frees it; NULL: no memory, or the programs deadlock. */
struct sp_placed {
    int stage, index;
    double start;
};
struct sp_placed *sp_merge(const struct sp_plan *plan, const struct sp_times *times, int *n);

/* The order of submission: merged by start time when all passes cost the same, or by turns of the
 * family. As sp_merge. */
struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n);

#endif
