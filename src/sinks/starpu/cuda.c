#include "sinks/starpu/cuda.h"
#include "codelets/task/codelet.h"
#include "config.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/attention/cudnn_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flash3/flash3.h"
#include "sp_atomic.h"
#include <errno.h>

/* Events of the last tasks: to follow one before these, a stream follows a later one. */
enum { EVENTS = 1024 };

static struct worker {
    struct sp_cuda *cuda;
    cudaStream_t stream;        /* of the kernels */
    uint64_t last;              /* number of the last task */
    cudaEvent_t queued[EVENTS]; /* behind the kernels of task k: queued[k % EVENTS] */
} workers[STARPU_NMAXWORKERS];

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
    for (int i = 0; i < EVENTS; i++)
        sp_cuda_must(cudaEventCreateWithFlags(&w->queued[i], cudaEventDisableTiming), "an event");
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
    sp_cuda_destroy(w->cuda);
    for (int i = 0; i < EVENTS; i++)
        cudaEventDestroy(w->queued[i]);
    cudaStreamDestroy(w->stream);
    *w = (struct worker){0};
}

/* True if kernels of the worker are queued or run. */
static bool computes(int worker)
{
    bool busy = workers[worker].cuda && cudaStreamQuery(workers[worker].stream) != cudaSuccess;

    if (busy)
        cudaGetLastError(); /* "not ready" would be taken for an error of the next call */
    return busy;
}

int sp_cuda_start(void)
{
    int failed = 0;

    starpu_execute_on_each_worker(start, &failed, STARPU_CUDA);
    sp_order_busy(computes);
    return failed;
}

void sp_cuda_stop(void)
{
    sp_order_busy(NULL);
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

void sp_cuda_queued(const void *arg, void *buffers[], int n)
{
    struct worker *w = this_worker();
    uint64_t task = w->last + 1;
    cudaEvent_t queued = w->queued[task % EVENTS];

    sp_cuda_must(cudaEventRecord(queued, w->stream), "an event");
    __atomic_store_n(&w->last, task, __ATOMIC_RELEASE);
    for (int i = 0; i < n; i++)
        ((struct sp_gpu_vector *)buffers[i])->used = task;
    if (((const struct sp_task_args *)arg)->in_stream)
        return;
    sample_bytes(); /* buffers last at least as long as an op, whose end comes here */
    sp_cuda_must(cudaStreamWaitEvent(starpu_cuda_get_local_stream(), queued, 0), "an event");
}

/* ---- what follows kernels ---- */

/* The worker of a GPU; NULL: it has none. */
static struct worker *worker_of(int device)
{
    for (int i = 0; i < STARPU_NMAXWORKERS; i++)
        if (workers[i].cuda && workers[i].cuda->device == device)
            return &workers[i];
    return NULL;
}

void sp_cuda_follow(int device, uint64_t used, cudaStream_t stream)
{
    const struct worker *w = used ? worker_of(device) : NULL;

    if (w)
        sp_cuda_must(cudaStreamWaitEvent(stream, w->queued[used % EVENTS], 0), "an event");
}

uint64_t sp_cuda_last(unsigned node)
{
    const struct worker *w = worker_of(starpu_memory_node_get_devid(node));

    return w ? __atomic_load_n(&w->last, __ATOMIC_ACQUIRE) : 0;
}

static int copy(const struct sp_gpu_vector *from, const struct sp_gpu_vector *to,
                enum cudaMemcpyKind kind, cudaStream_t stream)
{
    sp_cuda_must(cudaMemcpyAsync((void *)to->vector.ptr, (const void *)from->vector.ptr,
                                 from->vector.nx * from->vector.elemsize, kind, stream),
                 "a copy");
    return -EAGAIN; /* StarPU waits for it */
}

static int copy_out(void *from, unsigned node, void *to, unsigned to_node, cudaStream_t stream)
{
    (void)to_node;
    sp_cuda_follow(starpu_memory_node_get_devid(node), ((struct sp_gpu_vector *)from)->used,
                   stream);
    return copy(from, to, cudaMemcpyDeviceToHost, stream);
}

static int copy_in(void *from, unsigned from_node, void *to, unsigned node, cudaStream_t stream)
{
    (void)from_node;
    sp_cuda_follow(starpu_memory_node_get_devid(node), ((struct sp_gpu_vector *)to)->used, stream);
    return copy(from, to, cudaMemcpyHostToDevice, stream);
}

/* Without a request the host waits. */
static int copy_now(void *from, unsigned from_node, void *to, unsigned to_node)
{
    unsigned node = starpu_node_get_kind(from_node) == STARPU_CUDA_RAM ? from_node : to_node;
    const struct worker *w = worker_of(starpu_memory_node_get_devid(node));

    if (w)
        sp_cuda_must(cudaStreamSynchronize(w->stream), "before a copy");
    return starpu_interface_vector_ops.copy_methods->any_to_any(from, from_node, to, to_node, NULL);
}

void sp_cuda_set_copies(struct starpu_data_copy_methods *methods)
{
    methods->cuda_to_ram_async = copy_out;
    methods->ram_to_cuda_async = copy_in;
    methods->cuda_to_ram = methods->ram_to_cuda = copy_now;
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

/* Ada, Hopper and all that came after them. */
bool sp_cuda_multiplies_fp8(int device)
{
    int major = 0, minor = 0;

    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return 10 * major + minor >= 89;
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

bool sp_cuda_multiplies_fp8(int device)
{
    (void)device;
    return false;
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

uint64_t sp_cuda_last(unsigned node)
{
    (void)node;
    return 0;
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
