#include "config.h"
#ifdef HAVE_MPI
#include "transport/nccl/nccl_wire.h"
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* MPI's error handler ends the processes on any error, so return codes are not read. */

enum { SETUP = 1, NOTE }; /* tags */

/* A note under way. Notes go at once as a rule: they are small, and the receiver polls. */
struct going {
    struct going *next;
    MPI_Request request;
    struct sp_agree_note note;
};

struct mpi_wire {
    struct sp_wire wire;
    MPI_Comm comm;
    struct going *first, **end; /* in the order told */
    struct going *spare;
};

static void give(struct sp_wire *wire, int to, const void *data, size_t bytes)
{
    MPI_Send(data, (int)bytes, MPI_BYTE, to, SETUP, ((struct mpi_wire *)wire)->comm);
}

static void take(struct sp_wire *wire, int from, void *data, size_t bytes)
{
    MPI_Recv(data, (int)bytes, MPI_BYTE, from, SETUP, ((struct mpi_wire *)wire)->comm,
             MPI_STATUS_IGNORE);
}

static int least(struct sp_wire *wire, int status)
{
    MPI_Allreduce(MPI_IN_PLACE, &status, 1, MPI_INT, MPI_MIN, ((struct mpi_wire *)wire)->comm);
    return status;
}

static void clear_gone(struct mpi_wire *w)
{
    while (w->first) {
        struct going *g = w->first;
        int gone;

        MPI_Testall(1, &g->request, &gone, MPI_STATUSES_IGNORE);
        if (!gone)
            return;
        w->first = g->next;
        if (!w->first)
            w->end = &w->first;
        g->next = w->spare;
        w->spare = g;
    }
}

static void tell(struct sp_wire *wire, int to, const struct sp_agree_note *note)
{
    struct mpi_wire *w = (struct mpi_wire *)wire;
    struct going *g = w->spare;

    if (g)
        w->spare = g->next;
    else
        g = malloc(sizeof *g);
    if (!g) { /* no buffer to keep it in: only this note waits */
        MPI_Send(note, sizeof *note, MPI_BYTE, to, NOTE, w->comm);
        return;
    }
    *g = (struct going){.note = *note};
    MPI_Isend(&g->note, sizeof g->note, MPI_BYTE, to, NOTE, w->comm, &g->request);
    *w->end = g;
    w->end = &g->next;
    clear_gone(w);
}

static bool hear(struct sp_wire *wire, struct sp_agree_note *note)
{
    struct mpi_wire *w = (struct mpi_wire *)wire;
    MPI_Status status;
    int there;

    clear_gone(w);
    MPI_Iprobe(MPI_ANY_SOURCE, NOTE, w->comm, &there, &status);
    if (there)
        MPI_Recv(note, sizeof *note, MPI_BYTE, status.MPI_SOURCE, NOTE, w->comm, MPI_STATUS_IGNORE);
    return there;
}

static bool busy(struct sp_wire *wire)
{
    return ((struct mpi_wire *)wire)->first != NULL;
}

static void close_wire(struct sp_wire *wire)
{
    struct mpi_wire *w = (struct mpi_wire *)wire;

    while (w->first)
        clear_gone(w);
    MPI_Comm_free(&w->comm);
    while (w->spare) {
        struct going *g = w->spare;

        w->spare = g->next;
        free(g);
    }
}

int sp_wire_mpi(struct sp_wire **wire, char *why, size_t n)
{
    struct mpi_wire *w = calloc(1, sizeof *w);
    int level = 0;

    MPI_Query_thread(&level);
    if (!w || level < MPI_THREAD_MULTIPLE) {
        snprintf(why, n,
                 w ? "MPI gives thread level %d, NCCL needs multiple (%d) beside it"
                   : "out of memory",
                 level, MPI_THREAD_MULTIPLE);
        free(w);
        return w ? -ENOTSUP : -ENOMEM;
    }
    w->wire = (struct sp_wire){.give = give,
                               .take = take,
                               .least = least,
                               .tell = tell,
                               .hear = hear,
                               .busy = busy,
                               .close = close_wire};
    w->end = &w->first;
    MPI_Comm_dup(MPI_COMM_WORLD, &w->comm);
    MPI_Comm_rank(w->comm, &w->wire.rank);
    MPI_Comm_size(w->comm, &w->wire.size);
    *wire = &w->wire;
    return 0;
}
#endif
