/* Streams as the API gives them. */
#include "fake.h"
#include <sched.h>

struct CUstream_st *sp_streams;

static struct CUstream_st *defaults[SP_DEVICES];
static bool actors[SP_ACTORS];

/* ---- handles --------------------------------------------------------------------------------- */

static int free_actor(void)
{
    static int last;

    for (int tries = 1; tries < SP_ACTORS; tries++) {
        last = last % (SP_ACTORS - 1) + 1;
        if (!actors[last]) {
            actors[last] = true;
            return last;
        }
    }
    sp_refuse("more than %d streams at a time", SP_ACTORS - 1);
}

static struct CUstream_st *create(unsigned flags)
{
    struct CUstream_st *s = sp_streams;

    while (s && (s->live || s->started))
        s = s->next;
    if (!s) {
        s = sp_new(sizeof *s);
        s->next = sp_streams;
        sp_streams = s;
        pthread_cond_init(&s->work, NULL);
    }
    s->live = true;
    s->closing = false;
    s->device = sp_current();
    s->actor = free_actor();
    s->flags = flags;
    s->queued = 0;
    s->random = sp_fake_cudart.seed * 1000003 + (uint64_t)s->actor;
    s->clock = (struct sp_clock){0};
    return s;
}

struct CUstream_st *sp_stream_of(cudaStream_t handle)
{
    struct CUstream_st *s;

    if (handle == cudaStreamPerThread)
        sp_refuse("cudaStreamPerThread is not known to the fake");
    if (!handle || handle == cudaStreamLegacy) {
        struct CUstream_st **usual = &defaults[sp_current()];

        if (!*usual)
            *usual = create(cudaStreamDefault);
        return *usual;
    }
    for (s = sp_streams; s && s != handle; s = s->next)
        ;
    if (!s || !s->live || s->closing)
        sp_refuse("%p is no stream%s", (void *)handle, s ? " any more" : "");
    return s;
}

void sp_stream_ended(struct CUstream_st *s)
{
    s->live = false;
    actors[s->actor] = false;
}

bool sp_stream_includes(const struct CUstream_st *s, const struct CUstream_st *t)
{
    return t == s || (s == defaults[s->device] && t->live && t->device == s->device &&
                      !(t->flags & cudaStreamNonBlocking));
}

void sp_wait_device(int device)
{
    struct sp_item *newest[SP_ACTORS];
    int n = 0;

    /* Items queued meanwhile are not waited for. */
    for (struct CUstream_st *s = sp_streams; s; s = s->next)
        if (s->live && s->device == device && s->newest) {
            newest[n] = s->newest;
            sp_item_hold(newest[n++]);
        }
    while (n--) {
        sp_wait(newest[n]);
        sp_item_drop(newest[n]);
    }
}

/* ---- the API --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    SP_ENTER();
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return sp_leave(cudaErrorInvalidValue);
    sp_take_lock();
    *stream = create(flags);
    sp_give_lock();
    return cudaSuccess;
}

/* Nothing runs before another for its priority. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    SP_ENTER();
    sp_take_lock();
    if (!stream || stream == cudaStreamLegacy)
        sp_refuse("the default stream stays");
    stream = sp_stream_of(stream);
    stream->closing = true; /* Its items are still done. */
    if (stream->started)
        pthread_cond_signal(&stream->work);
    else
        sp_stream_ended(stream);
    sp_give_lock();
    return cudaSuccess;
}

/* An item of its own: the default stream's waits for all that it includes. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct CUstream_st *s;
    bool hung;

    SP_ENTER();
    sp_take_lock();
    sp_fake_cudart.waits++;
    s = sp_stream_of(stream);
    if (s == defaults[s->device])
        sp_submit(s, sp_item_new("synchronize", NULL), true);
    else if (s->newest)
        sp_wait(s->newest);
    hung = sp_hung[s->actor];
    sp_give_lock();
    return hung ? sp_leave(cudaErrorLaunchFailure) : sp_fake_cudart.stream_error;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct CUstream_st *s;
    bool done = true;

    SP_ENTER();
    sp_take_lock();
    s = sp_stream_of(stream);
    for (struct CUstream_st *t = sp_streams; t; t = t->next)
        if (t->newest && sp_stream_includes(s, t))
            done = done && t->newest->done;
    for (struct CUstream_st *t = sp_streams; t && done; t = t->next)
        if (t->newest && sp_stream_includes(s, t))
            sp_check_seen(t->newest);
    sp_give_lock();
    /* Who asks all the time leaves the core to whom it waits for: there are fewer than threads. */
    if (!done)
        sched_yield();
    return sp_leave(done ? cudaSuccess : cudaErrorNotReady);
}
