#include "offload/transfers.h"
#include "offload/host.h"
#include "offload/tensor_sums.h"
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
    void *memory;
    off_t at;
    size_t bytes;
    bool done;
    void (*then)(void *arg); /* NULL: the caller tests it or waits for it */
    void *arg;
};

static void move_bytes(struct sp_transfers *q, char *memory, off_t at, size_t bytes)
{
    size_t left = sp_host_round(bytes);

    if (q->fd < 0) {
        void *place = (void *)(uintptr_t)at; /* the place is in memory */

        memcpy(q->writes ? place : memory, q->writes ? memory : place, bytes);
        return;
    }
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

static void transfer(struct sp_transfers *q, char *memory, off_t at, size_t bytes)
{
    uintptr_t place = sp_tensor_place(q->fd, at);

    if (q->writes)
        sp_tensor_sum_note(place, memory, bytes);
    move_bytes(q, memory, at, bytes);
    if (q->writes || sp_tensor_sum_check(place, memory, bytes))
        return;
    if (q->fail)
        q->fail(q->arg, NULL, at, EIO);
    sp_error_said_end(); /* places in memory have no `fail`: the run ends here */
}

static void *run(void *arg)
{
    struct sp_transfers *q = arg;

    pthread_mutex_lock(&q->mutex);
    for (;;) {
        struct sp_transfer_job *t = q->first;
        double start;

        if (!t && q->ends)
            break;
        if (!t) {
            pthread_cond_wait(&q->more, &q->mutex);
            continue;
        }
        q->first = t->next;
        if (!q->first)
            q->last = &q->first;
        pthread_mutex_unlock(&q->mutex);
        start = sp_clock_us(CLOCK_MONOTONIC);
        transfer(q, t->memory, t->at, t->bytes);
        pthread_mutex_lock(&q->mutex);
        q->busy_us += sp_clock_us(CLOCK_MONOTONIC) - start;
        q->bytes += (double)t->bytes;
        if (t->then) {
            pthread_mutex_unlock(&q->mutex);
            t->then(t->arg);
            free(t);
            pthread_mutex_lock(&q->mutex);
            continue;
        }
        __atomic_store_n(&t->done, true, __ATOMIC_RELEASE); /* only its owner uses t from here on */
        pthread_cond_broadcast(&q->done);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

int sp_transfers_start(struct sp_transfers *q, int fd, bool writes,
                       void (*fail)(void *arg, const char *what, off_t at, int err), void *arg)
{
    *q = (struct sp_transfers){.fd = fd, .writes = writes, .fail = fail, .arg = arg};
    q->last = &q->first;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->done, NULL);
    return -pthread_create(&q->thread, NULL, run, q);
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
    return post(q, (struct sp_transfer_job){.memory = memory, .at = at, .bytes = bytes});
}

void sp_transfer_post(struct sp_transfers *q, void *memory, off_t at, size_t bytes,
                      void (*then)(void *arg), void *arg)
{
    post(q, (struct sp_transfer_job){
                .memory = memory, .at = at, .bytes = bytes, .then = then, .arg = arg});
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
