/*
 * The inputs and outputs of a schedule. A schedule is an order (policy) over a graph family; both
 * are pure functions of the layout.
 */
#ifndef STARPIPE_SCHEDULE_H
#define STARPIPE_SCHEDULE_H

#include "starpipe/op.h"

#pragma GCC visibility push(default)

#define SP_SCHEDULE_ABI 6

/* Costs of one layer for one micro-batch, part by part. */
struct sp_part_costs {
    double pre, attn, post; /* forwards: norm and QKV, attention, the rest; all 0: unknown */
    double backward;        /* duration of a backward, in forwards */
    double again;           /* forwards of pre and post that a backward recomputes: 0 or 1 */
};

/*
 * Costs of ops, in a unit of the user's choice, for one micro-batch on a whole stage. A chunk costs
 * its share of that (1/v in loop and V placements, all of it in a bidirectional one), a slice 1/n.
 * A full backward costs b + w. comm: the latency of a tensor's message to another stage.
 */
struct sp_costs {
    double f, b, w, comm;
    /* Measured or uneven stages: factors by global stage; NULL: 1. */
    const double *scale_f, *scale_b, *scale_w;
    const double *by_op; /* the measured cost of every single op, by the number that the family
                          * gives it; NULL: as above */
    const double
        *part_by_op; /* by the same number: the fraction of an op's time (or of two that overlap)
                               * after which its output is ready for others; NULL: at the end */
    struct sp_part_costs parts; /* for families whose ops are parts of layers */
    double wire; /* time a whole micro-batch's message occupies its sender and its receiver */
    /* With by_op, by the same number: the part of an op's time that it recomputes before it needs
     * the tensors that others send; they may arrive meanwhile. NULL: none. */
    const double *again_by_op;
    double head; /* extra time of the head's stage: one micro-batch's head and loss, both passes */
};

struct sp_map; /* where global stages live; see src/policies/families/map.h */

/* All that a schedule may depend on. */
struct sp_layout {
    int stages;          /* p */
    int micro_batches;   /* m */
    int chunks;          /* v, chunks per stage */
    int slices;          /* n, slices per sequence */
    int layers;          /* L; 0: unknown, as in `show` of a stage-level schedule */
    const char *options; /* "key=value,flag,..." given after the name, "" if none */

    /* For orders that are searched. */
    const struct sp_costs *costs; /* to plan for; NULL: f = b = w = 1, comm 0 */
    double memory; /* most activations a stage may hold at once, in micro-batches on a whole stage
                    * (1F1B holds p - i of them); 0: what the schedule is known for */

    const struct sp_map *map; /* set by starpipe; NULL: chunk c of stage s is global stage s + cp */
    int vocabulary_parallel;  /* embedding and head are cut over all stages; the family adds ops */
    int lists_layers;         /* a list assigns the layers; it may give a global stage none */
};

/* Value of an option of the layout, or `fallback`. *ok is cleared if it is not a number. */
int sp_layout_option_int(const struct sp_layout *lay, const char *key, int fallback, int *ok);
/* Text of an option copied into out[n]; 0 if absent, 1 if found. */
int sp_layout_option(const struct sp_layout *lay, const char *key, char *out, size_t n);
/* Returns nonzero if a flag ("auto") was given. */
int sp_layout_flag(const struct sp_layout *lay, const char *flag);

/* Placements for `global_stage`. V: down and up again, chunk c odd counts from the last stage
 * (v = 2: stage and 2p-1-stage; Hanayo's wave for any v). Both ways: stage and p-1-stage. */
int sp_place_wave(const struct sp_layout *lay, int stage, int chunk);
int sp_place_both_ways(const struct sp_layout *lay, int stage, int chunk);

/*
 * How a weight ring carries backward weights: the chunks that worker 0 holds in turn k >= p, with
 * at = k mod p. Its forward weights are those of chunk `at` in every layout.
 */
enum sp_ring_layout {
    SP_RING_REVERSED, /* backward weights and gradients of chunk p-1-at */
    SP_RING_PAIRS, /* of chunks p-1-j and p/2-1-j, j = at/2: weights if `at` is even, else gradients;
                       * B and W apart. With an odd p, or several chunks a stage, SP_RING_LINE is
                       * used instead, unless the user says flow=ring */
    SP_RING_LINE   /* every worker gets the chunks that its ops need; nothing goes around: owners
                      * send the weights and receive the gradients of each round */
};

/* Most ops of a worker in a turn of a weight ring. */
#define SP_TURN_OPS 8

enum sp_formula {
    SP_EXACT,       /* equal */
    SP_LOWER_BOUND, /* never above the simulated makespan */
    SP_UPPER_BOUND, /* never below */
    SP_APPROXIMATE  /* near it, on no certain side */
};

/* Besides its programs, a schedule gives the family of its graph one of the following. */

/* "layerwise", "bidirectional", "subsequence". "aligned" does not use it: that family places chunks
 * in a loop and makes its own order, so there is no `emit`. */
struct sp_layerwise_def {
    /*
     * Placement: maps a chunk of a stage to its global stage, numbered in the order of the layers.
     * Each global stage occurs once. NULL: stage + chunk * stages (loop). In "bidirectional" a
     * stage has two chunks: chunk 0 is of the pipe that goes down, chunk 1 of the one that goes up.
     * Each pipe holds the whole model in p global stages.
     */
    int (*global_stage)(const struct sp_layout *lay, int stage, int chunk);
    /* Bidirectional: the pipe, 0 or 1, of a micro-batch; NULL: the first half of them goes down. */
    int (*pipe)(const struct sp_layout *lay, int mb);
};

