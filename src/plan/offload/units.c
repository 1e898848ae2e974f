#include "plan/offload/builder.h"
#include "plan/offload/pages.h"
#include "policies/families/attention_parallel/attention_parallel.h"
#include <errno.h>
#include <stdlib.h>

/* A head that is a separate op has no layers; a part of a layer counts as one. */
int sp_units_layers(const struct sp_units_builder *b, const struct sp_op *op)
{
    int first, count;

    if (op->part != SP_CHUNK)
        return op->part != SP_HEAD;
    sp_chunk_layers(b->plan, b->sh->model.layers, b->stage, op->chunk, &first, &count);
    return count;
}

int sp_units_activations(const struct sp_units_builder *b, const struct sp_op *op)
{
    return sp_activations_of_op(b->plan, b->stage, op);
}

/* Slots that each layer of an op has. */
static int slots_each(const struct sp_op *op)
{
    return op->pass == SP_F && op->part == SP_CHUNK ? 2 : 1;
}

static int slots_of(const struct sp_units_builder *b, const struct sp_op *op)
{
    return slots_each(op) * sp_units_layers(b, op);
}

int sp_units_slot(const struct sp_units_builder *b, int op, int i)
{
    const struct sp_op *o = &b->prog->ops[op];
    int last = sp_units_layers(b, o) - 1;

    i = i < last ? i : last;
    return b->a->slot[b->a->op_slots[op] + (o->pass == SP_F ? slots_each(o) * i : last - i)];
}

/* ---- slots ---------------------------------------------------------------------------- */

const struct sp_shape *sp_units_shape(struct sp_units_builder *b, const struct sp_op *op)
{
    int first, len;

    sp_plan_op_tokens(b->plan, b->sh->seq, op, &first, &len);
    if (!b->part.rows || b->part.first != first || b->part.seq != len)
        sp_shape_slice(b->sh, first, len, &b->part);
    return &b->part;
}

enum sp_recompute sp_units_recompute(const struct sp_units_builder *b, const struct sp_op *op,
                                     int i)
{
    int first, count;

    sp_chunk_layers(b->plan, b->sh->model.layers, b->stage, op->chunk, &first, &count);
    return sp_op_recompute(b->plan, op, sp_layer_recompute(b->plan, b->want->recompute, first + i));
}

static bool is_recomputed(enum sp_recompute mode)
{
    return !sp_stash_keeps(mode, SP_STASH_PRE);
}

/* Seconds of a layer of an op: up to attention, and after it. */
static void time_of_layer(struct sp_units_builder *b, const struct sp_op *op, int i, double *first,
                          double *second)
{
    const struct sp_shape *sh = b->sh;
    double pre = 2.0 * sh->model.hidden * (sh->q_width + sh->kv_width), whole, attn, f;
    const struct sp_shape *part = sp_units_shape(b, op);

    whole = sh->batch * sp_slice_cost(&b->flops, part->first, part->seq);
    attn = whole - sh->batch * b->flops.token * part->seq + pre * part->rows * sp_shape_spread(sh);
    f = b->speed.fwd_s;
    *second = 0;
    switch (op->pass) {
    case SP_F:
        *first = attn * f;
        *second = (whole - attn) * f;
        break;
    case SP_B:
        *first = whole * b->speed.bwd_s * (sp_op_releases(b->plan, b->stage, op) ? 1 : 0.5);
        *first += is_recomputed(sp_units_recompute(b, op, i)) ? whole * f : 0;
        break;
    default:
        *first = whole * b->speed.bwd_s * 0.5;
        break;
    }
}

