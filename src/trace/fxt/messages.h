/* The messages of a traced run, from the messages_RANK.jsonl that its ranks have left (transport/message_log.h). */
#ifndef SP_FXT_MESSAGES_H
#define SP_FXT_MESSAGES_H

#include "trace/fxt/rank_clock.h"
#include <stdint.h>

struct sp_fxt_message {
    int src, dst;
    int64_t tag, bytes;
    char tensor[40];
    uint64_t handle[2];        /* the sender's buffer, the receiver's: as in tasks.rec */
    double start_ns, end_ns;   /* given to MPI by the sender, there; rank 0's clock */
    double posted_ns, sent_ns; /* the receive was posted, the sender was done */
};

struct sp_fxt_messages {
    int ranks;
    struct sp_rank_clock *clocks; /* [ranks], without marks */
    int n;
    struct sp_fxt_message *message; /* by their start */
    int turned;       /* messages that would end before they start, which then take no time */
    double turned_ns; /* the most that was added to one */
};

/* Reads and matches those of `dir`. 0 or -errno after one line: not all files of one run, a message that was
 * sent and not received. To be destroyed in any case. */
int sp_fxt_messages_read(const char *dir, int ranks, struct sp_fxt_messages *m);
void sp_fxt_messages_destroy(struct sp_fxt_messages *m);

#endif
