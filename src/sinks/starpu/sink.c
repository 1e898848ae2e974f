#include "sinks/starpu/sink.h"
#include "config.h"
#include "offload/evicted.h"
#include "offload/mover.h"
#include "offload/simulated_memory.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/device_memory.h"
#include "sinks/starpu/tensor.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "transport/post.h"
#include <errno.h>
#include <string.h>

/* The data interface of tensors of a run with GPUs: StarPU's vectors, with copies that follow
 * kernels, and perhaps another allocator. */
static struct starpu_data_interface_ops gpu_ops;
static struct starpu_data_copy_methods gpu_copies;
static const struct sp_vector_memory *memory_of_gpus;
static bool has_gpus;

/* ---- on a GPU --------------------------------------------------------------------------- */

static bool on_gpu(unsigned node)
{
    return memory_of_gpus && starpu_node_get_kind(node) == STARPU_CUDA_RAM;
}

static size_t bytes_of(const struct starpu_vector_interface *v)
{
    return v->allocsize ? v->allocsize : 1; /* as StarPU counts it */
}

/* Counts the bytes first, so that StarPU enforces its limit, and makes room after a refusal. */
static starpu_ssize_t allocate(void *interface, unsigned node)
{
    struct sp_gpu_vector *gpu = interface;
    struct starpu_vector_interface *v = &gpu->vector;
    void *memory;

    gpu->used = sp_cuda_last(node); /* StarPU may have freed the memory just now */
    if (!on_gpu(node))
        return starpu_interface_vector_ops.allocate_data_on_node(interface, node);
    if (starpu_memory_allocate(node, bytes_of(v), 0))
        return -ENOMEM;
    memory = memory_of_gpus->take(node, bytes_of(v), &gpu->used);
    if (!memory) {
        starpu_memory_deallocate(node, bytes_of(v));
        return -ENOMEM;
    }
    v->ptr = v->dev_handle = (uintptr_t)memory;
    v->offset = 0;
    return (starpu_ssize_t)bytes_of(v);
}

/* StarPU's own allocator gives a buffer that it kept. */
static void reuse(void *interface, const void *kept, unsigned node)
{
    starpu_interface_vector_ops.reuse_data_on_node(interface, kept, node);
    ((struct sp_gpu_vector *)interface)->used = sp_cuda_last(node);
}

static void release(void *interface, unsigned node)
{
    const struct sp_gpu_vector *gpu = interface;
    struct starpu_vector_interface *v = interface;

    if (!on_gpu(node)) {
        starpu_interface_vector_ops.free_data_on_node(interface, node);
        return;
    }
    memory_of_gpus->give(node, (void *)v->ptr, bytes_of(v), gpu->used);
    starpu_memory_deallocate(node, bytes_of(v));
    v->ptr = v->dev_handle = 0;
}

void sp_vectors_on_gpus(bool gpus, const struct sp_vector_memory *memory)
{
    has_gpus = gpus;
    memory_of_gpus = memory;
    gpu_copies = *starpu_interface_vector_ops.copy_methods;
    sp_cuda_set_copies(&gpu_copies);
    gpu_ops = starpu_interface_vector_ops;
    gpu_ops.interface_size = sizeof(struct sp_gpu_vector);
    gpu_ops.copy_methods = &gpu_copies;
    gpu_ops.allocate_data_on_node = allocate;
    gpu_ops.reuse_data_on_node = reuse;
    gpu_ops.free_data_on_node = release;
    gpu_ops.dontcache = memory != NULL;
}

/* ---- registered --------------------------------------------------------------------------- */

