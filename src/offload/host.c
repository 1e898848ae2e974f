#include "offload/host.h"
#include "offload/main_memory.h"
#include "sp_atomic.h"
#include "sp_error.h"
#include "sp_idle.h"
#include <hwloc.h>
#include <pthread.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Below this a buffer comes from malloc: it would not be worth a mapping of its own. */
enum { SMALL = 32 * 1024 };

/* Bytes of the reserved memory that a thread touches at a time. */
enum { PIECE = 8 << 20 };

static struct {
    pthread_mutex_t mutex;
    hwloc_topology_t topology;       /* NULL: one NUMA node, nothing to choose */
    hwloc_cpuset_t cores;            /* of this process */
    const struct sp_host_pins *pins; /* NULL: nothing is pinned */
    struct sp_idle idle;
    size_t most_idle; /* bytes */
    int64_t bytes, peak;
    /* The first buffers are cut from this memory, front to back. Freed, they are idle like
     * others. */
    char *reserved;
    size_t reserved_bytes, made_bytes;
} host = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Finds the cores that buffers should be near, if there are several NUMA nodes. */
static void find_node(void)
{
    if (hwloc_topology_init(&host.topology))
        return;
    host.cores = hwloc_bitmap_alloc();
    if (host.cores && !hwloc_topology_load(host.topology) &&
        hwloc_get_nbobjs_by_type(host.topology, HWLOC_OBJ_NUMANODE) > 1 &&
        !hwloc_get_cpubind(host.topology, host.cores, HWLOC_CPUBIND_PROCESS))
        return;
    hwloc_bitmap_free(host.cores);
    hwloc_topology_destroy(host.topology);
    host.cores = NULL;
    host.topology = NULL;
}

/* Maps memory near the cores that compute, whichever thread touches it first. The binding is a
 * hint. */
static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); /* fewer faults; refused by some kernels */
    if (host.topology)
        hwloc_set_area_membind(host.topology, memory, bytes, host.cores, HWLOC_MEMBIND_BIND, 0);
    return memory;
}

static void *make_reserved(size_t bytes)
{
    void *memory = NULL;

    pthread_mutex_lock(&host.mutex);
    if (bytes <= host.reserved_bytes - host.made_bytes) {
        memory = host.reserved + host.made_bytes;
        host.made_bytes += bytes;
    }
    pthread_mutex_unlock(&host.mutex);
    return memory;
}

static void *make(size_t bytes)
{
    void *memory = make_reserved(bytes);

    if (memory)
        return memory;
    memory = map(bytes);
    if (memory && host.pins)
        host.pins->pin(memory, bytes); /* if it is refused, copies are slower */
    return memory;
}

static bool is_reserved(const void *memory)
{
    return host.reserved && (const char *)memory >= host.reserved &&
           (const char *)memory < host.reserved + host.reserved_bytes;
}

static void unmap(void *memory, size_t bytes)
{
    if (is_reserved(memory))
        return;
    if (host.pins)
        host.pins->unpin(memory);
    munmap(memory, bytes);
}

static int take(unsigned node, void **memory, size_t size, int flags)
{
    size_t bytes = sp_host_round(size);

    (void)node, (void)flags;
    pthread_mutex_lock(&host.mutex);
    *memory = bytes < SMALL ? NULL : sp_idle_take(&host.idle, bytes).memory;
    pthread_mutex_unlock(&host.mutex);
    if (!*memory && bytes >= SMALL)
        *memory = make(bytes);
    else if (!*memory && posix_memalign(memory, SP_HOST_PAGE, bytes))
        *memory = NULL;
    if (!*memory) {
        sp_main_memory_failed(size, true);
        return -ENOMEM;
    }
    sp_main_memory_moved();
    sp_raise(&host.peak, __atomic_add_fetch(&host.bytes, (int64_t)bytes, __ATOMIC_RELAXED));
    return 0;
}

