#include "policies/families/attention_parallel/attention_parallel.h"
#include <string.h>

bool sp_ships_weights(const struct sp_plan *plan, const struct sp_shape *sh)
{
    size_t T = (size_t)sh->rows, h = (size_t)sh->model.hidden;
    size_t width = (size_t)(sh->q_width + sh->kv_width);
    char qkv[16] = "auto";

    sp_layout_option(&plan->layout, "qkv", qkv, sizeof qkv);
    if (strcmp(qkv, "auto"))
        return !strcmp(qkv, "weights");
    return T * h + sp_block_elements(&sh->model, SP_BLOCK_QKV) < T * width;
}

int sp_parts_holder(const struct sp_plan *plan, enum sp_block_kind kind, int layer)
{
    const struct sp_layout *lay = &plan->layout;

    switch (kind) {
    case SP_BLOCK_NORM1:
    case SP_BLOCK_QKV:
        return sp_block_stage(lay, layer);
    case SP_BLOCK_POST:
        return sp_block_stage(lay, layer + 1);
    default:
        return 0; /* embedding and head are on one stage: tied tables need no replica */
    }
}

int sp_parts_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg)
{
    static const enum sp_block_kind kinds[] = {SP_BLOCK_NORM1, SP_BLOCK_QKV, SP_BLOCK_POST};
    static const enum sp_block_kind ends[] = {SP_BLOCK_TOKENS, SP_BLOCK_POSITIONS, SP_BLOCK_NORM,
                                              SP_BLOCK_HEAD};
    int err = 0;

    for (int i = 0; !err && stage == 0 && i < 4; i++)
        if (sp_block_elements(m, ends[i]))
            err = fn(arg, ends[i], -1);
    for (int l = 0; l < m->layers; l++)
        for (int i = 0; !err && i < 3; i++)
            if (sp_parts_holder(plan, kinds[i], l) == stage)
                err = fn(arg, kinds[i], l);
    return err;
}

static int64_t attention_elements(const struct sp_plan *plan, const struct sp_shape *sh,
                                  enum sp_recompute recompute)
{
    int64_t T = sh->rows, qkv = T * (sh->q_width + sh->kv_width);
    int64_t lse = (int64_t)sp_shape_f32(sh, (size_t)(T * sh->model.heads));
    int64_t out = T * sh->q_width + lse;

    if (!sp_ships_weights(plan, sh))
        return qkv + out;
    return T * sh->model.hidden + out + (recompute == SP_RECOMPUTE_NO_ATTENTION ? 0 : qkv);
}

static int64_t block_elements(const struct sp_plan *plan, const struct sp_shape *sh,
                              enum sp_recompute recompute, int stage, const struct sp_op *op)
{
    const struct sp_layout *lay = &plan->layout;
    bool kept = recompute != SP_RECOMPUTE_NO_ATTENTION;
    bool keep_outputs = recompute == SP_RECOMPUTE_NONE;
    int64_t T = sh->rows, x = T * sh->model.hidden, elements = 0;

    if (op->chunk > 0) {
        bool shared = sp_attention_stage(lay, op->mb, op->chunk - 1) == stage;

        elements += (shared ? 0 : T * sh->q_width) +
                    (kept ? (int64_t)sp_shape_post_saved(sh, keep_outputs) : x);
    }
    if (kept && op->chunk < lay->layers) {
        bool ships = sp_ships_weights(plan, sh);

        elements += x + (int64_t)sp_shape_pre_saved(sh, keep_outputs && !ships);
    }
    return elements;
}

int64_t sp_parts_head_input(const struct sp_plan *plan, const struct sp_shape *sh,
                            enum sp_recompute recompute, const struct sp_op *op)
{
    bool head = op->part == SP_BLOCK && op->chunk == plan->layout.layers;

    return head && recompute != SP_RECOMPUTE_NO_ATTENTION
               ? (int64_t)sp_shape_elem(sh) * sh->rows * sh->model.hidden
               : 0;
}

int64_t sp_parts_stash_of_op(const struct sp_plan *plan, const struct sp_shape *sh,
                             enum sp_recompute recompute, int stage, const struct sp_op *op)
{
    int64_t elements = op->part == SP_ATTN ? attention_elements(plan, sh, recompute)
                                           : block_elements(plan, sh, recompute, stage, op);

    return (int64_t)sp_shape_elem(sh) * elements + sp_parts_head_input(plan, sh, recompute, op);
}

int64_t sp_parts_workspace(const struct sp_plan *plan, const struct sp_shape *sh,
                           enum sp_recompute recompute, int stage)
{
    const struct sp_layout *lay = &plan->layout;
    int64_t T = sh->rows, x = T * sh->model.hidden, q = T * sh->q_width, kv = T * sh->kv_width;
    int64_t weights = (int64_t)sp_block_elements(&sh->model, SP_BLOCK_QKV), elements;
    int64_t gradient =
        (int64_t)sp_shape_f32(sh, (size_t)weights); /* as large as weights, or larger */
    bool ships = sp_ships_weights(plan, sh);
    int64_t way = plan->transit ? plan->transit[stage] : 0, shipped = 0;

    /* an op at work: a block's backward with what it computes again, or attention's */
    elements = 3 * x + T * sh->up_width + q + (int64_t)sp_shape_pre_saved(sh, true) +
               (int64_t)sp_shape_post_saved(sh, true);
    elements += 2 * (q + kv);
    /* on their way, and what a pool leaves idle: two tensors a message, weights with one of them */
    elements += (way + 2) * ((x > q ? x : q) + (ships ? x : q + kv) + (ships ? gradient : 0));
    elements += 2 * (x + q + (ships ? gradient : kv));
    for (int l = 0; ships && l < lay->layers; l++)
        shipped += sp_block_stage(lay, l) != stage;
    elements += shipped * weights;
    if (recompute == SP_RECOMPUTE_SELECTIVE)
        elements += T * (sh->model.mlp > sh->model.hidden ? sh->model.mlp : sh->model.hidden);
    return (int64_t)sp_shape_elem(sh) * elements;
}
