#include "plan/offload/builder.h"
#include "plan/offload/pages.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/families/slice_buffers.h"

bool sp_keys_may_leave(const struct sp_plan *plan, const struct sp_shape *sh)
{
    /* a ring passes all of them together; if stages share attention, others read them. If they
     * share slices, a stage must have two slices alone, as its last one stays */
    int least = plan->family->shared ? plan->layout.stages : 2;

    return plan->layout.slices > least && plan->layout.slices > 2 &&
           (!plan->family->shared || sh->context == 1) && !plan->family->facts.parts &&
           !plan->family->facts.shares_attention && sh->ring == 1 && !sh->joins;
}

bool sp_keys_are_counted(const struct sp_plan *plan)
{
    return plan->family->shared != NULL;
}

/* The first of the stage's slices whose keys may leave, and the one after the last. Its backward
 * follows soon, so the last one's keys stay. If stages share slices, `slice` is the number of a
 * part, and the keys of shared slices stay. */
static void slices_that_leave(const struct sp_units_builder *b, int *first, int *end)
{
    const struct sp_layout *lay = &b->plan->layout;
    bool shared = b->plan->family->shared;

    *first = shared ? sp_first_part(lay, b->stage, lay->stages - 1 - b->stage) : 0;
    *end = (shared ? sp_parts_before_right(lay, b->stage) : lay->slices) - 1;
}

/* True if any keys leave. */
static bool leave_any(const struct sp_units_builder *b)
{
    return b->keep < b->plan->layout.slices && sp_keys_may_leave(b->plan, b->sh);
}

static bool leaves(const struct sp_units_builder *b, int slice)
{
    int first, end;

    slices_that_leave(b, &first, &end);
    return leave_any(b) && slice >= b->keep && slice >= first && slice < end;
}

/* True if an op works on slices of the stage's own layers. */
static bool is_own(const struct sp_units_builder *b, const struct sp_op *op)
{
    return !b->plan->family->shared || op->chunk == b->stage;
}

bool sp_keys_leave(const struct sp_units_builder *b, const struct sp_op *op)
{
    return is_own(b, op) && leaves(b, op->slice);
}

void sp_keys_of_unit(const struct sp_units_builder *b, const struct sp_op *op, int i,
                     struct sp_unit *u)
{
    struct sp_op next = *op;

    if (!sp_keys_leave(b, op)) {
        u->stays = u->bytes[SP_STASH_KV];
        return;
    }
    next.slice++;
    u->keys = u->bytes[SP_STASH_KV];
    u->keys_gone = sp_units_slot(b, b->forward[sp_units_activations(b, &next)], i) + 2;
    u->keys_back = sp_units_backward_of(b, op, i).begins;
}

int64_t sp_keys_gradients_bytes(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    if (!sp_keys_may_leave(plan, sh) || sp_keys_are_counted(plan))
        return 0;
    return (int64_t)sp_shape_elem(sh) * sp_most_layers(plan, sh->model.layers, stage) * sh->rows *
           sh->kv_width;
}

void sp_keys_gradients(struct sp_units_builder *b, const struct sp_op *op, int i)
{
    const struct sp_shape *part = sp_units_shape(b, op);
    struct sp_units_backward back = sp_units_backward_of(b, op, i);

    if (sp_keys_leave(b, op) && !sp_keys_are_counted(b->plan))
        sp_units_also(b, back.begins, back.ends, sp_pages_of(part, part->kv_width));
}

/* Counts the gradients of keys that may leave but stay, as if they were always in memory. */
static void add_staying_gradients(struct sp_units_builder *b)
{
    int64_t layers = sp_most_layers(b->plan, b->sh->model.layers, b->stage), bytes = 0;

    for (int k = 0; sp_keys_may_leave(b->plan, b->sh) && k < b->plan->layout.slices; k++) {
        const struct sp_op op = {.slice = (unsigned short)k};
        const struct sp_shape *part = sp_units_shape(b, &op);

        bytes += leaves(b, k) ? 0 : layers * sp_pages_of(part, part->kv_width);
    }
    sp_units_also(b, 0, b->a->n_slots - 1, bytes);
}

/* Bytes, in whole pages, of the keys and values of a slice of an op's sequence, in one layer. */
static int64_t keys_of(struct sp_units_builder *b, const struct sp_op *op, int slice)
{
    struct sp_op other = *op;
    const struct sp_shape *part;
    int parts = sp_shape_parts(b->sh);
    int64_t bytes;

    other.slice = (unsigned short)slice;
    part = sp_units_shape(b, &other);
    bytes =
        (int64_t)(sp_shape_elem(part) * sp_stash_elements(part, SP_RECOMPUTE_NONE, SP_STASH_KV));
    return parts * sp_pages(bytes / parts);
}

