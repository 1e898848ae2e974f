#include "graphs/visits.h"
#include "offload/host.h"

static const struct sp_eviction_plan *evictions_of(const struct sp_op_ctx *c)
{
    const struct sp_eviction_plan *all = c->g->cfg.evictions;

    return all && all[c->st->index].visits_in ? &all[c->st->index] : NULL;
}

static unsigned next_position(const struct sp_op_ctx *c)
{
    return *c->ctx.order + 1;
}

static struct sp_layer_flight *flight_of(const struct sp_op_ctx *c, int i, int slice)
{
    return &c->fl[slice - c->slice].layers[i];
}

/* Keys and values of a slice, or their gradients, into out[]; how many. */
static int tensors_of(const struct sp_op_ctx *c, const struct sp_layer_flight *t, bool gradients,
                      starpu_data_handle_t *out)
{
    int parts = t->heads ? sp_shape_parts(&c->g->shape) : 1;

    for (int k = 0; k < parts; k++)
        out[k] =
            gradients ? (t->heads ? t->heads[k].dkv : t->dkv) : (t->heads ? t->heads[k].kv : t->kv);
    return parts;
}

static void ask(struct sp_op_ctx *c, struct sp_move *move)
{
    move->next = c->st->returning;
    c->st->returning = move;
}

static int unit_of(const struct sp_op_ctx *c, const struct sp_eviction_plan *a, int i, int slice)
{
    const struct sp_plan *plan = c->g->cfg.plan;
    int chunk = plan->programs[c->st->index].ops[c->ctx.op_index].chunk;

    return a->flight_unit[sp_flight_number(plan, chunk, c->mb, slice)] + i;
}

void sp_visits_next_op(struct sp_op_ctx *c)
{
    if (evictions_of(c))
        sp_visits_wait(&c->st->mover, next_position(c));
}

void sp_visits_next_layer(struct sp_op_ctx *c, int i)
{
    const struct sp_eviction_plan *a = evictions_of(c);
    struct sp_layer_flight *t = &c->fl->layers[i];
    starpu_data_handle_t own[2 * SP_MAX_SLICES];
    struct sp_meter *meter = sp_stage_meter(c->g, c->st);
    struct sp_move *move;
    int n;

    if (!a)
        return;
    sp_visits_wait(&c->st->mover, next_position(c));
    if (!t->away)
        return;
    t->away = false;
    n = tensors_of(c, t, false, own);
    n += tensors_of(c, t, true, own + n);
    move = &c->st->own[unit_of(c, a, i, c->slice)];
    sp_move_return(move, &c->st->mover, own, n);
    move->live = &meter->live_bytes;
    move->peak = &meter->peak_bytes;
    for (int k = 0; k < n / 2; k++) /* gradients are no activations */
        move->tensors[k].gone = true;
    ask(c, move);
}

bool sp_visit_takes(const struct sp_op_ctx *c, int slice, int64_t *bytes)
{
    const struct sp_shape *sh = &sp_op_cut(c)->shapes[slice];

    return sp_eviction_visit_takes(
        evictions_of(c),
        (int64_t)sp_host_round(sp_shape_elem(sh) * (size_t)sh->rows * (size_t)sh->kv_width), bytes);
}

struct sp_visit *sp_visit_ask(struct sp_op_ctx *c, int i, int first, int end, bool gradients,
                              bool made)
{
    starpu_data_handle_t tensors[2 * SP_MAX_SLICES];
    struct sp_visit *visit;
    int keys = 0, n;

    for (int j = first; j < end; j++)
        if (flight_of(c, i, j)->away)
            keys += tensors_of(c, flight_of(c, i, j), false, tensors + keys);
    n = keys;
    for (int j = first; gradients && j < end; j++)
        if (flight_of(c, i, j)->away)
            n += tensors_of(c, flight_of(c, i, j), true, tensors + n);
    visit = sp_visit_new(&c->st->mover, tensors, n, made ? n : keys, keys);
    ask(c, &visit->move);
    return visit;
}

void sp_visit_enter(struct sp_op_ctx *c)
{
    sp_visit_begin(&c->st->mover, next_position(c));
}

void sp_visits_leave(struct sp_op_ctx *c, int i)
{
    const struct sp_eviction_plan *a = evictions_of(c);
    struct sp_meter *meter = sp_stage_meter(c->g, c->st);
    struct sp_layer_flight *before;
    starpu_data_handle_t keys[SP_MAX_SLICES];
    struct sp_visit *visit;
    int n;

    if (!a || c->ctx.pass != 'F' || c->slice == 0 || !a->units[unit_of(c, a, i, c->slice - 1)].keys)
        return;
    before = flight_of(c, i, c->slice - 1);
    n = tensors_of(c, before, false, keys);
    before->away = true;
    visit = sp_visit_new(&c->st->mover, keys, n, 0, 0);
    visit->move.live = &meter->live_bytes;
    visit->move.peak = &meter->peak_bytes;
    sp_visit_enter(c);
    sp_visit_end(visit);
}
