/*
 * Attention-parallel programs as actions (HelixPipe, sections 4.2 and 4.4). For every micro-batch,
 * or slice of one, these tensors travel between parameter blocks and attention of layer l:
 *
 *                     q, k, v shipped     QKV weights shipped       all of attention shipped
 *   P(i,l)   -> A(i,l)     x, q, kv            x, n (the product's input)     x
 *   A(i,l)   -> P(i,l+1)   x, o                x, o                           r
 *   bP(i,l+1) -> bA(i,l)   dx, do              dx, do                         dr
 *   bA(i,l)  -> bP(i,l)    dx, dq, dkv         dx, dn                         dx
 *
 * As published, the residual goes by way of attention. Each stage that has attention of a layer
 * gets its weights once a step, with the first micro-batch, and keeps them until its last backward
 * of that layer. Then one gradient for all these micro-batches comes back. As published
 * (qkv=published), both go with every micro-batch, and a stage keeps the first copy. All slices of
 * a micro-batch count as one here. If attention is on the stage that owns the weights, nothing
 * travels: the gradient is added in place.
 *
 * The stage of block l owns norm and QKV product of layer l, that of block l+1 owns the output
 * product. An owner takes a gradient with a later backward of its own: of block l, which waits for
 * the same attention anyway, or of the block that its stage has p before block l+1; if there is
 * none, at the end of the step.
 */
#include "policies/families/attention_parallel/attention_parallel.h"
#include "policies/families/activations.h"
#include "policies/families/families.h"
#include "policies/lowering/lowering.h"
#include <errno.h>
#include <stdlib.h>

enum { MOST = 3 }; /* tensors of a message */

struct message {
    int from, to;
    int n;
    struct sp_tensor_id tensor[MOST];
};

/* Counts, in slices, the micro-batches whose attention of a layer runs on a stage. */
struct use {
    int begun; /* forwards that came */
    int left;  /* backwards to come */
    int last;  /* the micro-batch of the latest backward */
};

/* Lives for one step. */
struct state {
    enum sp_shipment ships;
    bool each;        /* weights and their gradients travel with every micro-batch */
    int *takers;      /* [layers] stages that are still to get a copy of the output product */
    bool *made;       /* [layers] the owner has made that copy */
    struct use use[]; /* [stages][layers] */
};

static struct state *state_of(const struct sp_lowering *l)
{
    return l->state;
}

static void add(struct message *m, struct sp_tensor_id tensor)
{
    m->tensor[m->n++] = tensor;
}

/* The side of attention on which a message passes. */
enum side { BEFORE, AFTER };

/* The message between attention of a layer and block `layer` before it, or the next block after it,
 * for an op's slice: forward or back. */
static struct message between(const struct sp_lowering *l, const struct sp_op *op, int layer,
                              enum side side)
{
    const struct sp_layout *lay = &l->plan->layout;
    bool forward = op->pass == SP_F, to_attention = forward == (side == BEFORE);
    int block = sp_block_stage(lay, layer + (side == AFTER));
    int attention = sp_attention_stage(lay, op->mb, layer);
    struct message m = {.from = to_attention ? block : attention,
                        .to = to_attention ? attention : block};
    enum sp_shipment ships = state_of(l)->ships;

    if (side == AFTER && ships == SP_SHIP_ATTENTION) {
        add(&m, sp_tensor_of(forward ? SP_TENSOR_R : SP_TENSOR_DR, op, layer));
        return m;
    }
    add(&m, sp_tensor_of(forward ? SP_TENSOR_X : SP_TENSOR_DX, op, layer));
    if (side == AFTER) {
        add(&m, sp_tensor_of(forward ? SP_TENSOR_O : SP_TENSOR_DO, op, layer));
    } else if (ships == SP_SHIP_QKV) {
        add(&m, sp_tensor_of(forward ? SP_TENSOR_N1 : SP_TENSOR_DN1, op, layer));
    } else if (ships == SP_SHIP_ACTIVATIONS) {
        add(&m, sp_tensor_of(forward ? SP_TENSOR_Q : SP_TENSOR_DQ, op, layer));
        add(&m, sp_tensor_of(forward ? SP_TENSOR_KV : SP_TENSOR_DKV, op, layer));
    }
    return m;
}

