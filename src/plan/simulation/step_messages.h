/*
 * The messages of a step, as its actions send and receive them (policies/lowering): between which stages,
 * how many bytes, which op leaves what is sent, which op reads it. One process a stage. Pure.
 *
 * What a part of a layer sends to another one is one message, whatever tensors it is of. A stage's part in a
 * collective is a message of its own: it sends and receives as much of the group as in a ring. What a stage
 * evicts, and what it fetches again, is a message to itself.
 */
#ifndef SP_STEP_MESSAGES_H
#define SP_STEP_MESSAGES_H

#include "policies/lowering/action.h"

struct sp_step_message {
    struct sp_tensor_id tensor; /* the first that is in it */
    int64_t bytes;              /* 0: unknown */
    int writer;         /* index of the op that leaves it, or of the last one before it; -1: none */
    int before;         /* the message that came with what is in it; -1: none */
    int reader;         /* index of the op of stage `to` that reads it first; -1: none */
    int next_of_writer; /* later messages of the same writer, -1: none */
    int next_of_before; /* and of the same message before */
    float left,
        wanted; /* EVICT, FETCH: when in its writer it may begin, and when in its reader it must
                          * have ended, as parts of their time */
    unsigned short from; /* collective: the member farthest away in the order of stages */
    unsigned short to;
    unsigned short writer_stage;
    unsigned char
        kind;    /* enum sp_action_kind: of what made it; SEND unless a collective or a move */
    bool beside; /* begins with its writer: it goes layer by layer */
    unsigned short
        layers; /* gradients of so many, which its writer adds to one after the other; 0: others */
};

/* From stage to stage, by SEND and RECV. */
static inline bool sp_step_message_is_sent(const struct sp_step_message *m)
{
    return m->kind == SP_ACTION_SEND;
}

/* Between the memory of a stage and the tier behind it. */
static inline bool sp_step_message_is_move(const struct sp_step_message *m)
{
    return m->kind == SP_ACTION_EVICT || m->kind == SP_ACTION_FETCH;
}

struct sp_step_messages {
    struct sp_step_message *message; /* [n] in the order of submission */
    int n;
    int *
        first_op; /* [stages + 1] number of a stage's first op: its programs, one after the other */
    int *first_of_writer; /* [ops] by that number; -1: none */
    int *first_of_before; /* [n] -1: none */
};

/* shape NULL: no bytes, and no collectives. 0 or -ENOMEM. The plan is a verified one. */
int sp_step_messages_create(const struct sp_plan *plan, const struct sp_shape *shape,
                            struct sp_step_messages *messages);
void sp_step_messages_destroy(struct sp_step_messages *messages);

/* Those that go from stage to stage, in the order of the programs of those who read them, *n of them. To be
 * freed; NULL: no memory. */
int *sp_step_messages_by_reader(const struct sp_step_messages *messages, const struct sp_plan *plan,
                                int *n);

/* What is sent, in words: the op that leaves it, or the tensor where that goes on as it came. */
char *sp_step_message_print(const struct sp_plan *plan, const struct sp_step_message *m,
                            char text[SP_TENSOR_TEXT]);

/* The part of a whole micro-batch's tensor that one is of. */
double sp_step_message_share(const struct sp_plan *plan, const struct sp_step_message *m);

#endif
