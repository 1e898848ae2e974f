#include "sinks/starpu/cuda.h"
#include "codelets/task/codelet.h"
#include "config.h"
#include "sinks/starpu/cuda_memory.h"
#include "sp_error.h"
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/attention/cudnn_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flash3/flash3.h"
#include "sp_atomic.h"
#include <errno.h>
#include <pthread.h>

struct sp_cuda_mark {
    struct sp_cuda_mark *next; /* of those that are not used */
    struct worker *worker;
    cudaEvent_t event;
};

static struct worker {
    struct sp_cuda *cuda;
    cudaStream_t stream;  /* of the kernels */
    cudaEvent_t queued;   /* follows all kernels that a task queued */
    cudaEvent_t followed; /* by a copy of StarPU */
    unsigned node;        /* of the GPU's memory */
    struct sp_cuda_mark *marks;
} workers[STARPU_NMAXWORKERS];

static pthread_mutex_t marks_mutex = PTHREAD_MUTEX_INITIALIZER;

static int64_t peak;

static struct worker *this_worker(void)
{
    return &workers[starpu_worker_get_id_check()];
}

static void start(void *arg)
{
    struct worker *w = this_worker();
    int *failed = arg, err;

    sp_cuda_must(cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking), "a stream");
    sp_cuda_must(cudaEventCreateWithFlags(&w->queued, cudaEventDisableTiming), "an event");
    sp_cuda_must(cudaEventCreateWithFlags(&w->followed, cudaEventDisableTiming), "an event");
    w->node = starpu_worker_get_local_memory_node();
    starpu_cuda_get_local_stream(); /* StarPU warns of workers that never ask for it */
    err =
        sp_cuda_create(starpu_worker_get_devid(starpu_worker_get_id_check()), w->stream, &w->cuda);
    if (err)
        __atomic_store_n(failed, err, __ATOMIC_RELAXED);
}

static void stop(void *arg)
{
    struct worker *w = this_worker();

    (void)arg;
    for (struct sp_cuda_mark *mark = w->marks, *next; mark; mark = next) {
        next = mark->next;
        cudaEventDestroy(mark->event);
        free(mark);
    }
    sp_cuda_destroy(w->cuda);
    cudaEventDestroy(w->followed);
    cudaEventDestroy(w->queued);
    cudaStreamDestroy(w->stream);
    *w = (struct worker){0};
}

int sp_cuda_start(void)
{
    int failed = 0;

    starpu_execute_on_each_worker(start, &failed, STARPU_CUDA);
    return failed;
}

void sp_cuda_stop(void)
{
    sp_cuda_pools_settle();
    starpu_execute_on_each_worker(stop, NULL, STARPU_CUDA);
}

const struct sp_backend *sp_cuda_kernels(const void *arg)
{
    return sp_cuda_backend(this_worker()->cuda, ((const struct sp_task_args *)arg)->dtype);
}

static void sample_bytes(void)
{
    int64_t sum = sp_cuda_held_bytes();

    for (unsigned node = 0; node < starpu_memory_nodes_get_count(); node++)
        if (starpu_node_get_kind(node) == STARPU_CUDA_RAM)
            sum += (int64_t)starpu_memory_get_used(node);
    sp_raise(&peak, sum);
}

int64_t sp_cuda_peak_bytes(void)
{
    return __atomic_load_n(&peak, __ATOMIC_RELAXED);
}

void sp_cuda_queued(const void *arg)
{
    struct worker *w = this_worker();

    if (((const struct sp_task_args *)arg)->in_stream)
        return;
    sample_bytes(); /* buffers last at least as long as an op, whose end comes here */
    sp_cuda_must(cudaEventRecord(w->queued, w->stream), "an event");
    sp_cuda_must(cudaStreamWaitEvent(starpu_cuda_get_local_stream(), w->queued, 0), "an event");
}

/* ---- what follows kernels ---- */

/* The worker of a GPU's memory; NULL: it has none. */
static struct worker *worker_of(unsigned node)
{
    for (int i = 0; i < STARPU_NMAXWORKERS; i++)
        if (workers[i].cuda && workers[i].node == node)
            return &workers[i];
    return NULL;
}

cudaStream_t sp_cuda_stream_of(unsigned node)
{
    const struct worker *w = worker_of(node);

    return w ? w->stream : NULL;
}

/* Other threads may record the same event before the stream waits for it: then it waits for more. */
static void follow(unsigned node, cudaStream_t stream)
{
    const struct worker *w = worker_of(node);

    if (!w)
        return;
    sp_cuda_must(cudaEventRecord(w->followed, w->stream), "an event");
    sp_cuda_must(cudaStreamWaitEvent(stream, w->followed, 0), "an event");
}

static int copy(const struct starpu_vector_interface *from,
                const struct starpu_vector_interface *to, enum cudaMemcpyKind kind,
                cudaStream_t stream)
{
    sp_cuda_must(cudaMemcpyAsync((void *)to->ptr, (const void *)from->ptr,
                                 from->nx * from->elemsize, kind, stream),
                 "a copy");
    return -EAGAIN; /* StarPU waits for it */
}

