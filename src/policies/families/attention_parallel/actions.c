/*
 * Attention-parallel programs as actions (HelixPipe, sections 4.2 and 4.4). Between parameter block j and
 * attention of layer l travel
 *
 *   P(i,l)   -> A(i,l)     x   and  q, kv    or, if the weights are shipped,  n (the product's input), w.qkv
 *   A(i,l)   -> P(i,l+1)   x   and  o
 *   bP(i,l+1) -> bA(i,l)   dx  and  do
 *   bA(i,l)  -> bP(i,l)    dx  and  dq, dkv  or  dn, dw.qkv
 *
 * The residual goes by way of attention, as published. Shipped weights come with every micro-batch; of the
 * copies that a stage has of a layer's, the first stays until the last backward there. The gradient of
 * weights does not travel where attention is on the stage that owns them: it is added in place.
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

/* Of a step. */
struct state {
    bool ships; /* weights, not q, k, v */
    int users
        []; /* [stages][layers] micro-batches between their forward and their backward that use a
                  * layer's shipped weights */
};

static bool ships(const struct sp_lowering *l)
{
    return ((const struct state *)l->state)->ships;
}

static void add(struct message *m, enum sp_tensor_kind kind, int mb, int layer)
{
    m->tensor[m->n++] = (struct sp_tensor_id){.kind = (unsigned char)kind, .mb = mb, .at = layer};
}

/* What block `layer` sends to attention of that layer in the forward, or gets back in the backward. */
static struct message before_attention(const struct sp_lowering *l, int mb, int layer, bool forward)
{
    const struct sp_layout *lay = &l->plan->layout;
    int block = sp_block_stage(lay, layer), attention = sp_attention_stage(lay, mb, layer);
    struct message m = {.from = forward ? block : attention, .to = forward ? attention : block};

    add(&m, forward ? SP_TENSOR_X : SP_TENSOR_DX, mb, layer);
    if (ships(l)) {
        add(&m, forward ? SP_TENSOR_N1 : SP_TENSOR_DN1, mb, layer);
        add(&m, forward ? SP_TENSOR_WQKV : SP_TENSOR_DWQKV, forward ? -1 : mb, layer);
    } else {
        add(&m, forward ? SP_TENSOR_Q : SP_TENSOR_DQ, mb, layer);
        add(&m, forward ? SP_TENSOR_KV : SP_TENSOR_DKV, mb, layer);
    }
    return m;
}

/* What attention of a layer sends to the next block in the forward, or gets back. */
static struct message after_attention(const struct sp_lowering *l, int mb, int layer, bool forward)
{
    const struct sp_layout *lay = &l->plan->layout;
    int attention = sp_attention_stage(lay, mb, layer), block = sp_block_stage(lay, layer + 1);
    struct message m = {.from = forward ? attention : block, .to = forward ? block : attention};

    add(&m, forward ? SP_TENSOR_X : SP_TENSOR_DX, mb, layer);
    add(&m, forward ? SP_TENSOR_O : SP_TENSOR_DO, mb, layer);
    return m;
}

/* The message that an op receives, and the one that it sends; false: there is none. */
static bool received(const struct sp_lowering *l, const struct sp_op *op, struct message *m)
{
    bool forward = op->pass == SP_F, attention = op->part == SP_ATTN;

    if (attention == forward) {
        if (op->chunk == l->plan->layout.layers)
            return false; /* the head has its own gradient */
        *m = before_attention(l, op->mb, op->chunk, forward);
        return true;
    }
    if (forward && op->chunk == 0)
        return false;
    *m = after_attention(l, op->mb, attention ? op->chunk : op->chunk - 1, forward);
    return true;
}

static bool sent(const struct sp_lowering *l, const struct sp_op *op, struct message *m)
{
    bool forward = op->pass == SP_F, attention = op->part == SP_ATTN;

    if (attention != forward) {
        if (op->chunk == l->plan->layout.layers)
            return false;
        *m = before_attention(l, op->mb, op->chunk, forward);
        return true;
    }
    if (!forward && op->chunk == 0)
        return false;
    *m = after_attention(l, op->mb, attention ? op->chunk : op->chunk - 1, forward);
    return true;
}

static int *users_of(const struct sp_lowering *l, int stage, int layer)
{
    return &((struct state *)l->state)->users[stage * l->plan->layout.layers + layer];
}

int sp_attention_parallel_lower_begin(struct sp_lowering *l)
{
    const struct sp_layout *lay = &l->plan->layout;

    size_t users = (size_t)lay->stages * (size_t)lay->layers;
    struct state *state = calloc(1, sizeof *state + users * sizeof *state->users);

    free(l->state);
    l->state = state;
    if (!state)
        return -ENOMEM;
    state->ships = l->shape && sp_ships_weights(l->plan, l->shape);
    return 0;
}

static void receive(struct sp_lowering *l, const struct message *m, int index)
{
    for (int k = 0; k < m->n && m->from != m->to; k++) {
        sp_lower_recv(l, m->from, m->to, m->tensor[k], index);
        if (m->tensor[k].kind != SP_TENSOR_WQKV) /* that is the owner's block */
            sp_lower_free(l, m->from, m->tensor[k]);
    }
}

/* Whether the next op reads it as well, on the same stage or after another message. */
static bool goes_on(const struct sp_op *op, const struct sp_tensor_id *t)
{
    return op->part == SP_ATTN && (t->kind == SP_TENSOR_X || t->kind == SP_TENSOR_DX);
}

/* Frees what the op was the last to read of a message. */
static void release(struct sp_lowering *l, const struct sp_op *op, const struct message *m)
{
    for (int k = 0; k < m->n; k++) {
        const struct sp_tensor_id *t = &m->tensor[k];

        if (m->from == m->to && (t->kind == SP_TENSOR_WQKV || t->kind == SP_TENSOR_DWQKV))
            continue; /* the stage's own block */
        if (t->kind == SP_TENSOR_WQKV) {
            if ((*users_of(l, m->to, t->at))++ > 0)
                sp_lower_free(l, m->to, *t);
        } else if (!goes_on(op, t)) {
            sp_lower_free(l, m->to, *t);
        }
    }
}

/* The weights, after the last backward that reads them. */
static void release_weights(struct sp_lowering *l, int stage, const struct sp_op *op)
{
    struct sp_tensor_id t = {.kind = SP_TENSOR_WQKV, .mb = -1, .at = op->chunk};

    if (!ships(l) || op->part != SP_ATTN || op->pass != SP_B ||
        sp_block_stage(&l->plan->layout, op->chunk) == stage)
        return;
    if (--*users_of(l, stage, op->chunk) == 0)
        sp_lower_free(l, stage, t);
}

void sp_attention_parallel_lower(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int stage = l->order[i].stage;
    int index = l->order[i].index;
    struct message in, out;
    bool takes = received(l, op, &in);

    if (takes)
        receive(l, &in, index);
    sp_lower_run(l, stage, index);
    if (sent(l, op, &out))
        for (int k = 0; k < out.n && out.from != out.to; k++)
            sp_lower_send(l, out.from, out.to, out.tensor[k],
                          out.tensor[k].kind == SP_TENSOR_WQKV ? -1 : index);
    if (takes)
        release(l, op, &in);
    release_weights(l, stage, op);
}
