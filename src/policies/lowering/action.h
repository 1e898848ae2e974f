/*
 * Actions: what a stage does in one training step, communication included, in the order of submission.
 *
 * A program of ops says what a stage computes. Lowering it (lowering.h) says what is sent, received and
 * freed besides, from the same plan. Pure: everything that must know about a message or a lifetime reads
 * actions.
 */
#ifndef SP_ACTION_H
#define SP_ACTION_H

#include "policies/lowering/evictions.h"

enum sp_action_kind {
    SP_ACTION_RUN,    /* the tasks of an op, and of the one it overlaps with */
    SP_ACTION_SEND,   /* a tensor to another stage */
    SP_ACTION_RECV,   /* a tensor from another stage */
    SP_ACTION_GATHER, /* all-gather: the shards of a unit of all stages, whole on this one */
    SP_ACTION_SCATTER, /* reduce-scatter: this stage's gradient of a unit, to the owners of its shards */
    SP_ACTION_REDUCE, /* all-reduce: the gradients of the replicas of a block */
    SP_ACTION_EXCHANGE, /* between the devices of a stage that share tokens or parameters: what an op gathers, scatters
                         * and exchanges, all to all; its tasks do it, each where its data is */
    SP_ACTION_EVICT, /* a tensor leaves for a slower tier, while later ops run */
    SP_ACTION_FETCH, /* and comes back, while the next op runs or later ones */
    SP_ACTION_FREE,  /* the last reader of a tensor was submitted */
    SP_ACTION_KINDS
};

struct sp_action {
    enum sp_action_kind kind;
    int stage;       /* in whose program it is */
    struct sp_op op; /* RUN */
    /* RUN: an op that stages exchange tensors for while it runs is submitted in legs, 0 .. legs - 1; others in one */
    int op_part, op_parts;
    int index; /* in the program of the stage: of the op that RUN runs (-1: the family's own, see
                * below), that left what SEND sends (-1: it is kept, or goes on as it came), that reads
                * first what RECV receives (-1: none does), that ran when EVICT begins, that runs next
                * when FETCH does */
    struct sp_tensor_id tensor; /* all but RUN of an op */
    int peer;                   /* SEND, RECV: the other stage */
    int members;                /* GATHER, SCATTER, REDUCE: of the group ... */
    const int *member;          /* ... [members] its stages, ascending; valid while it is emitted */
    int devices;                /* EXCHANGE: of the stage, that take part */
    bool during;                /* SEND, RECV: between two legs of an op */
    bool home;                  /* RECV: a gradient, into that of the blocks of the stage itself */
    int64_t
        bytes; /* SEND, RECV: of the message; collectives: what this stage, or one of its devices, sends of it; EVICT, FETCH:
                    * of the tensor that leave; 0: unknown */
    int64_t
        number; /* of its first message, different for all messages of a step: SEND and RECV, the same
                     * for both, one a piece of the tensor; GATHER and SCATTER one for each piece and
                     * member, piece by piece; REDUCE, the same for all of a group, one a member */
    const struct sp_eviction *eviction; /* EVICT, FETCH: what the plan says of it */
};

/*
 * A RUN that is not in the program has part SP_UPDATE: the gradients `tensor`, which came by or came home,
 * are added to, or become, those of the blocks of the stage.
 */

const char *sp_action_name(enum sp_action_kind kind);

#endif
