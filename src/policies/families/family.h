/*
 * A graph family as the orders see it: which ops must exist, on which stage, what each op waits
 * for, which stage holds which parameters and activations, and what travels between stages. Pure;
 * src/graphs/ turns it into StarPU tasks. No code outside asks which family it is: families differ
 * only in the functions and facts below.
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
    bool beside; /* the producer need only have begun, not ended: its results come layer by layer */
};

struct sp_plan;
struct sp_lowering;
struct sp_op_work;

typedef void (*sp_need_fn)(void *arg, int stage, const struct sp_op *op);

static inline void sp_need(sp_need_fn need, void *arg, struct sp_dep dep)
{
    need(arg, dep.stage, &dep.op);
}

/* Called for a parameter block of a stage; layer is -1 outside the layers. An error ends the
 * walk. */
typedef int (*sp_stage_block_fn)(void *arg, enum sp_block_kind kind, int layer);

/* The options of `train` that a family can refuse (sp_family: refuse). */
struct sp_train_wish {
    enum sp_recompute recompute;
    const char *recompute_text; /* as the user wrote it */
    const char *partition;      /* of layers: "even" or another */
    bool post_validation;
    /* Gradients are clipped, or written to a file; tables are tied; stages are groups, or there are
     * several pipelines. */
    bool clips, dumps, tied, grouped;
};

/* How global stages get their layers. */
enum sp_layers {
    SP_LAYERS_DEALT,      /* the family deals them out evenly */
    SP_LAYERS_CHOSEN,     /* the user may choose */
    SP_LAYERS_MAYBE_NONE, /* the user may choose; a stage without layers passes on what it
                           * receives */
    SP_LAYERS_ALIKE       /* the user may choose, but every worker computes all layers: no worker
                           * has more to do */
};

/* Things that the devices of a stage may share. */
enum {
    SP_GROUP_TOKENS = 1,
    SP_GROUP_PARAMETERS = 2,
    SP_GROUP_ALL = SP_GROUP_TOKENS | SP_GROUP_PARAMETERS
};

struct sp_family_facts {
    enum sp_layers layers;
    bool slices;  /* sequences may be cut, and the family may seek slices of equal length or time
                  * itself */
    bool parts;   /* its ops are parts of layers: the layers must be known, and the cost of each
                 * part */
    bool sharded; /* every stage holds a part of each parameter block */
    bool shards_ends;  /* likewise of embedding and head, which are gathered while a step runs */
    bool one_line;     /* every stage runs all chunks of the model */
    bool every_end;    /* every stage has embedding and head of some micro-batches */
    bool names_global; /* the chunk of an op is a global stage, whichever stage runs it */
    bool head_op;      /* the head is an op of its own; its input is freed when that op ends */
    bool prices_head;  /* the cost of the head may be given apart (struct sp_costs: head) */
    bool pairs;        /* two ops may overlap */
    /* Stages share the attention of ops that they begin together. Keys and values are sent layer by
     * layer, not once for the whole chunk. */
    bool shares_attention;
    /* Stages update their weights within a step (struct sp_map: batch); a backward uses the version
     * that its forward used. */
    bool stashes;
    /* Ops use the parameters of one layer after the other, or of parts of layers, so that these can
     * be gathered for them (--zero 2 and 3). */
    bool by_layer;
    int groups;          /* the SP_GROUP_... that the devices of a stage may share */
    bool post_validates; /* a step may begin before the norm of the step before is known */
};

/* How an order becomes actions (policies/lowering). All but `lower` may be NULL; each comment says
 * what NULL means. */
struct sp_lowerer {
    /* The producers that an op waits for in a run, if the order is stricter than the data. NULL:
     * those of sp_family: deps. */
    int (*run_deps)(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS]);
    /* The place of an op in the order of submission. NULL: the order is by simulated start. */
    double (*turn)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    /* How many ops, from place i of that order on, are submitted as one unit. NULL: one, or two
     * that overlap. */
    int (*unit)(const struct sp_lowering *l, int i);
    /* The stream of the messages that an op receives. Messages from one stage to another are
     * received in the order sent, separately for each stream. NULL: there is one stream. */
    int (*stream)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    /* `begin`: the actions before the first op of a step (NULL: none), 0 or -ENOMEM. `lower`: those
     * of the unit of ops at place i of the order of submission. `end`: those after the last op. */
    int (*begin)(struct sp_lowering *l);
    void (*lower)(struct sp_lowering *l, int i);
    void (*end)(struct sp_lowering *l);
};

/* Slices that several stages share, in parts. */
struct sp_shared_slices {
    /* Number of parts of all slices of a global stage. */
    int (*parts_of)(const struct sp_layout *lay, int global);
    /* Tokens first .. first+len-1 of the part that an op works on, and the slice to which the part
     * belongs. */
    void (*part_tokens)(const struct sp_plan *plan, int seq, const struct sp_op *op, int *first,
                        int *len);
    int (*slice)(const struct sp_layout *lay, const struct sp_op *op);
    /* True if stages share the attention of an op: its output is then kept, even if the rest is
     * recomputed. */
    bool (*keeps_attention)(const struct sp_layout *lay, const struct sp_op *op);
    /* The tokens of a part of a global stage whose keys and values `stage` keeps, if several stages
     * share them; len 0: none. */
    void (*key_share)(const struct sp_plan *plan, int seq, int global, int part, int stage,
                      int *first, int *len);
    /* Cuts the slices of a plan into parts of a multiple of `unit` tokens so that none takes much
     * longer than another. `token` is the cost of a token, `pair` that of a query with one of its
     * keys. 0, or -errno after one line. */
    int (*cut)(struct sp_plan *plan, int unit, double token, double pair);
    /* Cuts them as another plan of as many stages and slices does. 0 or -ENOMEM. */
    int (*cut_like)(struct sp_plan *plan, const struct sp_plan *from);
};

