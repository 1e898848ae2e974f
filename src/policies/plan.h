/*
 * A schedule applied to a layout: one program per stage, checked, with list-simulated times.
 */
#ifndef SP_PLAN_H
#define SP_PLAN_H

#include "policies/families/family.h"
#include <stdint.h>

struct sp_plan {
    struct sp_layout layout;
    char options[128];
    const struct sp_schedule_def *def;
    const struct sp_family *family;
    struct sp_program *programs; /* [stages] */
    bool split;                  /* the programs hold W ops */
    unsigned char *deferred;     /* [ids]: a W op completes this B; NULL unless split */
    struct sp_map *map;          /* placement; layout.map points to it */
    int *first_layer;            /* [globals+1] of each global stage; NULL: split evenly */
    unsigned char *recompute;    /* [layers] enum sp_recompute of each; NULL: the same for all */
    int *first_token;            /* [slices+1] of each slice; NULL: equal lengths */
    double *slice_share;         /* [slices] part of a micro-batch's time; NULL: equal */
    bool paired;                 /* some ops overlap with their next one */
    int *transit; /* [stages] most tensors on their way to or from a stage at once, in the order of
                   * submission; NULL: not counted */
    bool apart;   /* stages are in processes of their own (sp_memory_apart) */
    bool states_twice; /* parameters and optimizer are kept from before the last update */
    int buffers;       /* what sp_listsim_buffers found */
};

#define SP_MAX_SIZE 65536         /* of stages, micro-batches, chunks, slices */
#define SP_MAX_OPS (16 * 1000000) /* of a plan, all stages together */

/*
 * Builds the plan of "NAME", "NAME:key=value,..." or "csv:FILE" (see policies/load/csv.h; sizes of `lay`
 * that are 0 are then the file's): finds the schedule, fills in defaults
 * (chunks 0: the schedule's), checks the layout, emits every program and verifies it. One line on
 * stderr and -EINVAL (-ENOMEM) otherwise. plan->layout.options points into the plan: do not copy
 * the structure. layout.costs is used during the call only.
 */
int sp_plan_create(const char *schedule, const struct sp_layout *lay, struct sp_plan *plan);
void sp_plan_destroy(struct sp_plan *plan);

/* Sets `split` and `deferred` again after the programs were changed. 0 or -ENOMEM. */
int sp_plan_index(struct sp_plan *plan);

/* Layers of each global stage, counts[globals], instead of an even split; every one at least 1.
 * 0 or -ENOMEM. */
int sp_plan_partition(struct sp_plan *plan, const int *counts);

/* Tokens of each slice, len[slices], and what it takes of a micro-batch's time. 0 or -ENOMEM. */
int sp_plan_slices(struct sp_plan *plan, const int *len, const double *share);
/* Tokens first .. first+len-1 of slice k of a sequence. */
void sp_plan_slice_tokens(const struct sp_plan *plan, int seq, int k, int *first, int *len);

/* The same of what an op works on: a slice, or a part of one. */
void sp_plan_op_tokens(const struct sp_plan *plan, int seq, const struct sp_op *op, int *first,
                       int *len);

/* A number that two plans with different programs, placements or options hardly share. */
uint64_t sp_plan_digest(const struct sp_plan *plan);

/* Ops of all stages. */
int sp_plan_ops(const struct sp_plan *plan);

/* Times of every op. */
struct sp_times {
    double **start, **end; /* [stage][index in the program] */
    double makespan;
    double *span;        /* per stage: last end - first start */
    double *idle, *busy; /* per stage: makespan - busy; sum of the costs */
    int *peak_live; /* per stage: (micro-batch, chunk, slice) activations alive at once, taken at
                     * F, released at W, or at B where there is no W */
    double bubble_ratio; /* sum of idle over stages * makespan */
    int messages;        /* tensors that cross between stages */
};

