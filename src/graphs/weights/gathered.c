#include "graphs/weights/gathered.h"
#include "sp_error.h"
#include <stdlib.h>

size_t sp_gathered_bytes(const struct sp_gathered *w)
{
    return w->whole ? sp_tensor_size(w->whole) : 0;
}

/* Allocates the tensors of the parts; the sink fills them in. */
static struct sp_tensor **make_parts(struct sp_tensor *whole, int parts)
{
    struct sp_tensor **part = calloc((size_t)parts, sizeof *part);
    struct sp_tensor *all = calloc((size_t)parts, sizeof *all);
    size_t n = (size_t)parts;

    SP_NEED(part && all, "out of memory for the parts of a block");
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct sp_tensor){.sink = whole->sink,
                                    .length = whole->length / n + (i < whole->length % n),
                                    .elem = whole->elem};
        part[i] = &all[i];
    }
    return part;
}

int sp_gathered_create(struct sp_sink *s, struct sp_gathered *w, size_t n, int parts,
                       size_t elem_bytes)
{
    void *memory = s->ops->take_memory ? s->ops->take_memory(n * elem_bytes) : NULL;

    *w = (struct sp_gathered){0};
    if (s->ops->take_memory && !memory)
        return -ENOMEM;
    w->parts = parts;
    w->memory = memory;
    w->whole = sp_tensor_make_at(s, memory, n, elem_bytes, "whole");
    w->part = make_parts(w->whole, parts);
    s->ops->cut(w->whole, parts, w->part);
    return 0;
}

void sp_gathered_destroy(struct sp_gathered *w)
{
    const struct sp_sink_ops *ops;
    size_t bytes;

    if (!w->whole)
        return;
    ops = w->whole->sink->ops;
    bytes = sp_gathered_bytes(w);
    sp_gathered_join(w);
    ops->uncut(w->whole, w->parts, w->part);
    sp_tensor_unmake(w->whole);
    if (w->memory)
        ops->give_memory(w->memory, bytes);
    free(w->part[0]);
    free(w->part);
    *w = (struct sp_gathered){0};
}

static void view(struct sp_gathered *w, bool parts)
{
    if (w->cut == parts)
        return;
    w->whole->sink->ops->view(w->whole, w->parts, w->part, parts);
    w->cut = parts;
}

void sp_gathered_cut(struct sp_gathered *w)
{
    view(w, true);
}

void sp_gathered_join(struct sp_gathered *w)
{
    view(w, false);
}