/* Which stage holds which parameters (ownership.h), if not the placement of global stages decides.
 * All may be NULL. */
struct sp_owners {
    /* The i-th of the global stages (parts: blocks) whose parameters a stage keeps, -1 past the
     * last; NULL: those of its chunks. */
    int (*owned)(const struct sp_layout *lay, int stage, int i);
    /* The stage that holds a block. */
    int (*owner)(const struct sp_plan *plan, enum sp_block_kind kind, int layer);
};

struct sp_family {
    const char *name;
    /* The family that replaces this one under the options of a layout, or itself; NULL: no option
     * replaces it. */
    const struct sp_family *(*variant)(const struct sp_layout *lay);
    struct sp_family_facts facts;

    /* ---- layouts ---- */

    /* Refuses a layout before any other function sees it: 0, or -EINVAL with the reason in why[n].
     * NULL: every layout is good. */
    int (*check)(const struct sp_layout *lay, char *why, size_t n);

    /* Tabulates the placement of global stages, and any other table of the layout (map.h); the
     * caller destroys it with sp_map_destroy. 0; -ENOMEM; -EINVAL with the reason in why[n]. */
    int (*place)(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n);

    /* Makes the program of a stage; NULL: the schedule does. */
    void (*emit)(const struct sp_layout *lay, int stage, struct sp_program *prog);

    /* Inserts ops that are not the schedule's, those of a vocabulary that all stages share, when
     * all programs are made. 0; -ENOMEM; -EINVAL with the reason in why[n]. NULL: there are
     * none. */
    int (*insert_ops)(struct sp_plan *plan, char *why, size_t n);

    /* Refuses what `train` cannot do with a plan, in addition to what the facts say: 0, or -EINVAL
     * after one line. NULL: refuses nothing. */
    int (*refuse)(const struct sp_plan *plan, const struct sp_train_wish *wish);

    /* The SP_GROUP_... under the options of a layout; NULL: the fact. */
    int (*groups)(const struct sp_layout *lay);

    /* ---- ops ---- */

    /* Dense number of an op in 0 .. ids(lay)-1, -1 if the family has no such op on that stage. */
    int (*id)(const struct sp_layout *lay, int stage, const struct sp_op *op);
    int (*ids)(const struct sp_layout *lay);

    /* Explains why the family has no such op on that stage, if the sizes of the layout alone do
     * not: writes the reason into why[n] and returns true. NULL: the sizes always explain it. */
    bool (*foreign)(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                    size_t n);

    /* The producers that an op waits for; returns how many. */
    int (*deps)(const struct sp_layout *lay, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS]);

    /* Calls `need` for every op that a complete schedule must hold (W and R excepted). */
    void (*required)(const struct sp_layout *lay, sp_need_fn need, void *arg);

    /* A number that tells apart ops of a stage that differ only in their micro-batch (op_classes.h)
     * but compute or keep different things. NULL: no such ops differ. */
    int (*kind)(const struct sp_layout *lay, int stage, const struct sp_op *op);

    /* The cost of an op that was not measured (sp_op_cost looks at measurements first). */
    double (*cost)(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                   const struct sp_op *op);

    /* The part of that cost that the op recomputes in its last layers, before it needs what other
     * stages send. NULL: none. */
    double (*again)(const struct sp_plan *plan, const struct sp_costs *costs,
                    const struct sp_op *op);

    /* The parts of layers that an op computes: fills in all but pass and tokens of the entries of
     * `work`, and returns how many there are (work.h). NULL: ops compute whole layers. */
    int (*work)(const struct sp_plan *plan, const struct sp_shape *sh, const struct sp_op *op,
                struct sp_op_work *work);

    /* The part of an activation that an op holds, as peak_live counts them; NULL: 1. */
    double (*size)(const struct sp_layout *lay, const struct sp_op *op);

    /* Bytes kept from an op until its backward, *head of them for the head (activations.h). NULL:
     * what its layers keep. */
    int64_t (*stash)(const struct sp_plan *plan, const struct sp_shape *sh,
                     enum sp_recompute recompute, int stage, const struct sp_op *op, int64_t *head);

    const struct sp_lowerer *lowers;
    const struct sp_shared_slices *shared; /* NULL: stages share no slices */
    const struct sp_owners *owners;        /* NULL: the placement of global stages decides */
};

/* The part of a stage's work on a micro-batch that one activation stands for. */
static inline double sp_activation_share(const struct sp_family *family,
                                         const struct sp_layout *lay)
{
    int all = family->facts.parts ? 2 * lay->layers + 1 : sp_globals(lay); /* of every slice */

    return (double)lay->stages / (all * lay->slices);
}

#endif
