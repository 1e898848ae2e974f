#include "config.h"
#ifdef HAVE_MPI
#include "transport/starpu_messages.h"
#include "transport/clock.h"
#include "transport/messages.h"
#include "transport/poll.h"
#include "transport/starpu_environment.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <starpu_mpi.h>
#include <stdlib.h>

struct message {
    starpu_data_handle_t handle;
    struct sp_transfer *times; /* or NULL */
    void (*arrived)(void *arg);
    void *arg;
    struct sp_logged_message *record; /* NULL: the run is not traced */
    int left;                         /* calls of StarPU that are to come, each by any thread */
};

static struct {
    MPI_Comm comm;
    pthread_mutex_t mutex;
    pthread_cond_t idle;
    int pending;      /* submitted and not done */
    pthread_t thread; /* StarPU-MPI's, if `seen` */
    bool seen;
} box = {.mutex = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};

/* ---- what StarPU calls ------------------------------------------------------------------------- */

static void leave_message(struct message *m)
{
    if (__atomic_sub_fetch(&m->left, 1, __ATOMIC_ACQ_REL))
        return;
    free(m);
    pthread_mutex_lock(&box.mutex);
    if (--box.pending == 0)
        pthread_cond_broadcast(&box.idle);
    pthread_mutex_unlock(&box.mutex);
}

/* The value is written, or the buffer is free. */
static void note_ready(void *arg)
{
    struct message *m = arg;

    if (m->times)
        m->times->ready_us = m->times->begun_us = sp_clock_us(CLOCK_REALTIME);
    sp_message_log_begins(m->record);
    starpu_data_release_on_node(m->handle, STARPU_ACQUIRE_NO_NODE);
    leave_message(m);
}

/* StarPU-MPI has released the handle by now. */
static void end_message(void *arg)
{
    struct message *m = arg;

    if (m->times)
        m->times->ended_us = sp_clock_us(CLOCK_REALTIME);
    sp_message_log_ends(m->record);
    sp_activity_touch();
    if (m->arrived)
        m->arrived(m->arg);
    leave_message(m);
}

/* Sends end in StarPU-MPI's thread, receives in others too. */
static void end_send(void *arg)
{
    if (!__atomic_load_n(&box.seen, __ATOMIC_ACQUIRE)) {
        box.thread = pthread_self();
        __atomic_store_n(&box.seen, true, __ATOMIC_RELEASE);
    }
    end_message(arg);
}

/* ---- submissions ----------------------------------------------------------------------------- */

static int submit(struct message *m, bool sends, int peer, int64_t tag)
{
    if (sends) /* the earlier in the step, the more urgent */
        return starpu_mpi_isend_detached_prio(m->handle, peer, tag, -(int)(tag % INT_MAX), box.comm,
                                              end_send, m);
    return starpu_mpi_irecv_detached(m->handle, peer, tag, box.comm, end_message, m);
}

/* StarPU-MPI tells of the end alone. So the handle is acquired twice, and for a moment at first. */
static void submit_message(const struct message *what, bool sends, int peer, int64_t tag)
{
    struct message *m = malloc(sizeof *m);
    bool noted = what->times || what->record;
    int err = 0;

    SP_NEED(m, "out of memory for a message");
    *m = *what;
    m->left = noted ? 2 : 1;
    pthread_mutex_lock(&box.mutex);
    box.pending++;
    pthread_mutex_unlock(&box.mutex);
    if (noted)
        err = starpu_data_acquire_on_node_cb(m->handle, STARPU_ACQUIRE_NO_NODE,
                                             sends ? STARPU_R : STARPU_W, note_ready, m);
    err = err ? err : submit(m, sends, peer, tag);
    SP_NEED(!err, "internal: message %" PRId64 " %s rank %d: StarPU-MPI does not take it", tag,
            sends ? "to" : "from", peer);
}

void sp_starpu_messages_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                             struct sp_transfer *times)
{
    submit_message(&(struct message){.handle = handle,
                                     .times = times,
                                     .record = sp_message_log_new(handle, true, dst, tag, name)},
                   true, dst, tag);
}

void sp_starpu_messages_recv(starpu_data_handle_t handle, int src, int64_t tag,
                             struct sp_transfer *times, void (*arrived)(void *arg), void *arg)
{
    submit_message(&(struct message){.handle = handle,
                                     .times = times,
                                     .arrived = arrived,
                                     .arg = arg,
                                     .record = sp_message_log_new(handle, false, src, tag, "")},
                   false, src, tag);
}

/* ---- start and end --------------------------------------------------------------------------- */

int sp_starpu_messages_prepare(void)
{
    return sp_starpu_environment_change("STARPU_MPI_NDETACHED_SEND", "0");
}

void sp_starpu_messages_start(MPI_Comm comm)
{
    MPI_Comm_dup(comm, &box.comm);
    starpu_mpi_comm_register(box.comm);
    box.pending = 0;
    box.seen = false;
}

void sp_starpu_messages_stop(void)
{
    box.seen = false; /* the thread is gone */
    MPI_Comm_free(&box.comm);
}

void sp_starpu_messages_wait_all(void)
{
    pthread_mutex_lock(&box.mutex);
    while (box.pending > 0)
        pthread_cond_wait(&box.idle, &box.mutex);
    pthread_mutex_unlock(&box.mutex);
}

double sp_starpu_messages_polling_us(void)
{
    return __atomic_load_n(&box.seen, __ATOMIC_ACQUIRE) ? sp_poll_cpu_us(box.thread) : 0;
}
#endif
