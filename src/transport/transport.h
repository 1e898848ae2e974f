/* The processes of a run, and what they tell each other beside messages (transport/post.h). */
#ifndef SP_TRANSPORT_H
#define SP_TRANSPORT_H

#include "transport/world.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct starpu_conf;

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

/* Whether messages are recorded for a trace of the run (message_log.h), and their names wanted. */
bool sp_transport_records(void);

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
