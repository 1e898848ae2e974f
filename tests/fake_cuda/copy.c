/*
 * Copies, all of them boxes: slices of rows of bytes. When the host goes on is what CUDA documents
 * ("API synchronization behavior"):
 *
 *                      from pageable memory   to pageable memory   pinned         device to device
 *   cudaMemcpyAsync    when it is staged      when it is done      at once        at once
 *   cudaMemcpy         when it is staged      when it is done      when done      at once
 *
 * so a kernel in a non-blocking stream may begin before the bytes of a plain cudaMemcpy are there.
 */
#include "fake.h"
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"copy host to host", "copy host to device",
                                    "copy device to host", "copy device to device"};

/* ---- doing ----------------------------------------------------------------------------------- */

/* Slice z of one side of a copy. */
static struct sp_span slice(const char *at, size_t bytes, size_t pitch, size_t rows)
{
    struct sp_span s = {(char *)at, bytes, pitch, rows};

    if (pitch == bytes || rows == 1) {
        s.bytes *= rows;
        s.pitch = s.bytes;
        s.rows = 1;
    }
    return s;
}

static void check_slices(const struct sp_item *by, const struct sp_box *b, bool write)
{
    for (size_t z = 0; z < b->depth; z++) {
        struct sp_span s =
            write ? slice(b->to + z * b->to_slice, b->bytes, b->to_pitch, b->rows)
                  : slice(b->from + z * b->from_slice, b->bytes, b->from_pitch, b->rows);

        sp_check_access(by, &s, write, by ? by->name : "the host, staging a copy");
    }
}

static void copy(const struct sp_box *b)
{
    for (size_t z = 0; z < b->depth; z++)
        for (size_t y = 0; y < b->rows; y++)
            memcpy(b->to + z * b->to_slice + y * b->to_pitch,
                   b->from + z * b->from_slice + y * b->from_pitch, b->bytes);
}

static void run_copy(struct sp_item *item)
{
    sp_take_lock();
    if (!item->staged)
        check_slices(item, &item->box, false);
    check_slices(item, &item->box, true);
    sp_give_lock();
    copy(&item->box);
}

/* Pageable memory belongs to the caller again when the call returns. */
static void stage(struct sp_item *item)
{
    struct sp_box *b = &item->box, in = *b;

    check_slices(NULL, b, false);
    item->staged = malloc(b->bytes * b->rows * b->depth);
    if (!item->staged)
        sp_refuse("no host memory to stage %zu bytes", b->bytes * b->rows * b->depth);
    in.to = item->staged;
    in.to_pitch = b->bytes;
    in.to_slice = b->bytes * b->rows;
    copy(&in);
    b->from = item->staged;
    b->from_pitch = in.to_pitch;
    b->from_slice = in.to_slice;
}

/* ---- what a copy is -------------------------------------------------------------------------- */

struct side {
    bool on_device, pageable;
    int device;
};

static struct side side_of(const char *at, const struct sp_box *b, size_t pitch, size_t slice_bytes)
{
    size_t bytes = (b->depth - 1) * slice_bytes + (b->rows - 1) * pitch + b->bytes;
    const struct sp_region *r = sp_region_of(at, bytes);
    struct side side = {r && r->place == SP_ON_DEVICE, !r, r ? r->device : -1};

    return side;
}

static void check_kind(enum cudaMemcpyKind kind, const struct side *to, const struct side *from,
                       const struct sp_box *b)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    char where[160];

    if (kind == cudaMemcpyDefault)
        return;
    if ((unsigned)kind > cudaMemcpyDefault)
        sp_refuse("%d is no kind of copy", (int)kind);
    if (to->on_device == to_device && from->on_device == from_device)
        return;
    strncpy(where, sp_where(b->to), sizeof where - 1);
    where[sizeof where - 1] = '\0';
    sp_refuse("invalid argument: %s, but to %s from %s", names[kind], where, sp_where(b->from));
}

static void count(const struct side *to, const struct side *from, size_t bytes)
{
    struct sp_fake_counts *c;

    if (to->on_device && !from->on_device) {
        c = &sp_counts[to->device];
        c->in++, c->in_bytes += bytes;
    } else if (from->on_device && !to->on_device) {
        c = &sp_counts[from->device];
        c->out++, c->out_bytes += bytes;
    } else if (to->on_device && to->device != from->device) {
        c = &sp_counts[to->device];
        c->peer++, c->peer_bytes += bytes;
    } else if (to->on_device) {
        c = &sp_counts[to->device];
        c->local++, c->local_bytes += bytes;
    }
}

/* `to_device`, `from_device`: the devices that the caller names, or -1. `wait`: not an Async
 * function. */
