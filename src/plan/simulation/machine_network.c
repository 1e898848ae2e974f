#include "plan/simulation/machine_network.h"

static int node_of(const struct sp_machine_network *n, int stage)
{
    return (int)((int64_t)stage * n->devices / n->machine->devices_per_node);
}

/* The first interface of a stage, of those that `shared_by` devices share. */
static int interface_of(const struct sp_machine_network *n, const struct sp_link *link, int stage)
{
    return (int)((int64_t)stage * n->devices / link->shared_by);
}

/* Interfaces that a stage's message is cut over. */
static int interfaces(const struct sp_machine_network *n, const struct sp_link *link)
{
    int devices =
        n->devices < n->machine->devices_per_node ? n->devices : n->machine->devices_per_node;

    return devices > link->shared_by ? devices / link->shared_by : 1;
}

static bool is_shared(const void *arg, const struct sp_step_message *m)
{
    const struct sp_machine_network *n = arg;

    return n->process && n->process[m->from] == n->process[m->to];
}

/* Ports 4 `most` + stage, and the next one: out of its memory, and into it. */
static struct sp_route move(const struct sp_machine_network *n, const struct sp_step_message *m)
{
    bool out = m->kind == SP_ACTION_EVICT;
    int port = 4 * n->stages * n->devices + 2 * m->from + !out;
    double rate = out ? n->tier.write : n->tier.read;

    return (struct sp_route){
        .out = port, .in = port, .busy = rate > 0 ? 1e3 * (double)m->bytes / rate : 0};
}

static struct sp_route route(const void *arg, const struct sp_step_message *m)
{
    const struct sp_machine_network *n = arg;
    bool inside = node_of(n, m->from) == node_of(n, m->to);
    const struct sp_link *link = inside ? &n->machine->node : &n->machine->network;
    /* ports: out of nodes' links, into them, then the same of the network */
    int most = (int)((int64_t)n->stages * n->devices), base = inside ? 0 : 2 * most;
    int from = sp_step_message_is_sent(m) ? m->from : m->to, in = link->half_duplex ? 0 : most;

    if (sp_step_message_is_move(m))
        return move(n, m);
    if (is_shared(arg, m))
        return (struct sp_route){.out = -1, .in = -1};
    return (struct sp_route){
        .out = base + interface_of(n, link, from),
        .in = base + in + interface_of(n, link, m->to),
        .busy = 1e3 * (double)m->bytes / (link->bandwidth * interfaces(n, link)),
        .delay = 1e3 * link->latency_s,
    };
}

struct sp_network sp_network_of_machine(const struct sp_machine_network *n)
{
    return (struct sp_network){.ports = (4 * n->devices + 2) * n->stages,
                               .flows = true,
                               .route = route,
                               .is_shared = is_shared,
                               .arg = n};
}
