/*
 * Messages between GPUs over NCCL, one GPU a process: handles of StarPU, from the sender's GPU memory to
 * the receiver's. Submitted in graph order like those of transport.h, and as little do they block the
 * caller or a worker; completion is found by a thread of the transport, which sleeps while nothing of this
 * process is ready and not done.
 *
 * What differs from messages over MPI: nothing is buffered. A value stays in its handle until its receiver
 * has the buffer for it, so whatever writes the handle again has to come after the receiving op in the order
 * of submission that all processes share: that is the rule about `until` of sp_message_send. And a message
 * may be larger than 2 GiB.
 *
 * A value leaves when StarPU takes its task for ended: then the task must have ended on the GPU, not only
 * have been queued there. The value is read and written on streams of the transport's own.
 */
#ifndef SP_NCCL_H
#define SP_NCCL_H

#include "transport/nccl/nccl_wire.h"
#include <starpu.h>

struct sp_nccl;

/* Ranks that add up together; in the same order everywhere, each once. */
struct sp_nccl_group {
    const int *ranks; /* kept until sp_nccl_stop */
    int n;
};

struct sp_nccl_config {
    unsigned node; /* StarPU's memory node of this process's GPU */
    int device;    /* the GPU, as CUDA counts them in this process */
    /* Does anyone send from src to dst? The same answers everywhere. NULL: everyone to everyone else.
     * Every edge costs its two processes about a second at the start, and memory of both GPUs. */
    bool (*uses)(void *arg, int src, int dst);
    void *arg;
    const struct sp_nccl_group *groups; /* the same everywhere */
    int n_groups;
    /* Messages in a stream at once, at most 8; 0: SP_NCCL_DEPTH, or 1. More leave no gap between messages
     * of an edge, but where streams share a queue of the GPU, what waits in one stops another, which may
     * be what it waits for. For measurements. */
    int depth;
    /* Called by the transport's thread after one line when a message fails: ends every process, as
     * sp_transport_abort does. NULL, or if it returns: sp_nccl_wait_all fails. */
    void (*fail)(int status);
};

/*
 * Before StarPU starts, and with it CUDA: puts into the environment, unless it is there, what both libraries
 * read from it once, for a process with so many edges and groups: as many queues of the GPU as there may be
 * (streams that share one may wait for each other), and few enough thread blocks for each message.
 */
void sp_nccl_prepare(int links);

/*
 * Makes a communicator for every edge and group of this process and starts the thread; called by all
 * processes at once, after StarPU was started and before the first message. All get 0, and `wire` belongs
 * to the transport; or all get an error, and it does not: -ELIBACC where a process has no libnccl.so.2 of
 * 2.18 or newer, -ENOTSUP where the environment makes edges wait for each other, both with the reason in
 * `why` and no line; -EIO, -EINVAL, -ENOMEM after one line.
 */
int sp_nccl_start(const struct sp_nccl_config *cfg, struct sp_wire *wire, char *why, size_t n,
                  struct sp_nccl **nccl);
/* By all processes, after sp_nccl_wait_all. */
void sp_nccl_stop(struct sp_nccl *nccl);

/* Submits the sending of a handle's value after the tasks that write it; dst may be this process. Tags:
 * distinct for every message of an edge on its way. An edge that start did not make ends the run. */
void sp_nccl_send(struct sp_nccl *nccl, starpu_data_handle_t handle, int dst, int64_t tag);
/* Submits a receive of as many bytes; tasks submitted later that read the handle wait for it. `arrived`,
 * if not NULL, is called with `arg` when it is there, by the transport's thread. */
void sp_nccl_recv(struct sp_nccl *nccl, starpu_data_handle_t handle, int src, int64_t tag,
                  void (*arrived)(void *arg), void *arg);
/*
 * handle += the values of the others of a group, f32: submitted by each with the same tag, in any order.
 * All get the same bits. Those of two are a + b as everywhere; with three or more the order of the sum is
 * NCCL's, and so not that of a run in one process.
 */
void sp_nccl_sum(struct sp_nccl *nccl, starpu_data_handle_t handle, int group, int64_t tag);

/* Waits until every submitted message went. 0, or -EIO where they failed. Tasks that messages wait for,
 * and those that wait for messages, are StarPU's: call this and then starpu_task_wait_for_all. */
int sp_nccl_wait_all(struct sp_nccl *nccl);

/* Gives up every message, for a process that goes on without them; one that ends need not. From any
 * thread. What is acquired stays so. */
void sp_nccl_abort(struct sp_nccl *nccl);

/* CPU time that the thread has taken so far, in microseconds. */
double sp_nccl_polling_us(struct sp_nccl *nccl);
/* As NCCL writes it, 22809. */
int sp_nccl_version(struct sp_nccl *nccl);

#endif
