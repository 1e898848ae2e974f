#include "plan/offload/units.h"
#include "plan/offload/pages.h"
#include "plan/slices.h"
#include <errno.h>
#include <stdlib.h>

/* A stage's program on its way to slots and units. */
struct builder {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_offload_request *want;
    struct sp_slice_costs flops;
    struct sp_op_speed speed;
    const struct sp_program *prog;
    int stage;
    struct sp_eviction_plan *a;
    int *use, *release; /* [flights] ops */
};

/* A head that is an op of its own has no layers. */
static int layers_of(const struct builder *b, const struct sp_op *op)
{
    int first, count;

    if (op->part != SP_CHUNK)
        return 0;
    sp_chunk_layers(b->plan, b->sh->model.layers, b->stage, op->chunk, &first, &count);
    return count;
}

static int flight_of(const struct builder *b, const struct sp_op *op)
{
    return sp_flight_number(b->plan, op->chunk, op->mb, op->slice);
}

static int slots_of(const struct builder *b, const struct sp_op *op)
{
    return (op->pass == SP_F ? 2 : 1) * layers_of(b, op);
}

/* The slot of layer i in an op: of a forward the first of two. */
static int slot_at(const struct builder *b, int op, int i)
{
    const struct sp_op *o = &b->prog->ops[op];
    int last = layers_of(b, o) - 1;

    i = i < last ? i : last;
    return b->a->slot[b->a->op_slots[op] + (o->pass == SP_F ? 2 * i : last - i)];
}

/* ---- slots ---------------------------------------------------------------------------- */

static void slice_shape(const struct builder *b, const struct sp_op *op, struct sp_shape *part)
{
    int first, len;

    sp_plan_op_tokens(b->plan, b->sh->seq, op, &first, &len);
    sp_shape_slice(b->sh, first, len, part);
}

static enum sp_recompute mode_of(const struct builder *b, const struct sp_op *op, int i)
{
    int first, count;

    sp_chunk_layers(b->plan, b->sh->model.layers, b->stage, op->chunk, &first, &count);
    return sp_layer_recompute(b->plan, b->want->recompute, first + i);
}

static bool is_recomputed(enum sp_recompute mode)
{
    return mode == SP_RECOMPUTE_FULL || mode == SP_RECOMPUTE_NO_ATTENTION;
}

/* Seconds of a layer of an op: up to attention, and the rest. */
static void time_of_layer(const struct builder *b, const struct sp_op *op, int i, double *first,
                          double *second)
{
    const struct sp_shape *sh = b->sh;
    double pre = 2.0 * sh->model.hidden * (sh->q_width + sh->kv_width), whole, attn, f;
    struct sp_shape part;

    slice_shape(b, op, &part);
    whole = sh->batch * sp_slice_cost(&b->flops, part.first, part.seq);
    attn = whole - sh->batch * b->flops.token * part.seq + pre * part.rows * sp_shape_spread(sh);
    f = b->speed.fwd_s;
    *second = 0;
    switch (op->pass) {
    case SP_F:
        *first = attn * f;
        *second = (whole - attn) * f;
        break;
    case SP_B:
        *first = whole * b->speed.bwd_s * (sp_op_releases(b->plan, b->stage, op) ? 1 : 0.5);
        *first += is_recomputed(mode_of(b, op, i)) ? whole * f : 0;
        break;
    default:
        *first = whole * b->speed.bwd_s * 0.5;
        break;
    }
}

/* Gives the k-th layer in the order of an op its slots, from `slot` on; how many. */
static int place_layer(struct builder *b, int op, int k, int slot)
{
    const struct sp_op *o = &b->prog->ops[op];
    int count = layers_of(b, o), i = o->pass == SP_F ? k : count - 1 - k;
    int *slots = b->a->slot + b->a->op_slots[op];
    double first, second;

    if (k >= count)
        return 0;
    time_of_layer(b, o, i, &first, &second);
    b->a->seconds[slot] = first;
    b->a->returns_allowed[slot] = 1;
    if (o->pass != SP_F) {
        slots[k] = slot;
        return 1;
    }
    slots[2 * k] = slot;
    slots[2 * k + 1] = slot + 1;
    b->a->seconds[slot + 1] = second;
    return 2;
}

