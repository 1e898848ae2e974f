/*
 * The messages of a plan and the channels they go through: one channel for each pair of stages
 * and direction of pass (F, or backward), and for each stream of the family. A message is one op
 * waiting for one op of another stage. Messages are sent in the order of the sender's program and
 * taken in the receiver's.
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

/* 0 or -ENOMEM. Ops waited for that no program holds send nothing. */
int sp_channels_create(const struct sp_plan *plan, int ids, struct sp_channels *ch);
void sp_channels_destroy(struct sp_channels *ch);

/* A channel whose first message is not among the next `n` that a stage takes although one of
 * those comes through it; -1: all are in turn. */
int sp_channels_out_of_turn(const struct sp_channels *ch, int stage, int n);

/* A channel that holds `capacity` messages, not yet taken, when an op wants to put one more in it;
 * -1: none, and *start is no earlier than the last taking (with capacity 1, what it waited for). */
int sp_channels_full(const struct sp_channels *ch, int id, int capacity, double *start);

/* The stage takes its next message at `time`; returns the sender. */
int sp_channels_take(struct sp_channels *ch, int stage, double time);

/* A channel with messages that nobody took; -1: none. */
int sp_channels_left(const struct sp_channels *ch);

/* Messages that went through the busiest channel. */
int sp_channels_most(const struct sp_channels *ch);

/* Index in the sender's program of the op that sent the first message not yet taken, -1: none. */
int sp_channels_next(const struct sp_channels *ch, int channel);

#endif
