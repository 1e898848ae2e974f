/*
 * Pieces of memory by address. Pieces of cudaMalloc and cudaHostAlloc end where a page out of reach
 * begins, are full of NaN in any type (0x7ff7), and stay out of reach for long after they were
 * freed.
 */
#include "fake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    GRAVES = 512,
    SPARSE = 256 << 20 /* allocations from here on have no NaN: tests touch little of them */
};

static const uint16_t poison = 0x7ff7;

static struct sp_region **table; /* by address */
static size_t n_regions, room;

static struct {
    char *map;
    size_t bytes;
} graves[GRAVES]; /* the last that were freed */
static size_t n_freed;

/* ---- the table ------------------------------------------------------------------------------- */

/* The first region that ends after `at`. */
static size_t lookup(const char *at)
{
    size_t low = 0, high = n_regions;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (table[middle]->base + table[middle]->bytes > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool sp_region_touched(const void *at, size_t bytes)
{
    size_t i = lookup(at);

    return i < n_regions && table[i]->base < (const char *)at + bytes;
}

struct sp_region *sp_region_of(const void *at, size_t bytes)
{
    struct sp_region *r;

    if (!sp_region_touched(at, bytes))
        return NULL;
    r = table[lookup(at)];
    if ((const char *)at < r->base || (const char *)at + bytes > r->base + r->bytes)
        sp_refuse("%zu bytes at %s are not all in one piece of memory", bytes, sp_where(at));
    return r;
}

const char *sp_where(const void *pointer)
{
    static __thread char words[160];
    const char *at = pointer, *what = "pageable host memory, or nothing";

    if (sp_region_touched(at, 1)) {
        const struct sp_region *r = table[lookup(at)];
        size_t offset = (size_t)(at - r->base);

        if (r->place == SP_ON_DEVICE)
            snprintf(words, sizeof words, "%p (device %d, byte %zu of %zu)", pointer, r->device,
                     offset, r->bytes);
        else
            snprintf(words, sizeof words, "%p (%s host memory, byte %zu of %zu)", pointer,
                     r->place == SP_PINNED ? "pinned" : "registered", offset, r->bytes);
        return words;
    }
    for (size_t i = 0; i < GRAVES; i++)
        if (at >= graves[i].map && at < graves[i].map + graves[i].bytes)
            what = "memory that was freed";
    snprintf(words, sizeof words, "%p (%s)", pointer, what);
    return words;
}

void sp_region_insert(struct sp_region *r)
{
    size_t i = lookup(r->base);

    if (n_regions == room) {
        room = room ? 2 * room : 64;
        table = realloc(table, room * sizeof *table);
        if (!table)
            sp_refuse("no host memory for the table of regions");
    }
    memmove(table + i + 1, table + i, (n_regions - i) * sizeof *table);
    table[i] = r;
    n_regions++;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

struct sp_region *sp_region_new(enum sp_place place, int device, size_t bytes)
{
    size_t whole = round_up(bytes, page_bytes());
    struct sp_region *r = sp_new(sizeof *r);
    char *map = mmap(NULL, whole + page_bytes(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint16_t *fill = (uint16_t *)map;

    if (map == MAP_FAILED)
        sp_refuse("the host has no memory for %zu bytes", bytes);
    madvise(map, whole, MADV_HUGEPAGE); /* StarPU asks for 32 MiB at a time: fewer faults */
    for (size_t i = 0; bytes < SPARSE && i < whole / sizeof *fill; i++)
        fill[i] = poison;
    mprotect(map + whole, page_bytes(), PROT_NONE);
    r->place = place;
    r->device = device;
    r->bytes = bytes;
    r->map = map;
    r->map_bytes = whole;
    /* As far back as its alignment lets it; pinned memory begins a page, as CUDA's does. */
    r->base = place == SP_ON_DEVICE ? map + whole - round_up(bytes, SP_ALIGNMENT) : map;
    return r;
}

/* Between the allocation and the edges of its pages there is still poison. */
static void check_edges(const struct sp_region *r)
{
    for (size_t i = 0; r->bytes < SPARSE && i < r->map_bytes; i++) {
        bool before = r->map + i < r->base, within = !before && r->map + i < r->base + r->bytes;

        if (within)
            i = (size_t)(r->base - r->map) + r->bytes - 1;
        else if (r->map[i] != ((const char *)&poison)[i % sizeof poison])
            sp_refuse("the %zu bytes at %p were written %s", r->bytes, (void *)r->base,
                      before ? "before their beginning" : "past their end");
    }
}

/* The address is not used again soon, and nobody can touch it. */
static void bury(struct sp_region *r)
{
    size_t i = n_freed++ % GRAVES;

    check_edges(r);
    if (graves[i].map)
        munmap(graves[i].map, graves[i].bytes);
    graves[i].map = r->map;
    graves[i].bytes = r->map_bytes + page_bytes();
    mmap(r->map, r->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
}

void sp_region_end(struct sp_region *r)
{
    size_t i = lookup(r->base);

    n_regions--;
    memmove(table + i, table + i + 1, (n_regions - i) * sizeof *table);
    sp_check_forget(&r->accesses);
    if (r->map)
        bury(r);
    free(r);
}
