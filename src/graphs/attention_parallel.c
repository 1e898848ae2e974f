/*
 * The attention-parallel family (HelixPipe, sections 4.2 and 4.4): parameter blocks stay where they
 * are, attention of a layer runs on a stage of its own for every micro-batch.
 *
 *   P(mb, j):  [embed] | post of layer j-1, norm of layer j [, QKV]   -- x, n1 [W] | q kv  --> A(mb, j)
 *   A(mb, l):  [QKV] attention                                         -- x, o              --> P(mb, l+1)
 *
 * and back: dr, do to attention; dr, dn1 [dW] | dq dkv to the block. The residual x goes by way of
 * attention, as published. With qkv=weights the QKV weights go along with their input, and their
 * gradient comes back, so that neither q, k, v nor their gradients cross.
 *
 * Inside a process a tensor is handed over as it is, and held by every op that still reads it.
 * stash_parts.h has what is kept between forward and backward.
 */
#include "graphs/family.h"
#include "graphs/message.h"
#include <stdlib.h>

/* The tensors of one micro-batch at block k and at the attention of layer k; NULL where absent. */
struct sp_part_flight {
    struct {
        starpu_data_handle_t residual, o, post, x, pre;
    } block; /* kept */
    struct {
        starpu_data_handle_t n1, q, kv, o, lse;
    } attn; /* kept */
    /* Handed over in this process, to ... */
    struct {
        starpu_data_handle_t x, a, b; /* residual; n1 | q; - | kv */
    } to_attn;
    struct {
        starpu_data_handle_t x, o;
    } from_attn;
    struct {
        starpu_data_handle_t dr, d_o;
    } back_to_attn;
    struct {
        starpu_data_handle_t dr, a, b; /* residual's; dn1 | dq; dW | dkv */
    } back_from_attn;
};

/* The tensors of a message, by their place in its tags. */
enum { RESIDUAL, FIRST, SECOND, MESSAGE_TENSORS };

/* The op being expanded. */
struct part {
    struct sp_graph *g;
    struct sp_stage *st;
    const struct sp_shape *sh;
    struct sp_lane lane;
    int mb, k;
    bool ships;        /* weights, not q, k, v */
    bool keeps, cheap; /* norms and the MLP's insides are kept; outputs of norms, activations too */
    int64_t stash;     /* of the op */
};

static struct sp_part_flight *flight(const struct part *c, int k)
{
    size_t layers = (size_t)c->sh->model.layers;

    return &c->g->parts[(size_t)c->mb * (layers + 1) + (size_t)k];
}

static int64_t bytes(starpu_data_handle_t handle)
{
    return (int64_t)starpu_data_get_size(handle);
}

static void drop(starpu_data_handle_t *handle)
{
    if (*handle)
        sp_pool_put(*handle);
    *handle = NULL;
}

static starpu_data_handle_t hold(starpu_data_handle_t handle)
{
    sp_pool_hold(handle);
    return handle;
}

/* ---- sizes and buffers ------------------------------------------------------------------ */

static size_t hidden(const struct part *c)
{
    return (size_t)c->sh->rows * (size_t)c->sh->model.hidden;
}

static size_t q_size(const struct part *c)
{
    return (size_t)c->sh->rows * (size_t)c->sh->q_width;
}

static size_t kv_size(const struct part *c)
{
    return (size_t)c->sh->rows * (size_t)c->sh->kv_width;
}

static size_t weights_size(const struct part *c)
{
    return sp_block_elements(&c->sh->model, SP_BLOCK_QKV);
}

/* A tensor that this op writes and frees, or that only this stage's ops read. */
static starpu_data_handle_t take(const struct part *c, size_t floats, const char *name)
{
    return sp_pool_get(c->st->local, floats, sizeof(float), name);
}

/* A tensor that goes to a stage: of its own pool, if it is in this process. */
static starpu_data_handle_t take_for(const struct part *c, int stage, size_t floats,
                                     const char *name)
{
    struct sp_stage *st = sp_graph_stage(c->g, stage);

    return sp_pool_get((st ? st : c->st)->boundary, floats, sizeof(float), name);
}

static starpu_data_handle_t weight(const struct part *c, enum sp_block_kind kind, int layer)
{
    struct sp_block *b = sp_stage_block(c->st, kind, layer);

    return b ? b->w : NULL;
}

