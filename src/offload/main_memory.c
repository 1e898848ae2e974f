#include "offload/main_memory.h"
#include "offload/host_memory.h"
#include "sp_error.h"
#include "transport/transport.h"
#include <starpu.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_TRIES = 64, PATIENCE_S = 30 };

/* Failures since a buffer was last allocated or freed, and the time of the first. */
static int64_t failures, since_s;

static int64_t now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

void sp_main_memory_failed(size_t bytes, bool leaves)
{
    const double MiB = 1024 * 1024;
    int64_t n = __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED), now = now_s();
    struct sp_memory_limit has;

    if (n == 1)
        __atomic_store_n(&since_s, now, __ATOMIC_RELAXED);
    if (n < MOST_TRIES ||
        (leaves && now - __atomic_load_n(&since_s, __ATOMIC_RELAXED) < PATIENCE_S))
        return;
    if (__atomic_exchange_n(&failures, INT64_MIN, __ATOMIC_RELAXED) < 0)
        return; /* another thread prints the message */
    has = sp_host_memory_has_free(1);
    sp_error(ENOMEM,
             "no memory for a buffer of %.1f MiB: %s has room for %.1f; try --recompute, shorter "
             "sequences, fewer micro-batches, or more machines",
             (double)bytes / MiB, has.origin, (double)has.bytes / MiB);
    sp_transport_abort(1);
}

void sp_main_memory_moved(void)
{
    if (__atomic_load_n(&failures, __ATOMIC_RELAXED) > 0)
        __atomic_store_n(&failures, 0, __ATOMIC_RELAXED);
}

static int take(unsigned node, void **memory, size_t size, int flags)
{
    (void)node, (void)flags;
    *memory = malloc(size);
    if (!*memory) {
        sp_main_memory_failed(size, false);
        return -ENOMEM;
    }
    sp_main_memory_moved();
    return 0;
}

static int give(unsigned node, void *memory, size_t size, int flags)
{
    (void)node, (void)size, (void)flags;
    free(memory);
    sp_main_memory_moved();
    return 0;
}

void sp_main_memory_start(void)
{
    __atomic_store_n(&failures, 0, __ATOMIC_RELAXED);
    starpu_malloc_set_hooks(take, give);
}

void sp_main_memory_uncount(bool pinned)
{
    starpu_malloc_on_node_set_default_flags(STARPU_MAIN_RAM, pinned ? STARPU_MALLOC_PINNED : 0);
}

void sp_main_memory_stop(void)
{
    starpu_malloc_set_hooks(NULL, NULL);
}
