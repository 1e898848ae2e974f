/* Memory of the host in reach of devices, pools that a program makes. */
#include "fake.h"
#include <stdlib.h>

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    struct sp_region *r;

    SP_ENTER();
    *pointer = NULL;
    if (flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return sp_leave(cudaErrorInvalidValue);
    if (!bytes)
        return cudaSuccess;
    r = sp_region_new(SP_PINNED, sp_current(), bytes);
    sp_take_lock();
    sp_region_insert(r);
    sp_give_lock();
    *pointer = r->base;
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
        sp_memory_release(pointer, SP_PINNED);
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
    sp_take_lock();
    taken = sp_region_touched(pointer, bytes);
    if (!taken) {
        r = sp_new(sizeof *r);
        r->base = pointer;
        r->bytes = bytes;
        r->place = SP_REGISTERED;
        r->device = sp_current();
        sp_region_insert(r);
    }
    sp_give_lock();
    return sp_leave(taken ? cudaErrorHostMemoryAlreadyRegistered : cudaSuccess);
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
        sp_check_access(NULL, (struct sp_span){r->base, r->bytes}, true,
                        "the host, unregistering it");
        sp_region_end(r);
    }
    sp_give_lock();
    return sp_leave(found ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

/* ---- pools ----------------------------------------------------------------------------------- */

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    SP_ENTER();
    return sp_pool_allocate(pointer, bytes, pool, stream);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    SP_ENTER();
    if (!sp_fake_cudart.pools)
        return sp_leave(cudaErrorNotSupported);
    if (props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice)
        return sp_leave(cudaErrorInvalidValue);
    sp_device_exists(props->location.id);
    *pool = sp_new(sizeof **pool);
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