static int copy_out(void *from, unsigned node, void *to, unsigned to_node, cudaStream_t stream)
{
    (void)to_node;
    follow(node, stream);
    return copy(from, to, cudaMemcpyDeviceToHost, stream);
}

static int copy_in(void *from, unsigned from_node, void *to, unsigned node, cudaStream_t stream)
{
    (void)from_node;
    follow(node, stream);
    return copy(from, to, cudaMemcpyHostToDevice, stream);
}

/* Without a request the host waits. */
static int copy_now(void *from, unsigned from_node, void *to, unsigned to_node)
{
    unsigned node = starpu_node_get_kind(from_node) == STARPU_CUDA_RAM ? from_node : to_node;

    sp_cuda_must(cudaStreamSynchronize(sp_cuda_stream_of(node)), "before a copy");
    return starpu_interface_vector_ops.copy_methods->any_to_any(from, from_node, to, to_node, NULL);
}

void sp_cuda_set_copies(struct starpu_data_copy_methods *methods)
{
    methods->cuda_to_ram_async = copy_out;
    methods->ram_to_cuda_async = copy_in;
    methods->cuda_to_ram = methods->ram_to_cuda = copy_now;
}

static struct sp_cuda_mark *take_mark(struct worker *w)
{
    struct sp_cuda_mark *mark;

    pthread_mutex_lock(&marks_mutex);
    mark = w->marks;
    if (mark)
        w->marks = mark->next;
    pthread_mutex_unlock(&marks_mutex);
    if (mark)
        return mark;
    mark = calloc(1, sizeof *mark);
    SP_NEED(mark, "no memory for an event");
    mark->worker = w;
    sp_cuda_must(cudaSetDevice(w->cuda->device), "a GPU");
    sp_cuda_must(cudaEventCreateWithFlags(&mark->event, cudaEventDisableTiming), "an event");
    return mark;
}

struct sp_cuda_mark *sp_cuda_mark(unsigned node)
{
    struct worker *w = worker_of(node);
    struct sp_cuda_mark *mark = w ? take_mark(w) : NULL;

    if (mark)
        sp_cuda_must(cudaEventRecord(mark->event, w->stream), "an event");
    return mark;
}

void sp_cuda_unmark(struct sp_cuda_mark *mark)
{
    if (!mark)
        return;
    pthread_mutex_lock(&marks_mutex);
    mark->next = mark->worker->marks;
    mark->worker->marks = mark;
    pthread_mutex_unlock(&marks_mutex);
}

void sp_cuda_pass_mark(const struct sp_cuda_mark *mark, cudaStream_t stream)
{
    if (mark)
        sp_cuda_must(cudaStreamWaitEvent(stream, mark->event, 0), "an event");
}

void sp_cuda_name(int device, char name[128])
{
    struct cudaDeviceProp p;

    snprintf(name, 128, "%.127s",
             cudaGetDeviceProperties(&p, device) == cudaSuccess ? p.name : "GPU");
}

void sp_cuda_wait(const struct sp_backend *k)
{
    if (k->cuda)
        sp_cuda_must(cudaStreamSynchronize(k->cuda->stream), "what was measured");
}

int sp_cuda_devices(bool wanted)
{
    int n = 0;

    /* Streams that share a hardware queue wait for each other. CUDA reads the variable when the
     * first context is made, and every caller that makes one calls this before. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (cudaGetDeviceCount(&n) == cudaSuccess && n > 0)
        return n;
    if (wanted)
        sp_cuda_check(0); /* says why */
    return 0;
}

int sp_cuda_usable(int device)
{
    return sp_cuda_check(device);
}

const char *sp_cuda_cudnn(void)
{
#ifdef HAVE_CUDNN_FRONTEND
    return sp_cudnn_about();
#else
    return "no (built without its frontend)";
#endif
}

const char *sp_cuda_flash3(void)
{
    return sp_flash3_about();
}
#else

int sp_cuda_start(void)
{
    return sp_error(ENOSYS, "internal: CUDA is wanted in a build without it");
}

void sp_cuda_stop(void)
{
}

int sp_cuda_devices(bool wanted)
{
    if (wanted)
        sp_error(ENODEV, "cuda: this build has no CUDA kernels: install the CUDA toolkit and build "
                         "again, or use --device cpu");
    return 0;
}

int sp_cuda_usable(int device)
{
    return sp_error(ENODEV, "cuda: no device %d in a build without CUDA", device);
}

void sp_cuda_name(int device, char name[128])
{
    (void)device;
    snprintf(name, 128, "none");
}

void sp_cuda_wait(const struct sp_backend *k)
{
    (void)k;
}

void sp_cuda_set_copies(struct starpu_data_copy_methods *methods)
{
    (void)methods;
}

struct sp_cuda_mark *sp_cuda_mark(unsigned node)
{
    (void)node;
    return NULL;
}

void sp_cuda_unmark(struct sp_cuda_mark *mark)
{
    (void)mark;
}

const char *sp_cuda_cudnn(void)
{
    return "no";
}

const char *sp_cuda_flash3(void)
{
    return "no";
}

int64_t sp_cuda_peak_bytes(void)
{
    return 0;
}
#endif
