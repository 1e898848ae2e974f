#include "policies/families/work.h"
#include "policies/families/ownership.h"

/* Whole layers, or the head as an op of its own. */
static int chunk_work(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                      const struct sp_op *op, struct sp_op_work *work)
{
    int global;

    if (op->part == SP_HEAD) {
        work->head = plan->family->facts.head_op;
        work->head_share = plan->layout.vocabulary_parallel;
        return 1;
    }
    global = sp_chunk_global(plan, stage, op->chunk);
    sp_chunk_layers(plan, sh->model.layers, stage, op->chunk, &work->first, &work->layers);
    work->pre = work->attention = work->post = true;
    work->embed = global == 0;
    work->head_norm = plan->layout.vocabulary_parallel && global == sp_globals(&plan->layout) - 1;
    work->head = global == sp_globals(&plan->layout) - 1 && op->pass == SP_B &&
                 !plan->family->facts.head_op && !plan->layout.vocabulary_parallel;
    return 1;
}

int sp_op_work(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
               const struct sp_op *op, struct sp_op_work work[SP_MOST_WORK])
{
    const struct sp_family *family = plan->family;
    bool apart = plan->deferred && plan->deferred[family->id(&plan->layout, stage, op)];
    struct sp_op_work pass = {
        .forward = op->pass == SP_F,
        .input = op->pass == SP_B,
        .weight = op->pass == SP_W || (op->pass == SP_B && !apart),
        .keeps_attention = family->shared && family->shared->keeps_attention(&plan->layout, op)};

    sp_plan_op_tokens(plan, sh->seq, op, &pass.first_token, &pass.tokens);
    for (int i = 0; i < SP_MOST_WORK; i++)
        work[i] = pass;
    return family->work ? family->work(plan, sh, op, work) : chunk_work(plan, sh, stage, op, work);
}

unsigned sp_work_blocks(const struct sp_plan *plan, const struct sp_shape *sh,
                        enum sp_recompute recompute, int stage, const struct sp_op_work *work)
{
    bool waits = work->forward && work->to_head && !sp_stash_keeps(recompute, SP_STASH_PRE);
    bool product = work->qkv_with_attention ? work->attention : work->pre, post = work->post;
    int owners[SP_MAX_OWNERS];

    if (work->attention && work->out_with_attention) { /* elsewhere it has a copy of the product */
        sp_block_owners(plan, &sh->held, SP_BLOCK_POST, work->first, owners);
        post = owners[0] == stage;
    }
    if (waits)
        return 0;
    return (unsigned)work->pre << (SP_BLOCK_NORM1 - SP_BLOCK_NORM1) |
           (unsigned)product << (SP_BLOCK_QKV - SP_BLOCK_NORM1) |
           (unsigned)post << (SP_BLOCK_POST - SP_BLOCK_NORM1);
}
