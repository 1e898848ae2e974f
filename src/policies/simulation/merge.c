#include "policies/simulation/costs.h"
#include "policies/simulation/merge.h"
#include <stdlib.h>
#include <string.h>

struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n)
{
    struct sp_placed *order;

    if (!plan->order)
        return sp_order_at_costs(plan, &sp_costs_unit, n);
    *n = sp_plan_ops(plan);
    order = malloc(((size_t)*n + 1) * sizeof *order);
    if (order)
        memcpy(order, plan->order, (size_t)*n * sizeof *order);
    return order;
}