/* The message of an op on one side of attention; without tensors before the first attention (the
 * embedding makes its input) and after the last (the head has its own gradient). */
static struct message message_of(const struct sp_lowering *l, const struct sp_op *op,
                                 enum side side)
{
    int layer = op->part == SP_BLOCK && side == AFTER ? op->chunk - 1 : op->chunk;

    if (layer < 0 || layer == l->plan->layout.layers)
        return (struct message){.n = 0};
    return between(l, op, layer, side);
}

static void receive(struct sp_lowering *l, const struct message *m, int index)
{
    for (int k = 0; k < m->n && m->from != m->to; k++) {
        sp_lower_recv(l, m->from, m->to, m->tensor[k], index);
        sp_lower_free(l, m->from, m->tensor[k]);
    }
}

/* True for the residual if it goes by way of attention: the next op reads it too, on this stage or
 * after another message. */
static bool goes_on(const struct sp_lowering *l, const struct sp_op *op,
                    const struct sp_tensor_id *t)
{
    return state_of(l)->ships != SP_SHIP_ATTENTION && op->part == SP_ATTN &&
           (t->kind == SP_TENSOR_X || t->kind == SP_TENSOR_DX);
}

/* Frees the tensors of a message that the op was the last to read. */
static void release(struct sp_lowering *l, const struct sp_op *op, const struct message *m)
{
    for (int k = 0; k < m->n; k++)
        if (!goes_on(l, op, &m->tensor[k]))
            sp_lower_free(l, m->to, m->tensor[k]);
}

/* ---- weights ------------------------------------------------------------------------------- */

static struct use *use_of(const struct sp_lowering *l, int stage, int layer)
{
    return &state_of(l)->use[stage * l->plan->layout.layers + layer];
}

/* The parameters that attention of a layer needs, or (`gradient`) the gradients that it leaves: for
 * micro-batch mb, or for all if mb is -1. Empty if sizes are unknown. The sender depends on the
 * tensor: owner_of. */
static struct message parameters(const struct sp_lowering *l, int layer, bool gradient, int mb)
{
    struct sp_tensor_id t = {.mb = mb, .at = layer};
    struct message m = {.n = 0};

    if (state_of(l)->ships == SP_SHIP_ACTIVATIONS || !l->shape)
        return m;
    t.kind = gradient ? SP_TENSOR_GRADIENT : SP_TENSOR_BLOCK;
    t.block = SP_BLOCK_QKV;
    add(&m, t);
    if (state_of(l)->ships != SP_SHIP_ATTENTION)
        return m;
    t.block = SP_BLOCK_NORM1;
    add(&m, t);
    t.kind = gradient ? SP_TENSOR_DWOUT : SP_TENSOR_WOUT;
    t.block = 0;
    add(&m, t);
    return m;
}

static bool is_out(const struct sp_tensor_id *t)
{
    return t->kind == SP_TENSOR_WOUT || t->kind == SP_TENSOR_DWOUT;
}

static int owner_of(const struct sp_lowering *l, const struct sp_tensor_id *t)
{
    return sp_block_stage(&l->plan->layout, t->at + is_out(t));
}

/* The whole block of the output product. */
static struct sp_tensor_id out_block(int layer, bool gradient)
{
    return (struct sp_tensor_id){.kind = gradient ? SP_TENSOR_GRADIENT : SP_TENSOR_BLOCK,
                                 .block = SP_BLOCK_POST,
                                 .mb = -1,
                                 .at = layer};
}

