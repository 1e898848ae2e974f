/*
 * A graph family as the orders see it: which ops must exist, on which stage, what each waits for, who
 * holds which parameters and activations, and what travels between stages. Pure; src/graphs/ turns it into
 * StarPU tasks. Nothing outside asks which family it is: what differs is a function or a fact below.
 */
#ifndef SP_FAMILY_H
#define SP_FAMILY_H

#include "model/stash.h"
#include "model/params.h"
#include "policies/families/map.h"
#include <stdbool.h>
#include <stdint.h>

#define SP_MAX_DEPS 64

/* One thing an op waits for. */
struct sp_dep {
    int stage;       /* where the producer runs */
    struct sp_op op; /* the producer */
    bool beside; /* it has to have begun, not ended: what is wanted of it comes layer by layer */
};

struct sp_plan;
struct sp_lowering;
struct sp_op_work;

/* Called for a parameter block of a stage, layer -1 outside the layers; an error ends the walk. */
typedef int (*sp_stage_block_fn)(void *arg, enum sp_block_kind kind, int layer);

/* What `train` may be asked beside a schedule (sp_family: refuse). */
struct sp_train_wish {
    enum sp_recompute recompute;
    const char *recompute_text; /* as the user wrote it */
    const char *partition;      /* of layers: "even" or another */
    bool post_validation;
    /* Gradients are clipped; written to a file; tables are tied; stages are groups, or there are several pipelines. */
    bool clips, dumps, tied, grouped;
};

/* How layers come to global stages. */
enum sp_layers {
    SP_LAYERS_DEALT,      /* evenly, by the family */
    SP_LAYERS_CHOSEN,     /* as the user says */
    SP_LAYERS_MAYBE_NONE, /* likewise, some none: a stage hands on what it receives */
    SP_LAYERS_ALIKE       /* likewise, but every worker computes all of them: none has more to do */
};

struct sp_family_facts {
    enum sp_layers layers;
    bool slices; /* sequences may be cut, and those of one length or time be found by themselves */
    bool parts; /* its ops are parts of layers, which must be known, as must what each part costs */
    bool sharded;      /* every stage holds a part of each parameter block */
    bool shards_ends;  /* of embedding and head, which it has whole while a step runs */
    bool one_line;     /* its chunks are those of the whole model, on every stage */
    bool names_global; /* the chunk of an op is a global stage, whatever stage runs it */
    bool head_op;      /* the head is an op of its own, with which its input dies */
    bool prices_head;  /* what the head costs may be said apart (struct sp_costs: head) */
    bool pairs;        /* two ops may overlap */
    /* Stages share attention of the ops that they begin together: keys and values are sent by layers, not those of a
     * chunk together. */
    bool shares_attention;
    /* Gradients that travel with weights are in the type of the run, unless "gradients=f32" says otherwise. */
    bool rounds_gradients;
    /* Stages update their weights within a step (struct sp_map: batch), and a backward has those that its forward had. */
    bool stashes;
    bool post_validates; /* a step may begin before the last one's norm is known */
};

/* What the devices of a stage may share (sp_family: groups). */
enum { SP_GROUP_TOKENS = 1, SP_GROUP_PARAMETERS = 2 };

/* How an order becomes actions (policies/lowering). NULL, but for `lower`: as said. */
struct sp_lowerer {
    /* What an op waits for as the engine has it, where an order is stricter than the data want; NULL: the same. */
    int (*run_deps)(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS]);
    /* Where an op comes in the order of submission, if that is not by simulated start; NULL: it is. */
    double (*turn)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    /* How many ops from place i of that order on are submitted as one unit; NULL: one, or two that overlap. */
    int (*unit)(const struct sp_lowering *l, int i);
    /* Messages between two stages are taken in the order sent, those of each stream by themselves:
     * the stream of what an op receives. NULL: there is one. */
    int (*stream)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    /* The actions before the first op of a step (NULL: none; 0 or -ENOMEM), those of the unit of ops at
     * place i of the order of submission, those after the last op. */
    int (*begin)(struct sp_lowering *l);
    void (*lower)(struct sp_lowering *l, int i);
    void (*end)(struct sp_lowering *l);
};

/* Slices that several stages share, in parts. */
struct sp_shared_slices {
    /* Parts of all slices of a global stage. */
    int (*parts_of)(const struct sp_layout *lay, int global);
    /* Tokens first .. first+len-1 of the part that an op works on, and the slice that it is of. */
    void (*part_tokens)(const struct sp_plan *plan, int seq, const struct sp_op *op, int *first,
                        int *len);
    int (*slice)(const struct sp_layout *lay, const struct sp_op *op);
    /* Whether attention of an op, shared by stages, is kept however the rest is recomputed. */
    bool (*keeps_attention)(const struct sp_layout *lay, const struct sp_op *op);
    /* Tokens of a part of a global stage whose keys and values a stage has that is one of several to share them; len 0:
     * none. */
    void (*key_share)(const struct sp_plan *plan, int seq, int global, int part, int stage,
                      int *first, int *len);
    /* Cuts the slices of a plan in parts of which none takes much longer than another, with what a token costs, and each
     * query with each of its keys. 0, or -errno after one line. */
    int (*cut)(struct sp_plan *plan, double token, double pair);
};