static void make(struct sp_tensor *t, void *memory, const char *name)
{
    int home = memory ? STARPU_MAIN_RAM : -1;
    struct sp_gpu_vector gpu = {.vector = {.id = STARPU_VECTOR_INTERFACE_ID,
                                           .nx = (uint32_t)t->length,
                                           .elemsize = t->elem,
                                           .allocsize = sp_tensor_size(t)}};
    struct starpu_vector_interface *v = &gpu.vector;
    starpu_data_handle_t handle;

#ifdef HAVE_SIMGRID
    if (!memory) {
        home = STARPU_MAIN_RAM;
        memory = sp_simulated_memory(sp_tensor_size(t));
        SP_NEED(memory, "no addresses for %zu bytes of %s", sp_tensor_size(t), name);
    }
#endif
    v->ptr = v->dev_handle = (uintptr_t)memory;
    if (has_gpus)
        starpu_data_register(&handle, home, &gpu, &gpu_ops);
    else
        starpu_vector_data_register(&handle, home, v->ptr, v->nx, v->elemsize);
    starpu_data_set_name(handle, name);
    t->handle = handle;
}

static void unmake(struct sp_tensor *t, bool value)
{
    if (value)
        starpu_data_unregister(sp_handle(t));
    else
        starpu_data_unregister_no_coherency(sp_handle(t));
}

static void forget(struct sp_tensor *t, enum sp_pool_dead dead)
{
    if (dead == SP_POOL_FREES)
        starpu_data_invalidate_submit(sp_handle(t));
    else if (dead == SP_POOL_FORGETS)
        starpu_data_deinitialize_submit(sp_handle(t));
}

struct sp_tensor sp_tensor_on(starpu_data_handle_t handle)
{
    return (struct sp_tensor){.sink = sp_starpu_sink(),
                              .length = starpu_vector_get_nx(handle),
                              .elem = starpu_vector_get_elemsize(handle),
                              .handle = handle};
}

/* ---- values ------------------------------------------------------------------------------------ */

static void *acquire(struct sp_tensor *t, enum sp_access access)
{
    starpu_data_acquire(sp_handle(t), (enum starpu_data_access_mode)access);
    return starpu_data_get_local_ptr(sp_handle(t));
}

void *sp_tensor_local(const struct sp_tensor *t)
{
    return starpu_data_get_local_ptr(sp_handle(t));
}

static void release_value(struct sp_tensor *t)
{
    starpu_data_release(sp_handle(t));
}

static void *take_memory(size_t bytes)
{
#ifdef HAVE_SIMGRID
    return sp_simulated_memory(bytes);
#else
    void *memory;

    if (starpu_malloc(&memory, bytes))
        return NULL;
    return memset(memory, 0, bytes);
#endif
}

static void give_memory(void *memory, size_t bytes)
{
#ifdef HAVE_SIMGRID
    (void)memory, (void)bytes;
#else
    starpu_free_noflag(memory, bytes);
#endif
}

static void pin(void *memory, size_t bytes)
{
    starpu_memory_pin(memory, bytes);
}

static void unpin(void *memory, size_t bytes)
{
    starpu_memory_unpin(memory, bytes);
}

/* ---- parts ------------------------------------------------------------------------------------- */

static void handles_of(struct sp_tensor *const *part, int n, starpu_data_handle_t *handle)
{
    for (int i = 0; i < n; i++)
        handle[i] = sp_handle(part[i]);
}

static void cut(struct sp_tensor *whole, int n, struct sp_tensor **part)
{
    struct starpu_data_filter filter = {.filter_func = starpu_vector_filter_block,
                                        .nchildren = (unsigned)n};
    starpu_data_handle_t handle[n];

    starpu_data_partition_plan(sp_handle(whole), &filter, handle);
    for (int i = 0; i < n; i++) {
        starpu_data_set_name(handle[i], "part");
        part[i]->handle = handle[i];
    }
}

static void uncut(struct sp_tensor *whole, int n, struct sp_tensor **part)
{
    starpu_data_handle_t handle[n];

    handles_of(part, n, handle);
    starpu_data_partition_clean(sp_handle(whole), (unsigned)n, handle);
}

