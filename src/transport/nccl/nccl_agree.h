/*
 * How the ends of a communicator agree on the order of what they put into its stream. NCCL knows no tags,
 * and what one end has begun occupies its GPU until all others have begun it too: so all begin the same
 * messages in the same order, and none before every end is ready for it.
 *
 *   follower                       leader
 *   is ready     -- READY tag -->
 *                                  is ready, and so are all followers: the message gets the next number
 *                <-- GO tag, number --
 *   begins it in the order of numbers, as the leader does
 *
 * An edge of two processes is led by its sender: receivers are ready long before the value as a rule, so
 * that one note is on the way of a value and not two. A group that adds up is led by its first member.
 * Nothing is said to be ready before it is, whatever else waits: so whatever orders the ends come in,
 * nothing begun waits for anything but notes that are on their way.
 *
 * Pure: no thread, no library. Notes between two ends must arrive in the order in which they were told.
 * A mistake of the caller (a size that differs, two messages of a tag at once) is -errno after one line.
 */
#ifndef SP_NCCL_AGREE_H
#define SP_NCCL_AGREE_H

#include <stdbool.h>
#include <stdint.h>

/* One end's part of a message; the caller's from sp_agree_begin on. */
struct sp_agree_message {
    struct sp_agree_message *next;
    int64_t tag;
    uint64_t bytes;
};

struct sp_agree_note {
    int32_t go;   /* 0: READY, from a follower; 1: GO, to every follower */
    int32_t link; /* whose note it is: for those who carry it */
    int64_t tag;
    uint64_t bytes, number;
};

struct sp_agree_ask;

/* One end. */
struct sp_agree {
    char name[32]; /* for messages about mistakes */
    int followers; /* of a leader; -1: this is a follower */
    int depth;     /* messages begun here and not done: at most so many */
    int begun;
    uint64_t number; /* of the next message agreed on */
    struct sp_agree_message *waiting;
    struct sp_agree_message *agreed, *last; /* in order of numbers, not begun */
    struct sp_agree_ask *asks; /* what followers are ready for, and the leader is not */
};

/* What an event asks the caller to do, in this order. */
struct sp_agree_step {
    bool tell; /* the note: to the leader, or to every follower */
    struct sp_agree_note note;
    struct sp_agree_message *begin; /* put it into the stream; NULL: nothing */
};

void sp_agree_init(struct sp_agree *end, int followers, int depth, const char *name);
/* Forgets what is waiting. */
void sp_agree_clear(struct sp_agree *end);

/* The value or the buffer of a message is there. 0, -EEXIST, -EMSGSIZE, -ENOMEM. */
int sp_agree_ready(struct sp_agree *end, struct sp_agree_message *m, struct sp_agree_step *step);
/* A note came. 0, -EEXIST, -EMSGSIZE, -EPROTO, -ENOMEM. */
int sp_agree_hear(struct sp_agree *end, const struct sp_agree_note *note,
                  struct sp_agree_step *step);
/* The message begun first of those that are not done is done. */
void sp_agree_done(struct sp_agree *end, struct sp_agree_step *step);

#endif