static starpu_data_handle_t gradient(const struct part *c, enum sp_block_kind kind, int layer)
{
    struct sp_block *b = sp_stage_block(c->st, kind, layer);

    return b ? b->g : NULL;
}

static int block_stage(const struct part *c, int j)
{
    return sp_block_stage(&c->g->cfg.plan->layout, j);
}

static int attention_stage(const struct part *c, int layer)
{
    return sp_attention_stage(&c->g->cfg.plan->layout, c->mb, layer);
}

/* ---- messages --------------------------------------------------------------------------- */

/* One end of a message: the op that receives it. */
struct receiver {
    enum sp_pass pass;
    enum sp_part part;
    int k;
};

static int64_t tag_of(const struct part *c, struct receiver to, int tensor)
{
    int64_t op = 2 * to.k + (to.part == SP_ATTN);

    return sp_tag(c->g, to.pass == SP_F ? SP_MSG_FORWARD : SP_MSG_BACKWARD, c->mb,
                  op * MESSAGE_TENSORS + tensor);
}

static int stage_of(const struct part *c, struct receiver to)
{
    return to.part == SP_ATTN ? attention_stage(c, to.k) : block_stage(c, to.k);
}

/* Gives a tensor, and this op's hold of it, to the receiver. */
static void hand_over(struct part *c, starpu_data_handle_t tensor, struct receiver to, int which,
                      starpu_data_handle_t *slot)
{
    const struct sp_plan *plan = c->g->cfg.plan;
    struct sp_op op = {
        .pass = (unsigned char)to.pass, .part = (unsigned char)to.part, .mb = c->mb, .chunk = to.k};
    int stage = stage_of(c, to);

    if (sp_graph_stage(c->g, stage))
        *slot = tensor;
    else
        sp_message_send(c->g, c->st, tensor, stage, tag_of(c, to, which),
                        c->g->position[plan->family->id(&plan->layout, stage, &op)]);
}

/* What was handed over in this process, or a receive from a stage of another. */
static starpu_data_handle_t take_over(struct part *c, starpu_data_handle_t *slot, int from,
                                      struct receiver self, int which, size_t floats,
                                      const char *name)
{
    starpu_data_handle_t tensor = *slot;

    *slot = NULL;
    if (tensor)
        return tensor;
    tensor = take_for(c, c->st->index, floats, name);
    sp_message_receive(c->g, &c->lane, tensor, from, tag_of(c, self, which));
    return tensor;
}

/* ---- shipped weights -------------------------------------------------------------------- */

/* The QKV weights of this layer for attention's forward. Those of another process come with every
 * micro-batch; the first copy stays until the last backward. */
static starpu_data_handle_t receive_weights(struct part *c)
{
    struct sp_stage *owner = sp_graph_stage(c->g, block_stage(c, c->k));
    struct sp_shipped *shipped = &c->st->shipped[c->k];
    starpu_data_handle_t none = NULL, w;

    if (owner)
        return sp_stage_block(owner, SP_BLOCK_QKV, c->k)->w;
    w = take_over(c, &none, block_stage(c, c->k), (struct receiver){SP_F, SP_ATTN, c->k}, SECOND,
                  weights_size(c), "qkv weights");
    shipped->users++;
    if (!shipped->w)
        shipped->w = hold(w);
    return w;
}

static void release_weights(struct part *c, starpu_data_handle_t w)
{
    if (!sp_graph_stage(c->g, block_stage(c, c->k)))
        drop(&w);
}

/* For the backward. */
static starpu_data_handle_t kept_weights(struct part *c)
{
    struct sp_stage *owner = sp_graph_stage(c->g, block_stage(c, c->k));

    return owner ? sp_stage_block(owner, SP_BLOCK_QKV, c->k)->w : c->st->shipped[c->k].w;
}

static void drop_weights(struct part *c)
{
    struct sp_shipped *shipped = &c->st->shipped[c->k];

    if (!sp_graph_stage(c->g, block_stage(c, c->k)) && --shipped->users == 0)
        drop(&shipped->w);
}

/* ---- forward ---------------------------------------------------------------------------- */

static starpu_data_handle_t embed(struct part *c, starpu_data_handle_t x)
{
    c->lane.layer = -1;
    sp_embed_fwd_insert(&c->lane, c->sh, sp_graph_tokens(c->g)->ids[c->mb],
                        weight(c, SP_BLOCK_TOKENS, -1), weight(c, SP_BLOCK_POSITIONS, -1), x, 0);
    return x;
}

