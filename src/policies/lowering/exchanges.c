/* Traffic between the devices of a stage: for attention, if they share the tokens of sequences
 * (graphs/context/); at every product, if they share parameters (graphs/tensor/). */
#include "policies/families/activations.h"
#include "policies/families/work.h"
#include "policies/lowering/lowering.h"
#include "policies/lowering/pipelines.h"

/* How a layer of an op is recomputed. */
static enum sp_recompute mode_of(const struct sp_plan *plan, enum sp_recompute recompute,
                                 const struct sp_op_work *w, int layer)
{
    enum sp_recompute mode = sp_layer_recompute(plan, recompute, layer);

    return w->keeps_attention ? sp_recompute_keeping_attention(mode) : mode;
}

/* Around a ring, keys and values of this slice and of those before pass all members: a member's
 * heads of the tokens of its neighbours. A backward sends them around once more, and their gradients
 * too, which go one step further. */
static int64_t around(const struct sp_shape *heads, const struct sp_op_work *work,
                      enum sp_recompute recompute)
{
    int64_t kv = (int64_t)sp_shape_elem(heads) * heads->batch * (work->first_token + work->tokens) /
                 heads->ring * heads->kv_width;
    int turns = heads->ring - 1;

    if (heads->ring == 1)
        return 0;
    if (work->input)
        turns += heads->ring + (recompute == SP_RECOMPUTE_FULL ? turns : 0);
    return turns * kv;
}

/* How often one layer exchanges tensors like q, and like k and v. */
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

/* ---- tensor parallelism ---------------------------------------------------------------------- */

/* Numbers of all-gathers of rows (or of scatters of sums), and of all-reduces of sums. */
struct shared {
    int rows, sums;
};

/* The numbers for a layer, of which an op computes some parts. */
static struct shared shared_of_layer(const struct sp_op_work *w)
{
    int pre = w->qkv_with_attention ? w->attention : w->pre; /* the part with the product */
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

/* 1 if the inside of the MLP, which gave a layer's output, is recomputed with the gradients. */
static int inside_again(const struct sp_shape *sh, const struct sp_op_work *w,
                        enum sp_recompute mode)
{
    return w->weight && sp_mlp_comes_in_chunks(sh, mode);
}

/* The numbers that recomputation in a backward adds. If ops are parts of layers, q, k and v that
 * were received are still there, and a block's output is needed too. */
static struct shared shared_again(const struct sp_plan *plan, const struct sp_shape *sh,
                                  const struct sp_op_work *w, enum sp_recompute mode)
{
    bool parts = plan->family->facts.parts;
    int pre = w->qkv_with_attention ? w->attention : w->pre && !parts;

    if (!w->input || sp_stash_keeps(mode, SP_STASH_PRE))
        return (struct shared){0, 0};
    return (struct shared){pre + (2 + (parts ? 1 + inside_again(sh, w, mode) : 0)) * w->post,
                           (1 + parts) * w->post};
}

/* 1 if the output of a layer is recomputed because the next layer's input is not kept. */
static int outputs_again(const struct sp_op_work *w, enum sp_recompute mode, int every, int layer)
{
    return w->input && w->post && mode == SP_RECOMPUTE_FULL && every > 1 &&
           (layer + 1 - w->first) % every && layer + 1 < w->first + w->layers;
}

/* The numbers for embedding and head. The statistics of logits go to all other devices. */
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
            enum sp_recompute mode = mode_of(plan, recompute, &work[i], l);
            bool waits = work[i].forward && work[i].to_head && !sp_stash_keeps(mode, SP_STASH_PRE);
            struct shared of = waits ? (struct shared){0, 0} : shared_of_layer(&work[i]),
                          more = shared_again(plan, sh, &work[i], mode);
            int outputs = outputs_again(&work[i], mode, every, l);

            all.rows += of.rows + more.rows + (outputs ? 1 + inside_again(sh, &work[i], mode) : 0);
            all.sums += of.sums + more.sums + outputs;
        }
        if (plan->family->facts.parts && !sp_stash_keeps(recompute, SP_STASH_PRE) &&
            work[i].embed && work[i].input) { /* the first block's input is recomputed */
            all.rows++;
            all.sums++;
        }
        bytes += sh->sequence ? rows / sh->tensor * (sh->tensor - 1) * all.rows
                              : rows * sp_pipelines_sent(0, sh->tensor) * all.sums;
    }
    return bytes;
}

/* ---- context parallelism --------------------------------------------------------------------- */

