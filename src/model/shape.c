#include "model/shape.h"
#include <limits.h>

/* Rows of logits at a time unless the user says: what 128 MiB hold, in whole tiles of a product. More
 * rows mean fewer passes over the gradient of the table, more than that no longer shows. */
static int default_head_rows(const struct sp_model *m)
{
    const int tile = 64;
    int rows = (128 << 20) / (int)sizeof(float) / m->vocab;

    if (rows >= tile)
        return rows / tile * tile;
    return rows > 0 ? rows : 1;
}

void sp_shape_init(struct sp_shape *sh, const struct sp_model *m, int batch, int seq,
                   int micro_batches, int mlp_rows, int head_rows)
{
    int64_t rows = (int64_t)batch * seq;
    int T = rows < INT_MAX ? (int)rows : INT_MAX; /* refused by sp_memory_check */

    if (head_rows <= 0)
        head_rows = default_head_rows(m);
    *sh = (struct sp_shape){
        .model = *m,
        .rms = m->arch == SP_ARCH_LLAMA,
        .batch = batch,
        .seq = seq,
        .rows = T,
        .mlp_rows = mlp_rows > 0 && mlp_rows < T ? mlp_rows : T,
        .head_rows = head_rows < T ? head_rows : T,
        .q_width = sp_model_q_width(m),
        .kv_width = sp_model_kv_width(m),
        .up_width = sp_model_up_width(m),
        .context = 1,
        .pipelines = 1,
        .loss_scale = 1.0f / ((float)micro_batches * (float)T),
        .norm_bias = sp_block_offset(m, SP_BLOCK_NORM, SP_ROLE_BIAS),
        .qkv = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_QKV),
        .qkv_bias = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_QKV_BIAS),
        .q_gain = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_Q_GAIN),
        .k_gain = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_K_GAIN),
        .out = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_OUT),
        .out_bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_OUT_BIAS),
        .gain = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_GAIN),
        .bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_BIAS),
        .up = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_UP),
        .up_bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_UP_BIAS),
        .down = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_DOWN),
        .down_bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_DOWN_BIAS),
    };
}

void sp_shape_share(struct sp_shape *sh, int pipelines, bool zero)
{
    sh->pipelines = pipelines;
    sh->zero = zero && pipelines > 1;
    sh->loss_scale /= (float)pipelines;
}

void sp_shape_context(struct sp_shape *sh, int context, bool ring)
{
    sh->context = context;
    sh->ring = ring && context > 1;
    sh->rows /= context;
    sh->mlp_rows = sh->mlp_rows < sh->rows ? sh->mlp_rows : sh->rows;
    sh->head_rows = sh->head_rows < sh->rows ? sh->head_rows : sh->rows;
    sh->loss_scale *= (float)context; /* sp_shape_share counts them with the pipelines */
}

void sp_shape_member(const struct sp_shape *sh, int part, struct sp_shape *member)
{
    int half = sh->seq / (2 * sh->context);

    *member = *sh;
    member->seq /= sh->context;
    member->first += part * (sh->ring ? half : member->seq);
    if (sh->ring)
        member->second = sh->first + (2 * sh->context - 1 - part) * half;
}

void sp_shape_heads(const struct sp_shape *member, struct sp_shape *heads)
{
    *heads = *member;
    heads->model.heads /= member->context;
    heads->model.kv_heads =
        member->model.kv_heads > member->context ? member->model.kv_heads / member->context : 1;
    heads->q_width = sp_model_q_width(&heads->model);
    heads->kv_width = sp_model_kv_width(&heads->model);
}

void sp_shape_slice(const struct sp_shape *whole, int first, int len, struct sp_shape *sh)
{
    *sh = *whole;
    sh->first = first;
    sh->seq = len;
    sh->rows = whole->batch * len / whole->context;
    sh->mlp_rows = whole->mlp_rows < sh->rows ? whole->mlp_rows : sh->rows;
    sh->head_rows = whole->head_rows < sh->rows ? whole->head_rows : sh->rows;
}
