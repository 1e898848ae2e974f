#include "graphs/families/part.h"
#include "graphs/families/vocabulary.h"
#include "graphs/tensor/attention.h"
#include "sp_error.h"

static struct sp_tensor_id id_of(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = (unsigned short)c->slice, .mb = c->mb, .at = layer};
}

struct sp_tensor *sp_part_stored(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer)
{
    struct sp_tensor_id id = id_of(c, kind, layer);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    return t ? t->piece[0] : NULL;
}

void sp_part_leave(struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                   struct sp_tensor *tensor)
{
    struct sp_tensor_id id = id_of(c, kind, layer);

    sp_store_put(&c->st->store, &id, 1, &tensor, true);
}

void sp_part_hold_pieces(const struct sp_part_op *c, enum sp_tensor_kind kind, int layer,
                         struct sp_tensor **piece)
{
    struct sp_tensor_id id = id_of(c, kind, layer);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    SP_NEED(t, "stage %d: no %s of layer %d", c->st->index, sp_tensor_name(kind), layer);
    for (int j = 0; j < t->n; j++)
        piece[j] = sp_part_hold(t->piece[j]);
}

void sp_part_leave_pieces(struct sp_part_op *c, enum sp_tensor_kind kind, int layer, int n,
                          struct sp_tensor *const *piece)
{
    struct sp_tensor_id id = id_of(c, kind, layer);

    sp_store_put(&c->st->store, &id, n, piece, true);
}

/* What stays in the flight, too, for an op of `stage`: if it travels, a copy where what is kept may leave memory before
 * it is read. */
static void leave_kept(struct sp_part_op *c, enum sp_tensor_kind kind, int n,
                       struct sp_tensor *const *piece, int stage, bool travels)
{
    struct sp_tensor *left[SP_MAX_SLICES];

    for (int j = 0; j < n; j++) {
        size_t elem = sp_shape_elem(c->sh), elements = sp_tensor_size(piece[j]) / elem;

        if (travels && c->g->cfg.evictions) {
            left[j] = sp_part_take_for(c, stage, elements, sp_tensor_name(kind));
            sp_copy_insert(&c->ctx, piece[j], left[j]);
        } else {
            left[j] = sp_part_hold(piece[j]);
        }
    }
    sp_part_leave_pieces(c, kind, c->k, n, left);
}

void sp_part_leave_input(struct sp_part_op *c, struct sp_tensor *x)
{
    if (!c->keeps) {
        sp_part_leave(c, SP_TENSOR_X, c->k, x);
        return;
    }
    sp_part_activations_of(c, c->k)->block.x = x;
    leave_kept(c, SP_TENSOR_X, 1, &x, sp_part_attention_stage(c, c->k), true);
}

void sp_part_leave_output(struct sp_part_op *c, int n, struct sp_tensor *const *o)
{
    int reader = sp_part_block_stage(c, c->k + 1);
    struct sp_layer_activations *t = &sp_part_activations_of(c, c->k)->attn;

    if (!c->keeps_output || sp_shape_exchanges(c->sh)) { /* attention goes on with that of heads */
        sp_part_leave_pieces(c, SP_TENSOR_O, c->k, n, o);
        for (int j = 0; c->sh->tensor > 1 && j < n; j++)
            t->shares[j].o = NULL;
        t->o = NULL;
        return;
    }
    leave_kept(c, SP_TENSOR_O, n, o, reader, reader != c->st->index);
}

struct sp_op_ctx sp_part_op_of(const struct sp_part_op *c, struct sp_layer_activations *t,
                               struct sp_chunk_activations *one)
{
    struct sp_op_ctx op = {.g = c->g,
                           .st = c->st,
                           .sh = c->sh,
                           .ctx = c->ctx,
                           .fl = one,
                           .mb = c->mb,
                           .slice = c->slice,
                           .count = 1};

    one->layers = t;
    if (sp_part_shares_head(c))
        sp_vocabulary_tables(&op);
    return op;
}

struct sp_op_ctx sp_part_attention_of(const struct sp_part_op *c,
                                      struct sp_chunk_activations *activations)
{
    struct sp_part_activations *own = sp_part_activations_of(c, c->k);

