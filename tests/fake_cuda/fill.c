/* Fills: of device memory queued, of pinned memory queued and waited for, as CUDA documents. */
#include "fake.h"
#include <string.h>

static void run_fill(struct sp_item *item)
{
    const struct sp_span *s = &item->set.span;

    sp_take_lock();
    sp_check_access(item, s, true, item->name);
    sp_give_lock();
    for (size_t y = 0; y < s->rows; y++)
        memset(s->at + y * s->pitch, item->set.value, s->bytes);
}

static cudaError_t fill(struct sp_span span, int value, cudaStream_t stream, bool wait)
{
    const struct sp_region *r;
    struct sp_item *item;

    if (!span.bytes || !span.rows)
        return cudaSuccess;
    sp_take_lock();
    r = sp_region_of(span.at, sp_span_length(&span));
    if (!r)
        sp_refuse("invalid argument: %zu bytes at %s", span.bytes, sp_where(span.at));
    item = sp_item_new("fill", run_fill);
    item->set.span = span;
    item->set.value = value;
    sp_submit(sp_stream_of(stream), item, wait && r->place != SP_ON_DEVICE);
    sp_give_lock();
    return cudaSuccess;
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
    SP_ENTER();
    return fill((struct sp_span){at, bytes, bytes, 1}, value, 0, true);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    SP_ENTER();
    return fill((struct sp_span){at, bytes, bytes, 1}, value, stream, false);
}

cudaError_t cudaMemset2D(void *at, size_t pitch, int value, size_t bytes, size_t rows)
{
    SP_ENTER();
    return fill((struct sp_span){at, bytes, pitch, rows}, value, 0, true);
}

cudaError_t cudaMemset2DAsync(void *at, size_t pitch, int value, size_t bytes, size_t rows,
                              cudaStream_t stream)
{
    SP_ENTER();
    return fill((struct sp_span){at, bytes, pitch, rows}, value, stream, false);
}
