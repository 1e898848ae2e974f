#include "plan/offload/builder.h"
#include "plan/offload/pages.h"
#include "policies/families/slice_buffers.h"

bool sp_keys_may_leave(const struct sp_plan *plan, const struct sp_shape *sh)
{
    /* a ring passes all of them together; if stages share slices or attention, others read them */
    return plan->layout.slices > 2 && !plan->family->shared && !plan->family->facts.parts &&
           !plan->family->facts.shares_attention && sh->ring == 1 && !sh->joins;
}

/* The last slice's keys stay, because its backward follows. */
static bool leaves(const struct sp_units_builder *b, int slice)
{
    return slice >= b->keep && slice < b->plan->layout.slices - 1 &&
           sp_keys_may_leave(b->plan, b->sh);
}

bool sp_keys_leave(const struct sp_units_builder *b, const struct sp_op *op)
{
    return leaves(b, op->slice);
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
    if (!sp_keys_may_leave(plan, sh))
        return 0;
    return (int64_t)sp_shape_elem(sh) * sp_most_layers(plan, sh->model.layers, stage) * sh->rows *
           sh->kv_width;
}

void sp_keys_gradients(struct sp_units_builder *b, const struct sp_op *op, int i)
{
    const struct sp_shape *part = sp_units_shape(b, op);
    struct sp_units_backward back = sp_units_backward_of(b, op, i);

    if (sp_keys_leave(b, op))
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

/* Bytes of keys that attention of an op streams through in a layer: in all, and in the largest
 * stream. */
struct streams {
    int64_t bytes, largest;
};

static struct streams streams_of(struct sp_units_builder *b, const struct sp_op *op)
{
    int end = op->pass == SP_F ? op->slice - 1 : op->slice;
    struct streams v = {0};
    int64_t stream = 0;

    for (int j = 0; j < end; j++) {
        int64_t bytes = leaves(b, j) ? keys_of(b, op, j) : 0;

        if (!bytes)
            continue;
        sp_eviction_stream_takes(b->a, bytes, &stream);
        v.bytes += bytes;
        v.largest = stream > v.largest ? stream : v.largest;
    }
    return v;
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
    bool last = op->slice == b->plan->layout.slices - 1;
    int slot = sp_units_slot(b, index, i);

    if (!v.bytes)
        return;
    sp_units_also(b, slot, slot, sum_of(sp_units_shape(b, op)));
    if (v.largest > b->a->streamed_largest)
        b->a->streamed_largest = v.largest;
    if (op->pass == SP_F) {
        count(b, slot, v.bytes, 0);
        return;
    }
    count(b, slot, (last ? 1 : 2) * v.bytes, v.bytes); /* the last slice makes the gradients */
    b->a->gradients_out += last ? v.bytes : 0;
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

void sp_keys_stream(struct sp_units_builder *b)
{
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
        any |= leave;
    }
    add_staying_gradients(b);
    sp_memory_longest_slice(b->plan, b->sh, &longest);
    if (any) /* the scratch of a part and the buffers for streamed keys and gradients stay allocated */
        sp_units_also(b, 0, b->a->n_slots - 1,
                      sp_pages_of(&longest, longest.q_width) +
                          sp_pages(4 * (int64_t)longest.rows * longest.model.heads + 8) +
                          2 * SP_EVICTION_STREAMS * b->a->streamed_largest);
}