/* How messages travel in the list simulation. */
enum sp_channel {
    SP_UNBOUNDED,  /* delivered as soon as sent */
    SP_FIFO,       /* per pair of stages and direction of pass, consumed in the order sent */
    SP_RENDEZVOUS, /* one message a channel: the sender's next waits until it was taken */
    SP_PAIRED, /* unbounded, and overlapped ops start and end together, as the graph runs them */
    SP_RUN     /* the same with what an op waits for in a run (sp_run_deps) */
};

/*
 * Plays the programs: every op starts as soon as the one before it on its stage ended and all it
 * waits for is there. 0; or -EDEADLK with the blocked ops of every stage written to why[n];
 * -EINVAL if an op is not of the family; -ENOMEM. `times` is set only on success. O(ops).
 */
int sp_listsim(const struct sp_plan *plan, const struct sp_costs *costs, enum sp_channel channel,
               struct sp_times *times, char *why, size_t n);
void sp_times_destroy(struct sp_times *times);

/*
 * How many messages, sent and not yet taken, a channel must be able to hold for the programs to
 * come to their end; a channel is a pair of stages and direction of pass, a sender waits while it
 * is full, overlapped ops are one unit. *buffers is 0 if one is enough: a sender that blocks until
 * its last message was taken would do (SP_RENDEZVOUS). Otherwise it is the smallest number, 2 or
 * more: sends must be buffered. That is no fault: those of the engine never block a worker, and
 * published orders (breadth-first, interleaved) need it. 0, or what sp_listsim returns. O(ops).
 */
int sp_listsim_buffers(const struct sp_plan *plan, int *buffers);

/* Cost of one op under `costs`. */
double sp_op_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                  const struct sp_op *op);

/* What a message costs of an op that another stage waits for: comm, or the part of it that the op works
 * on. */
double sp_message_cost(const struct sp_plan *plan, const struct sp_costs *costs,
                       const struct sp_dep *dep);

/* When such a message is sent; `place`: of the op in the program of its stage. */
static inline double sp_message_sent(const struct sp_dep *dep, double *const *start,
                                     double *const *end, int place)
{
    return dep->beside ? start[dep->stage][place] : end[dep->stage][place];
}

/* f = b = w = 1; pre : attn : post as 1 : 3 : 2, a backward twice a forward; comm 0. */
extern const struct sp_costs sp_costs_unit;

/*
 * Parses "f=1,b=1,w=1,comm=0", or, if the layers are known, costs per layer
 * "pre=1,attn=3,post=2,backward=2,comm=0"; these are the values of what is not given. A backward
 * is `backward` forwards, half of it weight gradient except in attention, which has no weights.
 * Families whose ops are parts of layers want the latter. One line on stderr and -EINVAL.
 */
int sp_costs_parse(const char *text, const struct sp_plan *plan, struct sp_costs *costs);

/* Whether the costs of the parts of a layer are known. */
bool sp_costs_know_parts(const struct sp_costs *costs);

/* Makes backwards compute forwards again: everything, or all but attention, for which the parts
 * must be known. */
void sp_costs_add_recompute(const struct sp_plan *plan, bool attention, struct sp_costs *costs);

/*
 * Every required op exactly once, nothing else, order compatible with dependencies, overlapped
 * pairs well-formed, progress with unbounded and with first-in-first-out channels and with pairs
 * as units, every message taken, and no stage above layout.memory. -EINVAL with the reason, op
 * and stage in why[n]; -ENOMEM.
 */
int sp_verify(const struct sp_plan *plan, char *why, size_t n);

/* All ops of all stages by start time, then by stage: a topological order even if ops take no
 * time, the order of submission. The caller frees it; NULL: no memory, or the programs deadlock. */
struct sp_placed {
    int stage, index;
    double start;
};
struct sp_placed *sp_merge(const struct sp_plan *plan, const struct sp_times *times, int *n);

/* The order of submission: merged by start time when all passes cost the same, or by turns of the
 * family. As sp_merge. */
struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n);

#endif
