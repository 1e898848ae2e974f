/* Reads the messages of a traced run from the messages_RANK.jsonl of its ranks
 * (transport/messages.h). */
#ifndef SP_FXT_MESSAGES_H
#define SP_FXT_MESSAGES_H

#include "trace/fxt/rank_clock.h"
#include <stdint.h>

struct sp_fxt_message {
    int src, dst;
    int64_t tag, bytes;
    char tensor[40];
    uint64_t handle[2];        /* the sender's and the receiver's buffer, as in tasks.rec */
    double start_ns, end_ns;   /* from MPI's send call to arrival; rank 0's clock */
    double posted_ns, sent_ns; /* when the receive was posted, and the sender was done */
};

struct sp_fxt_messages {
    int ranks;
    struct sp_rank_clock *clocks; /* [ranks] without marks */
    int n;
    struct sp_fxt_message *message; /* by their start */
    int turned;       /* messages that seemed to end before they started, and take no time now */
    double turned_ns; /* the largest correction */
};

/* Reads and matches the messages in `dir`. 0 or -errno after one line: the files are not all of one
 * run, or a message was sent but not received. The caller destroys *m in any case. */
int sp_fxt_messages_read(const char *dir, int ranks, struct sp_fxt_messages *m);
void sp_fxt_messages_destroy(struct sp_fxt_messages *m);

#endif
