/*
 * What the two halves of the transport over NCCL share: submissions and start (nccl.c), and the thread that
 * moves messages on (nccl_thread.c).
 *
 *   submitted --StarPU: the value or the buffer is on the GPU--> ready --the ends agree--> in the stream
 *             --its event--> done: released to StarPU
 *
 * StarPU calls back in any thread; that only puts the message into a queue. All else is the thread's: what
 * the ends have told each other, the streams, the releases. It waits for nothing that another process has
 * to do, so no order of messages stops it.
 */
#ifndef SP_NCCL_THREAD_H
#define SP_NCCL_THREAD_H

#include "transport/nccl/nccl_links.h"
#include <pthread.h>

struct sp_nccl_message {
    struct sp_agree_message part; /* first: what is agreed on is one of these */
    struct sp_nccl_link *link;
    starpu_data_handle_t handle;
    struct sp_nccl *nccl;
    void (*arrived)(void *arg);
    void *arg;
    struct sp_nccl_message *next;  /* in the queue of those that are ready, then in the stream */
    struct sp_nccl_message *older; /* of those submitted */
};

struct sp_nccl {
    struct sp_nccl_config cfg;
    struct sp_wire *wire;
    struct sp_nccl_links links;
    int version;
    long pause_ns; /* between two looks where nothing moved */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake, idle; /* something to do; nothing submitted any more */
    /* under the mutex */
    struct sp_nccl_message *ready, **ready_end;
    int pending;                  /* messages submitted and not done */
    bool stopping, failed, ended; /* failed: nothing moves any more; ended: the thread knows */
    /* the thread's */
    int working; /* messages that were ready and are not done */
    double checked_us;
};

/* The thread; its argument is the struct sp_nccl. */
void *sp_nccl_thread(void *nccl);

#endif
