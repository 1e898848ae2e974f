#include "graphs/op.h"
#include "policies/families/slice_buffers.h"

struct sp_op_ctx sp_op_open(struct sp_graph *g, struct sp_stage *st, const struct sp_op *op,
                            int index)
{
    static const char passes[] = {[SP_F] = 'F', [SP_B] = 'B', [SP_W] = 'W', [SP_R] = 'R'};
    struct sp_op_ctx c = {
        .g = g,
        .st = st,
        .sh = &g->cuts[0].shapes[op->slice],
        .ctx = sp_stage_context(g, st, passes[op->pass]),
        .mb = op->mb,
        .slice = op->slice,
    };

    c.ctx.op_index = index;
    c.ctx.mb = op->mb;
    c.ctx.documents = sp_graph_documents(g, op->mb);
    c.ctx.slice = g->cfg.plan->layout.slices > 1 ? op->slice : -1;
    c.ctx.op = sp_window_open(g->window, g->turn);
    return c;
}

static struct sp_tensor *take_hidden(struct sp_pool *pool, const struct sp_shape *sh,
                                     const char *name)
{
    return sp_pool_get(pool, (size_t)sh->rows * (size_t)sh->model.hidden, sp_shape_elem(sh), name);
}

struct sp_tensor *sp_take_hidden(struct sp_op_ctx *c, const char *name)
{
    return take_hidden(c->st->local, c->sh, name);
}

const struct sp_shape *sp_op_room(const struct sp_op_ctx *c)
{
    const struct sp_graph *g = c->g;
    bool own = c->split || g->cfg.evictions || sp_checks();

    return !own && sp_slices_take_turns(g->cfg.plan, c->sh) ? sp_shape_scratch(c->sh) : c->sh;
}

struct sp_tensor *sp_take_hidden_room(struct sp_op_ctx *c, const char *name)
{
    return take_hidden(c->st->local, sp_op_room(c), name);
}

struct sp_tensor *sp_take_boundary(struct sp_op_ctx *c, struct sp_stage *st, const char *name)
{
    return take_hidden(st->boundary, c->sh, name);
}

struct sp_tensor *sp_weight(struct sp_op_ctx *c, enum sp_block_kind kind, int layer)
{
    if (c->w && layer >= 0)
        return c->w[sp_layer_block_at(kind, layer - c->first)];
    if (c->end_w && layer < 0 && c->end_w[kind])
        return c->end_w[kind];
    return sp_stage_weight(c->st, kind, layer);
}

struct sp_tensor *sp_gradient(struct sp_op_ctx *c, enum sp_block_kind kind, int layer)
{
    if (c->gradient && layer >= 0)
        return c->gradient[sp_layer_block_at(kind, layer - c->first)];
    if (c->end_gradient && layer < 0 && c->end_gradient[kind])
        return c->end_gradient[kind];
    return sp_stage_gradient(c->st, kind, layer);
}

struct sp_keep sp_keep_in_forward(enum sp_recompute recompute)
{
    return (struct sp_keep){.saved = sp_stash_keeps(recompute, SP_STASH_PRE),
                            .keep_outputs = recompute == SP_RECOMPUTE_NONE,
                            .qkv = sp_stash_keeps(recompute, SP_STASH_Q),
                            .attn = sp_stash_keeps(recompute, SP_STASH_O),
                            .stash = true};
}

enum sp_recompute sp_chunk_recompute(const struct sp_op_ctx *c, int i)
{
    enum sp_recompute mode = sp_layer_recompute(c->g->cfg.plan, c->g->cfg.recompute, c->first + i);

    return c->attend ? sp_recompute_keeping_attention(mode) : mode;
}

bool sp_chunk_cuts_mlp(const struct sp_op_ctx *c, int i)
{
    return !c->split && !c->norms && sp_mlp_comes_in_chunks(c->sh, sp_chunk_recompute(c, i));
}

struct sp_tensor *sp_take_sum(const struct sp_op_ctx *c, const struct sp_shape *sh, int tasks)
{
    return tasks > 1 && sh->dtype != SP_F32
               ? sp_pool_get(c->st->local, (size_t)sh->rows * (size_t)sh->q_width, sizeof(float),
                             "sum")
               : NULL;
}

/* True if attention works on the shares of the tokens themselves. */
static bool attends_shares(const struct sp_shape *sh)
{
    return sh->tensor > 1 && !sh->joins;
}

/* True if shares of the tokens have tensors of their own, beside those of all tokens. */
static bool has_shares(const struct sp_shape *sh)
{
    return sp_shape_shares(sh) > 1 || sh->joins;
}

int sp_activations_parts(const struct sp_shape *sh)
{
    int heads = sp_shape_exchanges(sh) ? sp_shape_parts(sh) : 0;

    return heads + (has_shares(sh) ? sp_shape_shares(sh) : 0);
}

void sp_activations_give(const struct sp_shape *sh, struct sp_layer_activations *t,
                         struct sp_heads *parts)
{
    bool exchanges = sp_shape_exchanges(sh);

    t->shares = has_shares(sh) ? parts + (exchanges ? sp_shape_parts(sh) : 0) : &t->own;
    t->heads = exchanges ? parts : attends_shares(sh) ? t->shares : &t->own;
}
