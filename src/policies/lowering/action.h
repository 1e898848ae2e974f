/*
 * Actions: all that a stage does in one training step, communication included, in the order of
 * submission.
 *
 * A program of ops says what a stage computes. Lowering (lowering.h) derives from the same plan
 * what the stage sends, receives and frees. Pure: all code that must know about a message or a
 * lifetime reads actions.
 */
#ifndef SP_ACTION_H
#define SP_ACTION_H

#include "policies/lowering/evictions.h"
#include "policies/lowering/tensor.h"

enum sp_action_kind {
    SP_ACTION_RUN,     /* the tasks of an op, and of the one it overlaps with */
    SP_ACTION_SEND,    /* a tensor to another stage */
    SP_ACTION_RECV,    /* a tensor from another stage */
    SP_ACTION_GATHER,  /* all-gather: the shards of a unit, from all stages, gathered on this one */
    SP_ACTION_SCATTER, /* reduce-scatter: this stage's gradient of a unit, to the owners of its
                        * shards */
    SP_ACTION_REDUCE,  /* all-reduce: the gradients of the replicas of a block */
    SP_ACTION_EXCHANGE, /* between the devices of a stage that share tokens or parameters: what an
                         * op gathers, scatters and exchanges, all to all; its tasks do this, each
                         * where its data is. With a tensor of kind BLOCK or GRADIENT: between
                         * pipelines, shards of its layers' weights, or of their gradients */
    SP_ACTION_EVICT,    /* a tensor is evicted to a slower tier, while later ops run */
    SP_ACTION_FETCH,    /* it is fetched again, while the next op or later ones run */
    SP_ACTION_FREE,     /* the last reader of a tensor was submitted */
    SP_ACTION_KINDS
};

struct sp_action {
    enum sp_action_kind kind;
    int stage;       /* in whose program it is */
    struct sp_op op; /* RUN */
    /* RUN: an op whose stages exchange tensors while it runs is submitted in parts 0 .. op_parts -
     * 1; other ops in one */
    int op_part, op_parts;
    int index; /* place of an op in the stage's program. RUN: that op (-1: the family's own, see
                * below). SEND: the op that made the tensor (-1: it is kept, or passed on as it
                * came). RECV: its first reader (-1: none). EVICT: the op that ran when it begins.
                * FETCH: the op that runs next when it begins */
    struct sp_tensor_id tensor; /* all but RUN of an op */
    int peer;                   /* SEND, RECV: the other stage */
    int members;                /* GATHER, SCATTER, REDUCE: size of the group ... */
    const int *member;          /* ... [members] its stages, ascending; valid while it is emitted */
    int devices;                /* EXCHANGE: devices of the stage that take part */
    bool during;                /* SEND, RECV: between two parts of an op */
    bool home;                  /* RECV: a gradient, into the gradients of the stage's own blocks */
    int64_t
        bytes; /* SEND, RECV: of the message; collectives: what this stage, or one of its devices,
                * sends; EVICT, FETCH: the bytes of the tensor that leave memory; 0: unknown */
    int64_t
        number; /* of its first message, different for all messages of a step. SEND and RECV: the
                 * same for both, one for each piece of the tensor. GATHER and SCATTER: one for each
                 * piece and member, piece by piece. REDUCE: the same for the whole group, one for
                 * each member */
    const struct sp_eviction *eviction; /* EVICT, FETCH: the plan's entry */
};

/*
 * A RUN that is not in the program has part SP_UPDATE: the gradients `tensor`, which passed by or
 * returned to its owner, are added to, or become, those of the stage's blocks.
 */

const char *sp_action_name(enum sp_action_kind kind);

#endif
