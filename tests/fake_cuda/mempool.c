/* Memory in the order of a stream, from the device's own pool or one that the program made. */
#include "fake.h"
#include <stdlib.h>

struct CUmemPoolHandle_st {
    int device;
    size_t in_use; /* allocations */
    bool reaches[SP_DEVICES];
};

static struct CUmemPoolHandle_st of_device[SP_DEVICES];

bool sp_pool_reaches(int device, const struct CUmemPoolHandle_st *pool)
{
    return device == pool->device || pool->reaches[device];
}

/* Memory freed earlier on the stream is available again. */
static cudaError_t allocate(void **pointer, size_t bytes, struct CUmemPoolHandle_st *pool,
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
    r = sp_device_memory(pool->device, bytes);
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
    of_device[device].device = device;
    return allocate(pointer, bytes, &of_device[device], stream);
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    SP_ENTER();
    return allocate(pointer, bytes, pool, stream);
}

static void run_free(struct sp_item *item)
{
    sp_take_lock();
    sp_device_memory_end(item->set.span.at, item);
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
    item->set.span.at = pointer;
    sp_submit(sp_stream_of(stream), item, false);
    sp_give_lock();
    return cudaSuccess;
}

/* ---- pools --------------------------------------------------------------------------------- */

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    SP_ENTER();
    if (!sp_settings()->pools)
        return sp_leave(cudaErrorNotSupported);
    if (props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice)
        return sp_leave(cudaErrorInvalidValue);
    sp_device_exists(props->location.id);
    *pool = calloc(1, sizeof **pool);
    if (!*pool)
        sp_refuse("no host memory for a pool");
    (*pool)->device = props->location.id;
    return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    SP_ENTER();
    if (pool->in_use)
        sp_refuse("%zu pieces of the pool are not freed", pool->in_use);
    free(pool);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
    SP_ENTER();
    (void)pool, (void)value;
    return attr == cudaMemPoolAttrReleaseThreshold ? cudaSuccess : sp_leave(cudaErrorInvalidValue);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access,
                                 size_t n)
{
    SP_ENTER();
    for (size_t i = 0; i < n; i++) {
        sp_device_exists(access[i].location.id);
        if (access[i].location.type != cudaMemLocationTypeDevice ||
            access[i].location.id == pool->device)
            return sp_leave(cudaErrorInvalidValue);
        pool->reaches[access[i].location.id] = access[i].flags == cudaMemAccessFlagsProtReadWrite;
    }
    return cudaSuccess;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes)
{
    SP_ENTER();
    (void)pool, (void)bytes; /* keeps nothing */
    return cudaSuccess;
}
