#include "graphs/weights/gathered.h"
#include "config.h"
#include "offload/simulated_memory.h"
#include "offload/vector.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t sp_gathered_bytes(const struct sp_gathered *w)
{
    return w->handle ? starpu_data_get_size(w->handle) : 0;
}

/* Zeros, in memory that GPUs can copy from. NULL: there is none. */
static void *take_memory(size_t bytes)
{
#ifdef HAVE_SIMGRID
    return sp_simulated_memory(bytes);
#else
    void *memory;

    if (starpu_malloc(&memory, bytes))
        return NULL;
    return memset(memory, 0, bytes);
#endif
}

static void give_memory(void *memory, size_t bytes)
{
#ifdef HAVE_SIMGRID
    (void)memory, (void)bytes;
#else
    starpu_free_noflag(memory, bytes);
#endif
}

int sp_gathered_create(struct sp_gathered *w, size_t n, int parts, size_t elem_bytes)
{
    struct starpu_data_filter filter = {.filter_func = starpu_vector_filter_block,
                                        .nchildren = (unsigned)parts};

    *w = (struct sp_gathered){.parts = parts};
    w->part = calloc((size_t)parts, sizeof(starpu_data_handle_t));
    w->memory = w->part ? take_memory(n * elem_bytes) : NULL;
    if (!w->memory) {
        free(w->part);
        *w = (struct sp_gathered){0};
        return -ENOMEM;
    }
    sp_vector_register_at(&w->handle, w->memory, n, elem_bytes, "whole");
    starpu_data_partition_plan(w->handle, &filter, w->part);
    for (int i = 0; i < parts; i++)
        starpu_data_set_name(w->part[i], "part");
    return 0;
}

void sp_gathered_destroy(struct sp_gathered *w)
{
    size_t bytes;

    if (!w->handle)
        return;
    bytes = sp_gathered_bytes(w);
    sp_gathered_join(w);
    starpu_data_partition_clean(w->handle, (unsigned)w->parts, w->part);
    starpu_data_unregister_no_coherency(w->handle);
    give_memory(w->memory, bytes);
    free(w->part);
    *w = (struct sp_gathered){0};
}

void sp_gathered_cut(struct sp_gathered *w)
{
    if (w->cut)
        return;
    starpu_data_partition_submit(w->handle, (unsigned)w->parts, w->part);
    w->cut = true;
}

void sp_gathered_join(struct sp_gathered *w)
{
    if (!w->cut)
        return;
    starpu_data_unpartition_submit(w->handle, (unsigned)w->parts, w->part, -1);
    w->cut = false;
}
