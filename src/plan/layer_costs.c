#include "plan/layer_costs.h"
#include "kernels/kernels.h"

/* The nominal worker: between a CPU core and a GPU in what it computes for a byte it moves. */
static const double flops_per_us = 1e6, bytes_per_us = 1e5;

static double product_us(const struct sp_shape *sh, enum sp_role role)
{
    return sh->rows * sp_product_flops(&sh->model, role) / flops_per_us;
}

/* A pass over `width` elements of every row, read or written. */
static double moved_us(const struct sp_shape *sh, double width)
{
    return (double)sp_shape_elem(sh) * sh->rows * width / bytes_per_us;
}

static double attention_us(const struct sp_shape *sh)
{
    const struct sp_model *m = &sh->model;
    struct sp_attention at = {.batch = sh->batch,
                              .heads = m->heads,
                              .kv_heads = m->kv_heads,
                              .head_dim = m->head_dim,
                              .q_len = sh->seq,
                              .n_kv = 1,
                              .kv_len = &sh->seq};

    return sp_flops_attention(&at) / flops_per_us;
}

void sp_layer_costs_estimate(const struct sp_shape *sh, struct sp_layer_costs *costs)
{
    const double h = sh->model.hidden, f = sh->model.mlp, vocab = sh->model.vocab;
    const double up = sh->up_width;
    double down = product_us(sh, SP_ROLE_DOWN), norm = moved_us(sh, 2 * h),
           act = moved_us(sh, up + f);
    double in_pre = product_us(sh, SP_ROLE_QKV);
    double in_post = product_us(sh, SP_ROLE_OUT) + product_us(sh, SP_ROLE_UP) + down;
    double attn = attention_us(sh);
    /* norms of heads: read and written; backward, the products and the norms once more */
    const double width = sh->model.qk_norm ? sh->q_width + sh->kv_width / 2 : 0;
    double heads = moved_us(sh, 2 * width);
    double heads_bwd = 3 * heads + sp_flops_linear(sh->rows, h, width) / flops_per_us;

    *costs = (struct sp_layer_costs){
        .embed_fwd_us = moved_us(sh, 3 * h), /* token and position rows read, their sum written */
        .embed_bwd_us = moved_us(sh, 3 * h),
        .pre_fwd_us = in_pre + norm + heads,
        .attn_fwd_us = attn,
        .post_fwd_us = in_post + norm + act,
        /* norms: x, dy, dr read, dx written; activation: u and dg read, du written */
        .bwd_us = in_pre + 2.5 * attn + in_post + 2 * moved_us(sh, 4 * h) +
                  moved_us(sh, 2 * up + f) + heads_bwd,
        .wgrad_us = in_pre + in_post,
        /* logits are written, read twice and overwritten by their gradient */
        .head_us = 3 * sp_flops_linear(sh->rows, h, vocab) / flops_per_us + moved_us(sh, 6 * h) +
                   moved_us(sh, 4 * vocab),
    };
    /* The MLP's last product gives the layer's output, which no backward of the layer needs. */
    costs->recompute_us[SP_RECOMPUTE_SELECTIVE] = 2 * norm + act;
    costs->recompute_us[SP_RECOMPUTE_NO_ATTENTION] = costs->pre_fwd_us + costs->post_fwd_us - down;
    costs->recompute_us[SP_RECOMPUTE_FULL] =
        costs->recompute_us[SP_RECOMPUTE_NO_ATTENTION] + costs->attn_fwd_us;
}