/* Post of layer k-1: the input of layer k, or of the head. */
static starpu_data_handle_t post_forward(struct part *c)
{
    struct sp_part_flight *before = flight(c, c->k - 1), *t = flight(c, c->k);
    struct receiver self = {SP_F, SP_BLOCK, c->k};
    int from = attention_stage(c, c->k - 1), layers = c->sh->model.layers;
    starpu_data_handle_t x, o, y;

    x = take_over(c, &before->from_attn.x, from, self, RESIDUAL, hidden(c), "x");
    o = take_over(c, &before->from_attn.o, from, self, FIRST, q_size(c), "o");
    y = take_for(c, c->k < layers ? attention_stage(c, c->k) : c->st->index, hidden(c), "x");
    if (c->keeps)
        t->block.post = take(c, sp_shape_post_saved(c->sh, c->cheap), "post saved");
    c->lane.layer = c->k - 1;
    sp_post_fwd_insert(&c->lane, c->sh,
                       &(struct sp_post){.x = x, .o = o, .saved = t->block.post, .cheap = c->cheap},
                       weight(c, SP_BLOCK_POST, c->k - 1), y, c->stash);
    t->block.o = o;
    if (c->keeps)
        drop(&x);
    else
        t->block.residual = x;
    return y;
}

/* Pre of layer k, or only its norm where the product runs beside attention. */
static void pre_forward(struct part *c, starpu_data_handle_t x)
{
    struct sp_part_flight *t = flight(c, c->k);
    struct receiver to = {SP_F, SP_ATTN, c->k};
    int stage = stage_of(c, to);
    struct sp_pre pre = {.x = x, .cheap = c->cheap && !c->ships};
    int64_t stash = c->k == 0 ? c->stash : 0;

    if (c->keeps)
        pre.saved = t->block.pre = take(c, sp_shape_pre_saved(c->sh, pre.cheap), "pre saved");
    c->lane.layer = c->k;
    if (c->ships) {
        starpu_data_handle_t n1 = take_for(c, stage, hidden(c), "n1");

        if (!sp_graph_stage(c->g, stage))
            sp_message_send_block(c->g, c->st, weight(c, SP_BLOCK_QKV, c->k), stage,
                                  tag_of(c, to, SECOND));
        sp_norm_fwd_insert(&c->lane, c->sh, &pre, n1, weight(c, SP_BLOCK_NORM1, c->k), stash);
        hand_over(c, n1, to, FIRST, &t->to_attn.a);
    } else {
        pre.q = take_for(c, stage, q_size(c), "q");
        pre.kv = take_for(c, stage, kv_size(c), "kv");
        sp_pre_fwd_insert(&c->lane, c->sh, &pre, weight(c, SP_BLOCK_NORM1, c->k),
                          weight(c, SP_BLOCK_QKV, c->k), stash);
        hand_over(c, pre.q, to, FIRST, &t->to_attn.a);
        hand_over(c, pre.kv, to, SECOND, &t->to_attn.b);
    }
    if (c->keeps)
        t->block.x = hold(x);
    hand_over(c, x, to, RESIDUAL, &t->to_attn.x);
}

static void block_forward(struct part *c)
{
    starpu_data_handle_t x;

    if (c->k == 0)
        x = embed(c, take_for(c, attention_stage(c, 0), hidden(c), "x"));
    else
        x = post_forward(c);
    if (c->k < c->sh->model.layers)
        pre_forward(c, x);
    else if (c->keeps)
        flight(c, c->k)->block.x = x;
    else
        drop(&x);
}

static struct sp_attn attention(const struct part *c, const struct sp_part_flight *t)
{
    return (struct sp_attn){
        .q_len = c->sh->seq,
        .n_kv = 1,
        .kv_len = &c->sh->seq,
        .q = t->attn.q,
        .o = t->attn.o,
        .lse = t->attn.lse,
        .kv = &t->attn.kv,
    };
}