/* Seconds of an op. */
static double part_seconds(struct sp_units_builder *b, const struct sp_op *op)
{
    bool again = op->part == SP_ATTN ? !sp_stash_keeps(b->want->recompute, SP_STASH_O)
                                     : !sp_stash_keeps(b->want->recompute, SP_STASH_PRE);
    double whole, layer, flops;
    const struct sp_shape *part = sp_units_shape(b, op);

    layer = b->sh->batch * b->flops.token * part->seq;
    whole = b->sh->batch * sp_slice_cost(&b->flops, part->first, part->seq);
    flops = op->part == SP_ATTN ? whole - layer : layer;
    return op->pass == SP_F ? flops * b->speed.fwd_s
                            : flops * (b->speed.bwd_s + (again ? b->speed.fwd_s : 0));
}

/* Gives the k-th layer, in the order of the op, its slots from `slot` on. Returns how many. */
static int place_layer(struct sp_units_builder *b, int op, int k, int slot)
{
    const struct sp_op *o = &b->prog->ops[op];
    int count = sp_units_layers(b, o), i = o->pass == SP_F ? k : count - 1 - k;
    int *slots = b->a->slot + b->a->op_slots[op];
    double first, second = 0;

    if (k >= count)
        return 0;
    if (o->part == SP_CHUNK)
        time_of_layer(b, o, i, &first, &second);
    else
        first = part_seconds(b, o);
    b->a->seconds[slot] = first;
    b->a->returns_allowed[slot] = 1;
    if (slots_each(o) == 1) {
        slots[k] = slot;
        return 1;
    }
    slots[2 * k] = slot;
    slots[2 * k + 1] = slot + 1;
    b->a->seconds[slot + 1] = second;
    return 2;
}

/* Orders slots as the graph expands ops: one op layer by layer, two that overlap alternately. */
static void place_ops(struct sp_units_builder *b)
{
    int slot = 0, at = 0;

    for (int i = 0; i < b->prog->n; i++) {
        b->a->op_slots[i] = at;
        at += slots_of(b, &b->prog->ops[i]);
    }
    b->a->op_slots[b->prog->n] = at;
    for (int i = 0; i < b->prog->n; i++) {
        bool pair = b->prog->ops[i].overlap;
        int forward = pair && b->prog->ops[i].pass != SP_F ? i + 1 : i;
        int most = sp_units_layers(b, &b->prog->ops[i]);

        if (pair && sp_units_layers(b, &b->prog->ops[i + 1]) > most)
            most = sp_units_layers(b, &b->prog->ops[i + 1]);
        for (int k = 0; k < most; k++) {
            slot += place_layer(b, forward, k, slot);
            if (pair)
                slot += place_layer(b, forward == i ? i + 1 : i, k, slot);
        }
        i += pair;
    }
}

/* ---- units ---------------------------------------------------------------------------- */

void sp_units_also(struct sp_units_builder *b, int first, int last, int64_t bytes)
{
    b->a->also[first] += bytes;
    b->a->also[last + 1] -= bytes;
}

struct sp_units_backward sp_units_backward_of(const struct sp_units_builder *b,
                                              const struct sp_op *op, int i)
{
    int activations = sp_units_activations(b, op), every = b->want->every;
    struct sp_units_backward back = {.own = sp_units_slot(b, b->use[activations], i),
                                     .ends = sp_units_slot(b, b->release[activations], i)};

    back.begins = is_recomputed(sp_units_recompute(b, op, i))
                      ? sp_units_slot(b, b->use[activations], (i / every + 1) * every - 1)
                      : back.own;
    return back;
}

/* The stage's next forward after op `op`; -1: none. */
static int next_forward(const struct sp_units_builder *b, int op)
{
    for (int i = op + 1; i < b->prog->n; i++)
        if (sp_op_keeps_layers(&b->prog->ops[i]))
            return i;
    return -1;
}

