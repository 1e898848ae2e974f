/*
 * Routes messages between stages on a machine: which interfaces they use, and for how long. Pure.
 *
 * Stages fill the nodes one after the other, with the `devices` of a stage side by side; if a stage
 * has more than a node, its first node sends for it. The devices of a stage each send a part of its
 * message; the `members` that share a stage each have their own message, at the same time. A
 * message uses the interfaces of a node if both stages are in it, and those of the network
 * otherwise. Messages of different pairs of stages share interfaces (flows.h). Evictions of a stage
 * have their own way out of memory, and fetches their own way in, each at the stage's part of the
 * tier's rates.
 */
#ifndef SP_MACHINE_NETWORK_H
#define SP_MACHINE_NETWORK_H

#include "plan/machine/machine.h"
#include "offload/eviction.h"
#include "plan/simulation/simulate.h"

struct sp_machine_network {
    const struct sp_machine *machine;
    int stages;
    int devices;               /* of a member */
    int members;               /* of a stage; 0: 1 */
    struct sp_tier_rates tier; /* of a stage; 0: nothing is evicted */
    /* [stages] NULL: one for each stage; a process passes on tensors without copies */
    const int *process;
};

/* Bytes a second of a stage's messages to another one, while all devices that share its interfaces
 * send. */
double sp_network_rate(const struct sp_machine_network *m, int from, int to);

/* Times in milliseconds. */
struct sp_network sp_network_of_machine(const struct sp_machine_network *m);

#endif