static void attention_forward(struct part *c)
{
    struct sp_part_flight *t = flight(c, c->k);
    struct receiver self = {SP_F, SP_ATTN, c->k}, to = {SP_F, SP_BLOCK, c->k + 1};
    int from = block_stage(c, c->k);
    starpu_data_handle_t x = take_over(c, &t->to_attn.x, from, self, RESIDUAL, hidden(c), "x");
    struct sp_attn at;

    hand_over(c, x, to, RESIDUAL, &t->from_attn.x);
    c->lane.layer = c->k;
    if (c->ships) {
        starpu_data_handle_t w;

        t->attn.n1 = take_over(c, &t->to_attn.a, from, self, FIRST, hidden(c), "n1");
        w = receive_weights(c);
        t->attn.q = take(c, q_size(c), "q");
        t->attn.kv = take(c, kv_size(c), "kv");
        sp_qkv_fwd_insert(&c->lane, c->sh, t->attn.n1, w, t->attn.q, t->attn.kv, 0);
        release_weights(c, w);
    } else {
        t->attn.q = take_over(c, &t->to_attn.a, from, self, FIRST, q_size(c), "q");
        t->attn.kv = take_over(c, &t->to_attn.b, from, self, SECOND, kv_size(c), "kv");
    }
    t->attn.o = take_for(c, c->st->index, q_size(c), "o");
    t->attn.lse = take(c, (size_t)c->sh->rows * (size_t)c->sh->model.heads, "lse");
    at = attention(c, t);
    sp_attn_fwd_insert(&c->lane, c->sh, &at, c->stash);
    if (c->ships && !c->keeps) {
        drop(&t->attn.q);
        drop(&t->attn.kv);
    }
    hand_over(c, hold(t->attn.o), to, FIRST, &t->from_attn.o);
}

/* ---- backward --------------------------------------------------------------------------- */

static void attention_backward(struct part *c)
{
    struct sp_part_flight *t = flight(c, c->k);
    struct receiver self = {SP_B, SP_ATTN, c->k}, to = {SP_B, SP_BLOCK, c->k};
    int from = block_stage(c, c->k + 1), owner = block_stage(c, c->k);
    bool own = owner == c->st->index; /* the weights' gradient is added where it belongs */
    starpu_data_handle_t dr, d_o, dq, dkv, w = NULL;
    struct sp_attn at;

    dr = take_over(c, &t->back_to_attn.dr, from, self, RESIDUAL, hidden(c), "dr");
    hand_over(c, dr, to, RESIDUAL, &t->back_from_attn.dr);
    d_o = take_over(c, &t->back_to_attn.d_o, from, self, FIRST, q_size(c), "do");
    c->lane.layer = c->k;
    if (c->ships)
        w = kept_weights(c);
    if (!t->attn.q) {
        t->attn.q = take(c, q_size(c), "q");
        t->attn.kv = take(c, kv_size(c), "kv");
        sp_qkv_fwd_insert(&c->lane, c->sh, t->attn.n1, w, t->attn.q, t->attn.kv, 0);
    }
    dq = c->ships ? take(c, q_size(c), "dq") : take_for(c, owner, q_size(c), "dq");
    dkv = c->ships ? take(c, kv_size(c), "dkv") : take_for(c, owner, kv_size(c), "dkv");
    at = attention(c, t);
    sp_attn_bwd_insert(&c->lane, c->sh, &at, true, d_o, dq, &dkv, c->ships ? 0 : c->stash);
    drop(&d_o);
    drop(&t->attn.q);
    drop(&t->attn.kv);
    drop(&t->attn.lse);
    drop(&t->attn.o);
    if (c->ships) {
        starpu_data_handle_t dn1 = take_for(c, owner, hidden(c), "dn1");
        starpu_data_handle_t dw = own ? gradient(c, SP_BLOCK_QKV, c->k)
                                      : take_for(c, owner, weights_size(c), "qkv gradient");

        sp_qkv_bwd_insert(&c->lane, c->sh, w, dq, dkv, dn1);
        hand_over(c, dn1, to, FIRST, &t->back_from_attn.a);
        sp_qkv_wgrad_insert(&c->lane, c->sh, t->attn.n1, dq, dkv, dw, !own, c->stash);
        if (!own)
            hand_over(c, dw, to, SECOND, &t->back_from_attn.b);
        drop(&t->attn.n1);
        drop(&dq);
        drop(&dkv);
        drop_weights(c);
    } else {
        hand_over(c, dq, to, FIRST, &t->back_from_attn.a);
        hand_over(c, dkv, to, SECOND, &t->back_from_attn.b);
    }
}