/* As the graph expands them: an op layer by layer, two that overlap by turns. */
static void place_ops(struct builder *b)
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
        int most = layers_of(b, &b->prog->ops[i]);

        if (pair && layers_of(b, &b->prog->ops[i + 1]) > most)
            most = layers_of(b, &b->prog->ops[i + 1]);
        for (int k = 0; k < most; k++) {
            slot += place_layer(b, forward, k, slot);
            if (pair)
                slot += place_layer(b, forward == i ? i + 1 : i, k, slot);
        }
        i += pair;
    }
}

/* ---- units ---------------------------------------------------------------------------- */

/* Differences from slot to slot, summed up when all are there. */
static void also(struct builder *b, int first, int last, int64_t bytes)
{
    b->a->also[first] += bytes;
    b->a->also[last + 1] -= bytes;
}

/* Slots of the backward of a layer: when it is recomputed, if it is, its own, the one that ends it. */
struct backward {
    int begins, own, ends;
};

static struct backward backward_of(const struct builder *b, const struct sp_op *op, int i)
{
    int flight = flight_of(b, op), every = b->want->every;
    struct backward back = {.own = slot_at(b, b->use[flight], i),
                            .ends = slot_at(b, b->release[flight], i)};

    back.begins = is_recomputed(mode_of(b, op, i))
                      ? slot_at(b, b->use[flight], (i / every + 1) * every - 1)
                      : back.own;
    return back;
}

/* The op that makes the gradients of keys and values of all slices: that of the last one, or, where
 * another stage may have it, the first of the micro-batch that could run beside it. */
static int first_backward(const struct builder *b, const struct sp_op *op)
{
    struct sp_op last = *op;
    int i = 0;

    if (!b->plan->family->parts_of) {
        last.slice = (unsigned short)(b->plan->layout.slices - 1);
        return b->use[flight_of(b, &last)];
    }
    while (b->prog->ops[i].pass != SP_B || b->prog->ops[i].mb != op->mb)
        i++;
    return i;
}

/* Gradients and recomputed tensors of a layer, in the slots where they are there. */
static void add_gradients(struct builder *b, const struct sp_op *op, int i)
{
    struct backward back = backward_of(b, op, i);
    enum sp_recompute mode = mode_of(b, op, i);
    bool sliced = b->plan->layout.slices > 1;
    int64_t all[SP_STASH_TENSORS], kept[SP_STASH_TENSORS], x, q, kv, again = 0;
    struct sp_shape part;

    slice_shape(b, op, &part);
    x = sp_pages_of(&part, part.model.hidden);
    q = sp_pages_of(&part, part.q_width);
    kv = sp_pages_of(&part, part.kv_width);
    /* dy, dr, du, dq wait for the weight gradients; dx, do do not */
    also(b, back.own, back.ends, 2 * x + q + sp_pages_of(&part, part.up_width));
    also(b, back.own, back.own, x + q);
    if (sliced) { /* the last slice makes dkv for all of them */
        also(b, slot_at(b, first_backward(b, op), i), back.ends, kv);
    } else {
        also(b, back.own, back.ends, kv);
    }
    if (!is_recomputed(mode))
        return;
    sp_pages_of_layer(&part, SP_RECOMPUTE_NONE, true, sliced, all);
    sp_pages_of_layer(&part, mode, i % b->want->every == 0, sliced, kept);
    for (int k = 0; k < SP_STASH_TENSORS; k++)
        again += all[k] - kept[k];
    also(b, back.begins, back.ends, again);
}

/* The stage's forward after op `op`, -1: none. */
static int next_forward(const struct builder *b, int op)
{
    for (int i = op + 1; i < b->prog->n; i++)
        if (sp_op_keeps_layers(&b->prog->ops[i]))
            return i;
    return -1;
}

/* What a forward computes and does not keep. */
static void add_transients(struct builder *b, const struct sp_shape *part, int made,
                           const int64_t kept[SP_STASH_TENSORS])
{
    int64_t all[SP_STASH_TENSORS];

    sp_pages_of_layer(part, SP_RECOMPUTE_NONE, true, true, all);
    for (int k = SP_STASH_Q; k <= SP_STASH_LSE; k++)
        also(b, made, made + 1, all[k] - kept[k]);
}

