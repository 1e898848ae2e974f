/*
 * Shares of keys and values (policies/families/multiplexed/key_shares.h) of a part whose owner has
 * them: the rows that the owner sends to a stage, and their gradients, which it adds to its own.
 */
#include "graphs/families/multiplexed/multiplexed.h"
#include "policies/families/multiplexed/key_shares.h"

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

void sp_share_add(struct sp_graph *g, struct sp_stage *owner, const struct sp_tensor_id *id)
{
    const struct sp_shape *sh = sp_cut_attention(sp_graph_cut(g, id->at), id->slice);
    struct sp_task_context ctx = sp_stage_context(g, owner, 'K');
    const struct sp_stored *share = sp_store_find(&owner->store, id);
    struct sp_rows in;
    bool cut = rows_of(g, id, &in);
    struct sp_rows rows = in;

    rows.from_len = in.to_len;
    rows.from_at = 0;
    rows.to_len = in.from_len;
    rows.to_at = in.from_at;
    for (int i = 0; i < share->n; i++) {
        struct sp_tensor *dkv =
            sp_multiplexed_activations(g, id->at, id->mb, id->slice)->layers[i].heads->dkv;

        if (cut)
            sp_rows_add_insert(&ctx, sh, &rows, share->piece[i], dkv);
        else
            sp_sum_insert(&ctx, sh->dtype, dkv, share->piece[i], false);
    }
}
