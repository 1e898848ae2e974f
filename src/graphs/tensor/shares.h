/*
 * Exchanges between tensor-parallel members (Shoeybi et al. 2019, "Megatron-LM", section 3): before
 * a product each member needs the rows of all tokens; after it each has its term of the sum for all
 * of them. Between products each member may have a share of the tokens only (Korthikanti et al.
 * 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2):
 *
 *   gather   rows of this member's share of the tokens   ->  those of all shares
 *   reduce   this member's terms of the sums of all      ->  all members' terms of the sum of
 *            shares                                          its own share
 *
 * Otherwise all members have all tokens, as one share: nothing is gathered, and the sum is made by
 * recursive doubling.
 *
 * Shares are separate tensors, as messages are: the product of one share runs while the next one
 * arrives, and a term for another member's sum leaves while the next one is computed. With T tokens
 * and h columns each of t members sends (t-1)/t T h elements in a gather or reduce; by doubling T h
 * in each of log2 t rounds.
 */
#ifndef SP_TENSOR_SHARES_H
#define SP_TENSOR_SHARES_H

#include "graphs/op.h"
#include "policies/lowering/tensor.h"

struct sp_shares {
    int n;
    struct sp_tensor *at[SP_MAX_SLICES + 1]; /* one more for a residual */
};

/* The number of shares of the tokens, and this member's share. */
static inline int sp_tensor_shares(const struct sp_op_ctx *c)
{
    return sp_shape_shares(c->sh);
}

static inline int sp_tensor_share(const struct sp_op_ctx *c)
{
    return sp_graph_share(c->g);
}

/* True if this member adds the bias, which is added only once, to the sum of share j. */
static inline bool sp_tensor_completes(const struct sp_op_ctx *c, int j)
{
    return sp_tensor_member(c->g) == (c->sh->sequence ? j : 0);
}

/* The k-th share in the order of arrival: this member's own, then those of the members before
 * it. */
static inline int sp_tensor_arrival(const struct sp_op_ctx *c, int k)
{
    int n = sp_tensor_shares(c);

    return (sp_tensor_share(c) - k + n) % n;
}

/* The k-th share in the order of sending: those of the other members, then this member's own. */
static inline int sp_tensor_departure(const struct sp_op_ctx *c, int k)
{
    int n = sp_tensor_shares(c);

    return (sp_tensor_share(c) + 1 + k) % n;
}

/* Gathers (T,h) of all shares, this member's `own` among them; `kind` names the messages. The
 * caller drops them. */
void sp_tensor_gather(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *own,
                      struct sp_shares *shares);

/* On entry at[j] is this member's term of share j's sum (T,h). On return at[0] is its term of its
 * own share's sum, and at[1..n-1] are the others' terms. */
void sp_tensor_reduce(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_shares *shares);

void sp_tensor_drop(struct sp_shares *shares);

#endif
