/*
 * The messages of a step, as its actions send and receive them (policies/lowering): their stages,
 * their bytes, the op that produces each, and the op that reads it. One process a stage. Pure.
 *
 * Everything that a part of a layer sends to another one is one message, whatever tensors it
 * contains. A stage's part in a collective is a separate message: the stage sends and receives as
 * much of the group as in a ring. An eviction or a fetch of a stage is a message to itself.
 */
#ifndef SP_STEP_MESSAGES_H
#define SP_STEP_MESSAGES_H

#include "policies/lowering/action.h"

struct sp_step_message {
    struct sp_tensor_id tensor; /* the first that it contains */
    int64_t bytes;              /* 0: unknown */
    int writer;         /* index of the op that produces it, or of the last one before; -1: none */
    int before;         /* the message that brought its contents; -1: none */
    int reader;         /* index of the op of stage `to` that reads it first; -1: none */
    int next_of_writer; /* next message of the same writer, -1: none */
    int next_of_before; /* next one with the same message before */
    /* EVICT, FETCH: when it may begin within its writer, and when it must have ended within its
     * reader, as parts of their times */
    float left, wanted;
    unsigned short from; /* collective: the farthest member in the order of stages */
    unsigned short to;
    unsigned short writer_stage;
    unsigned char kind;    /* enum sp_action_kind; SEND unless a collective or a move */
    bool beside;           /* begins with its writer, layer by layer */
    unsigned short layers; /* whose gradients its writer adds up in turn; 0: others */
};

/* True for a message from stage to stage, by SEND and RECV. */
static inline bool sp_step_message_is_sent(const struct sp_step_message *m)
{
    return m->kind == SP_ACTION_SEND;
}

/* True for a message between the memory of a stage and the tier behind it. */
static inline bool sp_step_message_is_move(const struct sp_step_message *m)
{
    return m->kind == SP_ACTION_EVICT || m->kind == SP_ACTION_FETCH;
}

struct sp_step_messages {
    struct sp_step_message *message; /* [n] in the order of submission */
    int n;
    int *first_op;        /* [stages + 1] a stage's first op: programs are numbered in sequence */
    int *first_of_writer; /* [ops] by op number; -1: none */
    int *first_of_before; /* [n] -1: none */
};

/* Walks the actions of a verified plan. shape NULL: no bytes, and no collectives. 0 or -ENOMEM. */
int sp_step_messages_create(const struct sp_plan *plan, const struct sp_shape *shape,
                            struct sp_step_messages *messages);
void sp_step_messages_destroy(struct sp_step_messages *messages);

/* Lists the messages from stage to stage, *n of them, in the order of their readers' programs. The
 * caller frees the list; NULL: no memory. */
int *sp_step_messages_by_reader(const struct sp_step_messages *messages, const struct sp_plan *plan,
                                int *n);

/* Describes a message: by the op that produces it, or by its tensor if that is passed on as
 * received. */
char *sp_step_message_print(const struct sp_plan *plan, const struct sp_step_message *m,
                            char text[SP_TENSOR_TEXT]);

/* The part of a whole micro-batch's tensor that a message carries. */
double sp_step_message_share(const struct sp_plan *plan, const struct sp_step_message *m);

#endif