/* Copies the output product, if the owner has only a shard of its block: before it is first sent. */
static void make_out(struct sp_lowering *l, int owner, struct sp_tensor_id t)
{
    struct state *state = state_of(l);

    if (state->made[t.at] || !sp_shape_shards_weights(l->shape, t.at))
        return;
    state->made[t.at] = true;
    sp_lower_exchange(l, SP_TRAFFIC_GATHER, owner, out_block(t.at, false));
    sp_lower_add(l, owner, t);
}

/* Called before an attention's forward: fetches weights that the stage lacks. */
static void take_weights(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    int layer = op->chunk;
    const struct use *use = use_of(l, stage, layer);
    bool takes = use->begun == 0 || (state_of(l)->each && op->slice == 0);
    struct message w = parameters(l, layer, false, -1);

    for (int k = 0; takes && k < w.n; k++) {
        int owner = owner_of(l, &w.tensor[k]);

        if (owner == stage)
            continue;
        if (is_out(&w.tensor[k]))
            make_out(l, owner, w.tensor[k]);
        sp_lower_send(l, owner, stage, w.tensor[k], -1);
        sp_lower_recv(l, owner, stage, w.tensor[k], index);
        if (is_out(&w.tensor[k]) && --state_of(l)->takers[layer] == 0)
            sp_lower_free(l, owner,
                          w.tensor[k]); /* a copy that it made; the rest are its own blocks */
    }
}

/* Frees the stage's copy of a layer's weights. */
static void free_weights(struct sp_lowering *l, int stage, int layer)
{
    struct message w = parameters(l, layer, false, -1);

    for (int k = 0; k < w.n; k++)
        if (owner_of(l, &w.tensor[k]) != stage)
            sp_lower_free(l, stage, w.tensor[k]);
}

/* Called after an attention's forward. The stage keeps only the first copy of weights. */
static void keep_weights(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    int slices = l->plan->layout.slices;

    if (use_of(l, stage, op->chunk)->begun++ >= slices && state_of(l)->each &&
        op->slice == slices - 1)
        free_weights(l, stage, op->chunk);
}

/* True if gradients leave with the backward of a micro-batch's first slice; *of is that
 * micro-batch, or -1 if they are those of all. */
static bool returns(const struct sp_lowering *l, const struct use *use, int mb, int *of)
{
    *of = state_of(l)->each ? mb : -1;
    return state_of(l)->each || (use->left == 0 && use->last == mb);
}

/* Called after an attention's backward: sends gradients to the owners, and after the last one frees
 * the weights. */
static void return_weights(struct sp_lowering *l, int stage, const struct sp_op *op, int index)
{
    struct use *use = use_of(l, stage, op->chunk);
    struct message g = {.n = 0};
    int of;

    use->left--;
    use->last = op->mb;
    if (op->slice == 0 && returns(l, use, op->mb, &of))
        g = parameters(l, op->chunk, true, of);
    for (int k = 0; k < g.n; k++)
        if (owner_of(l, &g.tensor[k]) != stage)
            sp_lower_send(l, stage, owner_of(l, &g.tensor[k]), g.tensor[k], index);
    if (use->left == 0)
        free_weights(l, stage, op->chunk);
}

/* The time at which an owner takes gradients of a layer. */
enum taken { WITH_BLOCK, LATER, AT_THE_END };

static enum taken taken(const struct sp_lowering *l, const struct sp_tensor_id *g)
{
    const struct sp_layout *lay = &l->plan->layout;
    int later = g->at + 1 - lay->stages;

    if (!is_out(g))
        return WITH_BLOCK;
    return later >= 0 && sp_block_stage(lay, later) == owner_of(l, g) ? LATER : AT_THE_END;
}

/* Takes the gradients of a layer's attention that left with the backward of micro-batch mb, if any
 * did. */
