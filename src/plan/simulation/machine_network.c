#include "plan/simulation/machine_network.h"

/* Devices of all members of a stage. */
static int devices_of(const struct sp_machine_network *n)
{
    return n->devices * (n->members > 1 ? n->members : 1);
}

/* Devices of a stage that are in one node. */
static int devices_here(const struct sp_machine_network *n)
{
    int most = n->machine->devices_per_node;

    return devices_of(n) < most ? devices_of(n) : most;
}

static int node_of(const struct sp_machine_network *n, int stage)
{
    return (int)((int64_t)stage * devices_of(n) / n->machine->devices_per_node);
}

/* The first interface of a stage; the number of the first device that shares it stands for it. */
static int interface_of(const struct sp_machine_network *n, const struct sp_link *link, int stage)
{
    return (int)((int64_t)stage * devices_of(n) / link->shared_by * link->shared_by);
}

/* The link of a message between two nodes, or within one; if two nodes differ, the slower one. */
static const struct sp_link *link_of(const struct sp_machine_network *n, int from, int to)
{
    const struct sp_machine *a = sp_machine_of_node(n->machine, node_of(n, from));
    const struct sp_machine *b = sp_machine_of_node(n->machine, node_of(n, to));

    if (node_of(n, from) == node_of(n, to))
        return &a->node;
    return a->network.bandwidth / a->network.shared_by <=
                   b->network.bandwidth / b->network.shared_by
               ? &a->network
               : &b->network;
}

/* Number of interfaces that carry a stage's message. */
static int interfaces(const struct sp_machine_network *n, const struct sp_link *link)
{
    return devices_here(n) > link->shared_by ? devices_here(n) / link->shared_by : 1;
}

double sp_network_rate(const struct sp_machine_network *n, int from, int to)
{
    const struct sp_link *link = link_of(n, from, to);
    int here = devices_here(n);

    return link->bandwidth * interfaces(n, link) /
           (here < link->shared_by ? (double)link->shared_by / here : 1);
}

/* Bytes that a node sends, for all members in it. */
static double bytes_of(const struct sp_machine_network *n, const struct sp_step_message *m)
{
    int members = devices_here(n) / n->devices;

    return (double)m->bytes * (members > 1 ? members : 1);
}

static bool is_shared(const void *arg, const struct sp_step_message *m)
{
    const struct sp_machine_network *n = arg;

    return n->process && n->process[m->from] == n->process[m->to];
}

/* Each stage has two ports after those of links: out of its memory, and into it. */
static struct sp_route move(const struct sp_machine_network *n, const struct sp_step_message *m)
{
    bool out = m->kind == SP_ACTION_EVICT;
    int port = 4 * n->stages * devices_of(n) + 2 * m->from + !out;
    double rate = out ? n->tier.write : n->tier.read;

    return (struct sp_route){
        .out = port, .in = port, .busy = rate > 0 ? 1e3 * (double)m->bytes / rate : 0};
}

static struct sp_route route(const void *arg, const struct sp_step_message *m)
{
    const struct sp_machine_network *n = arg;
    bool inside = node_of(n, m->from) == node_of(n, m->to);
    const struct sp_link *link = link_of(n, m->from, m->to);
    /* ports: out of nodes' links, into them, then the same for the network */
    int most = (int)((int64_t)n->stages * devices_of(n)), base = inside ? 0 : 2 * most;
    int from = sp_step_message_is_sent(m) ? m->from : m->to, in = link->half_duplex ? 0 : most;

    if (sp_step_message_is_move(m))
        return move(n, m);
    if (is_shared(arg, m))
        return (struct sp_route){.out = -1, .in = -1};
    return (struct sp_route){
        .out = base + interface_of(n, link, from),
        .in = base + in + interface_of(n, link, m->to),
        .busy = 1e3 * bytes_of(n, m) / (link->bandwidth * interfaces(n, link)),
        .delay = 1e3 * link->latency_s,
    };
}

struct sp_network sp_network_of_machine(const struct sp_machine_network *n)
{
    return (struct sp_network){.ports = (4 * devices_of(n) + 2) * n->stages,
                               .flows = true,
                               .route = route,
                               .is_shared = is_shared,
                               .arg = n};
}
