/*
 * Messages over MPI: they are submitted here, and a thread gives them to MPI and finds out when
 * they are done.
 *
 *   submitted --StarPU: the value is written, or the buffer is free--> ready
 *             --MPI_Isend, MPI_Irecv--> under way
 *             --MPI_Testsome--> done: released to StarPU
 */
#include "config.h"
#ifdef HAVE_MPI
#include "transport/messages.h"
#include "transport/beats.h"
#include "transport/clock.h"
#include "transport/poll.h"
#include "transport/post.h"
#include "sp_activity.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct message {
    struct message *next;
    starpu_data_handle_t handle;
    bool sends;
    int peer;
    int64_t tag;
    struct sp_transfer *times; /* the thread fills it in; or NULL */
    void (*done)(void *arg);
    void *arg;
    struct sp_logged_message *record; /* NULL: the run is not traced */
};

static struct {
    MPI_Comm comm;
    int most_tag;
    bool crowded;
    double polled_us, quiet_us; /* the end of the last poll; the state of sp_poll_moved */
    long given_ns;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex;
    pthread_cond_t wake, idle;
    struct message *ready, **ready_end; /* acquired, in that order */
    int pending;                        /* submitted and not done */
    bool stopping;

    /* Only the thread uses these: what was given to MPI. */
    int n, cap;
    MPI_Request *requests;
    struct message **flying; /* the message of each request */
    int *found;
    double moved_us;
} box;

/* ---- the thread --------------------------------------------------------------------------------- */

static void grow_requests(void)
{
    size_t cap = 2 * (size_t)box.cap + 64;

    box.requests = realloc(box.requests, cap * sizeof *box.requests);
    box.flying = realloc(box.flying, cap * sizeof(struct message *));
    box.found = realloc(box.found, cap * sizeof *box.found);
    if (!box.requests || !box.flying || !box.found) {
        sp_error(ENOMEM, "out of memory for %zu messages", cap);
        sp_transport_abort(1);
    }
    box.cap = (int)cap;
}

static void begin_message(struct message *m)
{
    void *data = starpu_data_handle_to_pointer(m->handle, STARPU_MAIN_RAM);
    int bytes = (int)starpu_data_get_size(m->handle), tag = (int)m->tag;

    if (box.n == box.cap)
        grow_requests();
    box.flying[box.n] = m;
    if (m->times)
        m->times->begun_us = sp_clock_us(CLOCK_REALTIME);
    sp_message_log_begins(m->record);
    sp_mpi_lock();
    if (m->sends)
        MPI_Isend(data, bytes, MPI_BYTE, m->peer, tag, box.comm, &box.requests[box.n++]);
    else
        MPI_Irecv(data, bytes, MPI_BYTE, m->peer, tag, box.comm, &box.requests[box.n++]);
    sp_mpi_unlock();
}

/* Releases the handle to StarPU, which may call `take_acquired` from here for other messages. */
static void end_message(struct message *m)
{
    if (m->times)
        m->times->ended_us = sp_clock_us(CLOCK_REALTIME);
    sp_message_log_ends(m->record);
    sp_activity_touch();
    if (m->done)
        m->done(m->arg);
    starpu_data_release_on_node(m->handle, STARPU_MAIN_RAM);
    free(m);
    pthread_mutex_lock(&box.mutex);
    if (--box.pending == 0)
        pthread_cond_broadcast(&box.idle);
    pthread_mutex_unlock(&box.mutex);
}

/* Asks MPI once, and ends the messages that it has completed. */
static void poll_requests(void)
{
    int n = 0, kept = 0;
    double before, after;

    sp_mpi_lock();
    before = sp_clock_us(CLOCK_MONOTONIC);
    MPI_Testsome(box.n, box.requests, &n, box.found, MPI_STATUSES_IGNORE);
    after = sp_clock_us(CLOCK_MONOTONIC);
    sp_mpi_unlock();
    if (sp_poll_moved(after - before, before - box.polled_us, &box.quiet_us) || n > 0)
        box.moved_us = after;
    box.polled_us = after;
    for (int k = 0; k < n; k++) {
        end_message(box.flying[box.found[k]]);
        box.flying[box.found[k]] = NULL;
    }
    for (int i = 0; n > 0 && i < box.n; i++)
        if (box.flying[i]) {
            box.flying[kept] = box.flying[i];
            box.requests[kept++] = box.requests[i];
        }
    box.n = n > 0 ? kept : box.n;
}

/* Waits until something is ready, a worker has nothing to run, or the rest is over. The mutex is
 * held. */
static void rest_before_poll(void)
{
    bool awaited = sp_order_waiting() > 0;
    long ns = box.given_ns >= 0 ? box.given_ns
                                : sp_poll_rest_ns(sp_clock_us(CLOCK_MONOTONIC) - box.moved_us,
                                                  awaited, box.crowded);

    if (ns > 0)
        sp_poll_wait(&box.wake, &box.mutex, ns);
}

