#include "policies/families/multiplexed/key_shares.h"

static int first_token(const struct sp_plan *plan, int seq, int global, int part, int *len)
{
    struct sp_op op = {.chunk = global, .slice = (unsigned short)part};
    int first;

    sp_plan_op_tokens(plan, seq, &op, &first, len);
    return first;
}

/* Tokens of the first `parts` parts of a global stage. */
static int tokens_of(const struct sp_plan *plan, int seq, int global, int parts)
{
    int len = 0, first = parts > 0 ? first_token(plan, seq, global, parts - 1, &len) : 0;

    return first + len;
}

/* Tokens before the right slices. */
static int tokens_before(const struct sp_plan *plan, int seq, int global)
{
    return tokens_of(plan, seq, global, sp_parts_before_right(&plan->layout, global));
}

int sp_first_kept_part(const struct sp_plan *plan, int seq, int global)
{
    int parts = sp_parts_before_right(&plan->layout, global), len;
    int64_t given = (int64_t)tokens_before(plan, seq, global) * global; /* scaled by global + 1 */
    int kept = parts;

    while (kept > 0) {
        int64_t begin = (int64_t)first_token(plan, seq, global, kept - 1, &len) * (global + 1);

        /* the border of parts that is nearest to the ideal share */
        if (2 * given - 2 * begin > (int64_t)len * (global + 1))
            break;
        kept--;
    }
    return kept;
}

/* Tokens before the right slices whose keys the owner gives away. */
static int tokens_given(const struct sp_plan *plan, int seq, int global)
{
    return tokens_of(plan, seq, global, sp_first_kept_part(plan, seq, global));
}

struct sp_token_range sp_key_range_of(const struct sp_plan *plan, int seq, int global, int helper)
{
    int64_t given = helper < global ? tokens_given(plan, seq, global) : 0;

    return (struct sp_token_range){
        .begin = global ? (int)(given * helper / global) : 0,
        .end = global ? (int)(given * (helper + 1) / global) : 0,
    };
}

void sp_key_share(const struct sp_plan *plan, int seq, int global, int part, int helper, int *first,
                  int *len)
{
    struct sp_token_range range = sp_key_range_of(plan, seq, global, helper);
    int whole;

    *first = first_token(plan, seq, global, part, &whole);
    *len = sp_token_range_clip(&range, first, whole);
}

/* Tokens before the right slices whose keys a stage has. */
static int share_tokens(const struct sp_plan *plan, int seq, int global, int helper)
{
    struct sp_token_range range;

    if (helper == global)
        return tokens_before(plan, seq, global) - tokens_given(plan, seq, global);
    range = sp_key_range_of(plan, seq, global, helper);
    return range.end - range.begin;
}

int sp_keys_for(const struct sp_plan *plan, int seq, int global, int part, int helper)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_slice_part queries = sp_part_at(lay, global, part);
    int at = helper - (queries.stage - queries.part), len; /* among the slice's parts */
    bool right = sp_slice_phase(lay, global, queries.slice) == SP_RIGHT;
    int tokens = right ? share_tokens(plan, seq, global, helper) : 0;

    for (int k = sp_first_shared(lay, global, queries.slice); k <= queries.slice; k++)
        if (k < queries.slice || at < queries.part) {
            first_token(plan, seq, global, sp_first_part(lay, global, k) + at, &len);
            tokens += len;
        }
    return tokens;
}
