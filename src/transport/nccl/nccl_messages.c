/*
 * Messages over NCCL: they are submitted here, and a thread moves them on.
 *
 *   submitted --StarPU: the value or the buffer is on the GPU--> ready
 *             --the ends agree--> in the stream
 *             --its event--> done: released to StarPU
 *
 * StarPU calls back in any thread; the callback only puts the message into a queue. The thread does
 * the rest: it keeps what the ends have told each other, uses the streams and releases the handles.
 * It waits for nothing that another process has to do, so no order of messages stops it.
 */
#include "transport/nccl/nccl.h"
#include "transport/clock.h"
#include "transport/nccl/nccl_links.h"
#include "transport/poll.h"
#include "sp_error.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct sp_nccl_message {
    struct sp_agree_message part; /* first: a pointer to it is a pointer to the message */
    struct sp_nccl_link *link;
    starpu_data_handle_t handle;
    struct sp_nccl *nccl;
    void (*arrived)(void *arg);
    void *arg;
    struct sp_nccl_message *next;  /* in the queue of ready messages, then in the stream */
    struct sp_nccl_message *older; /* in the list of submitted messages */
};

struct sp_nccl {
    struct sp_nccl_config cfg;
    struct sp_wire *wire;
    struct sp_nccl_links links;
    int version;
    long pause_ns; /* between two looks if nothing moved */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake, idle; /* something to do; nothing submitted any more */
    /* under the mutex */
    struct sp_nccl_message *ready, **ready_end;
    int pending;                  /* messages submitted and not done */
    bool stopping, failed, ended; /* failed: nothing moves any more; ended: the thread gave up */
    /* only the thread uses these */
    int working; /* messages that were ready and are not done */
    double checked_us;
};

/* ---- what is agreed, and begun ----------------------------------------------------- */

static void *place_of(const struct sp_nccl *n, const struct sp_nccl_message *m)
{
    return starpu_data_handle_to_pointer(m->handle, n->cfg.node);
}

static int begin_message(struct sp_nccl *n, struct sp_nccl_message *m)
{
    struct sp_nccl_link *link = m->link;

    m->next = NULL;
    *link->last = m;
    link->last = &m->next;
    return (link->sends ? sp_comm_send(link->comm, place_of(n, m), m->part.bytes)
                        : sp_comm_receive(link->comm, place_of(n, m), m->part.bytes));
}

/* Sends the note first, because the other end has the longer way. */
static int take_step(struct sp_nccl *n, struct sp_nccl_link *link, struct sp_agree_step *step)
{
    step->note.link = link->id;
    if (step->tell)
        n->wire->tell(n->wire, link->peer, &step->note);
    return step->begin ? begin_message(n, (struct sp_nccl_message *)step->begin) : 0;
}

/* ---- what came, and what is done ---------------------------------------------------- */

static int take_ready(struct sp_nccl *n, struct sp_nccl_message *list)
{
    int err = 0;

    while (list && !err) {
        struct sp_nccl_message *m = list;
        struct sp_agree_step step;

        list = m->next;
        n->working++;
        err = sp_agree_ready(&m->link->end, &m->part, &step);
        err = err ? err : take_step(n, m->link, &step);
    }
    return err;
}

static int take_notes(struct sp_nccl *n, bool *moved)
{
    struct sp_agree_note note;
    int err = 0;

    while (!err && n->wire->hear(n->wire, &note)) {
        struct sp_nccl_link *link = sp_nccl_links_of(&n->links, &note);
        struct sp_agree_step step;

        *moved = true;
        if (!link)
            return sp_error(EPROTO,
                            "internal: message %" PRId64 " for link %d, which rank %d "
                            "does not have",
                            note.tag, note.link, n->links.rank);
        err = sp_agree_hear(&link->end, &note, &step);
        err = err ? err : take_step(n, link, &step);
    }
    return err;
}

static void remove_submitted(struct sp_nccl *n, struct sp_nccl_message *m)
{
    struct sp_nccl_message **at = &m->link->submitted;

    pthread_mutex_lock(&n->mutex);
    while (*at != m)
        at = &(*at)->older;
    *at = m->older;
    pthread_mutex_unlock(&n->mutex);
}

/* Releases the handle to StarPU, which may call `take_acquired` from here for other messages. */
static void release_message(struct sp_nccl *n, struct sp_nccl_message *m)
{
    remove_submitted(n, m);
    if (m->arrived)
        m->arrived(m->arg);
    starpu_data_release_on_node(m->handle, (int)n->cfg.node);
    free(m);
    n->working--;
    pthread_mutex_lock(&n->mutex);
    if (--n->pending == 0)
        pthread_cond_broadcast(&n->idle);
    pthread_mutex_unlock(&n->mutex);
}

/* Ends the oldest message of a stream, but begins the next one first, so that the stream is not
 * idle. */
