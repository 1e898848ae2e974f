#include "graphs/tensor/shares.h"
#include "graphs/layer/attention.h"
#include "graphs/members.h"
#include "policies/lowering/pipelines.h"

void sp_tensor_gather(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *own,
                      struct sp_shares *all)
{
    int n = sp_tensor_shares(c), me = sp_tensor_share(c);
    int64_t tag = n > 1 ? sp_exchange_tag(c->g) : 0;

    for (int k = 1; k < n; k++) {
        int from = sp_tensor_arrival(c, k);

        sp_member_send(c, kind, own, sp_tensor_pipeline(c->g, (me + k) % n), tag);
        all->at[from] = sp_take_hidden(c, sp_tensor_name(kind));
        sp_member_receive(c, all->at[from], sp_tensor_pipeline(c->g, from), tag);
    }
    sp_pool_hold(own);
    all->at[me] = own;
    all->n = n;
}

/* Sums by recursive doubling; all members get the same bits. */
static void double_up(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *sum)
{
    struct sp_exchange e[SP_MAX_EXCHANGES];
    int rounds = sp_pipelines_exchanges(sp_tensor_member(c->g), c->sh->tensor, e);
    int64_t tag = rounds ? sp_exchange_tag(c->g) : 0;

    for (int i = 0; i < rounds; i++) {
        int peer = sp_tensor_pipeline(c->g, e[i].peer);
        struct sp_tensor *theirs;

        if (e[i].sends)
            sp_member_send(c, kind, sum, peer, tag);
        if (!e[i].receives)
            continue;
        if (e[i].replaces) {
            sp_member_receive(c, sum, peer, tag);
            continue;
        }
        theirs = sp_take_hidden(c, sp_tensor_name(kind));
        sp_member_receive(c, theirs, peer, tag);
        sp_op_await(c);
        sp_partial_sum_insert(&c->ctx, c->sh, sum, 1, &theirs);
        c->ctx.exchanged = false;
        sp_pool_put(theirs);
    }
}

void sp_tensor_reduce(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_shares *all)
{
    int n = all->n, me = sp_tensor_share(c);
    struct sp_tensor *shares[n];
    int64_t tag;

    if (n == 1) {
        double_up(c, kind, all->at[0]);
        return;
    }
    tag = sp_exchange_tag(c->g);
    for (int k = 1; k < n; k++) {
        int to = (me + k) % n, from = sp_tensor_arrival(c, k);

        sp_member_send(c, kind, all->at[to], sp_tensor_pipeline(c->g, to), tag);
        shares[from] = sp_take_hidden(c, sp_tensor_name(kind));
        sp_member_receive(c, shares[from], sp_tensor_pipeline(c->g, from), tag);
    }
    for (int j = 0; j < n; j++)
        if (j != me)
            sp_pool_put(all->at[j]);
    all->at[0] = all->at[me];
    for (int j = 0, at = 1; j < n; j++)
        if (j != me)
            all->at[at++] = shares[j];
}

void sp_tensor_drop(struct sp_shares *all)
{
    for (int j = 0; j < all->n; j++)
        sp_pool_drop(&all->at[j]);
    all->n = 0;
}
