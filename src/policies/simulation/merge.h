/* One order for the ops of all stages. */
#ifndef SP_MERGE_H
#define SP_MERGE_H

#include "policies/simulation/times.h"

/* All ops of all stages by start time, then by stage. The order is topological even if ops take no
 * time. The caller frees it; NULL: no memory, or the programs deadlock. */
struct sp_placed {
    int stage, index;
    double start;
};
struct sp_placed *sp_merge(const struct sp_plan *plan, const struct sp_times *times, int *n);

/* The order of submission: merged by start times at equal costs of all passes, or by the turns of
 * the family. Returns like sp_merge. */
struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n);

#endif
