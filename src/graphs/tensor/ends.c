#include "graphs/tensor/ends.h"
#include "graphs/layer/attention.h"
#include "graphs/members.h"

/* ---- embedding ------------------------------------------------------------------------------- */

static struct sp_tensor *part_of(const struct sp_op_ctx *c, struct sp_tensor *const *handles,
                                 int tokens, int j)
{
    return handles[tokens * sp_tensor_shares(c) + j];
}

void sp_tensor_embed(struct sp_op_ctx *c, int tokens, struct sp_tensor *x)
{
    struct sp_tensor *const *ids = sp_graph_tokens(c->g)->ids;
    struct sp_shares sum = {.n = sp_tensor_shares(c)};

    c->ctx.layer = -1;
    for (int k = 0; k < sum.n; k++) {
        int j = sp_tensor_departure(c, k);

        sum.at[j] = j == sp_tensor_share(c) ? x : sp_take_hidden(c, "x");
        sp_embed_fwd_insert(&c->ctx, sp_op_share(c, j), part_of(c, ids, tokens, j),
                            sp_weight(c, SP_BLOCK_TOKENS, -1), sp_weight(c, SP_BLOCK_POSITIONS, -1),
                            sum.at[j], 0);
    }
    sp_pool_hold(x);
    sp_tensor_reduce(c, SP_TENSOR_X, &sum);
    sp_op_await(c);
    if (sum.n > 1)
        sp_partial_sum_insert(&c->ctx, c->sh, x, sum.n - 1, sum.at + 1);
    c->ctx.exchanged = false;
    sp_tensor_drop(&sum);
}

void sp_tensor_embed_gradient(struct sp_op_ctx *c, int tokens, struct sp_tensor *dx)
{
    struct sp_tensor *const *ids = sp_graph_tokens(c->g)->ids;
    struct sp_shares rows;

    c->ctx.layer = -1;
    sp_tensor_gather(c, SP_TENSOR_DX, dx, &rows);
    for (int k = 0; k < rows.n; k++) {
        int j = sp_tensor_arrival(c, k);

        c->ctx.exchanged = j != sp_tensor_share(c);
        sp_embed_wgrad_insert(&c->ctx, sp_op_share(c, j), part_of(c, ids, tokens, j), rows.at[j],
                              sp_gradient(c, SP_BLOCK_TOKENS, -1),
                              sp_gradient(c, SP_BLOCK_POSITIONS, -1));
    }
    c->ctx.exchanged = false;
    sp_tensor_drop(&rows);
}

/* ---- head ------------------------------------------------------------------------------------ */

void sp_tensor_share_stats(struct sp_op_ctx *c, struct sp_tensor **of)
{
    int t = c->sh->tensor, me = sp_tensor_member(c->g);
    size_t n = sp_shape_f32(c->sh, 2 * (size_t)c->sh->rows);
    int64_t tag = sp_exchange_tag(c->g);

    for (int k = 1; k < t; k++) {
        int to = (me + k) % t, from = (me - k + t) % t;

        sp_member_send(c, SP_TENSOR_N1, of[me], sp_tensor_pipeline(c->g, to), tag);
        of[from] = sp_pool_get(c->st->local, n, sp_shape_elem(c->sh), "logit statistics");
        sp_member_receive(c, of[from], sp_tensor_pipeline(c->g, from), tag);
    }
}

static int rows_here(const struct sp_op_ctx *c)
{
    int first, count;

    sp_vocabulary_part(&c->g->cfg.params->model, c->sh->tensor, sp_tensor_member(c->g), &first,
                       &count);
    return count;
}

struct sp_tensor *sp_tensor_logits(struct sp_op_ctx *c, int rows)
{
    size_t n = (size_t)c->sh->rows * (size_t)sp_logits_ld(rows);

    return sp_shape_keeps_logits(c->sh)
               ? sp_pool_get(c->st->local, n, sp_shape_elem(c->sh), "logits")
               : NULL;
}

/* Computes from the rows `n` of all shares this member's contribution to dn and the gradient of its
 * part of the table. */
static void cross_entropy(struct sp_op_ctx *c, int tokens, const struct sp_shares *n,
                          struct sp_shares *dn)
{
    enum sp_block_kind kind = sp_head_table(&c->g->cfg.params->model);
    struct sp_tensor *const *targets = sp_graph_tokens(c->g)->targets;
    struct sp_tensor *table = sp_weight(c, kind, -1), *gradient = sp_gradient(c, kind, -1);
    int t = c->sh->tensor, me = sp_tensor_member(c->g), rows = rows_here(c);
    struct sp_tensor *stats[n->n][t], *logits[n->n];

    for (int k = 0; k < n->n; k++) {
        int j = sp_tensor_arrival(c, k);

        stats[j][me] = sp_pool_get(c->st->local, sp_shape_f32(c->sh, 2 * (size_t)c->sh->rows),
                                   sp_shape_elem(c->sh), "logit statistics");
        logits[j] = sp_tensor_logits(c, c->sh->held.vocab);
        c->ctx.exchanged = j != sp_tensor_share(c);
        sp_logit_stats_insert(&c->ctx, sp_op_share(c, j), rows, n->at[j],
                              part_of(c, targets, tokens, j), table, stats[j][me], logits[j]);
    }
    for (int j = 0; j < n->n; j++)
        sp_tensor_share_stats(c, stats[j]);
    sp_op_await(c);
    for (int k = 0; k < n->n; k++) {
        int j = sp_tensor_departure(c, k);

        sp_vocabulary_insert(&c->ctx, sp_op_share(c, j), rows, sp_tensor_completes(c, j), n->at[j],
                             part_of(c, targets, tokens, j), table, gradient, t, stats[j],
                             logits[j], dn->at[j], sp_stage_tally(c->g, c->st));
        for (int m = 0; m < t; m++)
            sp_pool_put(stats[j][m]);
        sp_pool_drop(&logits[j]);
    }
    c->ctx.exchanged = false;
}

void sp_tensor_head(struct sp_op_ctx *c, int tokens, struct sp_tensor *x, struct sp_tensor *dx,
                    int64_t released)
{
    struct sp_tensor *w = sp_weight(c, SP_BLOCK_NORM, -1), *n = sp_take_hidden(c, "n");
    struct sp_tensor *stats = sp_pool_get(c->st->local, sp_shape_pre_saved(c->sh, false),
                                          sp_shape_elem(c->sh), "statistics");
    struct sp_shares rows, dn = {.n = sp_tensor_shares(c)};

    c->ctx.layer = -1;
    sp_norm_fwd_insert(&c->ctx, c->sh, &(struct sp_pre){.x = x, .saved = stats}, n, w, 0);
    sp_tensor_gather(c, SP_TENSOR_N1, n, &rows);
    sp_pool_put(n);
    for (int j = 0; j < dn.n; j++)
        dn.at[j] = sp_take_hidden(c, "dn");
    cross_entropy(c, tokens, &rows, &dn);
    sp_tensor_drop(&rows);
    sp_tensor_reduce(c, SP_TENSOR_DN1, &dn);
    sp_op_await(c);
    sp_sum_norm_bwd_insert(&c->ctx, c->sh, false, false, w, sp_gradient(c, SP_BLOCK_NORM, -1), x,
                           stats, dn.at[0], dn.n - 1, dn.at + 1, NULL, dx, released);
    c->ctx.exchanged = false;
    sp_tensor_drop(&dn);
    sp_pool_put(stats);
}
