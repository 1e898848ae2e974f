#include "config.h"
#include "transport/transport.h"
#ifdef HAVE_MPI
#include "transport/beats.h"
#include "transport/messages_thread.h"
#include "transport/poll.h"
#include "sp_activity.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <stdlib.h>
#include <sys/prctl.h>

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void grow(struct sp_mpi *b)
{
    size_t cap = 2 * (size_t)b->cap + 64;

    b->requests = realloc(b->requests, cap * sizeof *b->requests);
    b->flying = realloc(b->flying, cap * sizeof(struct sp_mpi_message *));
    b->found = realloc(b->found, cap * sizeof *b->found);
    if (!b->requests || !b->flying || !b->found) {
        sp_error(ENOMEM, "out of memory for %zu messages", cap);
        sp_transport_abort(1);
    }
    b->cap = (int)cap;
}

static void begin(struct sp_mpi *b, struct sp_mpi_message *m)
{
    void *data = starpu_data_handle_to_pointer(m->handle, STARPU_MAIN_RAM);
    int bytes = (int)starpu_data_get_size(m->handle), tag = (int)m->tag;

    if (b->n == b->cap)
        grow(b);
    b->flying[b->n] = m;
    if (m->times)
        m->times->begun_us = sp_message_time_us();
    sp_message_log_begins(m->record);
    sp_mpi_lock();
    if (m->sends)
        MPI_Isend(data, bytes, MPI_BYTE, m->peer, tag, b->comm, &b->requests[b->n++]);
    else
        MPI_Irecv(data, bytes, MPI_BYTE, m->peer, tag, b->comm, &b->requests[b->n++]);
    sp_mpi_unlock();
}

/* Releases the handle to StarPU, which may call `acquired` from here for other messages. */
static void end(struct sp_mpi *b, struct sp_mpi_message *m)
{
    if (m->times)
        m->times->ended_us = sp_message_time_us();
    sp_message_log_ends(m->record);
    sp_activity_touch();
    if (m->done)
        m->done(m->arg);
    starpu_data_release_on_node(m->handle, STARPU_MAIN_RAM);
    free(m);
    pthread_mutex_lock(&b->mutex);
    if (--b->pending == 0)
        pthread_cond_broadcast(&b->idle);
    pthread_mutex_unlock(&b->mutex);
}

/* Asks MPI once, and ends the messages that it has completed. */
static void poll(struct sp_mpi *b)
{
    int n = 0, kept = 0;
    double before, after;

    sp_mpi_lock();
    before = now_us();
    MPI_Testsome(b->n, b->requests, &n, b->found, MPI_STATUSES_IGNORE);
    after = now_us();
    sp_mpi_unlock();
    if (sp_poll_moved(after - before, before - b->polled_us, &b->quiet_us) || n > 0)
        b->moved_us = after;
    b->polled_us = after;
    for (int k = 0; k < n; k++) {
        end(b, b->flying[b->found[k]]);
        b->flying[b->found[k]] = NULL;
    }
    for (int i = 0; n > 0 && i < b->n; i++)
        if (b->flying[i]) {
            b->flying[kept] = b->flying[i];
            b->requests[kept++] = b->requests[i];
        }
    b->n = n > 0 ? kept : b->n;
}

/* Waits until something is ready, a worker has nothing to run, or the rest is over. The mutex is
 * held. */
static void rest(struct sp_mpi *b)
{
    bool awaited = sp_order_waiting() > 0;
    long ns = b->given_ns >= 0 ? b->given_ns
                               : sp_poll_rest_ns(now_us() - b->moved_us, awaited, b->crowded);
    struct timespec until;

    if (ns == 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + ns) % 1000000000;
    pthread_cond_timedwait(&b->wake, &b->mutex, &until);
}

/* Rests, or sleeps while no message is under way, then takes all that is ready. False: the
 * thread ends. */
static bool next_turn(struct sp_mpi *b, struct sp_mpi_message **list)
{
    bool on;

    pthread_mutex_lock(&b->mutex);
    if (!b->ready && !b->stopping && b->n > 0)
        rest(b);
    while (!b->ready && !b->stopping && b->n == 0)
        pthread_cond_wait(&b->wake, &b->mutex);
    *list = b->ready;
    b->ready = NULL;
    b->ready_end = &b->ready;
    on = *list || b->n > 0 || !b->stopping;
    pthread_mutex_unlock(&b->mutex);
    return on;
}

void *sp_messages_thread(void *mpi)
{
    struct sp_mpi *b = mpi;
    struct sp_mpi_message *list;

    prctl(PR_SET_NAME, "messages", 0, 0, 0);
    while (next_turn(b, &list)) {
        if (list)
            b->moved_us = now_us();
        for (struct sp_mpi_message *m = list, *next; m; m = next) {
            next = m->next;
            begin(b, m);
        }
        poll(b);
    }
    return NULL;
}
#endif
