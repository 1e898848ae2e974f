#include "sinks/sink.h"
#include "sp_error.h"
#include <stdlib.h>

/* The number of the caller's elements that form one element of a tensor. */
static size_t unit_of(size_t n)
{
    size_t unit = 1;

    while (n / unit >= UINT32_MAX)
        unit *= 2;
    return unit;
}

size_t sp_tensor_elem(size_t n, size_t elem_bytes)
{
    return unit_of(n) * elem_bytes;
}

size_t sp_tensor_length(size_t n)
{
    return (n + unit_of(n) - 1) / unit_of(n);
}

struct sp_tensor *sp_tensor_make_at(struct sp_sink *s, void *memory, size_t n, size_t elem_bytes,
                                    const char *name)
{
    struct sp_tensor *t = malloc(sizeof *t);

    SP_NEED(t, "out of memory for a tensor");
    SP_NEED(!memory || n % unit_of(n) == 0, "internal: a vector of %zu elements in memory", n);
    *t = (struct sp_tensor){
        .sink = s, .length = sp_tensor_length(n), .elem = sp_tensor_elem(n, elem_bytes)};
    s->bytes += sp_tensor_size(t);
    s->ops->make(t, memory, name);
    return t;
}

struct sp_tensor *sp_tensor_make(struct sp_sink *s, size_t n, size_t elem_bytes, const char *name)
{
    return sp_tensor_make_at(s, NULL, n, elem_bytes, name);
}

static void unmake(struct sp_tensor *t, bool value)
{
    if (!t)
        return;
    t->sink->bytes -= sp_tensor_size(t);
    t->sink->ops->unmake(t, value);
    free(t);
}

void sp_tensor_unmake(struct sp_tensor *t)
{
    unmake(t, false);
}

void sp_tensor_unmake_at(struct sp_tensor *t)
{
    unmake(t, true);
}

void *sp_tensor_acquire(struct sp_tensor *t, enum sp_access access)
{
    if (access == SP_WRITE)
        t->stale = 0;
    SP_NEED(!t->stale, "internal: a gradient is read that has no value yet");
    return sp_sink_computes(t->sink) ? t->sink->ops->acquire(t, access) : NULL;
}

void sp_tensor_release(struct sp_tensor *t)
{
    if (sp_sink_computes(t->sink))
        t->sink->ops->release(t);
}

struct sp_tensor *sp_sink_scratch(struct sp_sink *s, size_t n, size_t elem_bytes)
{
    for (int i = 0; i < s->n_scratch; i++)
        if (sp_tensor_size(s->scratch[i]) == n * elem_bytes)
            return s->scratch[i];
    SP_NEED(s->n_scratch < SP_SCRATCH_SIZES, "internal: more than %d sizes of scratch buffers",
            SP_SCRATCH_SIZES);
    s->scratch[s->n_scratch] = sp_tensor_make(s, n, elem_bytes, "scratch");
    return s->scratch[s->n_scratch++];
}

void sp_sink_release_scratch(struct sp_sink *s)
{
    for (int i = 0; i < s->n_scratch; i++)
        sp_tensor_unmake(s->scratch[i]);
    s->n_scratch = 0;
}
