/* The network of unit costs: `--cost comm=X,wire=X`. */
#include "plan/simulation/simulate.h"
#include "policies/simulation/costs.h"

static struct sp_route route_of_costs(const void *arg, const struct sp_step_message *m)
{
    const struct sp_unit_network *unit = arg;
    const struct sp_layout *lay = &unit->plan->layout;
    double share = sp_step_message_share(unit->plan, m), wire = unit->costs->wire * share;

    if (!sp_step_message_is_sent(m))
        return (struct sp_route){.out = -1, .in = -1};
    return (struct sp_route){.out = wire > 0 ? m->from : -1,
                             .in = lay->stages + m->to,
                             .busy = wire / lay->slices,
                             .delay = unit->costs->comm * share};
}

struct sp_network sp_network_of_costs(const struct sp_unit_network *unit)
{
    return (struct sp_network){
        .ports = 2 * unit->plan->layout.stages, .route = route_of_costs, .arg = unit};
}