/* Whose parameters are where (ownership.h), if that is not by the homes of global stages: each may be NULL. */
struct sp_owners {
    /* The i-th of the global stages (parts: blocks) whose parameters a stage keeps, -1 past the last;
     * NULL: those of its chunks. */
    int (*owned)(const struct sp_layout *lay, int stage, int i);
    /* Whether a stage computes the embedding (`last`: the head) of some micro-batch. */
    bool (*is_end)(const struct sp_layout *lay, int stage, bool last);
    /* Every block of a stage, and the stage of a block. */
    int (*each_block)(const struct sp_plan *plan, const struct sp_model *m, int stage,
                      sp_stage_block_fn fn, void *arg);
    int (*owner)(const struct sp_plan *plan, enum sp_block_kind kind, int layer);
};

struct sp_family {
    const char *name;
    /* The one that takes its place with the options of a layout, or itself; NULL: none does. */
    const struct sp_family *(*variant)(const struct sp_layout *lay);
    struct sp_family_facts facts;

    /* ---- layouts ---- */

    /* Refuses a layout, before anything else is asked of it: 0, or -EINVAL with the reason in why[n].
     * NULL: none. */
    int (*check)(const struct sp_layout *lay, char *why, size_t n);

    /* Where global stages live, and what else of the layout is tabulated (map.h), to be destroyed with
     * sp_map_destroy. 0; -ENOMEM; -EINVAL with the reason in why[n]. */
    int (*place)(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n);

    /* Makes the program of a stage; NULL: the schedule does. */
    void (*emit)(const struct sp_layout *lay, int stage, struct sp_program *prog);

    /* Adds to the programs, when all are made, ops that are none of the schedule's, of a vocabulary that all stages
     * share: 0, or -EINVAL with the reason in why[n], -ENOMEM. NULL: there are none. */
    int (*insert_ops)(struct sp_plan *plan, char *why, size_t n);

    /* Refuses in train what a plan cannot do, beside what the facts say: 0, or -EINVAL after one line. NULL:
     * nothing. */
    int (*refuse)(const struct sp_plan *plan, const struct sp_train_wish *wish);

    /* What the devices of a stage may share; NULL: nothing. */
    int (*groups)(const struct sp_layout *lay);

    /* ---- ops ---- */

    /* Dense number of an op in 0 .. ids(lay)-1, -1 if the family has no such op there. */
    int (*id)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    int (*ids)(const struct sp_layout *lay);

    /* Why it has no such op there, if there is more to say than the sizes of the layout: writes it into
     * why[n] and returns true. NULL: there is not. */
    bool (*foreign)(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                    size_t n);

    /* Producers an op waits for; `split`: the schedule separates W from B. Returns how many. */
    int (*deps)(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS]);

    /* Calls `need` for every op that a complete schedule must hold (W and R excepted). */
    void (*required)(const struct sp_layout *lay,
                     void (*need)(void *arg, int stage, const struct sp_op *op), void *arg);

    /* What tells ops of a stage apart that differ in their micro-batch alone (op_classes.h), by what they compute or
     * keep; NULL: nothing does. */
    int (*kind)(const struct sp_layout *lay, int stage, const struct sp_op *op);

    /* What an op costs, if it was not measured (sp_op_cost asks that first). */
    double (*cost)(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op);

    /* And what of that it computes again before it wants what other stages send, its last layers; NULL: nothing. */
    double (*again)(const struct sp_plan *plan, const struct sp_costs *costs,
                    const struct sp_op *op);

    /* What an op computes, where that is parts of layers: fills in all but pass and tokens of the entries of
     * work, and returns how many there are (work.h). NULL: whole layers. */
    int (*work)(const struct sp_plan *plan, const struct sp_shape *sh, const struct sp_op *op,
                struct sp_op_work *work);

    /* Activations of one micro-batch on all stages, as peak_live counts them. */
    int (*activations)(const struct sp_layout *lay);

    /* The part of an activation that an op holds, as peak_live counts them; NULL: 1. */
    double (*size)(const struct sp_layout *lay, const struct sp_op *op);

    /* Bytes that are kept of an op until its backward, *head of it for the head (activations.h); NULL: what its layers
     * keep. */
    int64_t (*stash)(const struct sp_plan *plan, const struct sp_shape *sh,
                     enum sp_recompute recompute, int stage, const struct sp_op *op, int64_t *head);

    const struct sp_lowerer *lowers;
    const struct sp_shared_slices *shared; /* NULL: stages share no slices */
    const struct sp_owners *owners;        /* NULL: all by the homes of global stages */
};

/* The part of a micro-batch on a whole stage that one activation is. */
static inline double sp_activation_share(const struct sp_family *family,
                                         const struct sp_layout *lay)
{
    return (double)lay->stages / family->activations(lay);
}

#endif