    for (int j = 0; j <= c->slice; j++)
        activations[j] = (struct sp_chunk_activations){.layers = &own[j - c->slice].attn};
    return sp_part_op_of(c, &own->attn, &activations[c->slice]);
}

void sp_part_each_slice(const struct sp_part_op *c, void (*fn)(struct sp_part_op *of))
{
    for (int j = 0; j <= c->slice; j++) {
        struct sp_part_op of = *c;

        of.slice = j;
        of.sh = &c->g->cuts[0].shapes[j];
        fn(&of);
    }
}

static void forget(struct sp_part_op *c, bool q, bool kv, bool o)
{
    struct sp_chunk_activations activations[SP_MAX_SLICES];
    struct sp_op_ctx a = sp_part_attention_of(c, activations);

    sp_tensor_attention_drop(&a, &sp_part_activations_of(c, c->k)->attn, q, kv, o);
}

static void forget_keys(struct sp_part_op *c)
{
    forget(c, false, true, false);
}

void sp_part_forget(struct sp_part_op *c)
{
    bool shipped = c->ships && !c->keeps;

    forget(c, shipped, false, !c->keeps_output);
    if (shipped && c->slice == c->g->cuts[0].n - 1)
        sp_part_each_slice(c, forget_keys);
}

/* ---- weights that are shipped ------------------------------------------------------------------ */

/* As actions.c of the family has it. */
static struct sp_tensor_id shipped(const struct sp_part_op *c, enum sp_block_kind kind,
                                   bool gradient)
{
    bool out = kind == SP_BLOCK_POST;
    enum sp_tensor_kind tensor = gradient ? (out ? SP_TENSOR_DWOUT : SP_TENSOR_GRADIENT)
                                          : (out ? SP_TENSOR_WOUT : SP_TENSOR_BLOCK);

    return (struct sp_tensor_id){.kind = (unsigned char)tensor,
                                 .block = (unsigned char)(out ? 0 : kind),
                                 .mb = gradient && c->each ? c->mb : -1,
                                 .at = c->k};
}

static bool is_own(const struct sp_part_op *c, enum sp_block_kind kind)
{
    return sp_part_block_stage(c, c->k + (kind == SP_BLOCK_POST)) == c->st->index;
}

struct sp_tensor *sp_part_weights_here(const struct sp_part_op *c, enum sp_block_kind kind)
{
    struct sp_tensor_id id = shipped(c, kind, false);

    return is_own(c, kind) ? sp_part_weight(c, kind, c->k)
                           : sp_store_find(&c->st->store, &id)->piece[0];
}

struct sp_tensor *sp_part_gradient_here(struct sp_part_op *c, enum sp_block_kind kind, bool *fresh)
{
    struct sp_tensor_id id = shipped(c, kind, true);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);
    struct sp_tensor *sum;
    size_t bytes, elements;

    *fresh = !is_own(c, kind) && !t;
    if (!*fresh)
        return t ? t->piece[0] : sp_part_gradient(c, kind, c->k);
    elements = sp_tensor_piece(c->g->cfg.plan, &c->g->shape, &id, 0, &bytes);
    sum = sp_pool_get(c->st->local, elements, bytes, "gradient");
    sp_store_put(&c->st->store, &id, 1, &sum, true);
    return sum;
}

void sp_part_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'D');
    struct sp_tensor *out;
    size_t bytes, elements;

    if (id->kind != SP_TENSOR_WOUT || sp_store_find(&st->store, id))
        return;
    elements = sp_tensor_piece(g->cfg.plan, &g->shape, id, 0, &bytes);
    out = sp_pool_get(st->local, elements, bytes, "output product");
    ctx.layer = id->at;
    sp_copy_insert(&ctx, sp_stage_weight(st, SP_BLOCK_POST, id->at), out);
    sp_store_put(&st->store, id, 1, &out, true);
}

void sp_part_add(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_task_context ctx = sp_stage_context(g, st, 'D');
    struct sp_tensor *part = sp_store_find(&st->store, id)->piece[0];

    ctx.layer = id->at;
    if (id->kind == SP_TENSOR_DWOUT)
        sp_part_add_insert(&ctx, part, sp_stage_gradient(st, SP_BLOCK_POST, id->at), 0);
    else
        sp_sum_insert(&ctx, SP_F32, sp_stage_gradient(st, (enum sp_block_kind)id->block, id->at),
                      part, false);
}