static void add_unit(struct builder *b, int op, int i, int next, struct sp_unit *u)
{
    const struct sp_op *o = &b->prog->ops[op];
    struct backward back = backward_of(b, o, i);
    int count = layers_of(b, o);
    bool sliced = b->plan->layout.slices > 1;
    struct sp_shape part;

    slice_shape(b, o, &part);
    *u = (struct sp_unit){
        .made = slot_at(b, op, i),
        .gone = next >= 0 ? slot_at(b, next, i) + 1 : -1,
        .used = back.begins,
        .freed = back.ends,
        .late = 1u << SP_STASH_POST,
    };
    u->ahead = u->used > count ? u->used - count : 0;
    sp_pages_of_layer(&part, mode_of(b, o, i), i % b->want->every == 0, sliced, u->bytes);
    add_transients(b, &part, u->made, u->bytes);
    if (sliced) { /* type 0: later slices read them */
        u->stays = u->bytes[SP_STASH_KV];
        u->bytes[SP_STASH_KV] = 0;
    }
    if (i == count - 1)
        u->head = sp_pages(sp_stash_head_input(b->plan, &part, b->stage, o));
    add_gradients(b, o, i);
}

static double seconds_of(const struct builder *b, int op)
{
    double sum = 0;

    for (int k = b->a->op_slots[op]; k < b->a->op_slots[op + 1]; k++)
        sum += b->a->seconds[b->a->slot[k]];
    return sum;
}

static void add_units(struct builder *b)
{
    int unit = 0, group = 0;

    for (int i = 0; i < b->prog->n; i++) {
        const struct sp_op *op = &b->prog->ops[i];

        if (op->pass == SP_B)
            b->use[flight_of(b, op)] = i;
        if (op->pass != SP_F && sp_op_releases(b->plan, b->stage, op))
            b->release[flight_of(b, op)] = i;
    }
    for (int i = 0; i < b->prog->n; i++) {
        const struct sp_op *op = &b->prog->ops[i];
        int next = next_forward(b, i), count = layers_of(b, op);

        if (!sp_op_keeps_layers(op))
            continue;
        b->a->groups[group++] = (struct sp_unit_group){
            .first = unit, .n = count, .hides_s = next >= 0 ? seconds_of(b, next) : 0};
        b->a->flight_unit[flight_of(b, op)] = unit;
        for (int k = 0; k < count; k++)
            add_unit(b, i, k, next, &b->a->units[unit++]);
    }
    for (int s = 1; s < b->a->n_slots; s++)
        b->a->also[s] += b->a->also[s - 1];
}

static int build(struct builder *b)
{
    int flights = sp_flights_of(b->plan), slots = 0, units = 0, groups = 0;
    int err;

    for (int i = 0; i < b->prog->n; i++) {
        slots += slots_of(b, &b->prog->ops[i]);
        if (sp_op_keeps_layers(&b->prog->ops[i])) {
            units += layers_of(b, &b->prog->ops[i]);
            groups++;
        }
    }
    b->use = calloc(2 * (size_t)flights, sizeof *b->use);
    err = b->use ? sp_eviction_plan_alloc(b->a, slots, units, groups, b->prog->n, slots, flights)
                 : -ENOMEM;
    if (err) {
        free(b->use);
        return err;
    }
    b->release = b->use + flights;
    place_ops(b);
    add_units(b);
    free(b->use);
    return 0;
}

int sp_offload_units(const struct sp_plan *plan, const struct sp_shape *sh,
                     const struct sp_offload_request *want, int stage,
                     struct sp_eviction_plan *evictions)
{
    struct builder b = {.plan = plan,
                        .sh = sh,
                        .want = want,
                        .flops = sp_slice_flops(sh),
                        .speed = want->speed,
                        .prog = &plan->programs[stage],
                        .stage = stage,
                        .a = evictions};

    if (b.speed.fwd_s <= 0)
        b.speed = (struct sp_op_speed){1e-11, 2e-11};
    return build(&b);
}
