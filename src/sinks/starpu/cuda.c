#include "sinks/starpu/cuda.h"
#include "codelets/task/codelet.h"
#include "config.h"
#include "sp_error.h"
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/attention/cudnn_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/flash3/flash3.h"
#include "sp_atomic.h"

static struct worker {
    struct sp_cuda *cuda;
    cudaStream_t stream; /* of the kernels */
    cudaEvent_t queued;  /* follows all kernels that a task queued */
    bool waits;          /* from now on no task ends before its kernels */
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
    sp_cuda_must(cudaEventCreateWithFlags(&w->queued, cudaEventDisableTiming), "an event");
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
    starpu_execute_on_each_worker(stop, NULL, STARPU_CUDA);
}

/*
 * If a GPU is short of memory, StarPU moves buffers once the tasks that write them have ended for
 * it; the results of kernels still queued would be lost. So no task may end early unless the plan
 * leaves a sixth of the buffers' limit free (train/start/device.h). If buffers exceed that all the
 * same, this waits for the queued kernels, and from then on StarPU waits for all.
 */
static bool has_room(struct worker *w)
{
    unsigned node = starpu_worker_get_local_memory_node();
    int64_t total = (int64_t)starpu_memory_get_total(node);

    if (!w->waits && total > 0 && (int64_t)starpu_memory_get_used(node) > total / 6 * 5) {
        w->waits = true;
        sp_cuda_must(cudaStreamSynchronize(w->stream), "before memory runs short");
    }
    return !w->waits;
}

const struct sp_backend *sp_cuda_kernels(const void *arg)
{
    struct sp_task_args *a = (struct sp_task_args *)(uintptr_t)arg; /* the task's own */
    struct worker *w = this_worker();
    bool room = has_room(w);

    a->in_stream = a->in_stream && room;
    return sp_cuda_backend(w->cuda, a->dtype);
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
