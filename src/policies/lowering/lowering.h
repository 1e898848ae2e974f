/*
 * Lowering: from the programs of a plan to actions (action.h), in the order of submission of all stages.
 *
 * A family says what comes before and after each op (struct sp_family: lower_begin, lower, lower_end); here
 * are the walk over the order and the messages' numbers. A receive is matched with the send of the same
 * tensor between the same stages, in the order of their sending; whatever walks all of a step sees every
 * send taken, or the family is wrong.
 */
#ifndef SP_LOWERING_H
#define SP_LOWERING_H

#include "policies/lowering/action.h"
#include "policies/simulation/merge.h"

struct sp_messages; /* sent and not yet received */

struct sp_lowering {
    const struct sp_plan *plan;
    const struct sp_shape *shape; /* NULL: sizes are unknown */
    int processes;                /* stage s is in process floor(s * processes / stages) */
    /* What backwards compute again, for the bytes of EXCHANGE: nothing, unless it is said after the lowering was
     * created. */
    enum sp_recompute recompute;
    int every;
    const struct sp_placed *order; /* [n] all ops in the order of submission */
    int n;
    int *position;      /* by the number that the family gives an op: in `order` */
    int *all;           /* [stages] 0, 1, ...: the group of all stages */
    int64_t *exchanged; /* [classes] bytes of EXCHANGE of an op; -1: not asked for yet */
    void *state;        /* the family's, of one step */
    struct sp_messages *messages;
    struct sp_placed *made; /* `order`, where the plan has not kept it */
    void (*emit)(void *arg, const struct sp_action *action);
    void *arg;
};

/* 0 or -ENOMEM. The plan is a verified one and outlives the lowering. */
int sp_lowering_create(const struct sp_plan *plan, const struct sp_shape *shape, int processes,
                       struct sp_lowering *l);
void sp_lowering_destroy(struct sp_lowering *l);

/*
 * Emits the actions of one step: those before its first op; of the ops from place i of the order on that
 * are one unit (returns how many); those after the last one. 0, or -ENOMEM from the first.
 */
int sp_lower_begin(struct sp_lowering *l, void (*emit)(void *arg, const struct sp_action *action),
                   void *arg);
int sp_lower_ops(struct sp_lowering *l, int i);
/* How many ops that are. */
int sp_lowering_unit(const struct sp_lowering *l, int i);
void sp_lower_end(struct sp_lowering *l);

/* In the middle of a step: a RECV for every message that was sent and whose receiver has not come yet. The
 * step is not gone on with. */
void sp_lower_orphans(struct sp_lowering *l,
                      void (*emit)(void *arg, const struct sp_action *action), void *arg);

/* All three; 0 or -ENOMEM. */
int sp_lower_step(struct sp_lowering *l, void (*emit)(void *arg, const struct sp_action *action),
                  void *arg);

/* ---- for families ------------------------------------------------------------------------- */

static inline const struct sp_op *sp_lowering_op(const struct sp_lowering *l, int i)
{
    return &l->plan->programs[l->order[i].stage].ops[l->order[i].index];
}

static inline int sp_lowering_process(const struct sp_lowering *l, int stage)
{
    return (int)((int64_t)stage * l->processes / l->plan->layout.stages);
}

/* The place of an op of a stage in the order. */
int sp_lowering_position(const struct sp_lowering *l, int stage, const struct sp_op *op);

/* RUN, before it a FETCH of what returns with it, after it an EXCHANGE if its stage has several devices, and an EVICT
 * of what leaves then. */
void sp_lower_run(struct sp_lowering *l, int stage, int index);
/* One of the legs of an op that is not run in one go. */
void sp_lower_part(struct sp_lowering *l, int stage, int index, int op_part, int op_parts);
/* A RUN of the family's own: gradients that came by or came home, as they are in the stage's store. */
void sp_lower_add(struct sp_lowering *l, int stage, struct sp_tensor_id gradients);
/* `index`: of the op in the sender's program that leaves it, -1: none, it is kept or goes on as it came. */
void sp_lower_send(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index);
/* `index`: of the op in the receiver's program that reads it first, -1: none; home: into the
 * gradients of the receiver's own blocks. */
void sp_lower_recv(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index);
void sp_lower_recv_owner(struct sp_lowering *l, int from, int to, struct sp_tensor_id t);
void sp_lower_free(struct sp_lowering *l, int stage, struct sp_tensor_id t);
/* While ops run: sent, received, and freed where it came from. */
void sp_lower_pass(struct sp_lowering *l, int from, int to, struct sp_tensor_id t);
/* `index`: of the op in the stage's program that wants what is gathered, or that left what is scattered. The
 * members of a REDUCE follow each other, the first one first. */
void sp_lower_collective(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index,
                         struct sp_tensor_id t, int members, const int *member, int64_t bytes);

#endif
