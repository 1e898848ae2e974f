/*
 * Carries the small messages of the NCCL transport between processes: first those of the set-up,
 * then the notes by which the ends of a communicator agree. It is an interface, so that tests can
 * carry them inside one process.
 *
 * The transport's own thread sends them over MPI, on a communicator of their own. That needs
 * MPI_THREAD_MULTIPLE, as the thread of messages.h has messages of its own. Why not
 *  - over StarPU-MPI: a note would take two messages and several tasks, and starpu_mpi_wait_for_all
 *    waits for the receives of notes that may yet come;
 *  - over sockets: a thread could sleep in them where this one polls, but they need the machine's
 *    addresses and a network that lets them through; MPI has both.
 * The thread polls only while this process has a message that is ready and not done, and rests a
 * little between two looks, like the thread of messages.h. Graph messages do not go through that
 * thread any more, so still only one of the two polls.
 */
#ifndef SP_NCCL_WIRE_H
#define SP_NCCL_WIRE_H

#include "transport/nccl/nccl_agree.h"
#include <stddef.h>

struct sp_wire {
    int rank, size;
    /* For the set-up; each may wait until the other end has called its counterpart. */
    void (*give)(struct sp_wire *wire, int to, const void *data, size_t bytes);
    void (*take)(struct sp_wire *wire, int from, void *data, size_t bytes);
    /* All processes call this: the least value they pass, so that all learn of an error. */
    int (*least)(struct sp_wire *wire, int status);
    /* For notes, by one thread: neither waits. Notes of one process to another stay in order. */
    void (*tell)(struct sp_wire *wire, int to, const struct sp_agree_note *note);
    bool (*hear)(struct sp_wire *wire, struct sp_agree_note *note);
    /* True if notes were told that have not gone: then the thread must go on calling hear. */
    bool (*busy)(struct sp_wire *wire);
    /* All processes call this. */
    void (*close)(struct sp_wire *wire);
};

/* Makes a wire over MPI between all processes, one wire at a time; all call it after
 * MPI_Init_thread. 0, or -ENOTSUP (MPI was not started with MPI_THREAD_MULTIPLE) with the reason
 * in `why` and no line. */
int sp_wire_mpi(struct sp_wire **wire, char *why, size_t n);

#endif
