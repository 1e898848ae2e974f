#include "graphs/graph.h"
#include "policies/families/ownership.h"

int64_t sp_tag(const struct sp_graph *g, enum sp_message kind, int64_t a, int64_t b)
{
    const int64_t wide = 1 << 24; /* more than ops of a stage, layers, stages */

    STARPU_ASSERT_MSG(a >= 0 && a < wide && b >= 0 && b < wide,
                      "starpipe: more messages than tags: take fewer stages");

    /* StarPU-MPI keeps a record of every tag it has seen, so tags come back; every message of a
     * step has arrived before the next step begins, so two steps apart would do. */
    return ((g->step % 4 * SP_MSG_KINDS + kind) * wide + a) * wide + b + 1;
}

/* ---- blocks --------------------------------------------------------------------------- */

struct sp_block *sp_stage_block(struct sp_stage *st, enum sp_block_kind kind, int layer)
{
    for (int i = 0; i < st->n_blocks; i++)
        if (st->blocks[i].kind == kind && st->blocks[i].layer == layer)
            return &st->blocks[i];
    return NULL;
}

starpu_data_handle_t sp_stage_piece(const struct sp_graph *g, struct sp_stage *st,
                                    const struct sp_tensor_id *t, int i)
{
    struct sp_tensor_block at = sp_tensor_block(g->cfg.plan, &g->shape, t, i);
    struct sp_block *b = sp_stage_block(st, at.kind, at.layer);

    return !b ? NULL : at.gradient ? b->g : b->w;
}

int sp_block_owner(const struct sp_graph *g, enum sp_block_kind kind, int layer)
{
    int stages[SP_MAX_HOLDERS];

    sp_block_holders(g->cfg.plan, &g->shape.model, kind, layer, stages);
    return stages[0];
}

struct sp_task_context sp_stage_context(struct sp_graph *g, struct sp_stage *st, char pass)
{
    return (struct sp_task_context){
        .worker = st->worker,
        .order = &g->worker_order[st->worker],
        .returning = &st->returning,
        .meter = sp_stage_meter(g, st),
        .window = g->window,
        .op_index = -1,
        .stage = st->index,
        .in_stream = g->in_stream,
        .pass = pass,
        .slice = -1,
        .layer = -1,
    };
}
