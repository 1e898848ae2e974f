/* The processes of a run, and what they tell each other besides messages (transport/post.h). */
#ifndef SP_TRANSPORT_H
#define SP_TRANSPORT_H

#include "transport/world.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct starpu_conf;

/*
 * Joins the other processes when a launcher (mpirun, srun) started this one or the program
 * initialised MPI, and reads the world; further calls before sp_transport_leave only read it. argc
 * and argv may be NULL. Call it before sp_transport_start. 0 or -errno (-EINVAL: a launcher started
 * several, of which MPI knows nothing).
 */
int sp_transport_join(int *argc, char ***argv, struct sp_world *world);

/* Starts and stops StarPU with `conf`, and the progress of messages; sp_starpu_environment_set
 * comes first. 0, or -errno after one line, with the environment as it was. */
int sp_transport_start(struct starpu_conf *conf);
void sp_transport_stop(void);
/* Leaves the world; finalises MPI if it was initialised here. */
void sp_transport_leave(void);

/*
 * The first prepares, before sp_transport_start; all processes call the second after it. From then
 * on messages of the graph (sp_transport_send, sp_transport_recv) go over NCCL, from GPU memory to
 * GPU memory, if every process can. `node`, `device`: the GPU of this process, as StarPU and as
 * CUDA count it. 0, even if messages stay with MPI; if NCCL is `wanted` and cannot be used, -errno
 * on all after one line.
 */
void sp_transport_prepare_nccl(void);
int sp_transport_use_nccl(unsigned node, int device, bool wanted);

/*
 * Before sp_transport_start: from then on messages of the graph go through StarPU-MPI, until this is
 * called with false. 0, or -errno after one line: there is no MPI, or it does not let two threads
 * call it at once. One process has no messages and gets 0.
 */
int sp_transport_use_starpu(bool on);

/* Tags of messages that belong to no graph; those of graphs begin after them. */
enum { SP_TAG_SHARE, SP_TAG_BARRIER, SP_TAG_PING, SP_TAG_FIRST };

/* Tells the transport, after sp_transport_start, whether workers leave no core for messages:
 * then their thread asks MPI seldom while all workers compute. */
void sp_transport_crowded(bool crowded);

/* Ends every process at once, after a message was printed. */
void sp_transport_abort(int status) __attribute__((noreturn));

/* True if messages are recorded for a trace of the run (messages.h), so that their names are
 * wanted. */
bool sp_transport_records(void);

/* All processes call this after sp_transport_start: copies `bytes` of rank 0's data to every
 * rank. */
void sp_transport_share(void *data, size_t bytes);
/* All processes call this after sp_transport_start: none goes on before all are here. They rest
 * while they wait. */
void sp_transport_barrier(void);

/* Waits until every submitted task ended and every message went. */
void sp_transport_wait_all(void);

/*
 * All processes call this before sp_transport_start: 0 if all passed 0, otherwise nonzero on every
 * process; *first is the lowest rank that did not pass 0.
 */
int sp_transport_agree(int status, int *first);

/*
 * All processes call this before sp_transport_start. Returns rank 0's text on every rank, to be
 * freed.
 */
char *sp_transport_root_text(const char *text);

/* All processes call this before sp_transport_start: true if all passed the same value. */
bool sp_transport_same(uint64_t value);

/* CPU time that this process's thread for messages has taken so far, in microseconds; 0 if
 * there is none. */
double sp_transport_polling_us(void);

/* True if a message has at most INT_MAX bytes. */
bool sp_transport_counts_in_int(void);

/* Bytes of messages submitted by this process so far. */
uint64_t sp_transport_bytes_sent(void);

/* Version of the library behind the transport, for logs. */
const char *sp_transport_version(void);

#endif
