/* Memory of devices: of cudaMalloc, and in the order of a stream. */
#include "fake.h"

static struct CUmemPoolHandle_st usual[SP_DEVICES];

static size_t cost(size_t bytes)
{
    return (bytes + SP_ALIGNMENT - 1) / SP_ALIGNMENT * SP_ALIGNMENT;
}

/* So many bytes of a device, in the table; NULL: it has no more. */
static struct sp_region *device_memory(int device, size_t bytes)
{
    struct sp_fake_counts *c = &sp_counts[device];
    size_t most = sp_fake_cudart.total_bytes;
    struct sp_region *r;
    bool fits;

    sp_take_lock();
    fits = sp_fake_cudart.allocations < sp_fake_cudart.most_allocations && bytes <= most &&
           c->bytes + cost(bytes) <= most;
    if (fits) {
        c->bytes += cost(bytes);
        if (c->peak_bytes < c->bytes)
            c->peak_bytes = c->bytes;
        sp_fake_cudart.used_bytes += cost(bytes);
        sp_fake_cudart.allocations++;
        sp_fake_cudart.live++;
    }
    sp_give_lock();
    if (!fits)
        return NULL;
    r = sp_region_new(SP_ON_DEVICE, device, bytes);
    sp_take_lock();
    sp_region_insert(r);
    sp_give_lock();
    return r;
}

/* By an item that runs, or the host. The lock is held. */
static void end_memory(struct sp_region *r, const struct sp_item *by, const char *what)
{
    sp_check_access(by, (struct sp_span){r->base, r->bytes}, true, what);
    if (!by) /* Freeing waits for the device, as CUDA's does; to the checker that is no excuse. */
        for (int d = 0; d < sp_fake_cudart.devices; d++)
            if (r->place != SP_ON_DEVICE || d == r->device)
                sp_wait_device(d);
    if (r->place == SP_ON_DEVICE) {
        sp_counts[r->device].bytes -= cost(r->bytes);
        sp_fake_cudart.used_bytes -= cost(r->bytes);
        sp_fake_cudart.live--;
    }
    sp_region_end(r);
}

void sp_memory_release(void *pointer, enum sp_place place)
{
    struct sp_region *r;

    sp_take_lock();
    r = sp_region_of(pointer, 1);
    if (!r || r->place != place || r->base != pointer)
        sp_refuse("%s was not allocated, not by this, or is freed already", sp_where(pointer));
    if (r->pool) /* which cudaFree may end too */
        r->pool->in_use--;
    end_memory(r, NULL, "the host, freeing it");
    sp_give_lock();
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    struct sp_region *r;
    int device;

    SP_ENTER();
    device = sp_current();
    sp_fake_cudart.device_waits++;
    *pointer = NULL;
    if (!bytes)
        return cudaSuccess;
    r = device_memory(device, bytes);
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
    if (pointer) {
        sp_fake_cudart.device_waits++;
        sp_memory_release(pointer, SP_ON_DEVICE);
    }
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    SP_ENTER();
    sp_take_lock();
    *total = sp_fake_cudart.total_bytes;
    *available = *total - sp_counts[sp_current()].bytes;
    sp_give_lock();
    return cudaSuccess;
}

/* ---- in the order of a stream ---------------------------------------------------------------- */

/* Memory freed on the stream before is there again. */
cudaError_t sp_pool_allocate(void **pointer, size_t bytes, struct CUmemPoolHandle_st *pool,
                             cudaStream_t stream)
{
    struct CUstream_st *s;
    struct sp_region *r;

    *pointer = NULL;
    sp_take_lock();
    s = sp_stream_of(stream);
    if (s->device != pool->device)
        sp_refuse("a stream of device %d, a pool of device %d", s->device, pool->device);
    if (s->newest)
        sp_wait(s->newest);
    sp_give_lock();
    if (!bytes)
        return cudaSuccess;
    r = device_memory(pool->device, bytes);
    if (!r)
        return sp_leave(cudaErrorMemoryAllocation);
    sp_take_lock();
    r->pool = pool;
    pool->in_use++;
    sp_counts[pool->device].pooled++;
    sp_give_lock();
    *pointer = r->base;
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream)
{
    int device;

    SP_ENTER();
    device = sp_current();
    usual[device].device = device;
    return sp_pool_allocate(pointer, bytes, &usual[device], stream);
}

static void run_free(struct sp_item *item)
{
    sp_take_lock();
    end_memory(sp_region_of(item->span.at, 1), item, "freeing it");
    sp_give_lock();
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    struct sp_region *r;
    struct sp_item *item;

    SP_ENTER();
    if (!pointer)
        return cudaSuccess;
    sp_take_lock();
    r = sp_region_of(pointer, 1);
    if (!r || r->base != pointer || !r->pool)
        sp_refuse("%s is of no pool, or is freed already", sp_where(pointer));
    r->pool->in_use--;
    r->pool = NULL; /* once */
    item = sp_item_new("free", run_free);
    item->span.at = pointer;
    sp_submit(sp_stream_of(stream), item, false);
    sp_give_lock();
    return cudaSuccess;
}
