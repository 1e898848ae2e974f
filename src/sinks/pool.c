#include "sinks/pool.h"
#include "sp_error.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The idle tensors of one size: a ring in the order in which they were given back. */
struct shelf {
    size_t bytes, elem; /* as StarPU counts them */
    int next;           /* shelf whose size has the same hash; -1: none */
    int made, idle, first, cap;
    struct sp_tensor **ring; /* [cap] */
};

enum { HASHES = 64 };

struct sp_pool {
    struct sp_sink *sink;
    enum sp_pool_dead dead;
    bool oldest; /* is taken, not the latest */
    int slack, n;
    struct shelf *shelves;
    int first[HASHES];                              /* shelf of a hash of sizes; -1: none */
    void (*told)(void *arg, int shelf, bool taken); /* NULL: nobody watches */
    void *arg;
};

struct sp_pool *sp_pool_create(struct sp_sink *s, int slack, enum sp_pool_dead dead)
{
    struct sp_pool *p = calloc(1, sizeof *p);

    if (p) {
        p->sink = s;
        p->slack = slack;
        p->oldest = slack > 0;
        p->dead = dead;
        memset(p->first, -1, sizeof p->first);
    }
    return p;
}

void sp_pool_take_oldest(struct sp_pool *p, bool oldest)
{
    p->oldest = oldest || p->slack > 0;
}

static int shelf_of(struct sp_pool *p, size_t bytes, size_t elem)
{
    int hash = (int)(bytes * UINT64_C(0x9e3779b97f4a7c15) >> 58);
    struct shelf *more;

    for (int i = p->first[hash]; i >= 0; i = p->shelves[i].next)
        if (p->shelves[i].bytes == bytes && p->shelves[i].elem == elem)
            return i;
    more = realloc(p->shelves, (size_t)(p->n + 1) * sizeof *more);
    SP_NEED(more, "out of memory for a pool of tensors");
    p->shelves = more;
    p->shelves[p->n] = (struct shelf){.bytes = bytes, .elem = elem, .next = p->first[hash]};
    return p->first[hash] = p->n++;
}

struct sp_tensor *sp_pool_get(struct sp_pool *p, size_t n, size_t elem_bytes, const char *name)
{
    size_t elem = sp_tensor_elem(n, elem_bytes);
    int shelf = shelf_of(p, sp_tensor_length(n) * elem, elem);
    struct shelf *s = &p->shelves[shelf];
    struct sp_tensor *tensor;

    if (p->told)
        p->told(p->arg, shelf, true);
    if (s->idle > p->slack) {
        int at = p->oldest ? s->first : (s->first + s->idle - 1) % s->cap;

        tensor = s->ring[at];
        if (p->oldest)
            s->first = (s->first + 1) % s->cap;
        s->idle--;
        sp_pool_hold(tensor);
        return tensor;
    }
    tensor = sp_tensor_make(p->sink, n, elem_bytes, name);
    tensor->pool = p;
    tensor->shelf = shelf;
    tensor->references = 1;
    s->made++;
    return tensor;
}

void sp_pool_hold(struct sp_tensor *tensor)
{
    tensor->references++;
}

static void grow(struct shelf *s)
{
    int cap = s->cap ? 2 * s->cap : 8;
    struct sp_tensor **ring = malloc((size_t)cap * sizeof *ring);

    SP_NEED(ring, "out of memory for a pool of tensors");
    for (int i = 0; i < s->idle; i++)
        ring[i] = s->ring[(s->first + i) % s->cap];
    free(s->ring);
    s->ring = ring;
    s->cap = cap;
    s->first = 0;
}

void sp_pool_put(struct sp_tensor *tensor)
{
    struct sp_pool *p = tensor->pool;
    struct shelf *s;

    if (--tensor->references > 0)
        return;
    s = &p->shelves[tensor->shelf];
    if (p->told)
        p->told(p->arg, tensor->shelf, false);
    if (p->dead != SP_POOL_KEEPS)
        p->sink->ops->forget(tensor, p->dead);
    if (s->idle == s->cap)
        grow(s);
    s->ring[(s->first + s->idle++) % s->cap] = tensor;
}

void sp_pool_drop(struct sp_tensor **tensor)
{
    if (*tensor)
        sp_pool_put(*tensor);
    *tensor = NULL;
}

void sp_pool_watch(struct sp_pool *p, void (*told)(void *arg, int shelf, bool taken), void *arg)
{
    p->told = told;
    p->arg = arg;
}

int sp_pool_shelves(const struct sp_pool *p)
{
    return p->n;
}

size_t sp_pool_shelf_bytes(const struct sp_pool *p, int shelf)
{
    return p->shelves[shelf].bytes;
}

int sp_pool_slack(const struct sp_pool *p)
{
    return p->slack;
}

size_t sp_pool_bytes(const struct sp_pool *p)
{
    size_t sum = 0;

    for (int i = 0; i < p->n; i++) {
        const struct shelf *s = &p->shelves[i];

        sum += (size_t)(s->made - (p->dead == SP_POOL_FREES ? s->idle : 0)) * s->bytes;
    }
    return sum;
}

void sp_pool_destroy(struct sp_pool *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++) {
        struct shelf *s = &p->shelves[i];

        for (int k = 0; k < s->idle; k++)
            sp_tensor_unmake(s->ring[(s->first + k) % s->cap]);
        free(s->ring);
    }
    free(p->shelves);
    free(p);
}
