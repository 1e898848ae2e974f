#include "offload/pool.h"
#include "sp_error.h"
#include <stdlib.h>

/* The idle handles of one size: a ring in the order in which they were given back. */
struct shelf {
    size_t bytes, elem; /* as StarPU counts them */
    int made, idle, first, cap;
    starpu_data_handle_t *ring; /* [cap] */
};

/* What hangs on a handle. */
struct holders {
    struct sp_pool *pool;
    int n;
};

struct sp_pool {
    enum sp_pool_dead dead;
    bool oldest; /* is taken, not the latest */
    int slack, n;
    struct shelf *shelves;
};

struct sp_pool *sp_pool_create(int slack, enum sp_pool_dead dead)
{
    struct sp_pool *p = calloc(1, sizeof *p);

    if (p) {
        p->slack = slack;
        p->oldest = slack > 0;
        p->dead = dead;
    }
    return p;
}

void sp_pool_take_oldest(struct sp_pool *p, bool oldest)
{
    p->oldest = oldest || p->slack > 0;
}

static struct shelf *shelf_of(struct sp_pool *p, size_t bytes, size_t elem)
{
    struct shelf *more;

    for (int i = 0; i < p->n; i++)
        if (p->shelves[i].bytes == bytes && p->shelves[i].elem == elem)
            return &p->shelves[i];
    more = realloc(p->shelves, (size_t)(p->n + 1) * sizeof *more);
    SP_NEED(more, "out of memory for a pool of handles");
    p->shelves = more;
    p->shelves[p->n] = (struct shelf){.bytes = bytes, .elem = elem};
    return &p->shelves[p->n++];
}

starpu_data_handle_t sp_pool_get(struct sp_pool *p, size_t n, size_t elem_bytes, const char *name)
{
    size_t elem = sp_vector_elem(n, elem_bytes);
    struct shelf *s = shelf_of(p, sp_vector_length(n) * elem, elem);
    struct holders *holders;
    starpu_data_handle_t handle;

    if (s->idle > p->slack) {
        int at = p->oldest ? s->first : (s->first + s->idle - 1) % s->cap;

        handle = s->ring[at];
        if (p->oldest)
            s->first = (s->first + 1) % s->cap;
        s->idle--;
        sp_pool_hold(handle);
        return handle;
    }
    sp_vector_register(&handle, n, elem_bytes, name);
    holders = malloc(sizeof *holders);
    SP_NEED(holders, "out of memory for a pool of handles");
    *holders = (struct holders){.pool = p, .n = 1};
    starpu_data_set_user_data(handle, holders);
    s->made++;
    return handle;
}

void sp_pool_hold(starpu_data_handle_t handle)
{
    ((struct holders *)starpu_data_get_user_data(handle))->n++;
}

static void grow(struct shelf *s)
{
    int cap = s->cap ? 2 * s->cap : 8;
    starpu_data_handle_t *ring = malloc((size_t)cap * sizeof *ring);

    SP_NEED(ring, "out of memory for a pool of handles");
    for (int i = 0; i < s->idle; i++)
        ring[i] = s->ring[(s->first + i) % s->cap];
    free(s->ring);
    s->ring = ring;
    s->cap = cap;
    s->first = 0;
}

void sp_pool_put(starpu_data_handle_t handle)
{
    struct holders *holders = starpu_data_get_user_data(handle);
    struct shelf *s;

    if (--holders->n > 0)
        return;
    s = shelf_of(holders->pool, starpu_data_get_size(handle), starpu_vector_get_elemsize(handle));
    if (holders->pool->dead == SP_POOL_FREES)
        starpu_data_invalidate_submit(handle);
    else if (holders->pool->dead == SP_POOL_FORGETS)
        starpu_data_deinitialize_submit(handle);
    if (s->idle == s->cap)
        grow(s);
    s->ring[(s->first + s->idle++) % s->cap] = handle;
}

void sp_pool_drop(starpu_data_handle_t *handle)
{
    if (*handle)
        sp_pool_put(*handle);
    *handle = NULL;
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

        for (int k = 0; k < s->idle; k++) {
            starpu_data_handle_t handle = s->ring[(s->first + k) % s->cap];

            free(starpu_data_get_user_data(handle));
            starpu_data_unregister_no_coherency(handle);
        }
        free(s->ring);
    }
    free(p->shelves);
    free(p);
}
