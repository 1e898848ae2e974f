/*
 * Lowering: from the programs of a plan to actions (action.h), in the order of submission of all
 * stages.
 *
 * A family says what comes before and after each op (struct sp_lowerer: begin, lower, end). This
 * file has the walk over the order and the numbers of messages. A receive matches the earliest
 * unmatched send of the same tensor between the same stages. After a full step every send must be
 * matched, or the family is wrong.
 */
#ifndef SP_LOWERING_H
#define SP_LOWERING_H

#include "policies/lowering/action.h"
#include "policies/simulation/listsim.h"

struct sp_messages; /* sent and not yet received */

struct sp_lowering {
    const struct sp_plan *plan;
    const struct sp_shape *shape; /* NULL: sizes are unknown */
    int processes;                /* stage s is in process floor(s * processes / stages) */
    /* The recomputation to count in the bytes of EXCHANGE. The caller sets it after creation; at
     * first there is none. */
    enum sp_recompute recompute;
    int every;
    const struct sp_placed *order; /* [n] all ops in the order of submission */
    int n;
    int *position;                /* place in `order` of an op, by its id in the family */
    int *all;                     /* [stages] 0, 1, ...: the group of all stages */
    struct sp_evicting *evicting; /* [stages] how far the plan's evictions have come in a step */
    int64_t *exchanged; /* [classes][SP_TRAFFICS] bytes of EXCHANGE of an op; -1: not asked
                                   * for yet */
    void *state;        /* the family's, for one step */
    struct sp_messages *messages;
    struct sp_placed *made; /* `order`, if the plan does not keep it */
    void (*emit)(void *arg, const struct sp_action *action);
    void *arg;
};

/* 0 or -ENOMEM. The plan must be verified and outlive the lowering. */
int sp_lowering_create(const struct sp_plan *plan, const struct sp_shape *shape, int processes,
                       struct sp_lowering *l);
void sp_lowering_destroy(struct sp_lowering *l);

/*
 * Emit the actions of one step: those before its first op; those of the unit of ops at place i of
 * the order (returns how many ops it has); those after the last op. 0, or -ENOMEM from the first.
 */
int sp_lower_begin(struct sp_lowering *l, void (*emit)(void *arg, const struct sp_action *action),
                   void *arg);
int sp_lower_ops(struct sp_lowering *l, int i);
/* How many ops the unit has. */
int sp_lowering_unit(const struct sp_lowering *l, int i);
void sp_lower_end(struct sp_lowering *l);

/* For an abandoned step: emits a RECV for every message that was sent and not yet received. The
 * step cannot go on. */
void sp_lower_orphans(struct sp_lowering *l,
                      void (*emit)(void *arg, const struct sp_action *action), void *arg);

/* All three; 0 or -ENOMEM. */
int sp_lower_step(struct sp_lowering *l, void (*emit)(void *arg, const struct sp_action *action),
                  void *arg);

/* ---- bytes of EXCHANGE ----------------------------------------------------------------- */

/* The traffic of an EXCHANGE. */
enum sp_traffic {
    SP_TRAFFIC_MEMBERS, /* rows of tokens and shares of sums; heads of q, k, v and the output, or
                         * keys and values around a ring; their gradients; and again what the
                         * backward recomputes */
    SP_TRAFFIC_GATHER,  /* shards of the weights of layers, to other pipelines (--zero 3) */
    SP_TRAFFIC_SCATTER, /* gradients of layers, to the pipelines that keep shards of them */
    SP_TRAFFICS
};

/* Bytes that one device, the first, sends to the others in an op. `every` is the K of --recompute
 * every=K. */
int64_t sp_exchange_bytes(const struct sp_lowering *l, enum sp_traffic traffic, int stage,
                          const struct sp_op *op);

/* The same for one block of a layer. */
int64_t sp_exchange_block_bytes(const struct sp_shape *sh, enum sp_traffic traffic,
                                enum sp_block_kind kind);

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

/* RUN; before it a FETCH of what returns with it; after it an EXCHANGE, if its stage has several
 * devices, and an EVICT of what leaves then. */
void sp_lower_run(struct sp_lowering *l, int stage, int index);
/* One part of an op that runs in several. */
void sp_lower_part(struct sp_lowering *l, int stage, int index, int op_part, int op_parts);
/* A RUN of the family's own: adds gradients that passed by or returned to those in the stage's
 * store. */
void sp_lower_add(struct sp_lowering *l, int stage, struct sp_tensor_id gradients);
/* An EXCHANGE of that RUN: pipelines gather a block or scatter its gradient for it. */
void sp_lower_exchange(struct sp_lowering *l, enum sp_traffic traffic, int stage,
                       struct sp_tensor_id block);
/* `index`: the op in the sender's program that made the tensor, -1: none, it is kept or passed on
 * as it came. */
void sp_lower_send(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index);
/* `index`: the op in the receiver's program that reads it first, -1: none. The second receives into
 * the gradients of the receiver's own blocks. */
void sp_lower_recv(struct sp_lowering *l, int from, int to, struct sp_tensor_id t, int index);
void sp_lower_recv_owner(struct sp_lowering *l, int from, int to, struct sp_tensor_id t);
void sp_lower_free(struct sp_lowering *l, int stage, struct sp_tensor_id t);
/* Between parts of ops: sent, received, and freed at the sender; later released by the receiver. */
typedef void (*sp_lower_fn)(struct sp_lowering *l, int from, int to, struct sp_tensor_id t);
void sp_lower_pass(struct sp_lowering *l, int from, int to, struct sp_tensor_id t);
void sp_lower_release(struct sp_lowering *l, int from, int to, struct sp_tensor_id t);
/* `index`: the op in the stage's program that needs what is gathered, or that made what is
 * scattered. The members of a REDUCE follow each other, beginning with the first. */
void sp_lower_collective(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index,
                         struct sp_tensor_id t, int members, const int *member, int64_t bytes);

#endif
