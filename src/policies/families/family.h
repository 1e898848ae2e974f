/*
 * A graph family as the orders see it: which ops must exist, on which stage, what each waits for
 * and which tensors cross between stages. Pure; src/graphs/ turns it into StarPU tasks.
 */
#ifndef SP_FAMILY_H
#define SP_FAMILY_H

#include "policies/families/map.h"
#include <stdbool.h>

#define SP_MAX_DEPS 64

/* One thing an op waits for. */
struct sp_dep {
    int stage;       /* where the producer runs */
    struct sp_op op; /* the producer */
    bool beside; /* it has to have begun, not ended: what is wanted of it comes layer by layer */
};

struct sp_plan;
struct sp_lowering;

/* What travels, which decides who holds which parameters and activations. */
enum sp_family_kind {
    SP_LAYERWISE,          /* activations between stages that hold layers; bidirectional too */
    SP_ATTENTION_PARALLEL, /* activations between parts of layers */
    SP_MULTIPLEXED,        /* the same, with slices that several stages compute together */
    SP_WEIGHT_RING,        /* weights and their gradients from worker to worker */
    SP_SHARDED             /* weights from the shards of all workers, gradients back to them */
};

struct sp_family {
    const char *name;
    enum sp_family_kind kind;
    int pipes; /* copies of the model that micro-batches may go through; see policies/families/map.h */
    const struct sp_family *multiplexed; /* takes its place with the flag "multiplex"; NULL: none */
    bool parts; /* its ops are parts of layers, which must be known, as must what each part costs */

    /* Refuses a layout, before anything else is asked of it: 0, or -EINVAL with the reason in why[n].
     * NULL: none. */
    int (*check)(const struct sp_layout *lay, char *why, size_t n);

    /* Dense number of an op in 0 .. ids(lay)-1, -1 if the family has no such op there. */
    int (*id)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    int (*ids)(const struct sp_layout *lay);

    /* Producers an op waits for; `split`: the schedule separates W from B. Returns how many. */
    int (*deps)(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS]);

    /* The same as the engine has it, where an order is stricter than the data want; NULL: the same. */
    int (*run_deps)(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS]);

    /* Calls `need` for every op that a complete schedule must hold (W and R excepted). */
    void (*required)(const struct sp_layout *lay,
                     void (*need)(void *arg, int stage, const struct sp_op *op), void *arg);

    /* What an op costs, if it was not measured (sp_op_cost asks that first). */
    double (*cost)(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op);

    /* Activations of one micro-batch on all stages, as peak_live counts them. */
    int (*activations)(const struct sp_layout *lay);

    /* The part of an activation that an op holds, as peak_live counts them; NULL: 1. */
    double (*size)(const struct sp_layout *lay, const struct sp_op *op);

    /* Where an op comes in the order of submission, if that is not by simulated start; NULL: it is. */
    double (*turn)(const struct sp_layout *lay, int stage, const struct sp_op *op);

    /* Messages between two stages are taken in the order sent, those of each stream by themselves:
     * the stream of what an op receives. NULL: there is one. */
    int (*stream)(const struct sp_layout *lay, const struct sp_op *op);

    /*
     * Lowering (policies/lowering): the actions before the first op of a step (NULL: none; 0 or -ENOMEM),
     * those of the unit of ops at place i of the order of submission, those after the last op.
     */
    int (*lower_begin)(struct sp_lowering *l);
    void (*lower)(struct sp_lowering *l, int i);
    void (*lower_end)(struct sp_lowering *l);
};

/* What an op waits for in a run. */
int sp_run_deps(const struct sp_plan *plan, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS]);

/* The part of a micro-batch on a whole stage that one activation is. */
double sp_activation_share(const struct sp_family *family, const struct sp_layout *lay);

const struct sp_family *sp_family_find(const char *name);
/* The i-th family, NULL past the end. */
const struct sp_family *sp_family_at(int i);

#endif
