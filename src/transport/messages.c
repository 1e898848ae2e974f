#include "config.h"
#ifdef HAVE_MPI
#include "transport/messages.h"
#include "transport/message_log.h"
#include "transport/poll.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct message {
    struct message *next;
    starpu_data_handle_t handle;
    bool sends;
    int peer;
    int64_t tag;
    struct sp_transfer *times; /* to be filled in, or NULL */
    void (*done)(void *arg);
    void *arg;
    struct sp_logged_message *record; /* NULL: the run is not traced */
};

static struct {
    MPI_Comm comm;
    int most_tag;
    bool crowded;
    double polled_us, quiet_us; /* the end of the last poll; as sp_poll_moved has it */
    long given_ns;
    pthread_t thread;
    bool started;

    pthread_mutex_t mutex;
    pthread_cond_t wake, idle;
    struct message *ready, **ready_end; /* acquired, in that order */
    int pending;                        /* submitted and not done */
    bool stopping;

    /* The thread's own: what was given to MPI. */
    int n, cap;
    MPI_Request *requests;
    struct message **flying; /* of each request */
    int *found;
    double moved_us;
} box;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* The time, where it is wanted: of the clock that processes on other machines have too. */
static void note(double *at)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    *at = 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* ---- submissions ----------------------------------------------------------------------------- */

/* A mistake of ours, where there is no one to return it to. */
static void mistake(const struct message *m, const char *what)
{
    sp_error(EINVAL, "internal: message %" PRId64 " %s rank %d: %s", m->tag,
             m->sends ? "to" : "from", m->peer, what);
    sp_transport_abort(1);
}

/* Of StarPU: the handle is acquired. */
static void acquired(void *arg)
{
    struct message *m = arg;

    if (m->times)
        note(&m->times->ready_us);
    pthread_mutex_lock(&box.mutex);
    *box.ready_end = m;
    box.ready_end = &m->next;
    pthread_cond_signal(&box.wake);
    pthread_mutex_unlock(&box.mutex);
}

static void submit(const struct message *what)
{
    struct message *m = malloc(sizeof *m);

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
    submit(&(struct message){.handle = handle,
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
    submit(&(struct message){.handle = handle,
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

    sp_messages_send(handle, dst, tag, "", NULL, set, &done);
    wait_for(&done);
}

void sp_messages_recv_wait(starpu_data_handle_t handle, int src, int64_t tag)
{
    bool done = false;

    sp_messages_recv(handle, src, tag, NULL, set, &done);
    wait_for(&done);
}

/* ---- the thread's turn ------------------------------------------------------------------------- */

static void grow(void)
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

static void begin(struct message *m)
{
    void *data = starpu_data_handle_to_pointer(m->handle, STARPU_MAIN_RAM);
    int bytes = (int)starpu_data_get_size(m->handle);

    if (box.n == box.cap)
        grow();
    box.flying[box.n] = m;
    if (m->times)
        note(&m->times->begun_us);
    sp_message_log_begins(m->record);
    if (m->sends)
        MPI_Isend(data, bytes, MPI_BYTE, m->peer, (int)m->tag, box.comm, &box.requests[box.n++]);
    else
        MPI_Irecv(data, bytes, MPI_BYTE, m->peer, (int)m->tag, box.comm, &box.requests[box.n++]);
}

/* Back to StarPU, which may call `acquired` from here for other messages. */
static void end(struct message *m)
{
    if (m->times)
        note(&m->times->ended_us);
    sp_message_log_ends(m->record);
    if (m->done)
        m->done(m->arg);
    starpu_data_release_on_node(m->handle, STARPU_MAIN_RAM);
    free(m);
    pthread_mutex_lock(&box.mutex);
    if (--box.pending == 0)
        pthread_cond_broadcast(&box.idle);
    pthread_mutex_unlock(&box.mutex);
}

/* Ends what MPI has done. */
static void poll(void)
{
    int n = 0, kept = 0;
    double before = now_us(), after;

    MPI_Testsome(box.n, box.requests, &n, box.found, MPI_STATUSES_IGNORE);
    after = now_us();
    if (sp_poll_moved(after - before, before - box.polled_us, &box.quiet_us) || n > 0)
        box.moved_us = after;
    box.polled_us = after;
    for (int k = 0; k < n; k++) {
        end(box.flying[box.found[k]]);
        box.flying[box.found[k]] = NULL;
    }
    for (int i = 0; n > 0 && i < box.n; i++)
        if (box.flying[i]) {
            box.flying[kept] = box.flying[i];
            box.requests[kept++] = box.requests[i];
        }
    box.n = n > 0 ? kept : box.n;
}

/* Until something is ready, a worker has nothing to run, or the time is over. Mutex held. */
static void rest(void)
{
    bool awaited = sp_order_waiting() > 0;
    long ns = box.given_ns >= 0 ? box.given_ns
                                : sp_poll_rest_ns(now_us() - box.moved_us, awaited, box.crowded);
    struct timespec until;

    if (ns == 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + ns) % 1000000000;
    pthread_cond_timedwait(&box.wake, &box.mutex, &until);
}

/* What has become ready; rests, or sleeps, before. False: the end. */
static bool next_turn(struct message **list)
{
    bool on;

    pthread_mutex_lock(&box.mutex);
    if (!box.ready && !box.stopping && box.n > 0)
        rest();
    while (!box.ready && !box.stopping && box.n == 0)
        pthread_cond_wait(&box.wake, &box.mutex);
    *list = box.ready;
    box.ready = NULL;
    box.ready_end = &box.ready;
    on = *list || box.n > 0 || !box.stopping;
    pthread_mutex_unlock(&box.mutex);
    return on;
}

static void *thread(void *arg)
{
    struct message *list;

    prctl(PR_SET_NAME, "messages", 0, 0, 0);
    while (next_turn(&list)) {
        if (list)
            box.moved_us = now_us();
        for (struct message *m = list, *next; m; m = next) {
            next = m->next;
            begin(m);
        }
        poll();
    }
    return arg;
}

/* Of the scheduler: a worker has nothing to run. */
static void worker_waits(void)
{
    pthread_mutex_lock(&box.mutex);
    pthread_cond_signal(&box.wake);
    pthread_mutex_unlock(&box.mutex);
}

/* ---- start and end ------------------------------------------------------------------------------- */

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
    err = pthread_create(&box.thread, NULL, thread, NULL);
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
    MPI_Comm_free(&box.comm);
    free(box.requests);
    free(box.flying);
    free(box.found);
    box.started = false; /* the mutex stays: a worker may be about to tell that it waits */
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
