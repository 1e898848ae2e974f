#include "graphs/families/chunk.h"
#include "graphs/offload/offload.h"
#include "graphs/tensor/ends.h"
#include "graphs/offload/streamed_keys.h"
#include "graphs/weights/zero.h"
#include "sp_error.h"
#include <stdlib.h>

void sp_chunk_embed(struct sp_op_ctx *c, int tokens, struct sp_tensor *x)
{
    if (c->sh->tensor > 1) {
        sp_tensor_embed(c, tokens, x);
        return;
    }
    c->ctx.layer = -1;
    sp_embed_fwd_insert(&c->ctx, c->sh, sp_graph_tokens(c->g)->ids[tokens],
                        sp_weight(c, SP_BLOCK_TOKENS, -1), sp_weight(c, SP_BLOCK_POSITIONS, -1), x,
                        0);
}

void sp_chunk_head(struct sp_op_ctx *c, int tokens, struct sp_tensor **x, int64_t released,
                   struct sp_tensor *dx)
{
    enum sp_block_kind table = sp_head_table(&c->sh->model);

    if (c->sh->tensor > 1) {
        sp_tensor_head(c, tokens, *x, dx, released);
    } else {
        c->ctx.layer = -1;
        sp_head_insert(&c->ctx, c->sh, *x, sp_graph_tokens(c->g)->targets[tokens],
                       sp_weight(c, SP_BLOCK_NORM, -1), sp_weight(c, table, -1),
                       sp_gradient(c, SP_BLOCK_NORM, -1), sp_gradient(c, table, -1), dx,
                       sp_stage_tally(c->g, c->st), released);
    }
    sp_pool_drop(x);
}

void sp_chunk_head_of_output(struct sp_op_ctx *c, int tokens, struct sp_tensor *dx)
{
    sp_chunk_head(c, tokens, &c->fl->out, (int64_t)sp_tensor_size(c->fl->out), dx);
}

void sp_chunk_embed_gradient(struct sp_op_ctx *c, int tokens, struct sp_tensor **dx)
{
    c->ctx.layer = -1;
    if (c->sh->tensor > 1)
        sp_tensor_embed_gradient(c, tokens, *dx);
    else
        sp_embed_wgrad_insert(&c->ctx, c->sh, sp_graph_tokens(c->g)->ids[tokens], *dx,
                              sp_gradient(c, SP_BLOCK_TOKENS, -1),
                              sp_gradient(c, SP_BLOCK_POSITIONS, -1));
    sp_pool_drop(dx);
}

/* True if the input of layer i is kept; else it is recomputed from that of an earlier layer. */
static bool keeps_input(const struct sp_op_ctx *c, int i)
{
    return sp_chunk_recompute(c, i) != SP_RECOMPUTE_FULL || i % c->g->cfg.every == 0;
}

/* Begins the forward of layer i. */
static void open_forward(struct sp_op_ctx *c, int i)
{
    sp_zero_gather(c, i);
    sp_offload_slot(c, 2 * i);
    sp_streamed_keys_next_layer(c, i);
}

static void close_forward(struct sp_op_ctx *c, int i, struct sp_tensor *y)
{
    if (!keeps_input(c, i))
        sp_pool_drop(&c->fl->layers[i].x);
    sp_offload_keep(c, i);
    sp_zero_drop(c, i);
    if (i < c->count - 1)
        c->fl->layers[i + 1].x = y;
    c->flow = y;
}

/* Computes layers a .. b again; b stays open. */
static void recompute(struct sp_op_ctx *c, int a, int b)
{
    for (int i = a; i <= b; i++) {
        sp_zero_gather(c, i);
        sp_layer_forward_again(c, i, i < b);
        if (i < b)
            sp_zero_drop(c, i);
    }
}

/* Begins the backward of layer i from c->flow; recomputes first what it needs. */
static void open_backward(struct sp_op_ctx *c, int i)
{
    enum sp_recompute mode = sp_chunk_recompute(c, i);
    int every = c->g->cfg.every;

    sp_offload_slot(c, c->count - 1 - i);
    sp_streamed_keys_next_layer(c, i);
    /* at the end of a group of layers that keeps one input */
    if (!sp_stash_keeps(mode, SP_STASH_PRE) && (i == c->count - 1 || (i + 1) % every == 0))
        recompute(c, i / every * every, i);
    else
        sp_zero_gather(c, i);
    sp_zero_take_gradient(c, i);
    c->fl->layers[i].dy = c->flow;
}

static void close_backward(struct sp_op_ctx *c, int i, struct sp_tensor *dx)
{
    if (!c->split) {
        sp_layer_wgrad(c, i);
        sp_zero_scatter(c, i);
    }
    sp_zero_drop(c, i);
    c->flow = dx;
}

int sp_chunk_layer(const struct sp_op_ctx *c, int step)
{
    return c->ctx.pass == 'F' ? step : c->count - 1 - step;
}

void sp_chunk_begin_layer(struct sp_op_ctx *c, int i)
{
    if (c->ctx.pass == 'F') {
        open_forward(c, i);
        sp_layer_forward_begin(c, i, sp_keep_in_forward(sp_chunk_recompute(c, i)),
                               keeps_input(c, i));
    } else {
        open_backward(c, i);
        sp_layer_backward_begin(c, i);
    }
}