/* A device sends its part of the tokens for the heads of each other device. */
static int64_t context_bytes(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, const struct sp_op_work *work)
{
    struct sp_shape slice, heads;
    int64_t part, bytes = 0;

    if (!work->attention || !(work->forward || work->input))
        return 0;
    sp_shape_slice(sh, work->first_token, work->tokens, &slice);
    sp_shape_heads(&slice, &heads);
    part = (int64_t)sp_shape_elem(sh) * slice.rows * (sh->ulysses - 1);
    for (int l = work->first; l < work->first + work->layers; l++) {
        /* q, k, v that were received are kept, whatever else is recomputed */
        bool kept = plan->family->facts.parts && !work->qkv_with_attention && !work->pre;
        enum sp_recompute mode = mode_of(plan, recompute, work, l);
        bool again = work->input && mode == SP_RECOMPUTE_FULL; /* attention's output */
        struct times t = times_of(work, kept ? SP_RECOMPUTE_NONE : mode,
                                  plan->layout.slices > 1 && !plan->family->facts.parts);

        t.q += kept && again;
        bytes += part * (t.q * heads.q_width + t.kv * heads.kv_width) +
                 around(&heads, work, kept && !again ? SP_RECOMPUTE_NONE : mode);
    }
    return bytes;
}

/* ---- shards of layers ------------------------------------------------------------------------ */

/* Elements of blocks of a layer that the first pipeline keeps, or sends to others of all that they
 * have. */
static int64_t shard(const struct sp_shape *sh, unsigned blocks, bool kept)
{
    int64_t sum = 0;

    for (int k = 0; k < SP_LAYER_BLOCKS; k++) {
        uint64_t n = sp_block_elements(&sh->held, sp_layer_block(k)), first, own;

        sp_pipelines_part(n, 0, sh->pipelines, &first, &own);
        sum += blocks >> k & 1 ? (int64_t)(kept ? own : n - own) : 0;
    }
    return sum;
}

static int64_t blocks_bytes(const struct sp_shape *sh, enum sp_traffic traffic, unsigned blocks)
{
    if (traffic == SP_TRAFFIC_GATHER)
        return sh->zero >= 3
                   ? (int64_t)sp_shape_elem(sh) * (sh->pipelines - 1) * shard(sh, blocks, true)
                   : 0;
    return sh->zero >= 2 ? (int64_t)sizeof(float) * shard(sh, blocks, false) : 0;
}

/* How often layers are gathered in an op: each when it comes to it, and twice if it is recomputed
 * with a later one. */
static int64_t gathers(const struct sp_lowering *l, const struct sp_op_work *work)
{
    int64_t times = work->layers;

    for (int i = 0; work->input && i < work->layers; i++) {
        enum sp_recompute mode = sp_layer_recompute(l->plan, l->recompute, work->first + i);
        bool again = !sp_stash_keeps(mode, SP_STASH_PRE);

        times += again && (i + 1) % l->every && i + 1 < work->layers;
    }
    return times;
}

static int64_t shard_bytes(const struct sp_lowering *l, enum sp_traffic traffic, int stage,
                           const struct sp_op_work *work)
{
    unsigned blocks = sp_work_blocks(l->plan, l->shape, l->recompute, stage, work);
    int64_t times = traffic == SP_TRAFFIC_GATHER ? gathers(l, work)
                    : work->weight               ? work->layers
                                                 : 0;

    return times * blocks_bytes(l->shape, traffic, blocks);
}

int64_t sp_exchange_block_bytes(const struct sp_shape *sh, enum sp_traffic traffic,
                                enum sp_block_kind kind)
{
    return blocks_bytes(sh, traffic, 1u << (kind - SP_BLOCK_NORM1));
}

int64_t sp_exchange_bytes(const struct sp_lowering *l, enum sp_traffic traffic, int stage,
                          const struct sp_op *op)
{
    const struct sp_shape *sh = l->shape;
    struct sp_op_work work[SP_MOST_WORK];
    int n = sp_op_work(l->plan, sh, stage, op, work);
    int64_t bytes = 0;
    struct sp_shape joined;

    for (int i = 0; traffic != SP_TRAFFIC_MEMBERS && i < n; i++)
        bytes += shard_bytes(l, traffic, stage, &work[i]);
    if (traffic != SP_TRAFFIC_MEMBERS)
        return bytes;
    if (sh->tensor > 1)
        bytes += tensor_bytes(l->plan, sh, l->recompute, l->every, work, n);
    sp_shape_joined(sh, &joined);
    for (int i = 0; sh->context > 1 && i < n; i++)
        bytes += context_bytes(l->plan, &joined, l->recompute, &work[i]);
    return bytes;
}
