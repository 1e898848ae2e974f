/* Kernels: host functions that a stream runs. */
#include "fake.h"

__thread struct sp_item *sp_kernel;

static void run_kernel(struct sp_item *item)
{
    sp_kernel = item;
    item->kernel.function(item->kernel.argument);
    sp_kernel = NULL;
}

static void run_callback(struct sp_item *item)
{
    sp_kernel = item;
    item->callback.function(item->callback.stream, cudaSuccess, item->callback.argument);
    sp_kernel = NULL;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    struct sp_item *item;

    SP_ENTER();
    if (!function)
        return sp_leave(cudaErrorInvalidValue);
    item = sp_item_new("kernel", run_kernel);
    item->kernel.function = function;
    item->kernel.argument = argument;
    sp_take_lock();
    sp_counts[sp_stream_of(stream)->device].kernels++;
    sp_submit(sp_stream_of(stream), item, false);
    sp_give_lock();
    return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                  void *argument, unsigned int flags)
{
    struct sp_item *item;

    SP_ENTER();
    if (!function || flags)
        return sp_leave(cudaErrorInvalidValue);
    item = sp_item_new("callback", run_callback);
    item->callback.function = function;
    item->callback.stream = stream;
    item->callback.argument = argument;
    sp_take_lock();
    sp_submit(sp_stream_of(stream), item, false);
    sp_give_lock();
    return cudaSuccess;
}

/* ---- what kernels tell ----------------------------------------------------------------------- */

void sp_fake_kernel_name(const char *name)
{
    if (sp_kernel)
        sp_kernel->name = name;
}

/* A kernel, unlike a host function, is launched with its device as the current one. */
static void check_reach(const struct sp_item *k, const void *at, size_t bytes)
{
    const struct sp_region *r = sp_region_of(at, bytes);

    if (k->current != k->device)
        sp_refuse("kernel %s of device %d was launched with device %d as the current one", k->name,
                  k->device, k->current);
    if (!r)
        sp_refuse("kernel %s accesses %zu bytes at %s", k->name, bytes, sp_where(at));
    if (r->pool && !sp_pool_reaches(k->device, r->pool))
        sp_refuse("kernel %s of device %d accesses %zu bytes at %s: its pool gives no access",
                  k->name, k->device, bytes, sp_where(at));
    if (r->place == SP_ON_DEVICE && !r->pool && !sp_device_reaches(k->device, r->device))
        sp_refuse("kernel %s of device %d accesses %zu bytes at %s: peer access is not enabled",
                  k->name, k->device, bytes, sp_where(at));
}

void sp_fake_kernel_access(const void *at, size_t bytes, int write)
{
    struct sp_span span = {(char *)at, bytes, bytes, 1};

    if (!bytes)
        return;
    sp_take_lock();
    if (sp_kernel)
        check_reach(sp_kernel, at, bytes);
    else if (sp_region_of(at, bytes) && sp_region_of(at, bytes)->place == SP_ON_DEVICE)
        sp_refuse("the host accesses %zu bytes at %s", bytes, sp_where(at));
    sp_check_access(sp_kernel, &span, write, sp_kernel ? sp_kernel->name : "the host");
    sp_give_lock();
}

static void run_access(struct sp_item *item)
{
    sp_take_lock();
    check_reach(item, item->access.span.at, item->access.span.bytes);
    sp_check_access(item, &item->access.span, item->access.write, item->name);
    sp_give_lock();
}

void sp_fake_queue_access(struct CUstream_st *stream, const char *name, const void *at,
                          size_t bytes, int write)
{
    struct sp_item *item;

    SP_ENTER();
    if (!bytes)
        return;
    item = sp_item_new(name, run_access);
    item->access.span = (struct sp_span){(char *)at, bytes, bytes, 1};
    item->access.write = write;
    sp_take_lock();
    sp_submit(sp_stream_of(stream), item, false);
    sp_give_lock();
}
