/*
 * Messages between stages on a machine: which interfaces they take, for how long. Pure.
 *
 * Stages fill the nodes one after the other, `devices` of a stage side by side; where a stage has more than a
 * node, its first node sends for it. A message is cut over the devices of its stage; of `members` that share a stage
 * each has a message of its own, at the same time. It takes the interfaces
 * of a node where both stages are in one, and those of the network otherwise. Messages of different pairs of stages
 * share interfaces (flows.h). What a stage evicts has its way out of memory to itself, what it fetches its way in,
 * each at the stage's part of the tier's rates.
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
    struct sp_tier_rates tier; /* of a stage; 0: nothing leaves */
    const int *
        process; /* [stages] stages of one process hand tensors on without a copy; NULL: each has its own */
};

/* Times in milliseconds. */
struct sp_network sp_network_of_machine(const struct sp_machine_network *m);

#endif