/* Bytes of keys that attention of an op streams through in a layer: in all, those whose gradients
 * exist, and those of the largest stream. */
struct streams {
    int64_t bytes, made, largest;
};

/* The stream under way. */
struct stream {
    int64_t bytes;
    bool made;
};

/* Adds evicted keys. In a backward those whose gradients exist are streamed apart from others. */
static void add_keys(struct sp_units_builder *b, int64_t bytes, bool made, struct stream *stream,
                     struct streams *v)
{
    if (!bytes)
        return;
    if (made != stream->made)
        stream->bytes = 0;
    stream->made = made;
    sp_eviction_stream_takes(b->a, bytes, &stream->bytes);
    v->bytes += bytes;
    v->made += made ? bytes : 0;
    v->largest = stream->bytes > v->largest ? stream->bytes : v->largest;
}

/* Bytes, in whole pages, of the stage's share of a part's keys and values, in one layer. */
static int64_t share_of(const struct sp_units_builder *b, int global, int part)
{
    int first, len;

    sp_key_share(b->plan, b->sh->seq, global, part, b->stage, &first, &len);
    return len > 0 ? sp_pages((int64_t)sp_shape_elem(b->sh) * b->sh->batch * len * b->sh->kv_width)
                   : 0;
}

/* Streams of an op on slices that no other stage shares, or that come one after the other. */
static struct streams streams_of_slice(struct sp_units_builder *b, const struct sp_op *op)
{
    int end = op->pass == SP_F ? op->slice - 1 : op->slice, first, last, kept;
    struct streams v = {0};
    struct stream stream = {0};

    slices_that_leave(b, &first, &last);
    kept = last;
    if (b->plan->family->shared && b->stage > 0) /* right slices made the gradients of these */
        kept = sp_first_kept_part(b->plan, b->sh->seq, b->stage);
    for (int j = 0; j < end; j++)
        add_keys(b, leaves(b, j) ? keys_of(b, op, j) : 0,
                 op->pass == SP_B && (op->slice < last || j >= kept), &stream, &v);
    return v;
}

/* Streams of an op on a right slice: of the keys that the owner kept, or of another stage's
 * share. */
static struct streams streams_of_right(struct sp_units_builder *b, const struct sp_op *op)
{
    const struct sp_layout *lay = &b->plan->layout;
    int slice = sp_part_at(lay, op->chunk, op->slice).slice, first = 0;
    struct streams v = {0};
    struct stream stream = {0};

    if (is_own(b, op))
        first = sp_first_kept_part(b->plan, b->sh->seq, op->chunk);
    for (int j = first; j < sp_parts_before_right(lay, op->chunk); j++) {
        int64_t bytes =
            is_own(b, op) ? leaves(b, j) ? keys_of(b, op, j) : 0 : share_of(b, op->chunk, j);

        add_keys(b, bytes, op->pass == SP_B && slice < lay->slices - 1, &stream, &v);
    }
    return v;
}

static struct streams streams_of(struct sp_units_builder *b, const struct sp_op *op)
{
    const struct sp_layout *lay = &b->plan->layout;

    if (!leave_any(b))
        return (struct streams){0};
    if (!b->plan->family->shared)
        return streams_of_slice(b, op);
    switch (sp_slice_phase(lay, op->chunk, sp_part_at(lay, op->chunk, op->slice).slice)) {
    case SP_STEADY:
        return streams_of_slice(b, op);
    case SP_RIGHT:
        return streams_of_right(b, op);
    default:
        return (struct streams){0};
    }
}

/* A stream takes a small part of the bytes that a layer of the longest slice keeps. */
static int64_t most_of_stream(struct sp_units_builder *b)
{
    enum { PART = 8 };
    int64_t bytes[SP_STASH_TENSORS], sum = 0;
    struct sp_shape part;

    sp_memory_longest_slice(b->plan, b->sh, &part);
    sp_pages_of_layer(&part, SP_RECOMPUTE_NONE, true, true, bytes);
    for (int k = 0; k < SP_STASH_TENSORS; k++)
        sum += bytes[k];
    return sum / PART;
}

