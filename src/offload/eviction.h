/*
 * Which activations of a stage leave memory between their forward and their backward, and when they
 * come back (SPPO section 5). Pure: it plays the stage's program slot by slot.
 *
 * A slot is the work of a stage on one layer. A forward has two slots (up to attention; the block
 * after it); a backward, and weight gradients that run apart from it, have one each. A unit is all
 * that a layer's forward keeps for its backward; whole tensors of it may be evicted. The run keeps
 * three promises, so that no slot can hold more than is planned:
 *
 *   - a unit's tensors have left memory before the slot `gone` begins. That is the slot of the same
 *     layer in the stage's next forward; they are written out under the forward in between;
 *   - they are fetched from the beginning of the slot `back` on, not sooner;
 *   - slots begin in the order of the program.
 *
 * All later slices of a sequence read the keys and values of a slice. If keys are evicted too
 * (FPDT, Yao et al. 2024, section 4; SPPO's type 0 keeps them), they and their gradients are
 * streamed through each of those slices, one source slice after the other. `also` counts these
 * bytes in the slot in which they come and go.
 *
 * Tensors may be parked on another stage instead (policies/lowering/parking.h), whole micro-batches
 * of a chunk or parts of them. They are out of memory in the slots peer_gone .. peer_back - 1.
 *
 * With one op to hide under, the bytes in memory when forward i ends are the paper's recursion
 *
 *   M_i = M_(i-1) + A_i - a_(i-1) A_(i-1)
 *
 * with A_i the bytes that forward i keeps and a_i the fraction of them that is evicted.
 */
#ifndef SP_EVICTION_H
#define SP_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SP_EVICTION_STREAMS = 3, /* buffers for streamed keys: one is read, two are being filled */
    SP_PEER_OPS = 2,  /* ops that run before what was sent to or back from a peer has surely left */
    SP_UNIT_HEAD = 7, /* index in a unit of the head's input, which dies in the slot `used` */
    SP_UNIT_TENSORS
};

struct sp_unit {
    /* given */
    int64_t bytes[SP_UNIT_TENSORS]; /* of tensors that may be evicted; 0: no tensor, or it stays */
    unsigned late;                  /* bit k: tensor k is written in the slot after `made` */
    int64_t stays;                  /* bytes that stay in memory from `made` to `freed` */
    int64_t head;                   /* bytes of its input, from the slot after `made` to `used` */
    int64_t
        keys; /* of a slice's keys and values, like `stays`; out in keys_gone .. keys_back - 1 */
    int keys_gone, keys_back; /* slots: the first without the keys, the first with them again */
    int made;                 /* first slot of its forward; the next slot is the second */
    int gone;                 /* -1: there is no forward to hide under, nothing is evicted */
    int ahead;                /* first slot at which it may be fetched */
    int used, freed;          /* slot of its backward; slot at whose end it dies */
    int peer_gone, peer_back; /* slots: the first without what is parked, the first with it again;
                               * 0: nothing may be parked */
    /* chosen */
    unsigned parked; /* bit k: tensor k is parked; given if the plan's parking is */
    unsigned out;    /* bit k: tensor k is evicted */
    int back;        /* slot at whose beginning the tensors are fetched */
};

/* The units of one forward op. */
struct sp_unit_group {
    int first, n;      /* its units */
    double hides_s;    /* time of the stage's next forward, which hides the writes of its tensors */
    int64_t bytes;     /* bytes of its units that may be evicted */
    int arrives, goes; /* if its tensors may be parked: ops of the other stage's program, the next
                        * one when they arrive and when they are sent back */
    int64_t leaving;   /* chosen: bytes that are evicted */
    int64_t parked;    /* chosen: bytes that are parked */
};

/* A stage that may take tensors. */
struct sp_eviction_peer {
    double share; /* bytes that the link to it carries in the time in which one byte is written to
                   * the tier; 0: nothing is parked, or what is parked is given */
    int64_t room; /* bytes that it can take at once */
};

/* A stage's program. */
struct sp_eviction_plan {
    int n_slots, n_units, n_groups;
    struct sp_unit *units;        /* [n_units], groups in the order of the program */
    struct sp_unit_group *groups; /* [n_groups] */
    double *seconds;              /* [n_slots] */
    int64_t *also;                /* [n_slots] other bytes of a slot: streamed keys, gradients */
    int64_t *slot_streamed_in,
        *slot_streamed_out;         /* [n_slots] bytes fetched and evicted with streamed keys */
    unsigned char *returns_allowed; /* [n_slots] nonzero: tensors may be fetched at this slot */