/* Everything of a block but attention once more, from what it received. */
static void recompute(struct part *c)
{
    struct sp_part_flight *t = flight(c, c->k);
    struct sp_pre pre = {.cheap = !c->ships};

    c->cheap = true;
    t->block.x = take(c, hidden(c), "x");
    if (c->k == 0) {
        embed(c, t->block.x);
    } else {
        t->block.post = take(c, sp_shape_post_saved(c->sh, true), "post saved");
        c->lane.layer = c->k - 1;
        sp_post_fwd_insert(
            &c->lane, c->sh,
            &(struct sp_post){
                .x = t->block.residual, .o = t->block.o, .saved = t->block.post, .cheap = true},
            weight(c, SP_BLOCK_POST, c->k - 1), t->block.x, 0);
        drop(&t->block.residual);
    }
    if (c->k == c->sh->model.layers)
        return;
    pre.x = t->block.x;
    pre.saved = t->block.pre = take(c, sp_shape_pre_saved(c->sh, pre.cheap), "pre saved");
    c->lane.layer = c->k;
    sp_norm_fwd_insert(&c->lane, c->sh, &pre, NULL, weight(c, SP_BLOCK_NORM1, c->k), 0);
}

/* Final norm, logits, loss and their gradient: that of the last layer's output. */
static starpu_data_handle_t head(struct part *c)
{
    enum sp_block_kind table = c->sh->model.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
    struct sp_part_flight *t = flight(c, c->k);
    starpu_data_handle_t dx = take(c, hidden(c), "dx");

    c->lane.layer = -1;
    sp_head_insert(&c->lane, c->sh, t->block.x, sp_graph_tokens(c->g)->targets[c->mb],
                   weight(c, SP_BLOCK_NORM, -1), weight(c, table, -1),
                   gradient(c, SP_BLOCK_NORM, -1), gradient(c, table, -1), dx,
                   sp_stage_tally(c->g, c->st), c->keeps ? bytes(t->block.x) : 0);
    if (c->keeps)
        c->stash -= bytes(t->block.x);
    drop(&t->block.x);
    return dx;
}

/* Gradient of the input of layer k, and the weight gradients of pre. */
static starpu_data_handle_t pre_backward(struct part *c)
{
    struct sp_part_flight *t = flight(c, c->k);
    struct receiver self = {SP_B, SP_BLOCK, c->k};
    int from = attention_stage(c, c->k);
    size_t a_size = c->ships ? hidden(c) : q_size(c);
    size_t b_size = c->ships ? weights_size(c) : kv_size(c);
    struct sp_pre pre = {.x = t->block.x, .saved = t->block.pre, .cheap = c->cheap && !c->ships};
    starpu_data_handle_t w_norm = weight(c, SP_BLOCK_NORM1, c->k);
    starpu_data_handle_t g_norm = gradient(c, SP_BLOCK_NORM1, c->k);
    starpu_data_handle_t g_qkv = gradient(c, SP_BLOCK_QKV, c->k), dr, a, b = NULL;
    starpu_data_handle_t dx = take(c, hidden(c), "dx");
    int64_t stash = c->k == 0 ? c->stash : 0;

    dr = take_over(c, &t->back_from_attn.dr, from, self, RESIDUAL, hidden(c), "dr");
    a = take_over(c, &t->back_from_attn.a, from, self, FIRST, a_size, c->ships ? "dn1" : "dq");
    if (!c->ships || from != c->st->index)
        b = take_over(c, &t->back_from_attn.b, from, self, SECOND, b_size,
                      c->ships ? "qkv gradient" : "dkv");
    c->lane.layer = c->k;
    if (c->ships) {
        sp_norm_bwd_insert(&c->lane, c->sh, &pre, w_norm, g_norm, a, dr, dx, stash);
        if (b)
            sp_sum_insert(&c->lane, g_qkv, b, false);
    } else {
        sp_pre_bwd_insert(&c->lane, c->sh, &pre, w_norm, weight(c, SP_BLOCK_QKV, c->k), g_norm, a,
                          b, dr, dx);
        sp_pre_wgrad_insert(&c->lane, c->sh, &pre, w_norm, a, b, g_qkv, stash);
    }
    drop(&dr);
    drop(&a);
    drop(&b);
    drop(&t->block.x);
    drop(&t->block.pre);
    return dx;
}

