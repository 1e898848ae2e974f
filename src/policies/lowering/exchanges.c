#include "policies/lowering/exchanges.h"
#include "policies/families/activations.h"
#include "policies/families/work.h"

/* Around a ring those of this slice and the ones before pass all members, backward once more and their gradients
 * too, which go one further. */
static int64_t around(const struct sp_shape *sh, const struct sp_op_work *work,
                      enum sp_recompute recompute)
{
    int64_t kv = (int64_t)sp_shape_elem(sh) * sh->batch * (work->first_token + work->tokens) /
                 sh->context * sh->kv_width;
    int turns = sh->context - 1;

    if (work->input)
        turns += sh->context + (recompute == SP_RECOMPUTE_FULL ? turns : 0);
    return turns * kv;
}

/* Of one layer: how often tensors like q, and like k and v, are exchanged. */
struct times {
    int q, kv;
};

static struct times times_of(const struct sp_op_work *work, enum sp_recompute recompute,
                             bool sliced)
{
    struct times n = {2, 1}; /* q and o, or their gradients */

    if (!work->input || recompute == SP_RECOMPUTE_NONE || recompute == SP_RECOMPUTE_SELECTIVE)
        return n;
    n.q += recompute == SP_RECOMPUTE_FULL ? 2 : 1;
    n.kv += !sliced; /* else they stayed for later slices */
    return n;
}

int64_t sp_exchange_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                          enum sp_recompute recompute, int stage, const struct sp_op *op)
{
    struct sp_op_work work[SP_MOST_WORK];
    int n = sp_op_work(plan, sh, stage, op, work);
    int64_t bytes = 0;

    for (int i = 0; sh->context > 1 && i < n; i++) {
        struct sp_shape slice, heads;
        int64_t part;

        if (!work[i].attention || !(work[i].forward || work[i].input))
            continue;
        sp_shape_slice(sh, work[i].first_token, work[i].tokens, &slice);
        sp_shape_heads(&slice, &heads);
        part = (int64_t)sp_shape_elem(sh) * slice.rows * (sh->context - 1);
        for (int l = work[i].first; l < work[i].first + work[i].layers; l++) {
            /* q, k, v that came from elsewhere are kept, whatever else is computed again */
            enum sp_recompute mode = plan->family->parts && !work[i].qkv_with_attention
                                         ? SP_RECOMPUTE_NONE
                                         : sp_layer_recompute(plan, recompute, l);
            struct times t = times_of(&work[i], mode, plan->layout.slices > 1);

            bytes += sh->ring ? around(sh, &work[i], mode)
                              : part * (t.q * heads.q_width + t.kv * heads.kv_width);
        }
    }
    return bytes;
}
