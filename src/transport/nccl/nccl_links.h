/*
 * The communicators of a process: one for every directed edge that it has an end of. Each has its own
 * stream, so that no message can block one of another edge.
 *
 * All are made at the start. Both ends call NCCL to make one; the call returns when both have come,
 * and it synchronises the GPU. At an edge's first message it would stop the thread that moves all
 * other messages, and in a circle of processes for ever.
 */
#ifndef SP_NCCL_LINKS_H
#define SP_NCCL_LINKS_H

#include "transport/nccl/nccl.h"
#include "transport/nccl/nccl_device.h"

struct sp_nccl_message;

/* This process's end of an edge. */
struct sp_nccl_link {
    bool sends;   /* the sender, who leads; else the receiver */
    int id, peer; /* the same at both ends; the rank of the other end */
    struct sp_comm *comm;
    struct sp_agree end;
    struct sp_nccl_message *flying, **last; /* begun, oldest first */
    struct sp_nccl_message *submitted;      /* all that are not done */
};

struct sp_nccl_links {
    int rank, size;
    struct sp_nccl_link *to, *from; /* [size]; comm NULL for this process itself */
    struct sp_nccl_link **all;      /* [n] in the order in which both ends made them */
    int n;
};

/* All processes call this at once. 0, or -errno on all, after one line on those that failed. */
int sp_nccl_links_create(const struct sp_nccl_config *cfg, struct sp_wire *wire,
                         struct sp_nccl_links *links);
/* All processes call this at once, or after sp_nccl_links_abort. */
void sp_nccl_links_destroy(struct sp_nccl_links *links);
void sp_nccl_links_abort(struct sp_nccl_links *links);

/* The link that a note belongs to; NULL: this process has no such link. */
struct sp_nccl_link *sp_nccl_links_of(struct sp_nccl_links *links,
                                      const struct sp_agree_note *note);

#endif
