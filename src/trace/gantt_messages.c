/* The messages of list-simulated times, for pictures. */
#include "policies/simulation/index.h"
#include "trace/gantt.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/times.h"
#include <errno.h>

/* Those that the op at index k of stage s takes. */
static int add_taken(struct sp_gantt *g, const struct sp_plan *plan, const struct sp_index *ix,
                     const struct sp_times *times, const struct sp_costs *costs, int s, int k)
{
    struct sp_dep deps[SP_MAX_DEPS];
    int n = plan->family->deps(&plan->layout, s, &plan->programs[s].ops[k], deps), ret = 0;

    for (int i = 0; i < n && !ret; i++) {
        int place = sp_index_place(ix, plan, &deps[i]);
        struct sp_gantt_message m = {.from = deps[i].stage, .to = s};

        if (deps[i].stage == s || place < 0)
            continue;
        m.sent = sp_message_sent(&deps[i], times->start, times->end, place);
        m.arrived = m.sent + sp_message_cost(plan, costs, &deps[i]);
        sp_op_print(&deps[i].op, plan->layout.slices > 1, m.name);
        ret = sp_gantt_add_message(g, &m);
    }
    return ret;
}

int sp_gantt_add_messages(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_times *times, const struct sp_costs *costs)
{
    struct sp_index ix;
    int stage, index, ret;

    if (costs->comm <= 0)
        return 0;
    ret = sp_index_create(plan, &ix, &stage, &index);
    if (ret)
        return ret;
    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n && !ret; k++)
            ret = add_taken(g, plan, &ix, times, costs, s, k);
    sp_index_destroy(&ix);
    return ret;
}