void sp_chunk_attend_layer(struct sp_op_ctx *c, int i)
{
    if (c->ctx.pass == 'F')
        sp_layer_forward_attention(c, i, sp_keep_in_forward(sp_chunk_recompute(c, i)));
    else
        sp_layer_backward_attention(c, i);
}

void sp_chunk_end_layer(struct sp_op_ctx *c, int i, struct sp_tensor *out, bool to_head)
{
    if (c->ctx.pass == 'F') {
        sp_layer_forward_end(c, i, sp_keep_in_forward(sp_chunk_recompute(c, i)), out, to_head);
        close_forward(c, i, out);
    } else {
        sp_layer_backward_end(c, i, out);
        close_backward(c, i, out);
    }
}

void sp_chunk_run_layer(struct sp_op_ctx *c, int i, struct sp_tensor *out, bool to_head)
{
    sp_chunk_begin_layer(c, i);
    sp_chunk_attend_layer(c, i);
    sp_chunk_end_layer(c, i, out, to_head);
}

void sp_chunk_wgrad(struct sp_op_ctx *c)
{
    for (int i = c->count - 1; i >= 0; i--) {
        sp_zero_gather(c, i);
        sp_zero_take_gradient(c, i);
        sp_offload_slot(c, c->count - 1 - i);
        sp_layer_wgrad(c, i);
        sp_zero_scatter(c, i);
        sp_zero_drop(c, i);
    }
}

void sp_chunk_forward(struct sp_op_ctx *c, struct sp_chunk_activations *next)
{
    if (c->first == 0) {
        c->fl->layers[0].x = sp_take_hidden(c, "x");
        sp_chunk_embed(c, c->mb, c->fl->layers[0].x);
    }
    for (int i = 0; i < c->count; i++)
        sp_chunk_run_layer(c, i, sp_take_hidden(c, "x"), i == c->count - 1 && !next);
    if (next)
        next->layers[0].x = c->flow;
    else
        c->fl->out = c->flow;
}

void sp_chunk_backward(struct sp_op_ctx *c, struct sp_chunk_activations *before)
{
    c->flow = c->fl->grad;
    c->fl->grad = NULL;
    for (int i = c->count - 1; i >= 0; i--)
        sp_chunk_run_layer(c, i, sp_take_hidden(c, "dx"), false);
    if (before)
        before->grad = c->flow;
    else if (c->split)
        c->fl->grad = c->flow;
    else
        sp_chunk_embed_gradient(c, c->mb, &c->flow);
}

struct sp_chunk_activations *sp_activations_new(const struct sp_graph *g, int stage, int chunks,
                                                int each)
{
    size_t n = (size_t)chunks * (size_t)each, layers = 0;
    struct sp_chunk_activations *activations;
    struct sp_layer_activations *l;
    struct sp_heads *heads;
    int first, count, parts = sp_activations_parts(&g->shape);

    for (int c = 0; c < chunks; c++) {
        sp_chunk_layers(g->cfg.plan, g->shape.model.layers, stage, c, &first, &count);
        layers += (size_t)count * (size_t)each;
    }
    activations = calloc(n, sizeof *activations);
    l = calloc(layers + 1, sizeof *l);
    heads = parts ? calloc(layers * (size_t)parts, sizeof *heads) : NULL;
    if (!activations || !l || (parts && layers && !heads)) {
        free(heads);
        free(l);
        free(activations);
        return NULL;
    }
    for (size_t i = 0; i < layers; i++)
        sp_activations_give(&g->shape, &l[i], heads ? heads + i * (size_t)parts : NULL);
    for (size_t i = 0; i < n; i++) {
        sp_chunk_layers(g->cfg.plan, g->shape.model.layers, stage, (int)(i / (size_t)each), &first,
                        &count);
        activations[i].layers = l;
        l += count;
    }
    return activations;
}

void sp_activations_free(struct sp_chunk_activations *activations)
{
    if (activations) {
        free(sp_activations_first(&activations[0].layers[0]));
        free(activations[0].layers);
    }
    free(activations);
}

int sp_activations_create(struct sp_graph *g, struct sp_stage *st, int chunks, int each)
{
    st->activations = sp_activations_new(g, st->index, chunks, each);
    return st->activations ? 0 : -ENOMEM;
}

void sp_activations_destroy(struct sp_stage *st)
{
    sp_activations_free(st->activations);
    st->activations = NULL;
}

/* Drops everything that the forward of a chunk left. */
static void drop_activations(struct sp_chunk_activations *fl, int layers, int parts)
{
    sp_pool_drop(&fl->out);
    sp_pool_drop(&fl->norm);
    sp_pool_drop(&fl->grad);
    for (int i = 0; i < layers; i++)
        sp_layer_drop(&fl->layers[i], parts);
    *fl = (struct sp_chunk_activations){.layers = fl->layers};
}

void sp_activations_drop(struct sp_graph *g, struct sp_stage *st, int chunks, int each)
{
    for (int i = 0; i < chunks * each; i++) {
        int first, count;

        sp_chunk_layers(g->cfg.plan, g->shape.model.layers, st->index, i / each, &first, &count);
        drop_activations(&st->activations[i], count, sp_activations_parts(&g->shape));
    }
    sp_stage_forget(g, st);
}
