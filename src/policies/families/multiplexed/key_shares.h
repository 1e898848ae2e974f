/*
 * Attention of a slice that several stages compute, shared by keys. The queries of each part attend
 * to all keys before them, but no stage has all of these keys:
 *
 *   keys of parts of shared slices   stay with the stage that computes the part; the owner of a
 *                                    left slice also has them, for its steady ones
 *   other keys before right slices   the owner, stage g, keeps the last parts of its left and
 *                                    steady slices, about 1/(g+1) of their tokens; it gives each of
 *                                    stages 0 .. g-1 one of g equal ranges of the tokens before
 *
 * A stage sends the queries of its part to the others, layer by layer. Each attends to the keys
 * that it has and sends the result back. So keys and values are sent once, and an assisting stage
 * has 1/(g+1) of a stage's. Pure.
 */
#ifndef SP_KEY_SHARES_H
#define SP_KEY_SHARES_H

#include "policies/families/multiplexed/multiplex.h"
#include "policies/lowering/tensor.h"

/* Parts of the slices before the right ones. */
static inline int sp_parts_before_right(const struct sp_layout *lay, int global)
{
    return sp_first_part(lay, global, lay->slices - global);
}

/* The first of these parts whose keys the owner keeps for itself; sequences have seq tokens. */
int sp_first_kept_part(const struct sp_plan *plan, int seq, int global);

/* Tokens begin .. end-1. */
struct sp_token_range {
    int begin, end;
};

/* Clips tokens first .. first+len-1 to a range: sets *first, returns the number of tokens left. */
static inline int sp_token_range_clip(const struct sp_token_range *range, int *first, int len)
{
    int end = *first + len < range->end ? *first + len : range->end;

    *first = *first > range->begin ? *first : range->begin;
    return end > *first ? end - *first : 0;
}

/* The tokens before the right slices whose keys an assisting stage is given; empty for the owner
 * and for stages that do not assist. */
struct sp_token_range sp_key_range_of(const struct sp_plan *plan, int seq, int global, int helper);

/* The tokens first .. first+len-1 of that range that are in a part. */
void sp_key_share(const struct sp_plan *plan, int seq, int global, int part, int helper, int *first,
                  int *len);

/* The first of a global stage's slices that are shared the same way as `slice`. */
static inline int sp_first_shared(const struct sp_layout *lay, int global, int slice)
{
    return sp_slice_phase(lay, global, slice) == SP_LEFT ? 0 : lay->slices - global;
}

/* Number of tokens whose keys a stage has for the queries of a part of another stage. */
int sp_keys_for(const struct sp_plan *plan, int seq, int global, int part, int helper);

/* A share of keys and values (kind SP_TENSOR_KV), or of their gradients. */
static inline struct sp_tensor_id sp_key_share_tensor(enum sp_tensor_kind kind, int global, int mb,
                                                      int part, int helper)
{
    return (struct sp_tensor_id){.kind = (unsigned char)kind,
                                 .block = (unsigned char)(1 + helper),
                                 .slice = (unsigned short)part,
                                 .mb = mb,
                                 .at = global};
}

/* Tokens of a sequence; if unknown, a length with which slices and shares come out equal. */
static inline int sp_key_share_seq(const struct sp_layout *lay, const struct sp_shape *sh)
{
    return sh ? sh->seq : 840 * lay->slices;
}

#endif
