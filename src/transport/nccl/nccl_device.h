/*
 * The transport's calls of CUDA and NCCL, on one GPU a process. libnccl is loaded at run time, so
 * that the program starts without it; a build without its headers uses nccl_absent.c. Every
 * function that can fail prints one line and returns -errno, which is -EIO unless the comment says
 * otherwise.
 */
#ifndef SP_NCCL_DEVICE_H
#define SP_NCCL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

enum { SP_COMM_ID_BYTES = 128, SP_COMM_DEPTH = 8 };

/* A communicator, its stream, and the messages put into the stream and not yet known to be done. */
struct sp_comm;

/*
 * Loads `library`; NULL: SP_NCCL_LIBRARY, or else libnccl.so.2; "": the program itself has the
 * functions (tests). Returns its version as NCCL writes it (22809), or -ELIBACC with the reason in
 * `why` and no line.
 */
int sp_nccl_load(const char *library, char *why, size_t n);

/* Makes `device` the calling thread's GPU from now on. 0 or -EIO. */
int sp_comm_use(int device);

/*
 * Thread blocks for each of `links` communicators of a process. The kernels of all must fit on the
 * GPU at once, next to those that compute: a peer waits for a kernel that found no place, and its
 * own may hold the place of another. A power of two. NCCL reads it from NCCL_MAX_P2P_NCHANNELS in the
 * environment, once for the whole process.
 */
int sp_comm_blocks(int links);

/* The sender makes the id of a communicator, and the caller brings it to the receiver. 0 or -EIO. */
int sp_comm_id(unsigned char id[SP_COMM_ID_BYTES]);

/*
 * Joins a communicator as its sender or its receiver; returns once both have. A message of a few
 * bytes makes its connections, kernels and memory at once: if they were made later, that would
 * block the caller until the other end comes, or synchronise the GPU while others wait in it.
 * `blocks`: the most thread blocks that a kernel has, see sp_comm_blocks.
 */
int sp_comm_create(const unsigned char id[SP_COMM_ID_BYTES], bool sends, int blocks,
                   struct sp_comm **comm);
/* Both ends call this after the last message, those of several communicators in the same order. */
void sp_comm_destroy(struct sp_comm *comm);
/* Ends the kernels that wait for others; any thread may call it. The communicator is of no use
 * any more. */
void sp_comm_abort(struct sp_comm *comm);

/* Puts a message into the stream; at most SP_COMM_DEPTH are there at once. 0 or -EIO. */
int sp_comm_send(struct sp_comm *comm, const void *data, size_t bytes);
int sp_comm_receive(struct sp_comm *comm, void *data, size_t bytes);

/* Is the oldest message in the stream done? 1: yes, and it leaves the stream; 0: no; -EIO. */
int sp_comm_test(struct sp_comm *comm);
/* Has the communicator failed while nobody called it (a peer is gone)? 0 or -EIO. */
int sp_comm_check(struct sp_comm *comm);

#endif