/* The f32 buffer in which attention sums its parts, unless they are summed in place. */
static int64_t sum_of(const struct sp_shape *part)
{
    return part->dtype == SP_F32 ? 0 : sp_pages(4 * (int64_t)part->rows * part->q_width);
}

static void count(struct sp_units_builder *b, int slot, int64_t in, int64_t out)
{
    b->a->slot_streamed_in[slot] += in;
    b->a->slot_streamed_out[slot] += out;
    b->a->streamed_in += in;
    b->a->streamed_out += out;
}

/* Adds the streams of layer i of an op. */
static void add_streams(struct sp_units_builder *b, int index, int i, struct streams v)
{
    const struct sp_op *op = &b->prog->ops[index];
    int slot = sp_units_slot(b, index, i);

    if (!v.bytes)
        return;
    if (!sp_keys_are_counted(b->plan))
        sp_units_also(b, slot, slot, sum_of(sp_units_shape(b, op)));
    if (v.largest > b->a->streamed_largest)
        b->a->streamed_largest = v.largest;
    if (op->pass == SP_F) {
        count(b, slot, v.bytes, 0);
        return;
    }
    count(b, slot, v.bytes + v.made, v.bytes); /* the last slice makes the gradients */
    b->a->gradients_out += v.bytes - v.made;
    if (sp_units_recompute(b, op, i) == SP_RECOMPUTE_FULL) /* attention runs again */
        count(b, slot, v.bytes, 0);
}

/* Counts the own keys and values of layer i of a forward: they are evicted with the forward of the
 * next slice, and fetched with their gradients to stay. */
static void add_own(struct sp_units_builder *b, const struct sp_op *op, int i)
{
    int64_t bytes = keys_of(b, op, op->slice);
    struct sp_op next = *op;

    next.slice++;
    count(b, sp_units_slot(b, b->forward[sp_units_activations(b, &next)], i), 0, bytes);
    count(b, sp_units_backward_of(b, op, i).begins, 2 * bytes, 0);
}

/* Counts the stage's shares of a slice of later stages, by its own op on the slice: it evicts them
 * when they arrive, and fetches their gradients to send them. */
static void add_shares(struct sp_units_builder *b, int index)
{
    const struct sp_op *op = &b->prog->ops[index];
    const struct sp_layout *lay = &b->plan->layout;
    int slice = sp_part_at(lay, op->chunk, op->slice).slice;
    int back = b->use[sp_units_activations(b, op)], first, count_of;

    for (int g = b->stage + 1; g < lay->stages && slice < lay->slices - g; g++) {
        sp_chunk_layers(b->plan, b->sh->model.layers, b->stage, g, &first, &count_of);
        for (int r = sp_first_part(lay, g, slice); r < sp_first_part(lay, g, slice + 1); r++) {
            int64_t bytes = share_of(b, g, r);

            for (int i = 0; i < count_of; i++) {
                count(b, sp_units_slot(b, index, i), 0, bytes);
                count(b, sp_units_slot(b, back, i), bytes, 0);
            }
            b->a->gradients_out += count_of * bytes; /* the keys; gradients count where made */
        }
    }
}

void sp_keys_stream(struct sp_units_builder *b)
{
    bool counted = sp_keys_are_counted(b->plan);
    struct sp_shape longest;
    bool any = false;

    b->a->streamed_most = most_of_stream(b);
    for (int i = 0; i < b->prog->n; i++) {
        const struct sp_op *op = &b->prog->ops[i];
        bool leave = op->pass == SP_F && sp_keys_leave(b, op);
        struct streams streams;

        if (op->part != SP_CHUNK || (op->pass != SP_F && op->pass != SP_B))
            continue;
        streams = streams_of(b, op);
        for (int k = 0; k < sp_units_layers(b, op); k++) {
            add_streams(b, i, k, streams);
            if (leave)
                add_own(b, op, k);
        }
        if (counted && leave_any(b) && op->pass == SP_F && is_own(b, op))
            add_shares(b, i);
        any |= leave;
    }
    if (counted)
        return;
    add_staying_gradients(b);
    sp_memory_longest_slice(b->plan, b->sh, &longest);
    if (any) /* the scratch of a part and the buffers for streamed keys and gradients stay allocated */
        sp_units_also(b, 0, b->a->n_slots - 1,
                      sp_pages_of(&longest, longest.q_width) +
                          sp_pages(4 * (int64_t)longest.rows * longest.model.heads + 8) +
                          2 * SP_EVICTION_STREAMS * b->a->streamed_largest);
}