/* ---- the ends of the model ---------------------------------------------------------------------- */

void sp_part_embed(struct sp_part_op *c, struct sp_tensor *x)
{
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = sp_part_op_of(c, NULL, &one);

    op.ctx.layer = -1;
    sp_embed_fwd_insert(&op.ctx, c->sh, sp_graph_tokens(c->g)->ids[sp_part_unit(c)],
                        sp_weight(&op, SP_BLOCK_TOKENS, -1), sp_weight(&op, SP_BLOCK_POSITIONS, -1),
                        x, 0);
}

bool sp_part_shares_head(const struct sp_part_op *c)
{
    return sp_graph_shares_vocabulary(c->g);
}

void sp_part_head_input(struct sp_part_op *c, struct sp_tensor *x)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = sp_part_op_of(c, &t->block, &one);

    sp_vocabulary_input(&op, x, &t->norm);
}

struct sp_tensor *sp_part_head_gradient(struct sp_part_op *c, int64_t released)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *dx = sp_part_take(c, sp_part_hidden(c), "dx");
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = sp_part_op_of(c, &t->block, &one);

    sp_vocabulary_gradient(&op, t->block.x, &t->norm, dx, released);
    c->stash -= released;
    sp_pool_drop(&t->block.x);
    return dx;
}

struct sp_tensor *sp_part_head(struct sp_part_op *c)
{
    enum sp_block_kind table = sp_head_table(&c->sh->model);
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    int64_t released = c->keeps ? sp_part_bytes(t->block.x) : 0;
    struct sp_tensor *dx;

    if (sp_part_shares_head(c))
        return sp_part_head_gradient(c, released);
    dx = sp_part_take(c, sp_part_hidden(c), "dx");
    c->ctx.layer = -1;
    sp_head_insert(&c->ctx, c->sh, t->block.x, sp_graph_tokens(c->g)->targets[sp_part_unit(c)],
                   sp_part_weight(c, SP_BLOCK_NORM, -1), sp_part_weight(c, table, -1),
                   sp_part_gradient(c, SP_BLOCK_NORM, -1), sp_part_gradient(c, table, -1), dx,
                   sp_stage_tally(c->g, c->st), released);
    c->stash -= released;
    sp_pool_drop(&t->block.x);
    return dx;
}

void sp_part_embed_gradient(struct sp_part_op *c, struct sp_tensor *dx)
{
    struct sp_chunk_activations one = {0};
    struct sp_op_ctx op = sp_part_op_of(c, NULL, &one);

    op.ctx.layer = -1;
    sp_embed_wgrad_insert(&op.ctx, c->sh, sp_graph_tokens(c->g)->ids[sp_part_unit(c)], dx,
                          sp_gradient(&op, SP_BLOCK_TOKENS, -1),
                          sp_gradient(&op, SP_BLOCK_POSITIONS, -1));
}

/* ---- blocks -------------------------------------------------------------------------------------- */

bool sp_part_cuts_mlp(const struct sp_part_op *c)
{
    return !c->keeps && sp_mlp_comes_in_chunks(c->sh, SP_RECOMPUTE_NO_ATTENTION);
}

void sp_part_hold_inputs(struct sp_part_op *c)
{
    struct sp_part_activations *t = sp_part_activations_of(c, c->k);
    struct sp_tensor *held[SP_MAX_SLICES + 1];
    int n = sp_shape_shares(c->sh);

    c->ctx.layer = c->k - 1;
    if (c->ships == SP_SHIP_ATTENTION) {
        t->block.x = sp_part_hold(sp_part_stored(c, SP_TENSOR_R, c->k - 1));
        sp_hold_insert(&c->ctx, c->sh, 1, &t->block.x, c->stash);
        return;
    }
    sp_part_hold_pieces(c, SP_TENSOR_O, c->k - 1, held);
    if (c->sh->tensor > 1)
        for (int j = 0; j < n; j++)
            t->block.shares[j].o = held[j];
    else
        t->block.o = held[0];
    held[n] = t->block.x = sp_part_hold(sp_part_stored(c, SP_TENSOR_X, c->k - 1));
    sp_hold_insert(&c->ctx, c->sh, n + 1, held, c->stash);
}
