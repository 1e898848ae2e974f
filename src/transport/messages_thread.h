/*
 * Shared by the two halves of the transport over MPI: messages.c submits and starts, and the thread
 * of messages_thread.c gives messages to MPI and finds out when they are done.
 *
 *   submitted --StarPU: the value is written, or the buffer is free--> ready --MPI_Isend,
 *   MPI_Irecv--> under
 *             way --MPI_Testsome--> done: released to StarPU
 */
#ifndef SP_MESSAGES_THREAD_H
#define SP_MESSAGES_THREAD_H

#include "transport/messages.h"
#include "transport/message_log.h"
#include <pthread.h>
#include <time.h>

struct sp_mpi_message {
    struct sp_mpi_message *next;
    starpu_data_handle_t handle;
    bool sends;
    int peer;
    int64_t tag;
    struct sp_transfer *times; /* the thread fills it in; or NULL */
    void (*done)(void *arg);
    void *arg;
    struct sp_logged_message *record; /* NULL: the run is not traced */
};

struct sp_mpi {
    MPI_Comm comm;
    int most_tag;
    bool crowded;
    double polled_us, quiet_us; /* the end of the last poll; the state of sp_poll_moved */
    long given_ns;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex;
    pthread_cond_t wake, idle;
    struct sp_mpi_message *ready, **ready_end; /* acquired, in that order */
    int pending;                               /* submitted and not done */
    bool stopping;

    /* Only the thread uses these: what was given to MPI. */
    int n, cap;
    MPI_Request *requests;
    struct sp_mpi_message **flying; /* the message of each request */
    int *found;
    double moved_us;
};

/* The thread; its argument is the struct sp_mpi. */
void *sp_messages_thread(void *mpi);

/* CLOCK_REALTIME in microseconds, which processes on other machines can compare with theirs. */
static inline double sp_message_time_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

#endif
