/* A request for a plan of evictions. Pure. */
#ifndef SP_OFFLOAD_REQUEST_H
#define SP_OFFLOAD_REQUEST_H

#include "offload/eviction.h"
#include "policies/families/activations.h"

struct sp_machine;

/* Seconds of a floating-point operation of a layer, forward and backward. */
struct sp_op_speed {
    double fwd_s, bwd_s;
};

/* Evicts keys and values of slices, or keeps them. */
enum sp_offload_keys {
    SP_KEYS_AUTO, /* `full`: evict; `adaptive`: evict those of as few slices as needed */
    SP_KEYS_STAY,
    SP_KEYS_LEAVE
};

struct sp_offload_request {
    enum sp_offload_mode mode;
    enum sp_offload_keys keys;
    int64_t limit;   /* bytes of a stage, states and workspace included; 0: none */
    bool of_machine; /* the user gave no limit: it is the machine's memory */
    enum sp_recompute recompute;
    int every;
    bool peers;                       /* stages may park tensors on each other (peers.c), */
    const struct sp_machine *machine; /* by the links of this machine */
    int devices;                      /* of a stage */
    struct sp_tier_rates rates;       /* of a stage's share of the tier; 0: not known */
    struct sp_op_speed speed;         /* 0: not known, a guess that only compares slices */
};

/* True if an op keeps activations of layers, or of a part of one, for their backward: each is a
 * unit. */
static inline bool sp_op_keeps_layers(const struct sp_op *op)
{
    return op->pass == SP_F && op->part != SP_HEAD;
}

#endif
