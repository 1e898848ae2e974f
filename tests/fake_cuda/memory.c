/* Memory as the API gives it: on a device, pinned, registered; and what a pointer is. */
#include "fake.h"
#include <stdlib.h>
#include <string.h>

static void *enter(struct sp_region *r)
{
    sp_take_lock();
    sp_region_insert(r);
    sp_give_lock();
    return r->base;
}

/* The piece that begins at `pointer`. The lock is held. */
static struct sp_region *whole(void *pointer, enum sp_place place)
{
    struct sp_region *r = sp_region_of(pointer, 1);

    if (!r || r->place != place || r->base != pointer)
        sp_refuse("%s was not allocated, not by this, or is freed already", sp_where(pointer));
    return r;
}

/* The lock is held. */
static void end(struct sp_region *r)
{
    if (r->place == SP_ON_DEVICE)
        sp_counts[r->device].bytes -= sp_region_cost(r->bytes);
    sp_region_end(r);
}

static void check_unused(const struct sp_item *by, struct sp_region *r, const char *what)
{
    struct sp_span all = {r->base, r->bytes, r->bytes, 1};

    sp_check_access(by, &all, true, what);
}

/* Freeing waits for the device, as CUDA's does; to the checker that is no excuse. */
static void release(void *pointer, enum sp_place place)
{
    struct sp_region *r;

    sp_take_lock();
    r = whole(pointer, place);
    if (r->pool)
        sp_refuse("%s is of a pool: cudaFreeAsync frees it", sp_where(pointer));
    check_unused(NULL, r, "the host, freeing it");
    for (int d = 0; d < sp_settings()->devices; d++)
        if (place != SP_ON_DEVICE || d == r->device)
            sp_wait_device(d);
    end(r);
    sp_give_lock();
}

/* ---- on a device ----------------------------------------------------------------------------- */

/* Takes room on a device, if there is. */
static bool take(int device, size_t bytes)
{
    struct sp_fake_counts *c = &sp_counts[device];
    bool fits;

    sp_take_lock();
    fits =
        bytes <= sp_settings()->memory && c->bytes + sp_region_cost(bytes) <= sp_settings()->memory;
    if (fits) {
        c->bytes += sp_region_cost(bytes);
        if (c->peak_bytes < c->bytes)
            c->peak_bytes = c->bytes;
    }
    sp_give_lock();
    return fits;
}

struct sp_region *sp_device_memory(int device, size_t bytes)
{
    struct sp_region *r = take(device, bytes) ? sp_region_new(SP_ON_DEVICE, device, bytes) : NULL;

    if (r)
        enter(r);
    return r;
}

void sp_device_memory_end(void *base, const struct sp_item *by)
{
    struct sp_region *r = whole(base, SP_ON_DEVICE);

    check_unused(by, r, "freeing it");
    end(r);
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    struct sp_region *r;
    int device;

    SP_ENTER();
    device = sp_current();
    *pointer = NULL;
    if (!bytes)
        return cudaSuccess;
    r = sp_device_memory(device, bytes);
    if (!r)
        return sp_leave(cudaErrorMemoryAllocation);
    __atomic_add_fetch(&sp_counts[device].allocations, 1, __ATOMIC_RELAXED);
    *pointer = r->base;
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    SP_ENTER();
    sp_current();
    if (pointer)
        release(pointer, SP_ON_DEVICE);
    return cudaSuccess;
}

void sp_memory_reset(int device)
{
    struct sp_region *r;
    size_t i = 0;

    while ((r = sp_region_next(&i, device))) {
        sp_region_end(r);
        i--;
    }
    sp_counts[device].bytes = 0;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    SP_ENTER();
    sp_take_lock();
    *total = sp_settings()->memory;
    *available = *total - sp_counts[sp_current()].bytes;
    sp_give_lock();
    return cudaSuccess;
}

/* ---- of the host, in reach of devices -------------------------------------------------------- */

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    SP_ENTER();
    *pointer = NULL;
    if (flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return sp_leave(cudaErrorInvalidValue);
    if (bytes)
        *pointer = enter(sp_region_new(SP_PINNED, sp_current(), bytes));
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer)
{
    SP_ENTER();
    if (pointer)
        release(pointer, SP_PINNED);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    struct sp_region *r;
    bool taken;

    SP_ENTER();
    (void)flags;
    if (!pointer || !bytes)
        return sp_leave(cudaErrorInvalidValue);
    r = calloc(1, sizeof *r);
    if (!r)
        sp_refuse("no host memory for a region");
    r->base = pointer;
    r->bytes = bytes;
    r->place = SP_REGISTERED;
    r->device = sp_current();
    sp_take_lock();
    taken = sp_region_touched(pointer, bytes);
    if (!taken)
        sp_region_insert(r);
    sp_give_lock();
    if (!taken)
        return cudaSuccess;
    free(r);
    return sp_leave(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void *pointer)
{
    struct sp_region *r;
    bool found;

    SP_ENTER();
    sp_take_lock();
    r = sp_region_of(pointer, 1);
    found = r && r->place == SP_REGISTERED && r->base == pointer;
    if (found) {
        struct sp_span all = {r->base, r->bytes, r->bytes, 1};

        sp_check_access(NULL, &all, true, "the host, unregistering it");
        sp_region_end(r);
    }
    sp_give_lock();
    return sp_leave(found ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

/* ---- what a pointer is ----------------------------------------------------------------------- */

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
    struct sp_region *r;

    SP_ENTER();
    sp_take_lock();
    r = sp_region_of(host, 1);
    sp_give_lock();
    if (flags || !r || r->place == SP_ON_DEVICE)
        return sp_leave(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    struct sp_region *r;

    SP_ENTER();
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    sp_take_lock();
    r = sp_region_of(pointer, 1);
    if (r) {
        attributes->type = r->place == SP_ON_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
        attributes->device = r->device;
        attributes->devicePointer = (void *)pointer;
    }
    if (!r || r->place != SP_ON_DEVICE)
        attributes->hostPointer = (void *)pointer;
    sp_give_lock();
    return cudaSuccess;
}
