/*
 * Between the members of a stage that share parameters (Shoeybi et al. 2019, "Megatron-LM", section 3): before a
 * product each needs the rows of all tokens, and after it each has a part of the sum for all of them. Either they share
 * the tokens of what lies between products (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
 * Transformer Models", section 4.2.2), as many parts as members:
 *
 *   gather   rows of this member's tokens    ->  those of all parts
 *   reduce   its share of the sums, all parts ->  the shares of all members, of its own part
 *
 * or all have all tokens, in one part: then nothing is gathered, and the sum is made by recursive doubling.
 *
 * Parts are tensors of their own, as messages are: a product of one runs while the next one arrives, and its share of
 * the sum leaves while the next one is computed. With T tokens and h columns a member of t sends (t-1)/t T h elements in
 * either; by doubling T h in each of log2 t rounds.
 */
#ifndef SP_TENSOR_PARTS_OF_ROWS_H
#define SP_TENSOR_PARTS_OF_ROWS_H

#include "graphs/op.h"
#include "policies/lowering/tensor.h"

struct sp_rows_parts {
    int n;
    starpu_data_handle_t at[SP_MAX_SLICES + 1]; /* and a residual */
};

/* Parts of all tokens, and which this member has. */
static inline int sp_tensor_parts(const struct sp_op_ctx *c)
{
    return sp_shape_shares(c->sh);
}

static inline int sp_tensor_part(const struct sp_op_ctx *c)
{
    return sp_graph_share(c->g);
}

/* Whether this member is the one that adds to a sum of part j what is to be added once: the bias. */
static inline bool sp_tensor_completes(const struct sp_op_ctx *c, int j)
{
    return sp_tensor_member(c->g) == (c->sh->sequence ? j : 0);
}

/* Part k in the order in which they come: its own, then those of the members before it. */
static inline int sp_tensor_arrival(const struct sp_op_ctx *c, int k)
{
    int n = sp_tensor_parts(c);

    return (sp_tensor_part(c) - k + n) % n;
}

/* Part k in the order in which others want them: theirs, its own last. */
static inline int sp_tensor_departure(const struct sp_op_ctx *c, int k)
{
    int n = sp_tensor_parts(c);

    return (sp_tensor_part(c) + 1 + k) % n;
}

/* (T,h) of `own` of all parts, its own among them; `kind` names the messages. Drops are the caller's. */
void sp_tensor_gather(struct sp_op_ctx *c, enum sp_tensor_kind kind, starpu_data_handle_t own,
                      struct sp_rows_parts *parts);

/* at[j], its share of the sum of part j (T,h), becomes at[0], that of its own part, and at[1..n-1] the shares of others:
 * to be added to it. */
void sp_tensor_reduce(struct sp_op_ctx *c, enum sp_tensor_kind kind, struct sp_rows_parts *parts);

void sp_tensor_drop(struct sp_rows_parts *parts);

#endif
