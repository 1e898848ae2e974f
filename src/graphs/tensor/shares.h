/*
 * Between the members of a stage that share parameters (Shoeybi et al. 2019, "Megatron-LM", section 3): before a
 * product each needs the rows of all tokens, and after it each has its share of the sum for all of them. Either they
 * have a share of the tokens each of what lies between products (Korthikanti et al. 2022, "Reducing Activation
 * Recomputation in Large Transformer Models", section 4.2.2):
 *
 *   gather   rows of this member's share of the tokens       ->  those of all shares
 *   reduce   what this one adds to the sums of all shares    ->  what all members add to that of its own
 *
 * or all have all tokens, as one share: then nothing is gathered, and the sum is made by recursive doubling.
 *
 * Shares are tensors of their own, as messages are: a product of one runs while the next one arrives, and what it adds
 * to another's sum leaves while the next one is computed. With T tokens and h columns a member of t sends (t-1)/t T h
 * elements in either; by doubling T h in each of log2 t rounds.
 */
#ifndef SP_TENSOR_SHARES_H
#define SP_TENSOR_SHARES_H

#include "graphs/op.h"
#include "policies/lowering/tensor.h"

struct sp_shares {
    int n;
    struct sp_tensor *at[SP_MAX_SLICES + 1]; /* and a residual */
};

/* Shares of the tokens, and which this member has. */
static inline int sp_tensor_shares(const struct sp_op_ctx *c)
{
    return sp_shape_shares(c->sh);
}

static inline int sp_tensor_share(const struct sp_op_ctx *c)
{
    return sp_graph_share(c->g);
}

/* Whether this member is the one that adds to the sum of share j what is to be added once: the bias. */
static inline bool sp_tensor_completes(const struct sp_op_ctx *c, int j)
{
    return sp_tensor_member(c->g) == (c->sh->sequence ? j : 0);
}

/* Share k in the order in which they come: its own, then those of the members before it. */
static inline int sp_tensor_arrival(const struct sp_op_ctx *c, int k)
{
    int n = sp_tensor_shares(c);

    return (sp_tensor_share(c) - k + n) % n;
}

/* Share k in the order in which others want them: theirs, its own last. */
static inline int sp_tensor_departure(const struct sp_op_ctx *c, int k)
{
    int n = sp_tensor_shares(c);

    return (sp_tensor_share(c) + 1 + k) % n;
}

/* (T,h) of `own` of all shares, its own among them; `kind` names the messages. Drops are the caller's. */
void sp_tensor_gather(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_tensor *own,
                      struct sp_shares *shares);

/* at[j], what it adds to the sum of share j (T,h), becomes at[0], that of its own share, and at[1..n-1], what the others
 * add to it. */
void sp_tensor_reduce(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_shares *shares);

void sp_tensor_drop(struct sp_shares *shares);

#endif