    int *op_slots;         /* [ops + 1] index of an op's first slot in `slot` */
    int *slot;             /* of each op in turn, its slots in order */
    int *activations_unit; /* [chunks][micro_batches][slices] first unit */

    /* lists of units by slot: [n_slots] first unit, -1: none; [n_units] the next one in the list */
    int *gates, *next_gate;     /* units whose `gone` is the slot */
    int *returns, *next_return; /* units whose `back` is the slot */
    int *uses, *next_use;       /* units whose `used` is the slot */
    int *frees, *next_free;     /* units whose `freed` is the slot */

    /* chosen */
    int64_t peak;                      /* bytes at the highest slot */
    int64_t peak_kept;                 /* the same, of units alone */
    int64_t streamed_in, streamed_out; /* given: streamed bytes of all slots; 0: all keys stay */
    int64_t streamed_largest;          /* given: bytes of the largest buffer of streamed keys */
    int64_t streamed_most; /* given: most bytes of keys and values of several slices at once */
    int64_t gradients_out; /* given: most bytes of evicted key gradients at once */
    struct sp_eviction_peer peer; /* given */
    int64_t bytes;                /* evicted in a step, without streamed keys */
    int64_t most_evicted;         /* most bytes that are evicted at once */
    double rate;                  /* bytes a second that the forwards in between must hide */

    int64_t *most;                   /* [n_slots] scratch */
    struct sp_unit_choices *choices; /* choices of tensors, for each kind of unit seen so far */
    int n_choices;
};

enum sp_update_device { SP_UPDATE_AUTO, SP_UPDATE_GPU, SP_UPDATE_CPU }; /* --optimizer-device */

enum sp_offload_mode { SP_OFFLOAD_NONE, SP_OFFLOAD_FULL, SP_OFFLOAD_ADAPTIVE };

/* "none", "full", "adaptive": the words that the user types. */
const char *sp_offload_name(enum sp_offload_mode mode);

/* Rates of the tier, in bytes a second; 0: not known. */
struct sp_tier_rates {
    double write, read;
};

/*
 * Chooses the tensors to evict. `full`: all that may be. `adaptive` with a limit: as few as keep
 * every slot within the limit, spread over the ops so that each hides the same number of bytes a
 * second, a_i A_i = rate * T_i. `adaptive` without a limit (0): at the rate of the tier, so that
 * nothing waits. If another stage may take tensors, the link to it and the tier are busy for the
 * same part of each op's time, until all leave; a limit that is lower still has more of them evicted
 * and fewer parked, because evicted ones leave sooner and return later. Fills in the fields marked
 * as chosen. *least becomes the smallest limit that would
 * do. Returns false if some slot holds more than the limit even with everything evicted.
 */
bool sp_eviction_plan_choose(struct sp_eviction_plan *a, enum sp_offload_mode mode, int64_t limit,
                             struct sp_tier_rates rates, int64_t *least);

/* Bytes in memory at the highest slot with everything evicted that may be. Chooses nothing. */
int64_t sp_eviction_plan_least(struct sp_eviction_plan *a);

/* Writes the bytes in memory in each slot under the choice to most[n_slots]. */
void sp_eviction_plan_memory(const struct sp_eviction_plan *a, int64_t *most);

/* Returns true if `more` bytes fit into the buffer of streamed keys that has *bytes so far (0: none
 * yet). *bytes is updated, to `more` alone if a new buffer begins. */
static inline bool sp_eviction_stream_takes(const struct sp_eviction_plan *a, int64_t more,
                                            int64_t *bytes)
{
    bool takes = *bytes > 0 && *bytes + more <= a->streamed_most;

    *bytes = takes ? *bytes + more : more;
    return takes;
}

/* Bytes evicted in a step, including streamed keys. */
static inline int64_t sp_eviction_plan_bytes(const struct sp_eviction_plan *a)
{
    return a->bytes + a->streamed_out;
}

/* Bytes of a unit that are evicted, that are parked, and bytes that may be evicted. */
int64_t sp_unit_leaving(const struct sp_unit *u);
int64_t sp_unit_parked(const struct sp_unit *u);
int64_t sp_unit_may_leave(const struct sp_unit *u);

/* Allocates the arrays, all zero. 0 or -ENOMEM. */
int sp_eviction_plan_alloc(struct sp_eviction_plan *a, int slots, int units, int groups, int ops,
                           int activations);
void sp_eviction_plan_free(struct sp_eviction_plan *a);

#endif
