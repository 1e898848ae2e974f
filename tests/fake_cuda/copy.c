/*
 * The work of streams: copies, fills, kernels. When the host goes on is what CUDA documents ("API
 * synchronization behavior"):
 *
 *                      from pageable memory   to pageable memory   pinned         device to device
 *   cudaMemcpyAsync    when it is staged      when it is done      at once        at once
 *   cudaMemcpy         when it is staged      when it is done      when done      at once
 *
 * so a kernel in a non-blocking stream may begin before the bytes of a plain cudaMemcpy are there.
 */
#include "fake.h"
#include <stdio.h>
#include <string.h>

static const char *const names[] = {"copy host to host", "copy host to device",
                                    "copy device to host", "copy device to device"};

/* ---- copies ---------------------------------------------------------------------------------- */

static struct sp_span source(const struct sp_item *item)
{
    return (struct sp_span){(char *)item->from, item->span.bytes};
}

static void run_copy(struct sp_item *item)
{
    sp_take_lock();
    if (!item->staged)
        sp_check_access(item, source(item), false, item->name);
    sp_check_access(item, item->span, true, item->name);
    sp_give_lock();
    memcpy(item->span.at, item->from, item->span.bytes);
}

/* Pageable memory belongs to the caller again when the call returns. */
static void stage(struct sp_item *item)
{
    sp_check_access(NULL, source(item), false, "the host, staging a copy");
    item->staged = sp_new(item->span.bytes);
    item->from = memcpy(item->staged, item->from, item->span.bytes);
}

struct side {
    bool on_device, pageable;
    int device;
};

static struct side side_of(const void *at, size_t bytes)
{
    const struct sp_region *r = sp_region_of(at, bytes);

    return (struct side){r && r->place == SP_ON_DEVICE, !r, r ? r->device : -1};
}

/* `wait`: it is no Async function. The lock is held. */
static void submit(struct sp_item *item, cudaStream_t stream, bool wait)
{
    struct side to = side_of(item->span.at, item->span.bytes);
    struct side from = side_of(item->from, item->span.bytes);
    struct CUstream_st *s = sp_stream_of(stream);

    item->name = names[2 * from.on_device + to.on_device];
    item->bytes = item->span.bytes;
    if (from.on_device != to.on_device)
        item->engine = to.on_device ? SP_TO_DEVICE : SP_TO_HOST;
    if (from.pageable && to.on_device) {
        if (wait)
            sp_submit(s, sp_item_new("synchronize", NULL), true);
        stage(item);
    }
    wait = wait && !(from.on_device && to.on_device) && !item->staged;
    sp_submit(s, item, wait || to.pageable);
}

static struct sp_item *copy_item(void *to, const void *from, size_t bytes)
{
    struct sp_item *item = sp_item_new("copy", run_copy);

    item->span = (struct sp_span){to, bytes};
    item->from = from;
    return item;
}

static cudaError_t copy(struct sp_item *item, enum cudaMemcpyKind kind, cudaStream_t stream,
                        bool wait)
{
    char to[160];

    sp_take_lock();
    if ((unsigned)kind > cudaMemcpyDefault)
        sp_refuse("%d is no kind of copy", (int)kind);
    if (!item->span.bytes) {
        sp_item_drop(item);
    } else {
        struct side a = side_of(item->span.at, item->span.bytes);
        struct side b = side_of(item->from, item->span.bytes);

        snprintf(to, sizeof to, "%s", sp_where(item->span.at));
        if (kind != cudaMemcpyDefault && (int)kind != 2 * b.on_device + a.on_device)
            sp_refuse("invalid argument: %s, but to %s from %s", names[kind], to,
                      sp_where(item->from));
        submit(item, stream, wait);
    }
    sp_give_lock();
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    SP_ENTER();
    return copy(copy_item(to, from, bytes), kind, 0, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    SP_ENTER();
    return copy(copy_item(to, from, bytes), kind, stream, false);
}

static void check_on(const void *at, size_t bytes, int device)
{
    struct side side = side_of(at, bytes);

    sp_device_exists(device);
    if (!side.on_device || side.device != device)
        sp_refuse("%s is not on device %d", sp_where(at), device);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    SP_ENTER();
    sp_take_lock();
    check_on(to, bytes, to_device);
    check_on(from, bytes, from_device);
    submit(copy_item(to, from, bytes), stream, false);
    sp_give_lock();
    return cudaSuccess;
}

/*
 * Without a stream, it comes after all that is queued on the three devices and before what follows:
 * here by waiting, though CUDA lets the host go on.
 */
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    SP_ENTER();
    sp_take_lock();
    check_on(to, bytes, to_device);
    check_on(from, bytes, from_device);
    sp_wait_device(to_device);
    sp_wait_device(from_device);
    submit(copy_item(to, from, bytes), 0, false);
    sp_wait_device(sp_current());
    sp_give_lock();
    return cudaSuccess;
}

