/*
 * Shares of keys and values (policies/families/multiplexed/key_shares.h) of a part whose owner has
 * them: the rows that the owner sends to a stage, and their gradients, which it adds to its own.
 */
#include "graphs/families/multiplexed/multiplexed.h"
#include "graphs/offload/streamed_keys.h"
#include "policies/families/multiplexed/key_shares.h"
#include "sp_error.h"
#include <stdio.h>
#include <stdlib.h>

/* Sets the rows of a share, in the part and in the share; true if the share is less than the
 * part. */
static bool rows_of(struct sp_graph *g, const struct sp_tensor_id *id, struct sp_rows *rows)
{
    const struct sp_shape *sh = sp_cut_attention(sp_graph_cut(g, id->at), id->slice);
    int first, len;

    sp_key_share(g->cfg.plan, g->shape.seq, id->at, id->slice, id->block - 1, &first, &len);
    *rows = (struct sp_rows){.batch = sh->batch, .width = sh->kv_width, .n = len};
    rows->from_len = sh->seq;
    rows->from_at = first - sh->first;
    rows->to_len = len;
    return len < sh->seq;
}

void sp_share_make(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    const struct sp_shape *sh = sp_cut_attention(sp_graph_cut(g, id->at), id->slice);
    struct sp_task_context ctx = sp_stage_context(g, st, 'K');
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, id);
    struct sp_tensor_id all = *id;
    const struct sp_stored *received;
    struct sp_tensor *piece[n];
    struct sp_rows rows;
    bool cut = rows_of(g, id, &rows);

    all.block = 0;
    received = sp_multiplex_find(g, &all);
    for (int i = 0; i < n; i++) {
        struct sp_tensor *kv =
            sp_multiplexed_activations(g, id->at, id->mb, id->slice)->layers[i].heads->kv;

        kv = kv ? kv : received->piece[i];
        piece[i] = kv;
        if (cut) {
            piece[i] =
                sp_pool_get(st->boundary, (size_t)rows.n * (size_t)rows.batch * (size_t)rows.width,
                            sp_shape_elem(sh), "kv");
            sp_rows_insert(&ctx, sh, &rows, kv, piece[i], true);
        } else {
            sp_pool_hold(kv);
        }
    }
    sp_store_put(&st->store, id, n, piece, true);
}

/* Adds piece i of a share's gradients to those of its part. */
static void add_piece(struct sp_graph *g, struct sp_task_context *ctx,
                      const struct sp_stored *share, int i)
{
    const struct sp_tensor_id *id = &share->id;
    const struct sp_shape *sh = sp_cut_attention(sp_graph_cut(g, id->at), id->slice);
    struct sp_tensor *dkv =
        sp_multiplexed_activations(g, id->at, id->mb, id->slice)->layers[i].heads->dkv;
    struct sp_rows in;
    bool cut = rows_of(g, id, &in);
    struct sp_rows rows = in;

    rows.from_len = in.to_len;
    rows.from_at = 0;
    rows.to_len = in.from_len;
    rows.to_at = in.from_at;
    if (cut)
        sp_rows_add_insert(ctx, sh, &rows, share->piece[i], dkv);
    else
        sp_sum_insert(ctx, sh->dtype, dkv, share->piece[i], false);
}

void sp_share_add(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id)
{
    struct sp_task_context ctx = sp_stage_context(g, owner, 'K');
    const struct sp_stored *share = sp_store_find(&owner->store, id);

    if (!sp_multiplexed_activations(g, id->at, id->mb, id->slice)->layers[0].evicted) {
        for (int i = 0; i < share->n; i++)
            add_piece(g, &ctx, share, i);
        return;
    }
    for (int i = 0; i < share->n; i++)
        sp_pool_hold(share->piece[i]);
    sp_store_put(&owner->store, id, share->n, share->piece, true);
}

void sp_share_add_layer(struct sp_op_ctx *c, int i)
{
    for (int s = 0; s < c->global; s++) {
        struct sp_tensor_id id = sp_key_share_tensor(SP_TENSOR_DKV, c->global, c->mb, c->slice, s);
        const struct sp_stored *share = sp_store_find(&c->st->store, &id);

        if (!share)
            continue;
        add_piece(c->g, &c->ctx, share, i);
        if (i == 0) /* the last layer of a backward */
            sp_store_drop(&c->st->store, &id);
    }
}

/* ---- outside memory -------------------------------------------------------------------------- */

static struct sp_place ***places_of(const struct sp_graph *g, const struct sp_stage *st, int global,
                                    int mb, int part)
{
    const struct sp_plan *plan = g->cfg.plan;
    int at = (st->index - g->place.first_local) * sp_activations_count(plan);

    return &sp_multiplex_of(g)->shares[at + sp_activations_index(plan, global, mb, part)];
}

struct sp_place **sp_share_places(const struct sp_graph *g, const struct sp_stage *st, int global,
                                  int mb, int part)
{
    return sp_multiplex_of(g)->shares ? *places_of(g, st, global, mb, part) : NULL;
}

void sp_share_evict(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    const struct sp_stored *share = sp_store_find(&st->store, id);
    struct sp_place **place;

    if (!sp_streamed_keys_any(g, st))
        return;
    place = calloc(2 * (size_t)share->n, sizeof(struct sp_place *));
    SP_NEED(place, "no memory for keys and values that leave");
    for (int i = 0; i < share->n; i++) {
        char name[64];

        snprintf(name, sizeof name, "keys and values for s%d, s%d m%d.%d l%d", st->index, id->at,
                 id->mb, id->slice, i);
        place[2 * i] = sp_streamed_keys_leave(g, st, share->piece[i], name);
    }
    *places_of(g, st, id->at, id->mb, id->slice) = place;
    sp_store_drop(&st->store, id);
}

void sp_share_fetch(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id)
{
    struct sp_place **place = sp_share_places(g, st, id->at, id->mb, id->slice);
    int n = sp_tensor_pieces(g->cfg.plan, &g->shape, id);
    struct sp_tensor *piece[n];

    if (!place)
        return;
    for (int i = 0; i < n; i++) {
        g->cfg.sink->ops->tier->forget(place[2 * i]);
        piece[i] = sp_streamed_keys_return(g, st, place[2 * i + 1]);
    }
    free(place);
    *places_of(g, st, id->at, id->mb, id->slice) = NULL;
    sp_store_put(&st->store, id, n, piece, true);
}