static void view(struct sp_tensor *whole, int n, struct sp_tensor **part, bool parts)
{
    starpu_data_handle_t handle[n];

    handles_of(part, n, handle);
    if (parts)
        starpu_data_partition_submit(sp_handle(whole), (unsigned)n, handle);
    else
        starpu_data_unpartition_submit(sp_handle(whole), (unsigned)n, handle, -1);
}

/* ---- messages, steps, workers ------------------------------------------------------------------ */

static void send(struct sp_tensor *t, int rank, int64_t tag, const char *name,
                 struct sp_transfer *times)
{
    sp_transport_send(sp_handle(t), rank, tag, name, times);
}

static void receive(struct sp_tensor *t, int rank, int64_t tag, struct sp_transfer *times,
                    void (*arrived)(void *arg), void *arg)
{
    sp_transport_recv(sp_handle(t), rank, tag, times, arrived, arg);
}

void sp_tensor_send_wait(struct sp_tensor *t, int rank, int64_t tag)
{
    sp_transport_send_wait(sp_handle(t), rank, tag);
}

void sp_tensor_receive_wait(struct sp_tensor *t, int rank, int64_t tag)
{
    sp_transport_recv_wait(sp_handle(t), rank, tag);
}

static void step(unsigned long number)
{
    static bool numbered;

    if (numbered)
        starpu_iteration_pop();
    numbered = number > 0;
    if (numbered)
        starpu_iteration_push(number);
}

void sp_workers_run(void (*f)(void *arg), void *arg)
{
    starpu_execute_on_each_worker(f, arg, STARPU_CPU);
}

void sp_worker_run(int worker, void (*f)(void *arg), void *arg)
{
    unsigned id = (unsigned)worker;

    starpu_execute_on_specific_workers(f, arg, 1, &id, "one worker");
}

void sp_workers_rest(long ns)
{
    sp_order_rest(ns);
}

int sp_workers_waiting(void)
{
    return sp_order_waiting();
}

double sp_worker_held_us(int worker)
{
    return sp_order_held_us(worker);
}

void sp_workers_reset(void)
{
    sp_order_reset();
}

int sp_worker_here(void)
{
    return starpu_worker_get_id();
}

bool sp_starpu_profile(bool on)
{
    bool before = starpu_profiling_status_get() == STARPU_PROFILING_ENABLE;

    starpu_profiling_status_set(on ? STARPU_PROFILING_ENABLE : STARPU_PROFILING_DISABLE);
    return before;
}

/* ---- offloading
 * -------------------------------------------------------------------------------- */

static void start_mover(struct sp_mover *m, unsigned tier, int worker)
{
    sp_mover_init(m, starpu_worker_get_memory_node((unsigned)worker), tier, worker);
}

static const struct sp_tier_ops tier = {
    .start = start_mover,
    .stop = sp_mover_destroy,
    .evict = sp_move_out,
    .gate = sp_move_hold,
    .settle = sp_move_settle,
    .evicted_start = sp_evicted_create,
    .evicted_stop = sp_evicted_destroy,
    .place = sp_place_new,
    .write = sp_evicted_write,
    .wait = sp_leave_wait,
    .read = sp_evicted_read,
    .fetch = sp_evicted_return,
    .forget = sp_place_forget,
};

static const struct sp_sink_ops ops = {
    .make = make,
    .unmake = unmake,
    .forget = forget,
    .acquire = acquire,
    .release = release_value,
    .take_memory = take_memory,
    .give_memory = give_memory,
    .pin = pin,
    .unpin = unpin,
    .cut = cut,
    .uncut = uncut,
    .view = view,
    .insert = sp_starpu_insert,
    .send = send,
    .receive = receive,
    .names_messages = sp_transport_records,
    .counts_in_int = sp_transport_counts_in_int,
    .step = step,
    .wait = sp_transport_wait_all,
    .bound = sp_order_bound,
    .discard = sp_order_forget,
    .now_us = sp_now_us,
    .tier = &tier,
};

struct sp_sink *sp_starpu_sink(void)
{
    static struct sp_sink sink = {.ops = &ops};

    return &sink;
}