static void add_unit(struct sp_units_builder *b, int op, int i, int next, struct sp_unit *u)
{
    const struct sp_op *o = &b->prog->ops[op];
    struct sp_units_backward back = sp_units_backward_of(b, o, i);
    int count = sp_units_layers(b, o);
    bool sliced = b->plan->layout.slices > 1;
    const struct sp_shape *part = sp_units_shape(b, o);

    *u = (struct sp_unit){
        .made = sp_units_slot(b, op, i),
        .gone = next >= 0 ? sp_units_slot(b, next, i) + 1 : -1,
        .used = back.begins,
        .freed = back.ends,
        .late = 1u << SP_STASH_POST | 1u << SP_UNIT_HEAD,
    };
    u->ahead = u->used > count ? u->used - count : 0;
    sp_pages_of_layer(part, sp_units_recompute(b, o, i), i % b->want->every == 0, sliced, u->bytes);
    if (sliced) { /* later slices read keys and values, so they leave by other rules */
        sp_keys_of_unit(b, o, i, u);
        u->bytes[SP_STASH_KV] = 0;
    }
    if (i == count - 1) /* a slice's waits long, and its head is not a separate op */
        *(sliced ? &u->bytes[SP_UNIT_HEAD] : &u->head) =
            sp_pages(sp_stash_head_input(b->plan, part, b->stage, o));
    sp_keys_gradients(b, o, i);
}

/* ---- ops that are parts of layers, each a slot, each forward a unit ---------------------------- */

/* The slot of a part's forward or backward op. */
static int slot_of(const struct sp_units_builder *b, const int *ops, const struct sp_op *op)
{
    return sp_units_slot(b, ops[sp_units_activations(b, op)], 0);
}

/* The block and the attention before it keep a tensor together. It is evicted and fetched with the
 * block, whose backward comes first, but stays from the attention's forward on, and until its
 * backward. */
static int64_t shared(struct sp_units_builder *b, const struct sp_op *block,
                      const struct sp_shape *part)
{
    struct sp_op attention = *block;
    int64_t bytes = sp_pages(
        (int64_t)(sp_shape_elem(part) * sp_stash_elements(part, SP_RECOMPUTE_NONE, SP_STASH_O)));

    attention.part = SP_ATTN;
    attention.chunk = block->chunk - 1;
    sp_units_also(b, slot_of(b, b->forward, &attention), slot_of(b, b->forward, block) - 1, bytes);
    sp_units_also(b, slot_of(b, b->release, block) + 1, slot_of(b, b->release, &attention), bytes);
    return bytes;
}

/* Sets the unit of op `op`, a forward; `next` is the stage's next forward, -1: none. */
static void add_part(struct sp_units_builder *b, int op, int next, struct sp_unit *u)
{
    enum { AHEAD = 4 }; /* a fetch may start so many ops ahead */
    const struct sp_op *o = &b->prog->ops[op];
    int64_t elements[SP_STASH_TENSORS];
    int then = next < 0 ? -1 : next_forward(b, next);
    const struct sp_shape *part = sp_units_shape(b, o);

    sp_parts_stash_tensors(b->plan, b->sh, b->want->recompute, b->stage, o, elements);
    *u = (struct sp_unit){.made = sp_units_slot(b, op, 0),
                          .gone = then >= 0 ? sp_units_slot(b, then, 0) : -1,
                          .used = slot_of(b, b->use, o),
                          .freed = slot_of(b, b->release, o)};
    u->ahead = u->used > AHEAD ? u->used - AHEAD : 0;
    for (int t = 0; t < SP_STASH_TENSORS; t++)
        u->bytes[t] = sp_pages((int64_t)sp_shape_elem(part) * elements[t]);
    if (b->plan->layout.slices > 1) { /* later slices read them */
        u->stays = u->bytes[SP_STASH_KV];
        u->bytes[SP_STASH_KV] = 0;
    }
    if (!sp_shares_output(b->plan, b->sh, b->want->recompute, b->stage, o))
        return;
    u->bytes[SP_STASH_O] = 0;
    if (o->part == SP_BLOCK)
        u->bytes[SP_STASH_O] = shared(b, o, part);
}

