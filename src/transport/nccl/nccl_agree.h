/*
 * How the ends of a communicator agree on the order of what they put into its stream. NCCL knows no
 * tags, and an operation that one end has begun occupies its GPU until all others have begun it
 * too. So all ends begin the same messages in the same order, and none begins before every end is
 * ready.
 *
 *   follower                       leader
 *   is ready     -- READY tag -->
 *                                  is ready, and so are all followers: the message gets the next
 *                                  number
 *                <-- GO tag, number --
 *   begins it in the order of numbers, as the leader does
 *
 * The sender leads an edge of two processes: receivers are ready long before the value as a rule,
 * so a value waits for one note and not for two. An end says that it is ready only when it is, whatever else waits. So a message that has begun waits
 * only for notes that are under way, in whatever order the ends come.
 *
 * Pure: no thread, no library. Notes between two ends must arrive in the order in which they were
 * told. A mistake of the caller (a size that differs, two messages of a tag at once) is -errno
 * after one line.
 */
#ifndef SP_NCCL_AGREE_H
#define SP_NCCL_AGREE_H

#include <stdbool.h>
#include <stdint.h>

/* One end's part of a message. It belongs to the caller again from sp_agree_begin on. */
struct sp_agree_message {
    struct sp_agree_message *next;
    int64_t tag;
    uint64_t bytes;
};

struct sp_agree_note {
    int32_t go;   /* 0: READY, from a follower; 1: GO, to every follower */
    int32_t link; /* the link it belongs to, for those who carry the note */
    int64_t tag;
    uint64_t bytes, number;
};

struct sp_agree_ask;

/* One end. */
struct sp_agree {
    char name[32]; /* for messages about mistakes */
    int followers; /* how many a leader has; -1: this is a follower */
    int depth;     /* the most messages begun here and not done */
    int begun;
    uint64_t number; /* of the next message agreed on */
    struct sp_agree_message *waiting;
    struct sp_agree_message *agreed, *last; /* in order of numbers, not begun */
    struct sp_agree_ask *asks; /* messages that followers are ready for and the leader is not */
};

/* An event's answer: the caller carries out its two parts in this order. */
struct sp_agree_step {
    bool tell; /* send the note to the leader, or to every follower */
    struct sp_agree_note note;
    struct sp_agree_message *begin; /* put it into the stream; NULL: nothing */
};

void sp_agree_init(struct sp_agree *end, int followers, int depth, const char *name);
/* Forgets the messages that wait. */
void sp_agree_clear(struct sp_agree *end);

/* Call it when a message's value or buffer is there. 0, -EEXIST, -EMSGSIZE, -ENOMEM. */
int sp_agree_ready(struct sp_agree *end, struct sp_agree_message *m, struct sp_agree_step *step);
/* Call it when a note came. 0, -EEXIST, -EMSGSIZE, -EPROTO, -ENOMEM. */
int sp_agree_hear(struct sp_agree *end, const struct sp_agree_note *note,
                  struct sp_agree_step *step);
/* Call it when the oldest of the messages begun and not done is done. */
void sp_agree_done(struct sp_agree *end, struct sp_agree_step *step);

#endif
