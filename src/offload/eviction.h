/*
 * Which activations of a stage leave memory between their forward and their backward, and when they
 * come back (SPPO section 5). Pure: it plays the stage's program slot by slot.
 *
 * A slot is what a stage does with one layer: a forward has two (up to attention; the block after it),
 * a backward and the weight gradients that come apart have one. What a layer's forward keeps is a
 * unit, whole tensors of it may leave. The run keeps three promises on which the memory of a slot
 * rests, so that no slot can hold more than is planned:
 *
 *   - a unit's tensors have left before the slot `gone` begins, that of the same layer in the stage's
 *     next forward: they are written out under the forward in between;
 *   - they are brought back from the beginning of the slot `back` on, not sooner;
 *   - slots begin in the order of the program.
 *
 * Keys and values are read by all later slices of their sequence. Where they leave too (SPPO's type 0 does not; FPDT,
 * Yao et al. 2024, section 4), they and their gradients visit each of these, one slice after the other: visits of a
 * slot are part of what comes and goes in it (`also`).
 *
 * With one op to hide under, the bytes in memory when forward i ends are the paper's recursion
 *
 *   M_i = M_(i-1) + A_i - a_(i-1) A_(i-1)
 *
 * with A_i what the forward keeps and a_i the part of it that leaves.
 */
#ifndef SP_EVICTION_H
#define SP_EVICTION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SP_EVICTION_STREAMS = 3, /* at once: one is read, two come */
    SP_UNIT_HEAD = 7, /* of the tensors of a unit the head's input, which dies in the slot `used` */
    SP_UNIT_TENSORS
};

struct sp_unit {
    /* given */
    int64_t
        bytes[SP_UNIT_TENSORS]; /* of the tensors that may leave; 0: there is none, or it stays */
    unsigned late;              /* bit k: tensor k is written in the slot after `made` */
    int64_t stays;              /* bytes from `made` to `freed` that may not leave */
    int64_t head;               /* the same from the slot after `made` to `used`: its input */
    int64_t
        keys; /* of a slice's keys and values, like `stays`; of those that visit (see below), but from `keys_gone` to `keys_back` */
    int keys_gone, keys_back; /* slots: the first without them, the first with them again */
    int made;                 /* slot of its forward; the next one is its second */
    int gone;                 /* -1: there is no forward to hide under, nothing leaves */
    int ahead;                /* first slot at which it may be brought back */
    int used, freed;          /* slots of its backward, and at whose end it dies */
    /* chosen */
    unsigned out; /* bit k: tensor k leaves */
    int back;     /* slot at whose beginning the tensors are fetched */
};

/* What forward an op does. */
struct sp_unit_group {
    int first, n;    /* its units */
    double hides_s;  /* time of the stage's next forward, under which its tensors are written */
    int64_t bytes;   /* of its units that may leave */
    int64_t leaving; /* chosen: that do */
};

/* A stage's program. */
struct sp_eviction_plan {
    int n_slots, n_units, n_groups;
    struct sp_unit *units;        /* [n_units], groups in the order of the program */
    struct sp_unit_group *groups; /* [n_groups] */
    double *seconds;              /* [n_slots] */
    int64_t *also;                /* [n_slots] other bytes that come and go: gradients */
    int64_t *slot_streamed_in,
        *slot_streamed_out;         /* [n_slots] bytes that come and leave with keys that visit */
    unsigned char *returns_allowed; /* [n_slots] tensors may be brought back from here on */

    int *op_slots;         /* [ops + 1] where an op's slots are in `slot` */
    int *slot;             /* of each op in turn, its slots in order */
    int *activations_unit; /* [chunks][micro_batches][slices] first unit */

    /* units by slot: the first of each, -1: none; and of each unit the next */
    int *gates, *next_gate;     /* whose `gone` it is */
    int *returns, *next_return; /* whose `back` it is */
    int *uses, *next_use;       /* whose `used` it is */
    int *frees, *next_free;     /* whose `freed` it is */

    /* chosen */
    int64_t peak;                      /* bytes at the highest slot */
    int64_t peak_kept;                 /* the same of units alone */
    int64_t streamed_in, streamed_out; /* given: of all slots; 0: all keys stay */
    int64_t streamed_largest;          /* given: of the largest visit */
    int64_t
        streamed_most; /* given: bytes of keys and values of a visit, unless it is of one slice */
    int64_t gradients_out; /* given: of these the most at once, of gradients */
    int64_t bytes;         /* that leave in a step, but for those */
    int64_t most_evicted;  /* at once */
    double rate;           /* bytes a second that the forwards in between must hide */

    int64_t *most;                   /* room: [n_slots] */
    struct sp_unit_choices *choices; /* what may leave units of those kinds that were looked at */
    int n_choices;
};

enum sp_offload_mode { SP_OFFLOAD_NONE, SP_OFFLOAD_FULL, SP_OFFLOAD_ADAPTIVE };

/* "none", "full", "adaptive": as they are typed. */
const char *sp_offload_name(enum sp_offload_mode mode);

/* What the tier does, bytes a second; 0: not known. */
struct sp_tier_rates {
    double write, read;
};

/*
 * Chooses what leaves. `full`: all that may. `adaptive`: with a limit as little as keeps every slot
 * within it, spread over the ops so that each hides the same number of bytes a second,
 * a_i A_i = rate * T_i; without one the rate is what the tier does, so that nothing waits. limit 0:
 * none. Sets what is chosen; true, or false: even with all away some slot holds more than the limit,
 * *least (also set otherwise) being the smallest that would do.
 */
bool sp_eviction_plan_choose(struct sp_eviction_plan *a, enum sp_offload_mode mode, int64_t limit,
                             struct sp_tier_rates rates, int64_t *least);

/* Bytes in memory at the highest slot with all away that may leave. Chooses nothing. */
int64_t sp_eviction_plan_least(struct sp_eviction_plan *a);

/* most_evicted of what is chosen, without keys that visit and their gradients. */
int64_t sp_eviction_plan_most_tensors(const struct sp_eviction_plan *a);

/* Bytes in memory in each slot, most[n_slots], with what is chosen. */
void sp_eviction_plan_memory(const struct sp_eviction_plan *a, int64_t *most);

/* Whether a visit that has *bytes, 0: none yet, takes so many more; *bytes become those of it, or of the next one. */
static inline bool sp_eviction_stream_takes(const struct sp_eviction_plan *a, int64_t more,
                                            int64_t *bytes)
{
    bool takes = *bytes > 0 && *bytes + more <= a->streamed_most;

    *bytes = takes ? *bytes + more : more;
    return takes;
}

/* Bytes that leave in a step, those of keys that visit included. */
static inline int64_t sp_eviction_plan_bytes(const struct sp_eviction_plan *a)
{
    return a->bytes + a->streamed_out;
}

/* Bytes of a unit that leave, and that may. */
int64_t sp_unit_leaving(const struct sp_unit *u);
int64_t sp_unit_may_leave(const struct sp_unit *u);

/* Room for so many of each, all zero; `op_slots`: entries of `slot`. 0 or -ENOMEM. */
int sp_eviction_plan_alloc(struct sp_eviction_plan *a, int slots, int units, int groups, int ops,
                           int op_slots, int activations);
void sp_eviction_plan_free(struct sp_eviction_plan *a);

#endif
