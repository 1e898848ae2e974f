#include "config.h"
#include "transport/transport.h"
#ifdef HAVE_MPI
#include "transport/beats.h"
#include "transport/messages_thread.h"
#include "transport/poll.h"
#include "sp_activity.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static struct sp_mpi box;

/* ---- submissions ----------------------------------------------------------------------------- */

/* Ends the run after a mistake of this program, in a function that cannot return an error. */
static void mistake(const struct sp_mpi_message *m, const char *what)
{
    sp_error(EINVAL, "internal: message %" PRId64 " %s rank %d: %s", m->tag,
             m->sends ? "to" : "from", m->peer, what);
    sp_transport_abort(1);
}

/* StarPU calls this when the handle is acquired. */
static void acquired(void *arg)
{
    struct sp_mpi_message *m = arg;

    if (m->times)
        m->times->ready_us = sp_message_time_us();
    pthread_mutex_lock(&box.mutex);
    *box.ready_end = m;
    box.ready_end = &m->next;
    pthread_cond_signal(&box.wake);
    pthread_mutex_unlock(&box.mutex);
}

static void submit(const struct sp_mpi_message *what)
{
    struct sp_mpi_message *m = malloc(sizeof *m);

    if (!m)
        mistake(what, "out of memory");
    *m = *what;
    if (m->tag < 0 || m->tag > box.most_tag)
        mistake(m, "MPI has fewer tags: take fewer micro-batches or stages");
    if (starpu_data_get_size(m->handle) > INT_MAX)
        mistake(m, "larger than 2 GiB");
    pthread_mutex_lock(&box.mutex);
    box.pending++;
    pthread_mutex_unlock(&box.mutex);
    if (starpu_data_acquire_on_node_cb(m->handle, STARPU_MAIN_RAM, m->sends ? STARPU_R : STARPU_W,
                                       acquired, m))
        mistake(m, "StarPU does not give its handle");
}

void sp_messages_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                      struct sp_transfer *times, void (*done)(void *arg), void *arg)
{
    submit(&(struct sp_mpi_message){.handle = handle,
                                    .sends = true,
                                    .peer = dst,
                                    .tag = tag,
                                    .times = times,
                                    .done = done,
                                    .arg = arg,
                                    .record = sp_message_log_new(handle, true, dst, tag, name)});
}

void sp_messages_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                      void (*done)(void *arg), void *arg)
{
    submit(&(struct sp_mpi_message){.handle = handle,
                                    .peer = src,
                                    .tag = tag,
                                    .times = times,
                                    .done = done,
                                    .arg = arg,
                                    .record = sp_message_log_new(handle, false, src, tag, "")});
}

static void set(void *arg)
{
    pthread_mutex_lock(&box.mutex);
    *(bool *)arg = true;
    pthread_cond_broadcast(&box.idle);
    pthread_mutex_unlock(&box.mutex);
}

static void wait_for(const bool *is_set)
{
    pthread_mutex_lock(&box.mutex);
    while (!*is_set)
        pthread_cond_wait(&box.idle, &box.mutex);
    pthread_mutex_unlock(&box.mutex);
}

void sp_messages_send_wait(starpu_data_handle_t handle, int dst, int64_t tag)
{
    bool done = false;

    sp_activity_wait(dst);
    sp_messages_send(handle, dst, tag, "", NULL, set, &done);
    wait_for(&done);
    sp_activity_waited();
}

void sp_messages_recv_wait(starpu_data_handle_t handle, int src, int64_t tag)
{
    bool done = false;

    sp_activity_wait(src);
    sp_messages_recv(handle, src, tag, NULL, set, &done);
    wait_for(&done);
    sp_activity_waited();
}

/* The scheduler calls this when a worker has nothing to run. */
static void worker_waits(void)
{
    pthread_mutex_lock(&box.mutex);
    pthread_cond_signal(&box.wake);
    pthread_mutex_unlock(&box.mutex);
}

/* ---- start and end --------------------------------------------------------------------------- */

int sp_messages_start(MPI_Comm comm)
{
    pthread_condattr_t attr;
    int err, known, *most;

    memset(&box, 0, sizeof box);
    MPI_Comm_dup(comm, &box.comm);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &known);
    box.most_tag = known ? *most : 32767;
    box.given_ns = sp_poll_given_ns();
    box.ready_end = &box.ready;
    pthread_mutex_init(&box.mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&box.wake, &attr);
    pthread_cond_init(&box.idle, &attr);
    pthread_condattr_destroy(&attr);
    err = pthread_create(&box.thread, NULL, sp_messages_thread, &box);
    if (err)
        return sp_error(err, "no thread for messages: %s", strerror(err));
    box.started = true;
    sp_order_tell_waiting(worker_waits);
    return 0;
}

void sp_messages_crowded(bool crowded)
{
    box.crowded = crowded;
}

void sp_messages_wait_all(void)
{
    pthread_mutex_lock(&box.mutex);
    while (box.pending > 0)
        pthread_cond_wait(&box.idle, &box.mutex);
    pthread_mutex_unlock(&box.mutex);
}

void sp_messages_stop(void)
{
    if (!box.started)
        return;
    sp_order_tell_waiting(NULL);
    pthread_mutex_lock(&box.mutex);
    box.stopping = true;
    pthread_cond_signal(&box.wake);
    pthread_mutex_unlock(&box.mutex);
    pthread_join(box.thread, NULL);
    sp_mpi_lock();
    MPI_Comm_free(&box.comm);
    sp_mpi_unlock();
    free(box.requests);
    free(box.flying);
    free(box.found);
    box.started = false; /* the mutex stays: a worker may be about to call worker_waits */
}

double sp_messages_polling_us(void)
{
    struct timespec t;
    clockid_t clock;

    if (!box.started || pthread_getcpuclockid(box.thread, &clock) || clock_gettime(clock, &t))
        return 0;
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}
#endif
