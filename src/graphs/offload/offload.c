#include "graphs/offload/offload.h"
#include "graphs/offload/streamed_keys.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct sp_eviction_plan *evictions_of(const struct sp_op_ctx *c)
{
    return c->g->cfg.evictions ? &c->g->cfg.evictions[c->st->index] : NULL;
}

/* The number of the op's k-th slot. */
static int slot_of(const struct sp_op_ctx *c, const struct sp_eviction_plan *a, int k)
{
    return a->slot[a->op_slots[c->ctx.op_index] + k];
}

static int first_unit(const struct sp_op_ctx *c, const struct sp_eviction_plan *a)
{
    const struct sp_plan *plan = c->g->cfg.plan;
    const struct sp_op *op = &plan->programs[c->st->index].ops[c->ctx.op_index];

    return a->activations_unit[sp_activations_of_op(plan, c->st->index, op)];
}

void sp_offload_slot(struct sp_op_ctx *c, int k)
{
    const struct sp_eviction_plan *a = evictions_of(c);
    struct sp_move **at = &c->st->fetches;

    while (a && *at) {
        struct sp_move *move = *at;

        if (a->units[move - c->st->moves].back != slot_of(c, a, k)) {
            at = &move->next;
            continue;
        }
        *at = move->next;
        move->next = c->st->returning;
        c->st->returning = move;
    }
}

void sp_offload_gate(struct sp_op_ctx *c, int k)
{
    const struct sp_eviction_plan *a = evictions_of(c);

    if (!a)
        return;
    for (int u = a->gates[slot_of(c, a, k)]; u >= 0; u = a->next_gate[u])
        c->g->cfg.sink->ops->tier->gate(&c->st->moves[u], *c->ctx.order + 1);
}

void sp_offload_keep(struct sp_op_ctx *c, int i)
{
    const struct sp_eviction_plan *a = evictions_of(c);
    int unit;

    if (!a)
        return;
    unit = first_unit(c, a) + i;
    c->st->kept[unit] = (struct sp_kept){
        &c->fl->layers[i], i == c->count - 1 && c->global == c->globals - 1 ? c->fl : NULL};
    if (sp_sink_computes(c->g->cfg.sink)) /* for messages */
        snprintf(c->st->moves[unit].name, sizeof c->st->moves[unit].name, "s%d m%d.%d l%d",
                 c->ctx.stage, c->mb, c->slice, c->first + i);
}

/* The largest number of buffers of a unit: the tensors of the whole slice, and for each part of the
 * tokens one for each of attention's four and the MLP's three tensors. */
static int tensors_of_unit(const struct sp_graph *g)
{
    return SP_UNIT_TENSORS + 3 + 4 * sp_shape_parts(&g->shape) + 3 * sp_shape_shares(&g->shape);
}

/* Appends the buffers that exist; returns the new number. */
static int add_buffers(struct sp_tensor **out, int n, struct sp_tensor *const *buffers, int k)
{
    for (int i = 0; i < k; i++)
        if (buffers[i])
            out[n++] = buffers[i];
    return n;
}

/* Writes the buffers of a tensor into out[]; returns how many. */
static int tensors_of(const struct sp_graph *g, const struct sp_kept *kept, int tensor,
                      struct sp_tensor **out)
{
    const struct sp_layer_activations *t = kept->layer;
    enum { WHOLE = 5 };
    struct sp_tensor *const whole[SP_UNIT_TENSORS][WHOLE] = {
        [SP_STASH_X] = {t->x},
        [SP_STASH_PRE] = {t->pre, t->n1},
        [SP_STASH_Q] = {t->own.q},
        [SP_STASH_KV] = {t->own.kv},
        [SP_STASH_O] = {t->own.o},
        [SP_STASH_LSE] = {t->own.lse},
        [SP_STASH_POST] = {t->post, t->r, t->n2, t->own.u, t->own.g},
        [SP_UNIT_HEAD] = {kept->chunk ? kept->chunk->out : NULL}};
    int n = add_buffers(out, 0, whole[tensor], WHOLE);

    for (int j = 0; t->heads != &t->own && j < sp_shape_parts(&g->shape); j++) {
        const struct sp_heads *h = &t->heads[j];
        struct sp_tensor *const apart[SP_UNIT_TENSORS][1] = {
            [SP_STASH_Q] = {h->q},
            [SP_STASH_KV] = {h->kv},
            [SP_STASH_O] = {h->o},
            [SP_STASH_LSE] = {h->lse},
        };

        n = add_buffers(out, n, apart[tensor], 1);
    }
    for (int j = 0; t->shares != &t->own && j < sp_shape_shares(&g->shape); j++) {
        const struct sp_heads *h = &t->shares[j];

        if (tensor == SP_STASH_POST)
            n = add_buffers(out, n, (struct sp_tensor *[]){h->u, h->g}, 2);
        if (tensor == SP_STASH_O && t->shares != t->heads)
            n = add_buffers(out, n, &h->o, 1);
    }
    return n;
}

void sp_offload_evict(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    int unit = a->eviction->unit, n = 0;
    struct sp_tensor *leave[tensors_of_unit(g)];
    struct sp_meter *meter = sp_stage_meter(g, st);

    if (unit < 0)
        return; /* tasks of the op evict it (graphs/offload/streamed_keys.h) */
    for (int k = 0; k < SP_UNIT_TENSORS; k++)
        if (g->cfg.evictions[st->index].units[unit].out >> k & 1)
            n += tensors_of(g, &st->kept[unit], k, leave + n);
    g->cfg.sink->ops->tier->evict(&st->moves[unit], &st->mover, leave, n,
                                  (struct sp_memory_count){&meter->live_bytes, &meter->peak_bytes});
}

void sp_offload_fetch(struct sp_stage *st, const struct sp_action *a)
{
    struct sp_move *move, **last = &st->fetches;

    if (a->eviction->unit < 0)
        return; /* tasks of the op fetch it */
    move = &st->moves[a->eviction->unit];
    while (*last)
        last = &(*last)->next;
    move->next = NULL;
    *last = move;
}

int sp_offload_stage_create(struct sp_graph *g, struct sp_stage *st)
{
    size_t units, each = (size_t)tensors_of_unit(g);

    if (g->cfg.evictions || g->cfg.plan->states_evicted)
        g->cfg.sink->ops->tier->start(&st->mover, g->cfg.tier, st->worker);
    if (!g->cfg.evictions)
        return 0;
    units = (size_t)g->cfg.evictions[st->index].n_units + 1;
    st->moves = calloc(units, sizeof *st->moves);
    st->kept = calloc(units, sizeof(*st->kept));
    st->moved = calloc(units * each, sizeof *st->moved);
    if (!st->moves || !st->kept || !st->moved)
        return -ENOMEM;
    for (size_t u = 0; u < units; u++)
        st->moves[u].tensors = st->moved + u * each;
    return sp_streamed_keys_create(g, st);
}

void sp_offload_stage_destroy(struct sp_graph *g, struct sp_stage *st)
{
    bool any = g->cfg.evictions != NULL;

    if (any)
        sp_streamed_keys_destroy(g, st);
    if (any || g->cfg.plan->states_evicted)
        g->cfg.sink->ops->tier->stop(&st->mover, st->moves,
                                     any ? (size_t)g->cfg.evictions[st->index].n_units + 1 : 0);
    sp_states_destroy(g, st);
    free(st->moves);
    free(st->moved);
    free(st->kept);
}
