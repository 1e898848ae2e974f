/*
 * Messages between GPUs over NCCL, one GPU a process: each carries a StarPU handle from the
 * sender's GPU memory to the receiver's. They are submitted in graph order like those of
 * transport.h, and block neither the caller nor a worker. A thread of the transport finds out what
 * has completed; it sleeps while this process has no message that is ready and not done.
 *
 * There are two differences from messages over MPI. NCCL buffers nothing: a value stays in its
 * handle until its receiver has the buffer for it. Whatever writes the handle again must therefore
 * come after the receiving op in the order of submission that all processes share; `until` of
 * sp_message_send is that rule. And a message may be larger than 2 GiB.
 *
 * A value leaves as soon as StarPU takes its task for ended, so by then the task must have ended on
 * the GPU, and not only be queued there. The transport reads and writes values on streams of its
 * own.
 */
#ifndef SP_NCCL_H
#define SP_NCCL_H

#include "transport/nccl/nccl_wire.h"
#include <starpu.h>

struct sp_nccl;

struct sp_nccl_config {
    unsigned node; /* StarPU's memory node of this process's GPU */
    int device;    /* the GPU, as CUDA counts them in this process */
    /* Messages in a stream at once, at most 8; 0: SP_NCCL_DEPTH, or 1. More than one leaves no
     * gap between an edge's messages. But streams may share a queue of the GPU: then a message
     * that waits in one stream stops the other, which may hold the very message it waits for.
     * For measurements only. */
    int depth;
    /* When a message fails, the transport's thread calls this after one line; it ends every
     * process, as sp_transport_abort does. If it is NULL or returns, sp_nccl_wait_all fails. */
    void (*fail)(int status);
};

/*
 * Sets variables that CUDA and NCCL read once, for a process with `links` edges; call it before
 * StarPU starts, and CUDA with it. Variables that are set already stay. It asks for as many
 * GPU queues as possible (streams that share one may wait for each other), and for few enough
 * thread blocks for each message.
 */
void sp_nccl_prepare(int links);

/*
 * Makes a communicator for every edge of this process, one to and one from each other process, and
 * starts the thread. Every edge costs its two processes about a second, and memory on both GPUs. All
 * processes call it at once, after StarPU was started and before the first message. Either all get
 * 0, and the transport owns `wire`; or all get an error, and the caller keeps it. -ELIBACC (a
 * process has no libnccl.so.2 of 2.18 or newer) and -ENOTSUP (the environment makes edges wait for
 * each other) give the reason in `why` and print no line; -EIO, -EINVAL and -ENOMEM print one line.
 */
int sp_nccl_start(const struct sp_nccl_config *cfg, struct sp_wire *wire, char *why, size_t n,
                  struct sp_nccl **nccl);
/* All processes call this, after sp_nccl_wait_all. */
void sp_nccl_stop(struct sp_nccl *nccl);

/* Submits the sending of a handle's value to another process after the tasks that write it. An
 * edge's messages under way must have distinct tags. */
void sp_nccl_send(struct sp_nccl *nccl, starpu_data_handle_t handle, int dst, int64_t tag);
/* Submits a receive of as many bytes; tasks submitted later that read the handle wait for it.
 * The transport's thread calls `arrived`, if not NULL, with `arg` when the value is there. */
void sp_nccl_recv(struct sp_nccl *nccl, starpu_data_handle_t handle, int src, int64_t tag,
                  void (*arrived)(void *arg), void *arg);

/* Waits until every submitted message is done. 0, or -EIO if messages failed. It does not wait
 * for StarPU's tasks before or after messages: call starpu_task_wait_for_all afterwards. */
int sp_nccl_wait_all(struct sp_nccl *nccl);

/* Gives up every message, for a process that goes on without them; a process that ends need not.
 * Any thread may call it. Acquired handles stay acquired. */
void sp_nccl_abort(struct sp_nccl *nccl);

/* CPU time that the thread has taken so far, in microseconds. */
double sp_nccl_polling_us(struct sp_nccl *nccl);
/* NCCL's version as its header writes it, such as 22809. */
int sp_nccl_version(struct sp_nccl *nccl);

#endif
