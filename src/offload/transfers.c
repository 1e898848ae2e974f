#include "offload/transfers.h"
#include "offload/host.h"
#include "offload/tensor_sums.h"
#include "sinks/starpu/cuda_memory.h"
#include "sp_activity.h"
#include "sp_error.h"
#include "transport/clock.h"
#include <errno.h>
#include <starpu.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sp_transfer_job {
    struct sp_transfer_job *next;
    struct sp_transfers *queue;
    struct sp_moved_bytes of;
    double begun_us;
    bool done;
    void (*then)(void *arg); /* NULL: the caller tests it or waits for it */
    void *arg;
};

static void move_pages(struct sp_transfers *q, char *memory, off_t at, size_t bytes)
{
    size_t left = sp_host_round(bytes);

    while (left > 0) {
        ssize_t n = q->writes ? pwrite(q->fd, memory, left, at) : pread(q->fd, memory, left, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            q->fail(q->arg, q->writes ? "write" : "read", at, n < 0 ? errno : 0);
        sp_activity_touch();
        memory += n;
        at += n;
        left -= (size_t)n;
    }
}

/* Checks what was read from a place, or is about to be. */
static void check_sum(struct sp_transfers *q, const struct sp_transfer_job *t, const void *memory)
{
    if (q->writes || sp_tensor_sum_check(sp_tensor_place(q->fd, t->of.at), memory, t->of.bytes))
        return;
    if (q->fail)
        q->fail(q->arg, NULL, t->of.at, EIO);
    sp_error_said_end(); /* places in memory have no `fail`: the run ends here */
}

/* ---- files ---- */

static void move_in_file(struct sp_transfers *q, const struct sp_transfer_job *t)
{
    if (q->writes)
        sp_tensor_sum_note(sp_tensor_place(q->fd, t->of.at), t->of.memory, t->of.bytes);
    move_pages(q, t->of.memory, t->of.at, t->of.bytes);
    check_sum(q, t, t->of.memory);
}

/* ---- copies: checksums are of the host's memory ---- */

static void begin_copy(struct sp_transfers *q, const struct sp_transfer_job *t)
{
    void *host = (void *)(uintptr_t)t->of.at;

    check_sum(q, t, host);
    sp_cuda_copy_begin(q->copies, t->of.used, q->writes ? host : t->of.memory,
                       q->writes ? t->of.memory : host, t->of.bytes);
}

static void end_copy(struct sp_transfers *q, const struct sp_transfer_job *t)
{
    sp_cuda_copy_wait(q->copies);
    sp_activity_touch();
    if (q->writes)
        sp_tensor_sum_note(sp_tensor_place(q->fd, t->of.at), (void *)(uintptr_t)t->of.at,
                           t->of.bytes);
}

/* ---- the thread ---- */

/* The next transfer. NULL: there is none and, unless the caller has one `under_way`, there will be
 * none. */
static struct sp_transfer_job *take(struct sp_transfers *q, bool under_way)
{
    struct sp_transfer_job *t;

    pthread_mutex_lock(&q->mutex);
    while (!q->first && !q->ends && !under_way)
        pthread_cond_wait(&q->more, &q->mutex);
    t = q->first;
    if (t) {
        q->first = t->next;
        if (!q->first)
            q->last = &q->first;
    }
    pthread_mutex_unlock(&q->mutex);
    return t;
}

static void tell(struct sp_transfers *q, struct sp_transfer_job *t)
{
    double now = sp_clock_us(CLOCK_MONOTONIC);

    pthread_mutex_lock(&q->mutex);
    q->busy_us += now - (t->begun_us > q->ended_us ? t->begun_us : q->ended_us);
    q->ended_us = now;
    q->bytes += (double)t->of.bytes;
    if (!t->then) {
        __atomic_store_n(&t->done, true, __ATOMIC_RELEASE); /* only its owner uses t from here on */
        pthread_cond_broadcast(&q->done);
        t = NULL;
    }
    pthread_mutex_unlock(&q->mutex);
    if (t)
        t->then(t->arg);
    free(t);
}

/* The next copy is begun before the last is waited for. */
static void *run(void *arg)
{
    struct sp_transfers *q = arg;
    struct sp_transfer_job *t, *under_way = NULL;

    if (q->fd < 0)
        q->copies = sp_cuda_copies_open(q->device);
    while ((t = take(q, under_way)) || under_way) {
        if (t) {
            t->begun_us = sp_clock_us(CLOCK_MONOTONIC);
            (q->copies ? begin_copy : move_in_file)(q, t);
        }
        if (under_way) {
            end_copy(q, under_way);
            tell(q, under_way);
        }
        under_way = q->copies ? t : NULL;
        if (t && !under_way)
            tell(q, t);
    }
    if (q->copies)
        sp_cuda_copies_close(q->copies);
    return NULL;
}

static int start(struct sp_transfers *q)
{
    q->last = &q->first;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->done, NULL);
    return -pthread_create(&q->thread, NULL, run, q);
}

int sp_transfers_start_copies(struct sp_transfers *q, int device, bool writes)
{
    *q = (struct sp_transfers){.fd = -1, .device = device, .writes = writes};
    return start(q);
}

int sp_transfers_start(struct sp_transfers *q, int fd, bool writes,
                       void (*fail)(void *arg, const char *what, off_t at, int err), void *arg)
{
    *q = (struct sp_transfers){.fd = fd, .writes = writes, .fail = fail, .arg = arg};
    return start(q);
}

void sp_transfers_stop(struct sp_transfers *q)
{
    pthread_mutex_lock(&q->mutex);
    q->ends = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
    pthread_join(q->thread, NULL);
}

void sp_transfers_sum(struct sp_transfers *q, double *bytes, double *busy_us)
{
    pthread_mutex_lock(&q->mutex);
    *bytes = q->bytes;
    *busy_us = q->busy_us;
    pthread_mutex_unlock(&q->mutex);
}

static struct sp_transfer_job *post(struct sp_transfers *q, struct sp_transfer_job of)
{
    struct sp_transfer_job *t = malloc(sizeof *t);

    SP_NEED(t, "out of memory for a transfer");
    *t = of;
    t->queue = q;
    pthread_mutex_lock(&q->mutex);
    *q->last = t;
    q->last = &t->next;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->mutex);
    return t;
}

void *sp_transfer_begin(struct sp_transfers *q, void *memory, off_t at, size_t bytes)
{
    return post(q, (struct sp_transfer_job){.of = {.memory = memory, .at = at, .bytes = bytes}});
}

void sp_transfer_post(struct sp_transfers *q, struct sp_moved_bytes transfer,
                      void (*then)(void *arg), void *arg)
{
    post(q, (struct sp_transfer_job){.of = transfer, .then = then, .arg = arg});
}

int sp_transfer_test(void *transfer)
{
    return __atomic_load_n(&((struct sp_transfer_job *)transfer)->done, __ATOMIC_ACQUIRE);
}

void sp_transfer_wait(void *transfer)
{
    struct sp_transfer_job *t = transfer;

    pthread_mutex_lock(&t->queue->mutex);
    while (!t->done)
        pthread_cond_wait(&t->queue->done, &t->queue->mutex);
    pthread_mutex_unlock(&t->queue->mutex);
}

/* Takes the mutex first, because the thread still uses the request until it releases the mutex. */
void sp_transfer_free(void *transfer)
{
    struct sp_transfer_job *t = transfer;

    pthread_mutex_lock(&t->queue->mutex);
    pthread_mutex_unlock(&t->queue->mutex);
    free(t);
}
