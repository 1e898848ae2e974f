#include "transport/nccl/nccl_thread.h"
#include "sp_error.h"
#include <inttypes.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* ---- what is agreed, and begun ----------------------------------------------------- */

static int apply(struct sp_nccl *n, struct sp_nccl_link *link, const struct sp_agree_step *step);

/* Delivers a note of this process, to itself or to another. */
static int tell(struct sp_nccl *n, struct sp_nccl_link *link, struct sp_agree_note note)
{
    int first = note.go ? 1 : 0, end = note.go ? link->n_members : 1, err = 0;

    note.link = link->id;
    if (link->self) {
        struct sp_agree_step step;

        err = sp_agree_hear(&link->self->end, &note, &step);
        return err ? err : apply(n, link->self, &step);
    }
    for (int i = first; i < end; i++)
        n->wire->tell(n->wire, link->members[i], &note);
    return 0;
}

static void *place_of(const struct sp_nccl *n, const struct sp_nccl_message *m)
{
    return starpu_data_handle_to_pointer(m->handle, n->cfg.node);
}

static void fly(struct sp_nccl_message *m)
{
    m->next = NULL;
    *m->link->last = m;
    m->link->last = &m->next;
}

/* Begins a message to this process itself, once both its ends have come. */
static int begin_self(struct sp_nccl *n, struct sp_nccl_message *m)
{
    struct sp_nccl_link *link = m->link, *other = link->self;
    struct sp_nccl_message *from, *to;

    link->held = m;
    if (!other->held)
        return 0;
    from = link->role == SP_NCCL_SENDER ? link->held : other->held;
    to = link->role == SP_NCCL_SENDER ? other->held : link->held;
    link->held = other->held = NULL;
    fly(from);
    fly(to);
    if (from->part.tag != to->part.tag)
        return sp_error(EPROTO, "internal: message %" PRId64 " of rank %d to itself meets %" PRId64,
                        from->part.tag, n->links.rank, to->part.tag);
    return sp_comm_pass(link->comm, place_of(n, from), place_of(n, to), from->part.bytes);
}

static int begin(struct sp_nccl *n, struct sp_nccl_message *m)
{
    struct sp_nccl_link *link = m->link;

    if (link->self)
        return begin_self(n, m);
    fly(m);
    if (link->role == SP_NCCL_SENDER)
        return sp_comm_send(link->comm, place_of(n, m), m->part.bytes, 1);
    if (link->role == SP_NCCL_RECEIVER)
        return sp_comm_receive(link->comm, place_of(n, m), m->part.bytes, 0);
    return sp_comm_sum(link->comm, place_of(n, m), m->part.bytes / sizeof(float));
}

/* Sends the note first, because the other end has the longer way. */
static int apply(struct sp_nccl *n, struct sp_nccl_link *link, const struct sp_agree_step *step)
{
    int err = step->tell ? tell(n, link, step->note) : 0;

    if (!err && step->begin)
        err = begin(n, (struct sp_nccl_message *)step->begin);
    return err;
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
        err = err ? err : apply(n, m->link, &step);
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
        err = err ? err : apply(n, link, &step);
    }
    return err;
}

static void forget(struct sp_nccl *n, struct sp_nccl_message *m)
{
    struct sp_nccl_message **at = &m->link->submitted;

    pthread_mutex_lock(&n->mutex);
    while (*at != m)
        at = &(*at)->older;
    *at = m->older;
    pthread_mutex_unlock(&n->mutex);
}

/* Releases the handle to StarPU, which may call `acquired` from here for other messages. */
static void release(struct sp_nccl *n, struct sp_nccl_message *m)
{
    forget(n, m);
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

static struct sp_nccl_message *land(struct sp_nccl_link *link)
{
    struct sp_nccl_message *m = link->flying;

    link->flying = m->next;
    if (!link->flying)
        link->last = &link->flying;
    return m;
}

/* Ends the oldest message of a stream, but begins the next one first, so that the stream is not
 * idle. */
static int done(struct sp_nccl *n, struct sp_nccl_link *link)
{
    struct sp_nccl_message *m = land(link), *other = link->self ? land(link->self) : NULL;
    struct sp_agree_step step;
    int err;

    sp_agree_done(&link->end, &step);
    err = apply(n, link, &step);
    if (!err && link->self) {
        sp_agree_done(&link->self->end, &step);
        err = apply(n, link->self, &step);
    }
    release(n, m);
    if (other)
        release(n, other);
    return err;
}

/* Ends the messages that are done; ten times a second it also asks whether a communicator lost
 * its peer. */
static int take_done(struct sp_nccl *n, bool *moved)
{
    double now = now_us();
    bool check = now - n->checked_us > 1e5;

    for (int i = 0; i < n->links.n; i++) {
        struct sp_nccl_link *link = n->links.all[i];
        int ret = 1;

        while (ret == 1 && link->flying) {
            ret = sp_comm_test(link->comm);
            if (ret == 1) {
                int err = done(n, link);

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

/* Waits for the pause, or until something is ready. The mutex is held. */
static void rest(struct sp_nccl *n)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += n->pause_ns;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&n->wake, &n->mutex, &until);
}

/* Takes all that is ready; rests before if the last turn moved nothing, or sleeps. False: the
 * thread ends. */
static bool next_turn(struct sp_nccl *n, bool moved, struct sp_nccl_message **list)
{
    bool on, watching = n->working > 0 || n->wire->busy(n->wire);

    pthread_mutex_lock(&n->mutex);
    if (!n->ready && !moved && !n->stopping && watching && n->pause_ns > 0)
        rest(n);
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

void *sp_nccl_thread(void *arg)
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
