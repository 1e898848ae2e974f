/*
 * The calls of CUDA and NCCL of the transport, on one GPU a process. libnccl is loaded at run time, so
 * that the program starts without it; a build without its headers has nccl_absent.c. Every function that
 * can fail prints one line and returns -errno; without another word that is -EIO.
 */
#ifndef SP_NCCL_DEVICE_H
#define SP_NCCL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

enum { SP_COMM_ID_BYTES = 128, SP_COMM_DEPTH = 8 };

/* A communicator with its stream, and what was put into that and is not known to be done. */
struct sp_comm;

/*
 * Loads `library`, or SP_NCCL_LIBRARY or libnccl.so.2 where it is NULL; "": the program itself has the
 * functions (tests). Its version as NCCL writes it (22809), or -ELIBACC with the reason in `why`, and
 * no line.
 */
int sp_nccl_load(const char *library, char *why, size_t n);

/* The calling thread's GPU from now on. 0 or -EIO. */
int sp_comm_use(int device);

/*
 * Thread blocks for each of `links` communicators of a process, so that the kernels of all fit on the GPU
 * at once, beside those that compute: one that found no place would be waited for by a peer, which may
 * hold the place of another. A power of two. For sums it is in the communicator; for messages NCCL reads
 * NCCL_MAX_P2P_NCHANNELS from the environment, for all of a process.
 */
int sp_comm_blocks(int links);

/* Made by one member of a communicator, and brought to the others by the caller. 0 or -EIO. */
int sp_comm_id(unsigned char id[SP_COMM_ID_BYTES]);

/*
 * Joins a communicator of `size` members as number `rank`; returns once all have. What its use needs
 * (connections, kernels, memory) is made here, by a message of a few bytes: made later, it would block
 * the caller until the other end comes, or synchronise the GPU while others wait in it. `blocks`: the most
 * thread blocks that a kernel has, see sp_comm_blocks.
 * `edge`: only messages from member 0 to member 1; a communicator of one member sends to itself.
 */
int sp_comm_create(const unsigned char id[SP_COMM_ID_BYTES], int rank, int size, bool edge,
                   int blocks, struct sp_comm **comm);
/* After the last message, by all members in the same order. */
void sp_comm_destroy(struct sp_comm *comm);
/* Ends the kernels that wait for others; from any thread. The communicator is of no use any more. */
void sp_comm_abort(struct sp_comm *comm);

/* Puts a message into the stream; at most SP_COMM_DEPTH are there at once. 0 or -EIO. */
int sp_comm_send(struct sp_comm *comm, const void *data, size_t bytes, int to);
int sp_comm_receive(struct sp_comm *comm, void *data, size_t bytes, int from);
/* The two ends of a message to itself, which must begin together. */
int sp_comm_pass(struct sp_comm *comm, const void *from, void *to, size_t bytes);
/* data = the sum of all members' data, f32, the same bits on all of them. */
int sp_comm_sum(struct sp_comm *comm, float *data, size_t n);

/* Is the oldest message in the stream done? 1: yes, and it is in it no more; 0: no; -EIO. */
int sp_comm_test(struct sp_comm *comm);
/* Has the communicator failed while nobody called it (a peer is gone)? 0 or -EIO. */
int sp_comm_check(struct sp_comm *comm);

#endif
