/*
 * The queues: items in order on a stream, and the stream's thread that does them, started with
 * the first. Items of different streams are ordered by one that is done when another one is:
 * for cudaStreamWaitEvent, and around the default stream.
 */
#include "fake.h"
#include "../draw.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_cond_t progress = PTHREAD_COND_INITIALIZER; /* an item is done */
bool sp_hung[SP_ACTORS];

/* ---- items ----------------------------------------------------------------------------------- */

struct sp_item *sp_item_new(const char *name, void (*run)(struct sp_item *item))
{
    struct sp_item *item = sp_new(sizeof *item);

    item->refs = 1;
    item->name = name;
    item->run = run;
    item->current = sp_current();
    return item;
}

void sp_item_hold(struct sp_item *item)
{
    item->refs++;
}

/* Not inlined: GCC takes the references of others for used after they were freed. */
__attribute__((noinline)) void sp_item_drop(struct sp_item *item)
{
    if (!item || --item->refs)
        return;
    sp_item_drop(item->after);
    free(item->staged);
    free(item->clock);
    free(item);
}

void sp_wait(struct sp_item *item)
{
    sp_item_hold(item);
    while (!item->done && !sp_hung[item->stream])
        pthread_cond_wait(&progress, &sp_lock);
    sp_check_seen(item);
    sp_item_drop(item);
}

/* ---- the thread of a stream ------------------------------------------------------------------ */

static void rest(double us)
{
    long n = (long)us;

    if (n > 0)
        nanosleep(&(struct timespec){n / 1000000, n % 1000000 * 1000}, NULL);
}

static void linger(uint64_t *random)
{
    if (sp_fake_cudart.jitter_us)
        rest((double)(draw(random) % (uint64_t)(sp_fake_cudart.jitter_us + 1)));
}

/* When an item is over that began at `us`, if its engine takes one after the other. The lock is
 * held. */
static double take_engine(const struct sp_item *item, double us)
{
    static double until_us[SP_DEVICES][SP_ENGINES];
    double *until = &until_us[item->device][item->engine];
    double rate = item->engine == SP_KERNELS ? sp_fake_cudart.kernels : sp_fake_cudart.bus;

    if (!item->engine || rate <= 0)
        return us;
    *until = (*until > us ? *until : us) + (double)item->bytes / rate;
    return *until;
}

static void perform(struct CUstream_st *s, struct sp_item *item)
{
    double us;

    sp_give_lock();
    linger(&s->random);
    us = sp_now_us();
    if (item->run)
        item->run(item);
    sp_take_lock();
    us = take_engine(item, us);
    sp_give_lock();
    rest(us - sp_now_us());
    item->end_us = sp_now_us();
    sp_take_lock();
}

static void wait_after(struct sp_item *item)
{
    while (!item->after->done)
        pthread_cond_wait(&progress, &sp_lock);
    sp_item_drop(item->after); /* or chains of them would last */
    item->after = NULL;
}

/* Kernels of the queues that streams share. */
static struct {
    unsigned long queued, started;
} queues[SP_QUEUES];

static void take_turn(struct CUstream_st *s, const struct sp_item *item)
{
    unsigned long *started;

    if (!item->turn)
        return;
    started = &queues[s->actor % sp_fake_cudart.queues].started;
    while (*started + 1 < item->turn)
        pthread_cond_wait(&progress, &sp_lock);
    *started = item->turn;
    pthread_cond_broadcast(&progress);
}

static void *stream_main(void *arg)
{
    struct CUstream_st *s = arg;
    struct sp_item *item;

    sp_take_lock();
    for (;;) {
        while (!s->first && !s->closing)
            pthread_cond_wait(&s->work, &sp_lock);
        item = s->first;
        if (!item)
            break;
        s->running = item;
        s->first = item->next;
        take_turn(s, item);
        if (item->after)
            wait_after(item);
        else
            perform(s, item);
        if (item->hangs) {
            sp_hung[s->actor] = true;
            pthread_cond_broadcast(&progress);
            break;
        }
        item->done = true;
        s->running = NULL;
        sp_item_drop(item);
        pthread_cond_broadcast(&progress);
    }
    if (!sp_hung[s->actor]) { /* or it keeps what it had */
        sp_item_drop(s->newest);
        s->newest = NULL;
        s->started = false;
        sp_stream_ended(s);
    }
    sp_give_lock();
    return NULL;
}

static void start(struct CUstream_st *s)
{
    sigset_t all, before;
    pthread_t thread;
    char name[16];

    if (s->started)
        return;
    /* Signals are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, stream_main, s))
        sp_refuse("no thread for a stream");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    snprintf(name, sizeof name, "gpu%d stream%d", s->device, s->actor);
    pthread_setname_np(thread, name);
    pthread_detach(thread);
    s->started = true;
}

/* ---- queuing --------------------------------------------------------------------------------- */

static void append(struct CUstream_st *s, struct sp_item *item)
{
    item->device = s->device;
    item->stream = s->actor;
    item->number = ++s->queued;
    if (item->is_kernel && sp_fake_cudart.queues)
        item->turn = ++queues[s->actor % sp_fake_cudart.queues].queued;
    item->next = NULL;
    sp_check_queue(&s->clock, s->actor, item);
    if (s->first)
        s->last->next = item;
    else
        s->first = item;
    s->last = item;
    item->refs += 2; /* the queue's, newest's */
    sp_item_drop(s->newest);
    s->newest = item;
    if (sp_fake_cudart.at_once) {
        s->first = NULL;
        perform(s, item);
        item->done = true;
        sp_item_drop(item);
        return;
    }
    start(s);
    pthread_cond_signal(&s->work);
}

void sp_queue_wait(struct CUstream_st *s, struct sp_item *earlier)
{
    struct sp_item *item;

    if (!earlier)
        return;
    sp_check_order(&s->clock, earlier);
    if (earlier->done)
        return;
    item = sp_item_new("wait", NULL);
    item->after = earlier;
    sp_item_hold(earlier);
    append(s, item);
    sp_item_drop(item);
}

/* The default stream of a device waits for the others and they for it, but for the non-blocking. */
void sp_queue(struct CUstream_st *s, struct sp_item *item)
{
    for (struct CUstream_st *t = sp_streams; t; t = t->next)
        if (t != s && (sp_stream_includes(s, t) || sp_stream_includes(t, s)))
            sp_queue_wait(s, t->newest);
    append(s, item);
}

void sp_submit(struct CUstream_st *s, struct sp_item *item, bool wait)
{
    sp_queue(s, item);
    if (wait)
        sp_wait(item);
    sp_item_drop(item);
}