/* Rests, or sleeps while no message is under way, then takes all that is ready. False: the
 * thread ends. */
static bool next_turn(struct message **list)
{
    bool on;

    pthread_mutex_lock(&box.mutex);
    if (!box.ready && !box.stopping && box.n > 0)
        rest_before_poll();
    while (!box.ready && !box.stopping && box.n == 0)
        pthread_cond_wait(&box.wake, &box.mutex);
    *list = box.ready;
    box.ready = NULL;
    box.ready_end = &box.ready;
    on = *list || box.n > 0 || !box.stopping;
    pthread_mutex_unlock(&box.mutex);
    return on;
}

static void *move_messages(void *unused)
{
    struct message *list;

    (void)unused;
    prctl(PR_SET_NAME, "messages", 0, 0, 0);
    while (next_turn(&list)) {
        if (list)
            box.moved_us = sp_clock_us(CLOCK_MONOTONIC);
        for (struct message *m = list, *next; m; m = next) {
            next = m->next;
            begin_message(m);
        }
        poll_requests();
    }
    return NULL;
}

/* ---- submissions ----------------------------------------------------------------------------- */

/* Ends the run after a mistake of this program, in a function that cannot return an error. */
static void end_by_mistake(const struct message *m, const char *what)
{
    sp_error(EINVAL, "internal: message %" PRId64 " %s rank %d: %s", m->tag,
             m->sends ? "to" : "from", m->peer, what);
    sp_transport_abort(1);
}

/* StarPU calls this when the handle is acquired. */
static void take_acquired(void *arg)
{
    struct message *m = arg;

    if (m->times)
        m->times->ready_us = sp_clock_us(CLOCK_REALTIME);
    pthread_mutex_lock(&box.mutex);
    *box.ready_end = m;
    box.ready_end = &m->next;
    pthread_cond_signal(&box.wake);
    pthread_mutex_unlock(&box.mutex);
}

/* `name` is for a trace of the run. */
static void submit_message(const struct message *what, const char *name)
{
    struct message *m = malloc(sizeof *m);

    if (!m)
        end_by_mistake(what, "out of memory");
    *m = *what;
    m->record = sp_message_log_new(m->handle, m->sends, m->peer, m->tag, name);
    if (m->tag < 0 || m->tag > box.most_tag)
        end_by_mistake(m, "MPI has fewer tags: take fewer micro-batches or stages");
    if (starpu_data_get_size(m->handle) > INT_MAX)
        end_by_mistake(m, "larger than 2 GiB");
    pthread_mutex_lock(&box.mutex);
    box.pending++;
    pthread_mutex_unlock(&box.mutex);
    if (starpu_data_acquire_on_node_cb(m->handle, STARPU_MAIN_RAM, m->sends ? STARPU_R : STARPU_W,
                                       take_acquired, m))
        end_by_mistake(m, "StarPU does not give its handle");
}

void sp_messages_send(starpu_data_handle_t handle, int dst, int64_t tag, const char *name,
                      struct sp_transfer *times)
{
    submit_message(
        &(struct message){.handle = handle, .sends = true, .peer = dst, .tag = tag, .times = times},
        name);
}

void sp_messages_recv(starpu_data_handle_t handle, int src, int64_t tag, struct sp_transfer *times,
                      void (*arrived)(void *arg), void *arg)
{
    submit_message(
        &(struct message){
            .handle = handle, .peer = src, .tag = tag, .times = times, .done = arrived, .arg = arg},
        "");
}

static void set_done(void *done)
{
    pthread_mutex_lock(&box.mutex);
    *(bool *)done = true;
    pthread_cond_broadcast(&box.idle);
    pthread_mutex_unlock(&box.mutex);
}

static void submit_and_wait(struct message m)
{
    bool done = false;

    m.done = set_done;
    m.arg = &done;
    sp_activity_wait(m.peer);
    submit_message(&m, "");
    pthread_mutex_lock(&box.mutex);
    while (!done)
        pthread_cond_wait(&box.idle, &box.mutex);
    pthread_mutex_unlock(&box.mutex);
    sp_activity_waited();
}

void sp_transport_send_wait(starpu_data_handle_t handle, int dst, int64_t tag)
{
    submit_and_wait((struct message){.handle = handle, .sends = true, .peer = dst, .tag = tag});
}

void sp_transport_recv_wait(starpu_data_handle_t handle, int src, int64_t tag)
{
    submit_and_wait((struct message){.handle = handle, .peer = src, .tag = tag});
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
    err = pthread_create(&box.thread, NULL, move_messages, NULL);
    if (err)
        return sp_error(err, "no thread for messages: %s", strerror(err));
    box.started = true;
    sp_order_tell_waiting(worker_waits);
    return 0;
}

void sp_transport_crowded(bool crowded)
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
    return box.started ? sp_poll_cpu_us(box.thread) : 0;
}
#endif
