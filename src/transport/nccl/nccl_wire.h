/*
 * What carries the small messages of the NCCL transport between processes: their set-up, and then the
 * notes by which the ends of a communicator agree. An interface, so that tests can carry them inside one
 * process.
 *
 * Over MPI, from the transport's own thread, on a communicator of its own. That needs
 * MPI_THREAD_MULTIPLE, as the thread of messages.h has messages of its own. Why not
 *  - over StarPU-MPI: two messages and several tasks for every note, and starpu_mpi_wait_for_all waits
 *    for the receives of notes that may yet come;
 *  - over sockets: their thread could sleep where this one polls, but they need the machine's addresses,
 *    and a network that lets them through; MPI has both.
 * The thread polls only while something of this process is ready and not done, and then rests a little
 * between two looks, as the thread of messages.h does for its messages: these are not its any more,
 * so that still one thread polls and not two.
 */
#ifndef SP_NCCL_WIRE_H
#define SP_NCCL_WIRE_H

#include "transport/nccl/nccl_agree.h"
#include <stddef.h>

struct sp_wire {
    int rank, size;
    /* For the set-up; both return when the other end has called its part, or before. */
    void (*give)(struct sp_wire *wire, int to, const void *data, size_t bytes);
    void (*take)(struct sp_wire *wire, int from, void *data, size_t bytes);
    /* Called by all: the least of what they pass, so that an error of one is known to all. */
    int (*least)(struct sp_wire *wire, int status);
    /* For notes, by one thread: neither waits. Notes of one process to another arrive in order. */
    void (*tell)(struct sp_wire *wire, int to, const struct sp_agree_note *note);
    bool (*hear)(struct sp_wire *wire, struct sp_agree_note *note);
    /* Are there notes told and not gone? Then hear must be called on. */
    bool (*busy)(struct sp_wire *wire);
    /* Called by all. */
    void (*close)(struct sp_wire *wire);
};

/* Over MPI, between all processes, one at a time; called by all, after MPI_Init_thread. 0, or -ENOTSUP
 * (MPI was not started with MPI_THREAD_MULTIPLE) with the reason in `why` and no line. */
int sp_wire_mpi(struct sp_wire **wire, char *why, size_t n);

#endif