/* ---- fills: of pinned memory queued and waited for ------------------------------------------- */

static void run_fill(struct sp_item *item)
{
    sp_take_lock();
    sp_check_access(item, item->span, true, item->name);
    sp_give_lock();
    memset(item->span.at, item->value, item->span.bytes);
}

static cudaError_t fill(struct sp_span span, int value, cudaStream_t stream, bool wait)
{
    const struct sp_region *r;
    struct sp_item *item;

    if (!span.bytes)
        return cudaSuccess;
    sp_take_lock();
    r = sp_region_of(span.at, span.bytes);
    if (!r)
        sp_refuse("invalid argument: %zu bytes at %s", span.bytes, sp_where(span.at));
    item = sp_item_new("fill", run_fill);
    item->span = span;
    item->value = value;
    sp_submit(sp_stream_of(stream), item, wait && r->place != SP_ON_DEVICE);
    sp_give_lock();
    return cudaSuccess;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    SP_ENTER();
    return fill((struct sp_span){at, bytes}, value, 0, true);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    SP_ENTER();
    return fill((struct sp_span){at, bytes}, value, stream, false);
}

/* ---- kernels: host functions that a stream runs ---------------------------------------------- */

static void run_kernel(struct sp_item *item)
{
    sp_kernel = item;
    item->kernel.function(item->kernel.argument);
    sp_kernel = NULL;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    struct sp_item *item;

    SP_ENTER();
    if (!function)
        return sp_leave(cudaErrorInvalidValue);
    item = sp_item_new("kernel", run_kernel);
    item->is_kernel = true;
    item->engine = SP_KERNELS;
    item->kernel.function = function;
    item->kernel.argument = argument;
    sp_take_lock();
    sp_submit(sp_stream_of(stream), item, false);
    sp_give_lock();
    return cudaSuccess;
}

void sp_fake_kernel_hangs(void)
{
    if (sp_kernel)
        sp_kernel->hangs = true;
}

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
    /* cudaDeviceEnablePeerAccess says nothing of pools. */
    if (r->pool && k->device != r->pool->device && !r->pool->reaches[k->device])
        sp_refuse("kernel %s of device %d accesses %zu bytes at %s: its pool gives no access",
                  k->name, k->device, bytes, sp_where(at));
    if (r->place == SP_ON_DEVICE && !r->pool && !sp_device_reaches(k->device, r->device))
        sp_refuse("kernel %s of device %d accesses %zu bytes at %s: peer access is not enabled",
                  k->name, k->device, bytes, sp_where(at));
}

void sp_fake_kernel_access(const void *at, size_t bytes, int write)
{
    if (!bytes)
        return;
    sp_take_lock();
    if (sp_kernel) {
        check_reach(sp_kernel, at, bytes);
        sp_kernel->bytes += bytes;
    } else if (sp_region_of(at, bytes) && sp_region_of(at, bytes)->place == SP_ON_DEVICE)
        sp_refuse("the host accesses %zu bytes at %s", bytes, sp_where(at));
    sp_check_access(sp_kernel, (struct sp_span){(char *)at, bytes}, write,
                    sp_kernel ? sp_kernel->name : "the host");
    sp_give_lock();
}
