/*
 * Shared by the two halves of the transport over NCCL: nccl.c submits and starts, and the thread of
 * nccl_thread.c moves messages on.
 *
 *   submitted --StarPU: the value or the buffer is on the GPU--> ready --the ends agree--> in the
 *   stream
 *             --its event--> done: released to StarPU
 *
 * StarPU calls back in any thread; the callback only puts the message into a queue. The thread does
 * the rest: it keeps what the ends have told each other, uses the streams and releases the handles.
 * It waits for nothing that another process has to do, so no order of messages stops it.
 */
#ifndef SP_NCCL_THREAD_H
#define SP_NCCL_THREAD_H

#include "transport/nccl/nccl_links.h"
#include <pthread.h>

struct sp_nccl_message {
    struct sp_agree_message part; /* first: a pointer to it is a pointer to the message */
    struct sp_nccl_link *link;
    starpu_data_handle_t handle;
    struct sp_nccl *nccl;
    void (*arrived)(void *arg);
    void *arg;
    struct sp_nccl_message *next;  /* in the queue of ready messages, then in the stream */
    struct sp_nccl_message *older; /* in the list of submitted messages */
};

struct sp_nccl {
    struct sp_nccl_config cfg;
    struct sp_wire *wire;
    struct sp_nccl_links links;
    int version;
    long pause_ns; /* between two looks if nothing moved */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake, idle; /* something to do; nothing submitted any more */
    /* under the mutex */
    struct sp_nccl_message *ready, **ready_end;
    int pending;                  /* messages submitted and not done */
    bool stopping, failed, ended; /* failed: nothing moves any more; ended: the thread gave up */
    /* only the thread uses these */
    int working; /* messages that were ready and are not done */
    double checked_us;
};

/* The thread; its argument is the struct sp_nccl. */
void *sp_nccl_thread(void *nccl);

#endif
