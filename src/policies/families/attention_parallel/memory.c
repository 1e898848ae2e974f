#include "policies/families/attention_parallel/attention_parallel.h"
#include <string.h>

bool sp_ships_weights(const struct sp_plan *plan, const struct sp_shape *sh)
{
    uint64_t T = (uint64_t)sh->rows, h = (uint64_t)sh->model.hidden;
    uint64_t width = (uint64_t)(sh->q_width + sh->kv_width);
    char qkv[16] = "auto";

    sp_layout_option(&plan->layout, "qkv", qkv, sizeof qkv);
    if (strcmp(qkv, "auto"))
        return !strcmp(qkv, "weights");
    return T * h + sp_block_elements(&sh->held, SP_BLOCK_QKV) < T * width;
}

static int64_t attention_elements(const struct sp_plan *plan, const struct sp_shape *sh,
                                  enum sp_recompute recompute)
{
    int64_t qkv = (int64_t)(sp_stash_elements(sh, SP_RECOMPUTE_NONE, SP_STASH_Q) +
                            sp_stash_elements(sh, SP_RECOMPUTE_NONE, SP_STASH_KV));
    int64_t out = (int64_t)(sp_stash_elements(sh, SP_RECOMPUTE_NONE, SP_STASH_O) +
                            sp_stash_elements(sh, SP_RECOMPUTE_NONE, SP_STASH_LSE));

    if (!sp_ships_weights(plan, sh))
        return qkv + out;
    return (int64_t)sh->rows * sh->model.hidden + out +
           (recompute == SP_RECOMPUTE_NO_ATTENTION ? 0 : qkv);
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

int64_t sp_parts_stash(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int stage, const struct sp_op *op,
                       int64_t *head)
{
    int64_t elem = (int64_t)sp_shape_elem(sh);
    bool last = op->part == SP_BLOCK && op->chunk == plan->layout.layers;

    *head = last && recompute != SP_RECOMPUTE_NO_ATTENTION ? elem * sh->rows * sh->model.hidden : 0;
    return *head + elem * (op->part == SP_ATTN ? attention_elements(plan, sh, recompute)
                                               : block_elements(plan, sh, recompute, stage, op));
}

int64_t sp_parts_workspace(const struct sp_plan *plan, const struct sp_shape *sh,
                           enum sp_recompute recompute, int stage)
{
    const struct sp_layout *lay = &plan->layout;
    int64_t T = sh->rows, x = T * sh->model.hidden, q = T * sh->q_width, kv = T * sh->kv_width;
    int64_t weights = (int64_t)sp_block_elements(&sh->held, SP_BLOCK_QKV), elements;
    int64_t gradient =
        (int64_t)sp_shape_f32(sh, (uint64_t)weights); /* as large as weights, or larger */
    bool ships = sp_ships_weights(plan, sh), chunks = sp_mlp_comes_in_chunks(sh, recompute);
    int64_t way = plan->transit ? plan->transit[stage] : 0, shipped = 0;

    /* an op at work: a block's backward with what it computes again, or attention's */
    elements = 3 * x + (chunks ? 0 : T * sh->up_width) + q + (int64_t)sp_shape_pre_saved(sh, true) +
               (int64_t)(chunks ? sp_shape_residual_saved(sh) : sp_shape_post_saved(sh, true));
    elements += 2 * (q + kv);
    /* on their way, and what a pool leaves idle: two tensors a message, weights with one of them */
    elements += (way + 2) * ((x > q ? x : q) + (ships ? x : q + kv) + (ships ? gradient : 0));
    elements += 2 * (x + q + (ships ? gradient : kv));
    for (int l = 0; ships && l < lay->layers; l++)
        shipped += sp_block_stage(lay, l) != stage;
    elements += shipped * weights;
    if (recompute == SP_RECOMPUTE_SELECTIVE)
        elements += T * (sh->model.mlp > sh->model.hidden ? sh->model.mlp : sh->model.hidden);
    return elements;
}