/* Gradients of post of layer k-1, from that of its output: what attention waits for goes first. */
static void post_backward(struct part *c, starpu_data_handle_t dy)
{
    struct sp_part_flight *t = flight(c, c->k), *before = flight(c, c->k - 1);
    struct receiver to = {SP_B, SP_ATTN, c->k - 1};
    int stage = stage_of(c, to);
    starpu_data_handle_t w = weight(c, SP_BLOCK_POST, c->k - 1);
    starpu_data_handle_t g = gradient(c, SP_BLOCK_POST, c->k - 1);
    starpu_data_handle_t du = take(c, (size_t)c->sh->rows * (size_t)c->sh->up_width, "du");
    starpu_data_handle_t dr = take_for(c, stage, hidden(c), "dr");
    starpu_data_handle_t d_o = take_for(c, stage, q_size(c), "do");
    struct sp_post post = {.o = t->block.o, .saved = t->block.post, .cheap = c->cheap};

    c->lane.layer = c->k - 1;
    sp_post_bwd_insert(&c->lane, c->sh, &post, w, g, dy, du, dr, d_o);
    hand_over(c, d_o, to, FIRST, &before->back_to_attn.d_o);
    hand_over(c, hold(dr), to, RESIDUAL, &before->back_to_attn.dr);
    sp_post_wgrad_insert(&c->lane, c->sh, &post, w, g, dy, du, dr, c->stash);
    drop(&dr);
    drop(&du);
    drop(&t->block.post);
    drop(&t->block.o);
}

static void block_backward(struct part *c)
{
    starpu_data_handle_t dx;

    if (!c->keeps)
        recompute(c);
    dx = c->k == c->sh->model.layers ? head(c) : pre_backward(c);
    if (c->k == 0) {
        c->lane.layer = -1;
        sp_embed_wgrad_insert(&c->lane, c->sh, sp_graph_tokens(c->g)->ids[c->mb], dx,
                              gradient(c, SP_BLOCK_TOKENS, -1),
                              gradient(c, SP_BLOCK_POSITIONS, -1));
    } else {
        post_backward(c, dx);
    }
    drop(&dx);
}

/* ---- the family ------------------------------------------------------------------------- */

static void submit(struct sp_graph *g, struct sp_stage *st, int index)
{
    const struct sp_plan *plan = g->cfg.plan;
    const struct sp_op *op = &plan->programs[st->index].ops[index];
    struct part c = {
        .g = g,
        .st = st,
        .sh = &g->shape,
        .lane = sp_stage_lane(g, st, op->pass == SP_F ? 'F' : 'B'),
        .mb = op->mb,
        .k = op->chunk,
        .ships = sp_ships_weights(plan, &g->shape),
        .keeps = g->cfg.recompute != SP_RECOMPUTE_NO_ATTENTION,
        .cheap = g->cfg.recompute == SP_RECOMPUTE_NONE,
        .stash = sp_stash_of_op(plan, &g->shape, g->cfg.recompute, g->cfg.every, st->index, op),
    };

    sp_message_release(g, g->position[plan->family->id(&plan->layout, st->index, op)]);
    c.lane.op_index = index;
    c.lane.mb = op->mb;
    c.lane.op = sp_window_open(g->window);
    if (op->part == SP_ATTN && op->pass == SP_F)
        attention_forward(&c);
    else if (op->part == SP_ATTN)
        attention_backward(&c);
    else if (op->pass == SP_F)
        block_forward(&c);
    else
        block_backward(&c);
    sp_window_close(c.lane.op);
}

static int create(struct sp_graph *g)
{
    const struct sp_layout *lay = &g->cfg.plan->layout;
    size_t layers = (size_t)lay->layers;

    g->parts = calloc((size_t)lay->micro_batches * (layers + 1), sizeof *g->parts);
    if (!g->parts)
        return -ENOMEM;
    for (int k = 0; k < g->place.n_local; k++) {
        g->stages[k].shipped = calloc(layers, sizeof *g->stages[k].shipped);
        if (!g->stages[k].shipped)
            return -ENOMEM;
    }
    return 0;
}

static void destroy(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        free(g->stages[k].shipped);
    free(g->parts);
}

const struct sp_graph_family sp_graph_attention_parallel = {
    .create = create,
    .destroy = destroy,
    .submit = submit,
};
