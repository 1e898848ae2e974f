#include "transport/fake_cuda.h"
#include <pthread.h>
#include <stdlib.h>

struct list {
    struct fake_op *first, **end;
};

struct CUevent_st {
    unsigned long recorded, reached;
};

struct CUstream_st {
    pthread_t thread;
    pthread_cond_t more;       /* for its thread */
    struct list ops;           /* launched, in order */
    unsigned long pushed, run; /* so far; in the queue or launched, and at their end */
    unsigned long launched;
    struct queue *queue; /* NULL: its own */
    bool dead, closing;
};

struct queue {
    struct list ops;
    bool started;
};

struct record {
    struct fake_op op;
    cudaEvent_t event;
    unsigned long number;
};

enum { MOST_QUEUES = 32 };

/* One lock for all. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER; /* for all others */
static struct queue queues[MOST_QUEUES];
static unsigned n_streams;

static void append(struct list *list, struct fake_op *op)
{
    op->next = NULL;
    if (!list->first)
        list->end = &list->first;
    *list->end = op;
    list->end = &op->next;
}

static struct fake_op *take(struct list *list)
{
    struct fake_op *op = list->first;

    list->first = op->next;
    return op;
}

static void launch(struct fake_op *op)
{
    append(&op->stream->ops, op);
    op->stream->launched++;
    pthread_cond_signal(&op->stream->more);
}

/* Under the mutex. */
static void *run_queue(void *arg)
{
    struct queue *q = arg;

    pthread_mutex_lock(&mutex);
    for (;;) {
        struct fake_op *op;

        while (!q->ops.first)
            pthread_cond_wait(&moved, &mutex);
        op = take(&q->ops);
        while (!op->record && op->stream->run < op->stream->launched)
            pthread_cond_wait(&moved, &mutex);
        launch(op);
    }
    return NULL;
}

static void *run_stream(void *arg)
{
    cudaStream_t s = arg;

    pthread_mutex_lock(&mutex);
    while (!s->dead) {
        struct fake_op *op;
        bool ended, record;

        while (!s->ops.first && !s->closing)
            pthread_cond_wait(&s->more, &mutex);
        if (!s->ops.first)
            break;
        op = take(&s->ops);
        record = op->record;
        if (!record)
            pthread_mutex_unlock(&mutex);
        ended = op->run(op);
        if (!record)
            pthread_mutex_lock(&mutex);
        s->dead = !ended;
        s->run += ended;
        pthread_cond_broadcast(&moved);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

void fake_stream_push(cudaStream_t stream, struct fake_op *op)
{
    op->stream = stream;
    pthread_mutex_lock(&mutex);
    stream->pushed++;
    if (stream->queue) {
        append(&stream->queue->ops, op);
        pthread_cond_broadcast(&moved);
    } else {
        launch(op);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- the part of CUDA's runtime ----------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    const char *text = getenv("FAKE_CUDA_QUEUES");
    int n = text ? atoi(text) : 0;
    cudaStream_t s = calloc(1, sizeof *s);

    (void)flags, (void)priority;
    if (!s)
        return cudaErrorMemoryAllocation;
    pthread_cond_init(&s->more, NULL);
    pthread_mutex_lock(&mutex);
    if (n > 0) {
        pthread_t thread;

        s->queue = &queues[n_streams++ % (unsigned)(n < MOST_QUEUES ? n : MOST_QUEUES)];
        if (!s->queue->started && !pthread_create(&thread, NULL, run_queue, s->queue)) {
            s->queue->started = true;
            pthread_detach(thread);
        }
    }
    pthread_mutex_unlock(&mutex);
    if (pthread_create(&s->thread, NULL, run_stream, s))
        return cudaErrorMemoryAllocation;
    *stream = s;
    return cudaSuccess;
}

/* A stream that died keeps what it had. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    pthread_mutex_lock(&mutex);
    stream->closing = true;
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&mutex);
    pthread_join(stream->thread, NULL);
    if (!stream->dead) {
        pthread_cond_destroy(&stream->more);
        free(stream);
    }
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    bool dead;

    pthread_mutex_lock(&mutex);
    while (stream->run < stream->pushed && !stream->dead)
        pthread_cond_wait(&moved, &mutex);
    dead = stream->dead;
    pthread_mutex_unlock(&mutex);
    return dead ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return *event ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

static bool reach(struct fake_op *op)
{
    struct record *r = (struct record *)op;

    r->event->reached = r->number;
    free(r);
    return true;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct record *r = calloc(1, sizeof *r);

    if (!r)
        return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&mutex);
    *r = (struct record){{.run = reach, .record = true}, event, ++event->recorded};
    pthread_mutex_unlock(&mutex);
    fake_stream_push(stream, &r->op);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool there;

    pthread_mutex_lock(&mutex);
    there = event->reached == event->recorded;
    pthread_mutex_unlock(&mutex);
    return there ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = calloc(1, bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "an error of the fake";
}
