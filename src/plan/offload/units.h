/* Describes a stage's work as slots and units of offload/eviction.h. Pure. */
#ifndef SP_OFFLOAD_UNITS_H
#define SP_OFFLOAD_UNITS_H

#include "offload/eviction.h"
#include "policies/families/activations.h"

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
    struct sp_tier_rates rates; /* of a stage's share of the tier; 0: not known */
    struct sp_op_speed speed;   /* 0: not known, a guess that only compares slices */
};

/* True if an op keeps activations of layers, or of a part of one, for their backward: each is a
 * unit. */
static inline bool sp_op_keeps_layers(const struct sp_op *op)
{
    return op->pass == SP_F && op->part != SP_HEAD;
}

/* Lays out the slots and units of a stage in *evictions, which must be empty. Keys and values of
 * the first `keep` slices stay; those of the others leave if they may. 0 or -ENOMEM. */
int sp_offload_units(const struct sp_plan *plan, const struct sp_shape *sh,
                     const struct sp_offload_request *want, int keep, int stage,
                     struct sp_eviction_plan *evictions);

#endif