/* ---- groups ---------------------------------------------------------------------------- */

static double seconds_of(const struct sp_units_builder *b, int op)
{
    double sum = 0;

    for (int k = b->a->op_slots[op]; k < b->a->op_slots[op + 1]; k++)
        sum += b->a->seconds[b->a->slot[k]];
    return sum;
}

/* A part of a layer keeps few tensors, so several ops make one group. */
static bool joins_group(const struct sp_units_builder *b, const struct sp_op *op, int groups)
{
    enum { PARTS = 16 };

    return op->part != SP_CHUNK && groups > 0 && b->a->groups[groups - 1].n < PARTS;
}

static void add_units(struct sp_units_builder *b)
{
    int unit = 0, group = 0;

    for (int i = 0; i < sp_activations_count(b->plan); i++)
        b->a->activations_unit[i] = -1; /* other stages have the rest */
    for (int i = 0; i < b->prog->n; i++) {
        const struct sp_op *op = &b->prog->ops[i];

        if (sp_op_keeps_layers(op))
            b->forward[sp_units_activations(b, op)] = i;
        if (op->pass == SP_B && op->part != SP_HEAD)
            b->use[sp_units_activations(b, op)] = i;
        if (op->pass != SP_F && sp_op_releases(b->plan, b->stage, op))
            b->release[sp_units_activations(b, op)] = i;
    }
    for (int i = 0; i < b->prog->n; i++) {
        const struct sp_op *op = &b->prog->ops[i];
        int next = next_forward(b, i), count = sp_units_layers(b, op);

        if (!sp_op_keeps_layers(op))
            continue;
        if (!joins_group(b, op, group))
            b->a->groups[group++].first = unit;
        b->a->groups[group - 1].n += count;
        b->a->groups[group - 1].hides_s += next >= 0 ? seconds_of(b, next) : 0;
        b->a->activations_unit[sp_units_activations(b, op)] = unit;
        for (int k = 0; k < count; k++)
            if (op->part == SP_CHUNK)
                add_unit(b, i, k, next, &b->a->units[unit++]);
            else
                add_part(b, i, next, &b->a->units[unit++]);
    }
    b->a->n_groups = group;
    if (!b->plan->family->facts.parts)
        sp_keys_stream(b);
    for (int s = 1; s < b->a->n_slots; s++)
        b->a->also[s] += b->a->also[s - 1];
}

static int build(struct sp_units_builder *b)
{
    int activations = sp_activations_count(b->plan), slots = 0, units = 0, groups = 0;
    int err;

    for (int i = 0; i < b->prog->n; i++) {
        slots += slots_of(b, &b->prog->ops[i]);
        if (sp_op_keeps_layers(&b->prog->ops[i])) {
            units += sp_units_layers(b, &b->prog->ops[i]);
            groups++;
        }
    }
    b->use = calloc(3 * (size_t)activations, sizeof *b->use);
    err = b->use ? sp_eviction_plan_alloc(b->a, slots, units, groups, b->prog->n, activations)
                 : -ENOMEM;
    if (err) {
        free(b->use);
        return err;
    }
    b->release = b->use + activations;
    b->forward = b->release + activations;
    place_ops(b);
    add_units(b);
    free(b->use);
    return 0;
}

int sp_offload_units(const struct sp_plan *plan, const struct sp_shape *sh,
                     const struct sp_offload_request *want, int keep, int stage,
                     struct sp_eviction_plan *evictions)
{
    struct sp_units_builder b = {.plan = plan,
                                 .sh = sh,
                                 .want = want,
                                 .keep = keep,
                                 .flops = sp_slice_flops(sh),
                                 .speed = want->speed,
                                 .prog = &plan->programs[stage],
                                 .stage = stage,
                                 .a = evictions};

    if (b.speed.fwd_s <= 0)
        b.speed = (struct sp_op_speed){1e-11, 2e-11};
    return build(&b);
}
