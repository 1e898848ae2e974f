/* Events: a record is an item that does nothing; the event is done when its last record is. */
#include "fake.h"
#include <sched.h>

struct CUevent_st {
    struct CUevent_st *next;
    uint64_t live; /* LIVE, or it was destroyed: events are not freed, so this can be read */
    int device;
    unsigned flags;
    struct sp_item *record;
};

static const uint64_t LIVE = 0x6576656e74206f6b;
static struct CUevent_st *events;

/* The lock is held. */
static struct CUevent_st *event_of(cudaEvent_t event)
{
    if (!event || event->live != LIVE)
        sp_refuse("%p is no event, or no more", (void *)event);
    return event;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    struct CUevent_st *e;

    SP_ENTER();
    if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
        return sp_leave(cudaErrorInvalidValue);
    sp_take_lock();
    e = sp_new(sizeof *e);
    e->next = events;
    events = e;
    e->live = LIVE;
    e->device = sp_current();
    e->flags = flags;
    sp_fake_cudart.events++;
    sp_give_lock();
    *event = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

/* Items that were queued with it go on. */
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    SP_ENTER();
    sp_take_lock();
    event_of(event)->live = 0;
    sp_fake_cudart.events--;
    sp_item_drop(event->record);
    event->record = NULL;
    sp_give_lock();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct CUstream_st *s;

    SP_ENTER();
    sp_take_lock();
    s = sp_stream_of(stream);
    if (event_of(event)->device != s->device)
        sp_refuse("an event of device %d recorded in a stream of device %d", event->device,
                  s->device);
    sp_item_drop(event->record);
    event->record = sp_item_new("event", NULL);
    sp_queue(s, event->record);
    sp_give_lock();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    SP_ENTER();
    if (flags)
        return sp_leave(cudaErrorInvalidValue);
    sp_take_lock();
    sp_queue_wait(sp_stream_of(stream), event_of(event)->record);
    sp_give_lock();
    return cudaSuccess;
}

/* There is nothing to wait for if it was never recorded. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    struct sp_item *record;
    bool done;

    SP_ENTER();
    sp_take_lock();
    record = event_of(event)->record;
    done = !record || record->done;
    if (done && record)
        sp_check_seen(record);
    sp_give_lock();
    if (!done)
        sched_yield(); /* as cudaStreamQuery */
    return sp_leave(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    SP_ENTER();
    sp_take_lock();
    if (event_of(event)->record)
        sp_wait(event->record);
    sp_give_lock();
    return sp_fake_cudart.stream_error;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t err = cudaSuccess;

    SP_ENTER();
    sp_take_lock();
    if (!event_of(start)->record || !event_of(end)->record ||
        (start->flags | end->flags) & cudaEventDisableTiming || start->device != end->device)
        err = cudaErrorInvalidResourceHandle;
    else if (!start->record->done || !end->record->done)
        err = cudaErrorNotReady;
    else
        *ms = (float)((end->record->end_us - start->record->end_us) / 1000);
    sp_give_lock();
    return sp_leave(err);
}
