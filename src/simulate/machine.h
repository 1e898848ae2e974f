/*
 * The links of a simulated run: which devices share a node, and how messages get from one to another.
 */
#ifndef SP_SIMULATE_MACHINE_H
#define SP_SIMULATE_MACHINE_H

#include "plan/machine/machine.h"

/* How several messages share an interface. */
enum sp_sharing {
    SP_LINK_QUEUED, /* one at a time, in the order in which they became ready, like in `show` */
    SP_LINK_FAIR,   /* they share the bandwidth evenly, like in SimGrid */
    SP_LINK_FREE    /* each has the whole bandwidth */
};

struct sp_sim_machine {
    double unit_s; /* a unit of the costs: 1e-3 if they are milliseconds, 1 if they have no unit */
    int devices_per_node; /* rank r is on node r / devices_per_node; 0: all are on one node */
    struct sp_link node, network; /* bandwidth 0: unlimited */
    enum sp_sharing sharing;
};

/* Links that take no time, with costs that have no unit. */
extern const struct sp_sim_machine sp_sim_machine_default;

/* The links of a machine, and costs in milliseconds. */
struct sp_sim_machine sp_sim_machine_of(const struct sp_machine *m);

/*
 * Changes *machine by "key=value,...". Keys are devices; latency, bandwidth, duplex=full|half and
 * shared_by of the network, which also apply to the links inside a node; node_latency,
 * node_bandwidth, node_duplex and node_shared_by; sharing=queued|fair|free. 0, or -EINVAL after one
 * line on stderr.
 */
int sp_sim_machine_parse(const char *text, struct sp_sim_machine *machine);

static inline int sp_sim_node(const struct sp_sim_machine *m, int rank)
{
    return m->devices_per_node > 0 ? rank / m->devices_per_node : 0;
}

static inline bool sp_sim_is_inside(const struct sp_sim_machine *m, int from, int to)
{
    return sp_sim_node(m, from) == sp_sim_node(m, to);
}

/* The link that a message takes, through an interface at both ends. */
static inline const struct sp_link *sp_sim_link_between(const struct sp_sim_machine *m, int from,
                                                        int to)
{
    return sp_sim_is_inside(m, from, to) ? &m->node : &m->network;
}

/* The index of a rank's interface to this link. */
static inline int sp_sim_interface(const struct sp_link *l, int rank)
{
    return l->shared_by > 1 ? rank / l->shared_by : rank;
}

static inline bool sp_sim_link_is_instant(const struct sp_link *l)
{
    return l->latency_s <= 0 && l->bandwidth <= 0;
}

#endif
