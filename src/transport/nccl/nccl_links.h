/*
 * The communicators of a process: one for every directed edge that it has an end of, and one for
 * every group it is in. Each has its own stream, so that no message can block one of another edge.
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

enum sp_nccl_role { SP_NCCL_SENDER, SP_NCCL_RECEIVER, SP_NCCL_MEMBER };

/* This process's end of a link. */
struct sp_nccl_link {
    enum sp_nccl_role role;
    int id;             /* the same at all ends */
    const int *members; /* their ranks, [n_members]; the first leads */
    int n_members;
    int edge[2]; /* the members of an edge */
    struct sp_comm *comm;
    struct sp_agree end;
    struct sp_nccl_link *self;              /* the other end, if this process has both */
    struct sp_nccl_message *held;           /* begins when `self` has its message too */
    struct sp_nccl_message *flying, **last; /* begun, oldest first */
    struct sp_nccl_message *submitted;      /* all that are not done */
};

struct sp_nccl_links {
    int rank, size, n_groups;
    struct sp_nccl_link *to, *from; /* [size]; comm NULL: no such edge */
    struct sp_nccl_link *groups;    /* [n_groups]; comm NULL: not a member */
    struct sp_nccl_link **all;      /* [n] one end of each communicator */
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
