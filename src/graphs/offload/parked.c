/* Activations that wait on other stages in a run that evicts others (offload.h). */
#include "graphs/offload/offload.h"
#include "policies/lowering/parking.h"
#include "sp_error.h"
#include <stdlib.h>

struct sp_departing {
    struct sp_departing *next;
    int runs; /* of the stage when they were sent */
    int n;
    struct sp_tensor *tensor[];
};

/* True if the tensor is parked by one process on another, in a run that frees what leaves. */
static bool travels(struct sp_graph *g, const struct sp_action *a)
{
    const struct sp_parking *p = g->cfg.plan->parking;
    const struct sp_parked *parked;
    const struct sp_layout *lay = &g->cfg.plan->layout;
    int owner;

    if (!g->cfg.evictions || !p || a->tensor.kind != SP_TENSOR_STASH)
        return false;
    parked = p->of[a->tensor.mb * p->globals + a->tensor.at];
    owner = sp_chunk_owner(lay, sp_pipe_of_mb(lay, a->tensor.mb), a->tensor.at).stage;
    return !sp_graph_stage(g, parked->peer) || !sp_graph_stage(g, owner);
}

/* Waits until tensors that were sent before the stage's last op have left, and frees them. */
static void wait_for(struct sp_graph *g, struct sp_stage *st)
{
    while (st->sent && st->sent->runs < st->runs) {
        struct sp_departing *d = st->sent;
        struct sp_task_context ctx = sp_stage_context(g, st, 'S');

        sp_room_insert(&ctx, &g->shape, d->n, d->tensor);
        for (int i = 0; i < d->n; i++)
            sp_pool_put(d->tensor[i]);
        st->sent = d->next;
        free(d);
    }
}

void sp_parked_run(struct sp_graph *g, struct sp_stage *st)
{
    wait_for(g, st);
    st->runs++;
}

void sp_parked_arrives(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a, int n,
                       struct sp_tensor *const *piece)
{
    struct sp_task_context ctx;

    if (!travels(g, a))
        return;
    wait_for(g, st);
    ctx = sp_stage_context(g, st, 'R');
    sp_room_insert(&ctx, &g->shape, n, piece);
}

void sp_parked_departs(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a)
{
    const struct sp_stored *t;
    struct sp_departing *d, **last = &st->sent;

    if (!travels(g, a))
        return;
    t = sp_store_find(&st->store, &a->tensor);
    SP_NEED(t, "internal: starpipe: stage %d sent activations that it does not have", st->index);
    d = malloc(sizeof *d + (size_t)t->n * sizeof *d->tensor);
    SP_NEED(d, "no memory for %d tensors that leave", t->n);
    d->runs = st->runs;
    d->n = t->n;
    d->next = NULL;
    for (int i = 0; i < t->n; i++) {
        d->tensor[i] = t->piece[i];
        sp_pool_hold(d->tensor[i]);
    }
    while (*last)
        last = &(*last)->next;
    *last = d;
}

void sp_parked_end(struct sp_stage *st)
{
    st->runs = 0;
    while (st->sent) {
        struct sp_departing *d = st->sent;

        for (int i = 0; i < d->n; i++)
            sp_pool_put(d->tensor[i]);
        st->sent = d->next;
        free(d);
    }
}
