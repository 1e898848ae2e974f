#include "policies/lowering/exchanges.h"
#include "policies/families/activations.h"
#include "policies/families/work.h"
#include "policies/lowering/pipelines.h"

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

/* ---- tensor parallelism ------------------------------------------------------------------------ */

/* Rows gathered, or shares of a sum scattered, and sums that all get. */
struct shared {
    int rows, sums;
};

/* Of a layer: parts that an op computes. */
static struct shared shared_of_layer(const struct sp_op_work *w)
{
    int pre = w->qkv_with_attention ? w->attention : w->pre; /* where the product is */
    struct shared n = {0, 0};

    if (w->forward) {
        n.rows += pre + 3 * w->post;
        n.sums += 2 * w->post;
    }
    if (w->input) {
        n.rows += pre + 3 * w->post;
        n.sums += pre + w->post;
    }
    if (w->weight)
        n.rows += pre + w->post;
    return n;
}

/* And those that a backward computes again. Where parts are ops q, k and v that came from elsewhere are there, and a
 * block's output is wanted. */
static struct shared shared_again(const struct sp_plan *plan, const struct sp_op_work *w,
                                  enum sp_recompute mode)
{
    bool parts = plan->family->facts.parts;
    int pre = w->qkv_with_attention ? w->attention : w->pre && !parts;

    if (!w->input || (mode != SP_RECOMPUTE_FULL && mode != SP_RECOMPUTE_NO_ATTENTION))
        return (struct shared){0, 0};
    return (struct shared){pre + (2 + parts) * w->post, (1 + parts) * w->post};
}

/* The output of a layer that is recomputed because the next one's input is not kept. */
static int outputs_again(const struct sp_op_work *w, enum sp_recompute mode, int every, int layer)
{
    return w->input && w->post && mode == SP_RECOMPUTE_FULL && every > 1 &&
           (layer + 1 - w->first) % every && layer + 1 < w->first + w->layers;
}

/* Of embedding and head; the statistics of logits go to all others. */
static struct shared shared_of_ends(const struct sp_shape *sh, const struct sp_op_work *w,
                                    int64_t *stats)
{
    struct shared n = {0, 0};

    if (w->embed && (w->forward || w->weight)) {
        n.rows++;
        n.sums += w->forward;
    }
    if (w->head || w->head_share) {
        n.rows += w->head ? 2 : 1;
        n.sums += w->head || !w->forward;
    }
    if (w->head || (w->head_share && w->forward)) {
        *stats +=
            (int64_t)(2 * sizeof(float)) * sh->batch * w->tokens / sh->context * (sh->tensor - 1);
    }
    return n;
}

static int64_t tensor_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                            enum sp_recompute recompute, int every, const struct sp_op_work *work,
                            int n)
{
    int64_t bytes = 0;

    for (int i = 0; i < n; i++) {
        int64_t rows = (int64_t)sp_shape_elem(sh) * sh->batch * work[i].tokens / sh->context *
                       sh->model.hidden;
        struct shared all = shared_of_ends(sh, &work[i], &bytes);

        for (int l = work[i].first; l < work[i].first + work[i].layers; l++) {
            enum sp_recompute mode = sp_layer_recompute(plan, recompute, l);
            bool waits = work[i].forward && work[i].to_head && !sp_stash_keeps(mode, SP_STASH_PRE);
            struct shared of = waits ? (struct shared){0, 0} : shared_of_layer(&work[i]),
                          more = shared_again(plan, &work[i], mode);
            int outputs = outputs_again(&work[i], mode, every, l);

            all.rows += of.rows + more.rows + outputs;
            all.sums += of.sums + more.sums + outputs;
        }
        if (plan->family->facts.parts && !sp_stash_keeps(recompute, SP_STASH_PRE) &&
            work[i].embed && work[i].input) { /* the first block's input again */
            all.rows++;
            all.sums++;
        }
        bytes += sh->sequence ? rows / sh->tensor * (sh->tensor - 1) * all.rows
                              : rows * sp_pipelines_sent(0, sh->tensor) * all.sums;
    }
    return bytes;
}

/* ---- context parallelism ----------------------------------------------------------------------- */

/* Of a device's own heads, all shares of its part of the tokens. */
static int64_t context_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, const struct sp_op_work *work)
{
    struct sp_shape slice, heads;
    int64_t part, bytes = 0;

    if (!work->attention || !(work->forward || work->input))
        return 0;
    sp_shape_slice(sh, work->first_token, work->tokens, &slice);
    sp_shape_heads(&slice, &heads);
    part = (int64_t)sp_shape_elem(sh) * slice.rows * (sh->context - 1);
    for (int l = work->first; l < work->first + work->layers; l++) {
        /* q, k, v that came from elsewhere are kept, whatever else is computed again */
        bool kept = plan->family->facts.parts && !work->qkv_with_attention && !work->pre;
        enum sp_recompute mode = sp_layer_recompute(plan, recompute, l);
        bool again = work->input && mode == SP_RECOMPUTE_FULL; /* attention's output */
        struct times t = times_of(work, kept ? SP_RECOMPUTE_NONE : mode,
                                  plan->layout.slices > 1 && !plan->family->facts.parts);

        t.q += kept && again;
        bytes += sh->ring ? around(sh, work, kept && !again ? SP_RECOMPUTE_NONE : mode)
                          : part * (t.q * heads.q_width + t.kv * heads.kv_width);
    }
    return bytes;
}

int64_t sp_exchange_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                          enum sp_recompute recompute, int every, int stage, const struct sp_op *op)
{
    struct sp_op_work work[SP_MOST_WORK];
    int n = sp_op_work(plan, sh, stage, op, work);
    int64_t bytes = sh->tensor > 1 ? tensor_bytes(plan, sh, recompute, every, work, n) : 0;
    struct sp_shape joined;

    sp_shape_joined(sh, &joined);
    for (int i = 0; sh->context > 1 && i < n; i++)
        bytes += context_bytes(plan, &joined, recompute, &work[i]);
    return bytes;
}