static int end_oldest(struct sp_nccl *n, struct sp_nccl_link *link)
{
    struct sp_nccl_message *m = link->flying;
    struct sp_agree_step step;
    int err;

    link->flying = m->next;
    if (!link->flying)
        link->last = &link->flying;
    sp_agree_done(&link->end, &step);
    err = take_step(n, link, &step);
    release_message(n, m);
    return err;
}

/* Ends the messages that are done; ten times a second it also asks whether a communicator lost
 * its peer. */
static int take_done(struct sp_nccl *n, bool *moved)
{
    double now = sp_clock_us(CLOCK_MONOTONIC);
    bool check = now - n->checked_us > 1e5;

    for (int i = 0; i < n->links.n; i++) {
        struct sp_nccl_link *link = n->links.all[i];
        int ret = 1;

        while (ret == 1 && link->flying) {
            ret = sp_comm_test(link->comm);
            if (ret == 1) {
                int err = end_oldest(n, link);

                *moved = true;
                ret = err ? err : 1;
            }
        }
        if (ret >= 0 && check && link->flying)
            ret = sp_comm_check(link->comm);
        if (ret < 0)
            return ret;
    }
    if (check)
        n->checked_us = now;
    return 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Takes all that is ready; rests before if the last turn moved nothing, or sleeps. False: the
 * thread ends. */
static bool next_turn(struct sp_nccl *n, bool moved, struct sp_nccl_message **list)
{
    bool on, watching = n->working > 0 || n->wire->busy(n->wire);

    pthread_mutex_lock(&n->mutex);
    if (!n->ready && !moved && !n->stopping && watching && n->pause_ns > 0)
        sp_poll_wait(&n->wake, &n->mutex, n->pause_ns);
    while (!n->ready && !n->stopping && !watching)
        pthread_cond_wait(&n->wake, &n->mutex);
    *list = n->ready;
    n->ready = NULL;
    n->ready_end = &n->ready;
    on = !n->stopping || (!n->failed && (*list || watching));
    pthread_mutex_unlock(&n->mutex);
    return on;
}

/* Aborts the links: their kernels would wait for ever, and so would the caller. */
static void give_up(struct sp_nccl *n)
{
    sp_nccl_links_abort(&n->links);
    pthread_mutex_lock(&n->mutex);
    n->failed = n->ended = true;
    pthread_cond_broadcast(&n->idle);
    pthread_mutex_unlock(&n->mutex);
}

static void *move_messages(void *arg)
{
    struct sp_nccl *n = arg;
    struct sp_nccl_message *list;
    bool moved = false;
    int err = sp_comm_use(n->cfg.device);

    /* Otherwise the kernel makes a rest 50 us longer. */
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    while (!err && next_turn(n, moved, &list)) {
        moved = list != NULL;
        err = take_ready(n, list);
        err = err ? err : take_notes(n, &moved);
        err = err ? err : take_done(n, &moved);
    }
    if (err && n->cfg.fail)
        n->cfg.fail(1);
    if (err || n->failed)
        give_up(n);
    return NULL;
}

/* ---- submissions ----------------------------------------------------------------------------- */

/* StarPU calls this when the handle is acquired. */
static void take_acquired(void *arg)
{
    struct sp_nccl_message *m = arg;
    struct sp_nccl *n = m->nccl;

    pthread_mutex_lock(&n->mutex);
    m->next = NULL;
    *n->ready_end = m;
    n->ready_end = &m->next;
    pthread_cond_signal(&n->wake);
    pthread_mutex_unlock(&n->mutex);
}

/* Ends the run after a mistake of this program, in a function that cannot return an error. */
static void end_by_mistake(struct sp_nccl *n, const char *what, int rank, int64_t tag)
{
    sp_error(EINVAL, "internal: message %" PRId64 ", rank %d to rank %d: %s", tag, n->links.rank,
             rank, what);
    if (n->cfg.fail)
        n->cfg.fail(1);
    abort();
}

static void submit_message(struct sp_nccl *n, struct sp_nccl_link *link,
                           const struct sp_nccl_message *what)
{
    struct sp_nccl_message *m = malloc(sizeof *m);
    bool twice = false;

    if (!m || !link->comm)
        end_by_mistake(n, m ? "no communicator was made for it" : "out of memory", link->peer,
                       what->part.tag);
    *m = *what;
    m->nccl = n;
    m->link = link;
    m->part.bytes = starpu_data_get_size(m->handle);
    pthread_mutex_lock(&n->mutex);
    for (const struct sp_nccl_message *k = link->submitted; k; k = k->older)
        twice |= k->part.tag == m->part.tag;
    m->older = link->submitted;
    link->submitted = m;
    n->pending++;
    pthread_mutex_unlock(&n->mutex);
    if (twice)
        end_by_mistake(n, "its tag is on its way already", link->peer, m->part.tag);
    if (starpu_data_acquire_on_node_cb(m->handle, (int)n->cfg.node,
                                       link->sends ? STARPU_R : STARPU_W, take_acquired, m))
        end_by_mistake(n, "StarPU does not give its handle", link->peer, m->part.tag);
}

void sp_nccl_send(struct sp_nccl *n, starpu_data_handle_t handle, int dst, int64_t tag)
{
    submit_message(n, &n->links.to[dst],
                   &(struct sp_nccl_message){.part = {.tag = tag}, .handle = handle});
}

void sp_nccl_recv(struct sp_nccl *n, starpu_data_handle_t handle, int src, int64_t tag,
                  void (*arrived)(void *arg), void *arg)
{
    submit_message(n, &n->links.from[src],
                   &(struct sp_nccl_message){
                       .part = {.tag = tag}, .handle = handle, .arrived = arrived, .arg = arg});
}

/* ---- start and end --------------------------------------------------------------------------- */

static int start_thread(struct sp_nccl *n)
{
    pthread_condattr_t attr;
    int err;

    n->ready_end = &n->ready;
    pthread_mutex_init(&n->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&n->wake, &attr);
    pthread_cond_init(&n->idle, &attr);
    pthread_condattr_destroy(&attr);
    err = pthread_create(&n->thread, NULL, move_messages, n);
    return err ? sp_error(err, "no thread for messages: %s", strerror(err)) : 0;
}

void sp_nccl_prepare(int links)
{
    char blocks[16];

    snprintf(blocks, sizeof blocks, "%d", sp_comm_blocks(links));
    setenv("NCCL_MAX_P2P_NCHANNELS", blocks, 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

/* Returns NCCL's version, or an error and in `why` the reason why it cannot be used here. */
static int check_usable(char *why, size_t size)
{
    static const char *const serial[] = {"CUDA_LAUNCH_BLOCKING", "NCCL_LAUNCH_ORDER_IMPLICIT"};

    for (size_t i = 0; i < sizeof serial / sizeof *serial; i++)
        if (getenv(serial[i]) && atoi(getenv(serial[i]))) {
            snprintf(why, size, "%s=%s lets a message wait for one of another edge: unset it",
                     serial[i], getenv(serial[i]));
            return -ENOTSUP;
        }
    return sp_nccl_load(NULL, why, size);
}

int sp_nccl_start(const struct sp_nccl_config *cfg, struct sp_wire *wire, char *why, size_t size,
                  struct sp_nccl **nccl)
{
    struct sp_nccl *n = calloc(1, sizeof *n);
    int version = n ? check_usable(why, size) : -ENOMEM;
    int err = wire->least(wire, version < 0 ? version : 0);

    if (err) {
        if (version >= 0)
            snprintf(why, size, "another process cannot use NCCL");
        else if (version == -ENOMEM)
            sp_error(ENOMEM, "out of memory for messages");
        free(n);
        return err;
    }
    *n = (struct sp_nccl){
        .cfg = *cfg, .wire = wire, .version = version, .pause_ns = sp_poll_pause_ns()};
    err = sp_nccl_links_create(cfg, wire, &n->links);
    if (err) {
        free(n);
        return err;
    }
    err = wire->least(wire, start_thread(n));
    if (err) { /* some process has no thread for messages: none can go on */
        sp_nccl_abort(n);
        return err;
    }
    *nccl = n;
    return 0;
}

int sp_nccl_wait_all(struct sp_nccl *n)
{
    int err;

    pthread_mutex_lock(&n->mutex);
    while (n->pending > 0 && !n->failed)
        pthread_cond_wait(&n->idle, &n->mutex);
    err = n->failed ? -EIO : 0;
    pthread_mutex_unlock(&n->mutex);
    return err;
}

/* The thread owns the communicators and gives them up itself, unless it is inside a call that
 * returns only after they are given up. */
void sp_nccl_abort(struct sp_nccl *n)
{
    struct timespec until;
    bool late = false;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 2;
    pthread_mutex_lock(&n->mutex);
    n->failed = n->stopping = true;
    pthread_cond_signal(&n->wake);
    pthread_cond_broadcast(&n->idle);
    while (!n->ended && !late)
        late = pthread_cond_timedwait(&n->idle, &n->mutex, &until) != 0;
    pthread_mutex_unlock(&n->mutex);
    if (late)
        sp_nccl_links_abort(&n->links);
}

void sp_nccl_stop(struct sp_nccl *n)
{
    pthread_mutex_lock(&n->mutex);
    n->stopping = true;
    pthread_cond_signal(&n->wake);
    pthread_mutex_unlock(&n->mutex);
    pthread_join(n->thread, NULL);
    sp_comm_use(n->cfg.device);
    sp_nccl_links_destroy(&n->links);
    if (n->failed)
        return; /* StarPU may still call back for abandoned messages; the other ends are gone */
    n->wire->close(n->wire);
    pthread_mutex_destroy(&n->mutex);
    pthread_cond_destroy(&n->wake);
    pthread_cond_destroy(&n->idle);
    free(n);
}

double sp_nccl_polling_us(struct sp_nccl *n)
{
    return sp_poll_cpu_us(n->thread);
}

int sp_nccl_version(struct sp_nccl *n)
{
    return n->version;
}