static cudaError_t submit(const struct sp_box *box, enum cudaMemcpyKind kind, int to_device,
                          int from_device, cudaStream_t stream, bool wait)
{
    struct side to, from;
    struct CUstream_st *s;
    struct sp_item *item;

    sp_take_lock();
    s = sp_stream_of(stream);
    if (box->bytes && box->rows && box->depth) {
        if (box->to_pitch < box->bytes || box->from_pitch < box->bytes)
            sp_refuse("rows of %zu bytes with pitches of %zu and %zu", box->bytes, box->to_pitch,
                      box->from_pitch);
        to = side_of(box->to, box, box->to_pitch, box->to_slice);
        from = side_of(box->from, box, box->from_pitch, box->from_slice);
        check_kind(kind, &to, &from, box);
        if (to_device >= 0 && (to.device != to_device || !to.on_device))
            sp_refuse("%s is not on device %d", sp_where(box->to), to_device);
        if (from_device >= 0 && (from.device != from_device || !from.on_device))
            sp_refuse("%s is not on device %d", sp_where(box->from), from_device);
        count(&to, &from, box->bytes * box->rows * box->depth);

        item = sp_item_new(names[2 * from.on_device + to.on_device], run_copy);
        item->box = *box;
        if (from.pageable && to.on_device) {
            if (wait)
                sp_submit(s, sp_item_new("synchronize", NULL), true);
            stage(item);
        }
        wait = wait && !(from.on_device && to.on_device) && !item->staged;
        sp_submit(s, item, wait || to.pageable);
    }
    sp_give_lock();
    return cudaSuccess;
}

/* ---- the API --------------------------------------------------------------------------------- */

static struct sp_box line(void *to, const void *from, size_t bytes)
{
    return (struct sp_box){to, from, bytes, 1, 1, bytes, bytes, 0, 0};
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct sp_box b = line(to, from, bytes);

    SP_ENTER();
    return submit(&b, kind, -1, -1, 0, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct sp_box b = line(to, from, bytes);

    SP_ENTER();
    return submit(&b, kind, -1, -1, stream, false);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t bytes, size_t rows, enum cudaMemcpyKind kind)
{
    struct sp_box b = {to, from, bytes, rows, 1, to_pitch, from_pitch, 0, 0};

    SP_ENTER();
    return submit(&b, kind, -1, -1, 0, true);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t bytes, size_t rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    struct sp_box b = {to, from, bytes, rows, 1, to_pitch, from_pitch, 0, 0};

    SP_ENTER();
    return submit(&b, kind, -1, -1, stream, false);
}

/* A copy between pitched memories; x of a position is in bytes. */
static struct sp_box solid(struct cudaPitchedPtr to, struct cudaPos to_pos,
                           struct cudaPitchedPtr from, struct cudaPos from_pos,
                           struct cudaExtent extent, cudaArray_t to_array, cudaArray_t from_array)
{
    struct sp_box b = {
        to.ptr,   from.ptr,   extent.width,        extent.height,          extent.depth,
        to.pitch, from.pitch, to.pitch * to.ysize, from.pitch * from.ysize};

    if (to_array || from_array)
        sp_refuse("arrays are not known to the fake");
    b.to += to_pos.z * b.to_slice + to_pos.y * b.to_pitch + to_pos.x;
    b.from += from_pos.z * b.from_slice + from_pos.y * b.from_pitch + from_pos.x;
    return b;
}

static cudaError_t submit_3d(const struct cudaMemcpy3DParms *p, cudaStream_t stream, bool wait)
{
    struct sp_box b =
        solid(p->dstPtr, p->dstPos, p->srcPtr, p->srcPos, p->extent, p->dstArray, p->srcArray);

    return submit(&b, p->kind, -1, -1, stream, wait);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    SP_ENTER();
    return submit_3d(p, 0, true);
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    SP_ENTER();
    return submit_3d(p, stream, false);
}

/* ---- between devices ------------------------------------------------------------------------- */

/*
 * Without a stream, such a copy is ordered after all that is queued on the three devices and before
 * all that follows. The fake waits for that, though CUDA lets the host go on.
 */
static cudaError_t submit_peer(const struct sp_box *b, int to, int from, cudaStream_t stream,
                               bool wait)
{
    cudaError_t err;

    sp_device_exists(to);
    sp_device_exists(from);
    if (!wait)
        return submit(b, cudaMemcpyDeviceToDevice, to, from, stream, false);
    sp_take_lock();
    sp_wait_device(to);
    sp_wait_device(from);
    sp_give_lock();
    err = submit(b, cudaMemcpyDeviceToDevice, to, from, 0, false);
    sp_take_lock();
    sp_wait_device(sp_current());
    sp_give_lock();
    return err;
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    struct sp_box b = line(to, from, bytes);

    SP_ENTER();
    return submit_peer(&b, to_device, from_device, 0, true);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    struct sp_box b = line(to, from, bytes);

    SP_ENTER();
    return submit_peer(&b, to_device, from_device, stream, false);
}

static cudaError_t submit_peer_3d(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream,
                                  bool wait)
{
    struct sp_box b =
        solid(p->dstPtr, p->dstPos, p->srcPtr, p->srcPos, p->extent, p->dstArray, p->srcArray);

    return submit_peer(&b, p->dstDevice, p->srcDevice, stream, wait);
}

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p)
{
    SP_ENTER();
    return submit_peer_3d(p, 0, true);
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream)
{
    SP_ENTER();
    return submit_peer_3d(p, stream, false);
}