static int give(unsigned node, void *memory, size_t size, int flags)
{
    size_t bytes = sp_host_round(size);
    struct sp_idle_buffer gone[SP_MOST_IDLE];
    int n = 0;

    (void)node, (void)flags;
    sp_main_memory_moved();
    __atomic_sub_fetch(&host.bytes, (int64_t)bytes, __ATOMIC_RELAXED);
    pthread_mutex_lock(&host.mutex);
    if (bytes >= SMALL) {
        while (host.idle.n &&
               (host.idle.n == SP_MOST_IDLE || bytes > host.most_idle - host.idle.bytes))
            gone[n++] = sp_idle_oldest(&host.idle);
        if (bytes <= host.most_idle) {
            sp_idle_put(&host.idle, (struct sp_idle_buffer){.memory = memory, .bytes = bytes});
            memory = NULL;
        }
    }
    pthread_mutex_unlock(&host.mutex);
    for (int i = 0; i < n; i++)
        unmap(gone[i].memory, gone[i].bytes);
    if (memory && bytes >= SMALL)
        unmap(memory, bytes);
    else
        free(memory);
    return 0;
}

void *sp_host_take(size_t bytes)
{
    void *memory;

    return take(STARPU_MAIN_RAM, &memory, bytes, 0) ? NULL : memory;
}

void sp_host_give(void *memory, size_t bytes)
{
    give(STARPU_MAIN_RAM, memory, bytes, 0);
}

void sp_host_start(size_t idle, const struct sp_host_pins *pins)
{
    host.pins = pins;
    host.most_idle = idle;
    host.bytes = host.peak = 0;
    find_node();
    starpu_malloc_set_hooks(take, give);
}

/* Pins as much of `bytes` as is allowed, and unmaps the rest. Returns the bytes pinned. */
static size_t pin_most(char *memory, size_t bytes)
{
    size_t n = bytes;

    while (n && !host.pins->pin(memory, n))
        n = n / 2 / SP_HOST_PAGE * SP_HOST_PAGE;
    if (n < bytes)
        munmap(memory + n, bytes - n);
    return n;
}

void sp_host_reserve(int64_t bytes)
{
    size_t n = sp_host_round((size_t)bytes), piece = (size_t)PIECE;
    char *memory = host.pins && bytes > 0 ? map(n) : NULL;

    if (!memory)
        return;
#pragma omp parallel for schedule(dynamic)
    for (size_t at = 0; at < n; at += piece)
        memset(memory + at, 0, n - at < piece ? n - at : piece);
    n = pin_most(memory, n);
    host.reserved = n ? memory : NULL;
    host.reserved_bytes = n;
}

static void drop_reserved(void)
{
    if (!host.reserved)
        return;
    host.pins->unpin(host.reserved);
    munmap(host.reserved, host.reserved_bytes);
    host.reserved = NULL;
    host.reserved_bytes = host.made_bytes = 0;
}

void sp_host_trim(void)
{
    pthread_mutex_lock(&host.mutex);
    while (host.idle.n) {
        struct sp_idle_buffer oldest = sp_idle_oldest(&host.idle);

        unmap(oldest.memory, oldest.bytes);
    }
    pthread_mutex_unlock(&host.mutex);
    __atomic_store_n(&host.peak, sp_host_bytes(), __ATOMIC_RELAXED);
}

void sp_host_stop(void)
{
    starpu_malloc_set_hooks(NULL, NULL);
    sp_host_trim();
    drop_reserved();
    if (host.topology) {
        hwloc_bitmap_free(host.cores);
        hwloc_topology_destroy(host.topology);
        host.topology = NULL;
    }
}

int64_t sp_host_bytes(void)
{
    return __atomic_load_n(&host.bytes, __ATOMIC_RELAXED);
}

int64_t sp_host_peak(void)
{
    return __atomic_load_n(&host.peak, __ATOMIC_RELAXED);
}

/* The bytes that a line of /proc/self/status gives in KiB; 0: there is no such line. */
static int64_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    long long kib = 0;
    char line[256];

    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) {
            sscanf(line + strlen(key), " %lld", &kib);
            break;
        }
    if (f)
        fclose(f);
    return 1024 * kib;
}

int64_t sp_host_resident(void)
{
    return status_bytes("VmRSS:");
}

int64_t sp_host_most_resident(void)
{
    return status_bytes("VmHWM:");
}
