/*
 * Moving tensors between processes. Messages are derived by the graph from producers and
 * consumers; inside one process the consumer uses the producer's handle and nothing moves.
 * Sends and receives are submitted in graph order and never block the caller or a worker.
 */
#ifndef SP_TRANSPORT_H
#define SP_TRANSPORT_H

#include <starpu.h>
#include <stdbool.h>

struct sp_world {
    int rank, size;           /* of all processes */
    int node_rank, node_size; /* among the processes of this machine */
};

/*
 * Joins the other processes when a launcher (mpirun, srun) started this one or the program initialised
 * MPI, and reads the world; again, until sp_transport_leave, only reads it. argc and argv may be NULL.
 * Before sp_transport_start. 0 or -errno (-EINVAL: a launcher started several, of which MPI knows nothing).
 */
int sp_transport_join(int *argc, char ***argv, struct sp_world *world);

/* Starts StarPU with `conf`, after sp_starpu_environment_set, and the progress of messages; ends both. 0 or -errno
 * after one line, the environment as it was. */
int sp_transport_start(struct starpu_conf *conf);
void sp_transport_stop(void);
/* Leaves the world; finalises MPI if it was initialised here. */
void sp_transport_leave(void);

/*
 * Messages of the graph (sp_transport_send, sp_transport_recv) go over NCCL from here on, from GPU memory
 * to GPU memory, if every process can; prepared before sp_transport_start, called by all after it. `node`,
 * `device`: the GPU of this process, as StarPU and as CUDA count it. 0, also where they stay with MPI;
 * -errno on all after one line where NCCL is `wanted`.
 */
void sp_transport_prepare_nccl(void);
int sp_transport_use_nccl(unsigned node, int device, bool wanted);

/* Tags of messages that belong to no graph; those of graphs begin after them. */
enum { SP_TAG_SHARE, SP_TAG_BARRIER, SP_TAG_PING, SP_TAG_FIRST };

/* Whether workers leave no core for messages: then the thread for them asks seldom while all compute.
 * After sp_transport_start. */
void sp_transport_crowded(bool crowded);

/* Ends every process at once, after a message was printed. */
void sp_transport_abort(int status) __attribute__((noreturn));

/* When one end of a message was at work, microseconds of CLOCK_REALTIME (of simulated time, where runs are
 * simulated); 0: not known. */
struct sp_transfer {
    double ready_us; /* its buffer was written, or free to be received in */
    double begun_us; /* it was given to the network, or awaited from it */
    double ended_us; /* it had gone, or was there */
};

/* Submits the sending of a handle's value after the tasks that write it. `name`: of the tensor, for a
 * trace of the run, which is made where sp_transport_records (message_log.h); "": none. `times`, if not
 * NULL, is filled in by the thread for messages; it lives until the message has gone. */
void sp_transport_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                       struct sp_transfer *times);
bool sp_transport_records(void);
/* Submits a receive; tasks submitted later that read the handle wait for it. `times` likewise. `arrived`,
 * if not NULL, is called with `arg` when it is there, by the thread for messages. */
void sp_transport_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                       void (*arrived)(void *arg), void *arg);

/* The same, and waits; for set-up, reports and checkpoints. */
void sp_transport_send_wait(starpu_data_handle_t handle, int dst, int64_t tag);
void sp_transport_recv_wait(starpu_data_handle_t handle, int src, int64_t tag);

/* After sp_transport_start: `bytes` of rank 0's data overwrite those of every rank; all call it. */
void sp_transport_share(void *data, size_t bytes);
/* Likewise: no process goes on before all of them are here. They rest while they wait. */
void sp_transport_barrier(void);

/* Waits until every submitted task ended and every message went. */
void sp_transport_wait_all(void);

/*
 * Before sp_transport_start: 0 if all processes passed 0, otherwise nonzero everywhere; *first is
 * the lowest rank that did not.
 */
int sp_transport_agree(int status, int *first);

/*
 * Before sp_transport_start, called by all: rank 0's text, on every rank. To be freed.
 */
char *sp_transport_root_text(const char *text);

/* Before sp_transport_start: whether all processes passed the same value. */
bool sp_transport_same(uint64_t value);

/* CPU time that this process's thread for messages has taken so far, in microseconds; 0 where
 * there is none. */
double sp_transport_polling_us(void);

/* Whether a message has at most INT_MAX bytes. */
bool sp_transport_counts_in_int(void);

/* Bytes of messages submitted by this process so far. */
uint64_t sp_transport_bytes_sent(void);

/* Library behind it, for logs. */
const char *sp_transport_version(void);

#endif