/* "attention-parallel": parameter block j < L is on stage j mod p, block L on stage 0. Attention of
 * layer l of micro-batch i is on stage (l + i/fold + 1) mod p. If a last loop has fewer than p*fold
 * micro-batches, the attention of those is on (l + i + 1) mod p. */
struct sp_attention_parallel_def {
    /* How many micro-batches, consecutive ones, share a slot. NULL: 1. */
    int (*fold)(const struct sp_layout *lay);
};

/*
 * "weight-ring": each worker counts its own micro-batches. Round g of worker r is micro-batch g *
 * stages + r. Worker r runs r turns late, or as many turns as there are nodes before its own. In
 * the last round some workers may have none. Chunks are numbered through the whole model, which has
 * stages * chunks of them; only SP_RING_LINE allows more than one a stage. The family makes the
 * programs from the turns, so there is no `emit`.
 */
struct sp_weight_ring_def {
    /* The ops of worker 0 in turn k of the ring, at most SP_TURN_OPS, in order; returns how many, negative
     * past the last turn. */
    int (*turn)(const struct sp_layout *lay, int k, struct sp_op ops[SP_TURN_OPS]);
    enum sp_ring_layout layout; /* of weights and gradients for backwards */
    /* The worker that keeps a chunk's weights and optimizer state, not with SP_RING_REVERSED; NULL:
     * (chunk + 1) mod stages. */
    int (*owner)(const struct sp_layout *lay, int chunk);
    /* With SP_RING_LINE: the workers of a node, which are all in the same turn. It divides the
     * number of workers. NULL: 1. */
    int (*node)(const struct sp_layout *lay);
};

/* "sharded" has no definition of its own: worker i mod stages takes micro-batch i through all
 * chunks, and there is no W. */

struct sp_schedule_def {
    int abi;             /* SP_SCHEDULE_ABI */
    const char *name;    /* as the user types it */
    const char *summary; /* one line */
    const char *source;  /* paper or code it was published in */
    const char *family;  /* graph family: "layerwise", "bidirectional", "sharded", ... */
    const char *options; /* the keys it accepts, comma-separated; NULL: none */
    const char *flags;   /* the options without a value, comma-separated; NULL: none */
    /* Sets of options that `plan` tries besides the defaults, separated by blanks; NULL: none. */
    const char *variants;
    int default_chunks; /* chunks per stage when the user gives none; sharded: 0, a layer each */

    /* Writes to why[n] what is impossible and what would do; 0 or -EINVAL. May be NULL. */
    int (*check)(const struct sp_layout *lay, char *why, size_t n);

    /* A family reads only its own one of these three. */
    struct sp_layerwise_def layerwise;
    struct sp_attention_parallel_def attention_parallel;
    struct sp_weight_ring_def weight_ring;

    const char *recompute; /* of `train` when the user says nothing; NULL: "none" */
    const char *slicing;   /* --partition-slices when the user says nothing; NULL: "length" */

    /* Appends the ops of one stage. Called only after check returned 0. NULL if the family makes
     * the programs. */
    void (*emit)(const struct sp_layout *lay, int stage, struct sp_program *prog);
    /* For orders that are found as a whole: appends the ops of all stages, programs[stages]; emit
     * is NULL then. 0, or -EINVAL with the reason in why[n], -ENOMEM. */
    int (*emit_all)(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n);

    /* Published closed form of the makespan at stage-level costs f, b, w (communication 0), for
     * comparison in `show`; negative: none for this layout. May be NULL. */
    double (*makespan)(const struct sp_layout *lay, double f, double b, double w);
    /* The same for families whose ops are parts of layers. */
    double (*makespan_of_parts)(const struct sp_layout *lay, const struct sp_part_costs *parts);
    const char *makespan_source; /* "m(f+b+w) + (p-1)(f+b+w), HelixPipe eq. 1" */
    enum sp_formula makespan_is; /* what the formula claims of the list simulation */
};

/*
 * List scheduling, for the `emit_all` of a layerwise order of whole sequences, in any placement: a
 * stage that would wait runs a later op of its program instead, while it holds at most
 * limit[stage] activations of a chunk (from F to W, or to B if there is no W; NULL: any number).
 * All programs[stages] are empty at first, or a legal order to improve. Empty ones stand for one
 * micro-batch after the other, with W if `split`, for which a limit of lay->chunks is enough. The
 * result is the shortest of some eighty orders at lay->costs (NULL: f = b = w = 1, comm 0), never
 * longer than the first. Deterministic. 0; -EINVAL with the reason in why[n]; -ENOMEM.
 */
int sp_list_order(const struct sp_layout *lay, const int *limit, int split,
                  struct sp_program *programs, char *why, size_t n);

/*
 * The last line of a plugin: SP_PLUGIN(&my_schedule, ...); names the schedules that it adds. Build
 * it with cc -shared -fPIC $(pkg-config --cflags starpipe), load it with --plugin FILE.so or from
 * STARPIPE_PLUGIN_PATH. See docs/writing-a-schedule.md.
 */
#define SP_PLUGIN(...)                                                                             \
    extern const struct sp_schedule_def *const sp_plugin_schedules[];                              \
    __attribute__((visibility("default")))                                                         \
    const struct sp_schedule_def *const sp_plugin_schedules[] = {__VA_ARGS__, 0}

/*
 * Adds a schedule of the program itself. cfg.layout.schedule = "mine", with options if it has any,
 * picks it afterwards. It is checked and called like a plugin's: first in a copy of the process, so
 * that one that crashes is refused. The caller owns `def` and leaves it unchanged while the process
 * lives. Every process of a run must register the same schedules before it opens a trainer.
 * Registering one again changes nothing. 0; or -EINVAL, -ENOMEM after one line on stderr,
 * "program NAME: ...".
 */
int sp_schedule_register(const struct sp_schedule_def *def);

#pragma GCC visibility pop

#endif
