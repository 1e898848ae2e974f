#include "graphs/offload.h"
#include <stdlib.h>

static const struct sp_away *away_of(const struct sp_op_ctx *c)
{
    return c->g->cfg.away ? &c->g->cfg.away[c->st->index] : NULL;
}

/* The k-th slot of the op. */
static int slot_of(const struct sp_op_ctx *c, const struct sp_away *a, int k)
{
    return a->slot[a->op_slots[c->ctx.op_index] + k];
}

static int first_unit(const struct sp_op_ctx *c, const struct sp_away *a)
{
    int chunk = c->cut ? c->global : sp_home(&c->g->cfg.plan->layout, c->pipe, c->global).chunk;

    return a->flight_unit[sp_flight_number(c->g->cfg.plan, chunk, c->mb, c->slice)];
}

void sp_offload_slot(struct sp_op_ctx *c, int k)
{
    const struct sp_away *a = away_of(c);

    if (!a)
        return;
    for (int u = a->returns[slot_of(c, a, k)]; u >= 0; u = a->next_return[u]) {
        struct sp_move *move = &c->st->moves[u];

        move->next = c->st->returning;
        c->st->returning = move;
    }
}

void sp_offload_gate(struct sp_op_ctx *c, int k)
{
    const struct sp_away *a = away_of(c);

    if (!a)
        return;
    for (int u = a->gates[slot_of(c, a, k)]; u >= 0; u = a->next_gate[u])
        sp_move_hold(&c->st->moves[u], *c->ctx.order + 1);
}

void sp_offload_leave(struct sp_op_ctx *c, int i)
{
    const struct sp_away *a = away_of(c);
    const struct sp_layer_flight *t = &c->fl->layers[i];
    const starpu_data_handle_t tensors[SP_STASH_TENSORS] = {
        [SP_STASH_X] = t->x,      [SP_STASH_PRE] = t->pre, [SP_STASH_Q] = t->q,
        [SP_STASH_KV] = t->kv,    [SP_STASH_O] = t->o,     [SP_STASH_LSE] = t->lse,
        [SP_STASH_POST] = t->post};
    starpu_data_handle_t leave[SP_STASH_TENSORS];
    int n = 0, unit;

    if (!a)
        return;
    unit = first_unit(c, a) + i;
    for (int k = 0; k < SP_STASH_TENSORS; k++)
        if (a->units[unit].out >> k & 1)
            leave[n++] = tensors[k];
    if (n)
        sp_move_out(&c->st->moves[unit], &c->st->mover, leave, n, &c->ctx.meter->live_bytes,
                    &c->ctx.meter->peak_bytes);
}

int sp_offload_stage_create(struct sp_graph *g, struct sp_stage *st)
{
    if (!g->cfg.away)
        return 0;
    sp_mover_init(&st->mover, starpu_worker_get_memory_node((unsigned)st->worker), g->cfg.tier,
                  st->worker);
    st->moves = calloc((size_t)g->cfg.away[st->index].n_units + 1, sizeof *st->moves);
    return st->moves ? 0 : -ENOMEM;
}

void sp_offload_stage_destroy(struct sp_graph *g, struct sp_stage *st)
{
    if (!g->cfg.away)
        return;
    sp_mover_destroy(&st->mover);
    free(st->moves);
}
