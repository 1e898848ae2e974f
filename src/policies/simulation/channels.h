/*
 * The messages of a plan and their channels: one channel for each pair of stages and direction of
 * pass (F, or backward), and for each stream of the family. A message is a dependency of an op on
 * an op of another stage. Messages are sent in the order of the sender's program and taken in the
 * order of the receiver's.
 */
#ifndef SP_CHANNELS_H
#define SP_CHANNELS_H

#include "policies/plan.h"

struct sp_channel_state {
    int src, dst, stream;
    bool forward;
    int next;        /* in a list of lookups, -1: last */
    int sent, taken; /* messages numbered; messages taken */
    double free_at;  /* when the last one was taken */
};

struct sp_message {
    int channel;
    int number;   /* in its channel, in the order sent */
    int index;    /* of the producer in the sender's program */
    int next_out; /* of the same producer, -1: last */
};

struct sp_channels {
    int n, n_messages;
    struct sp_channel_state *channels;
    struct sp_message *messages; /* grouped by receiver, in the order it takes them */
    int *cursor;                 /* [stages] the next message that a stage takes */
    int *first_out;              /* [ids] first message of an op, -1: none */
};

/* A dependency on an op that no program holds makes no message. 0 or -ENOMEM. */
int sp_channels_create(const struct sp_plan *plan, int ids, struct sp_channels *ch);
void sp_channels_destroy(struct sp_channels *ch);

/* A channel that carries one of the next `n` messages that a stage takes, although another message
 * is first in it; -1: none. */
int sp_channels_out_of_turn(const struct sp_channels *ch, int stage, int n);

/* A channel that already holds `capacity` messages not yet taken and gets one more from op `id`;
 * -1: none, and *start is moved to the time when its last message was taken, if that is later (with
 * capacity 1 the sender waited for that). */
int sp_channels_full(const struct sp_channels *ch, int id, int capacity, double *start);

/* Takes the next message of a stage at `time`. Returns the sender. */
int sp_channels_take(struct sp_channels *ch, int stage, double time);

/* A channel with messages that no stage took; -1: none. */
int sp_channels_left(const struct sp_channels *ch);

/* Messages that went through the busiest channel. */
int sp_channels_most(const struct sp_channels *ch);

/* Index in the sender's program of the op that sent the first message not yet taken, -1: none. */
int sp_channels_next(const struct sp_channels *ch, int channel);

#endif
