/* One order for the ops of all stages. */
#ifndef SP_MERGE_H
#define SP_MERGE_H

#include "policies/plan.h"

struct sp_placed {
    int stage, index; /* in the program of the stage */
};

/*
 * All ops of all stages in the order in which they start at these costs, then by stage; or in the
 * turns of the family. The order is topological even if ops take no time. The caller frees it;
 * NULL: no memory, or the programs deadlock. A play of the list simulation (listsim.c) finds it.
 */
struct sp_placed *sp_order_at_costs(const struct sp_plan *plan, const struct sp_costs *costs,
                                    int *n);

/* The order of submission: the one that the plan keeps, or else the one at equal costs of all
 * passes. Returns like sp_order_at_costs. */
struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n);

#endif