static void take_gradients(struct sp_lowering *l, int layer, int mb, enum taken when, int index,
                           bool received)
{
    struct message g;
    int stage, of;

    if (layer >= l->plan->layout.layers)
        return;
    stage = sp_attention_stage(&l->plan->layout, mb, layer);
    if (!returns(l, use_of(l, stage, layer), mb, &of))
        return;
    g = parameters(l, layer, true, of);
    for (int k = 0; k < g.n; k++) {
        int owner = owner_of(l, &g.tensor[k]);

        if (owner == stage || taken(l, &g.tensor[k]) != when)
            continue;
        if (!received) {
            sp_lower_recv(l, stage, owner, g.tensor[k], index);
            sp_lower_free(l, stage, g.tensor[k]);
        } else {
            sp_lower_add(l, owner, g.tensor[k]);
            if (is_out(&g.tensor[k]))
                sp_lower_exchange(l, SP_TRAFFIC_SCATTER, owner, out_block(layer, true));
            sp_lower_free(l, owner, g.tensor[k]);
        }
    }
}

/* Called before and after a block's backward; acts with the last one of a micro-batch. */
static void take_with_block(struct sp_lowering *l, const struct sp_op *op, int index, bool received)
{
    if (op->slice > 0)
        return;
    take_gradients(l, op->chunk, op->mb, WITH_BLOCK, index, received);
    take_gradients(l, op->chunk + l->plan->layout.stages - 1, op->mb, LATER, index, received);
}

void sp_attention_parallel_lower_end(struct sp_lowering *l)
{
    const struct sp_layout *lay = &l->plan->layout;

    for (int layer = lay->layers - 1; layer >= 0; layer--)
        for (int mb = 0; mb < lay->micro_batches; mb++)
            for (int received = 0; received < 2; received++)
                take_gradients(l, layer, mb, AT_THE_END, -1, received);
}

/* ---- the family ----------------------------------------------------------------------------- */

int sp_attention_parallel_lower_begin(struct sp_lowering *l)
{
    const struct sp_layout *lay = &l->plan->layout;
    size_t uses = (size_t)lay->stages * (size_t)lay->layers, layers = (size_t)lay->layers;
    struct state *state = calloc(1, sizeof *state + uses * sizeof *state->use +
                                        layers * (sizeof *state->takers + sizeof *state->made));

    free(l->state);
    l->state = state;
    if (!state)
        return -ENOMEM;
    state->takers = (int *)(state->use + uses);
    state->made = (bool *)(state->takers + layers);
    if (l->shape)
        state->ships = sp_shipment(l->plan, l->shape);
    else if (sp_ship_wish(lay) == SP_WISH_ATTENTION)
        state->ships = SP_SHIP_ATTENTION;
    state->each = sp_ships_each_time(l->plan);
    for (int layer = 0; layer < lay->layers; layer++)
        for (int mb = 0; mb < lay->micro_batches; mb++) {
            int stage = sp_attention_stage(lay, mb, layer);
            struct use *use = use_of(l, stage, layer);

            if ((use->left == 0 || state->each) && stage != sp_block_stage(lay, layer + 1))
                state->takers[layer]++;
            use->left += lay->slices;
        }
    return 0;
}

void sp_attention_parallel_lower(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int stage = l->order[i].stage;
    int index = l->order[i].index;
    bool forward = op->pass == SP_F, attention = op->part == SP_ATTN;
    struct message in = message_of(l, op, attention == forward ? BEFORE : AFTER);
    struct message out = message_of(l, op, attention == forward ? AFTER : BEFORE);

    receive(l, &in, index);
    if (forward && attention)
        take_weights(l, stage, op, index);
    else if (!forward && !attention)
        take_with_block(l, op, index, false);
    sp_lower_run(l, stage, index);
    for (int k = 0; k < out.n && out.from != out.to; k++)
        sp_lower_send(l, out.from, out.to, out.tensor[k], index);
    if (forward && attention)
        keep_weights(l, stage, op);
    else if (attention)
        return_weights(l, stage, op, index);
    else if (!forward)
        take_with_block(l, op, index, true);
    release(l, op, &in);
}
