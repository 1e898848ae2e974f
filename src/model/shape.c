#include "model/shape.h"
#include "model/tensor_parts.h"
#include <limits.h>

/* The rows of logits that so many elements hold, rounded down to whole tiles of a product. */
static int rows_of(const struct sp_model *m, int elements)
{
    const int tile = 64;
    int rows = elements / m->vocab;

    if (rows >= tile)
        return rows / tile * tile;
    return rows > 0 ? rows : 1;
}

/* The rows of logits computed at a time by default: those that 128 MiB hold. More rows mean fewer
 * passes over the gradient of the table; on CPU cores still more rows gain nothing. */
static int default_head_rows(const struct sp_model *m)
{
    return rows_of(m, (128 << 20) / (int)sizeof(float));
}

int sp_head_rows_of_gpu(const struct sp_model *m)
{
    const int most = 4096, rows = rows_of(m, 1 << 28);

    return rows < most ? rows : most;
}

static void take_widths(struct sp_shape *sh, const struct sp_model *m)
{
    sh->model = *m;
    sh->q_width = sp_model_q_width(m);
    sh->kv_width = sp_model_kv_width(m);
    sh->up_width = sp_model_up_width(m);
}

/* Sets the offsets of tensors in the blocks that a device has. */
static void take_blocks(struct sp_shape *sh, const struct sp_model *m)
{
    sh->held = *m;
    sh->norm_bias = sp_block_offset(m, SP_BLOCK_NORM, SP_ROLE_BIAS);
    sh->qkv = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_QKV);
    sh->qkv_bias = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_QKV_BIAS);
    sh->q_gain = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_Q_GAIN);
    sh->k_gain = sp_block_offset(m, SP_BLOCK_QKV, SP_ROLE_K_GAIN);
    sh->out = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_OUT);
    sh->out_bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_OUT_BIAS);
    sh->gain = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_GAIN);
    sh->bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_BIAS);
    sh->up = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_UP);
    sh->up_bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_UP_BIAS);
    sh->down = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_DOWN);
    sh->down_bias = sp_block_offset(m, SP_BLOCK_POST, SP_ROLE_DOWN_BIAS);
}

/* No more rows are computed at a time than there are. */
static void limit_rows(struct sp_shape *sh)
{
    sh->mlp_rows = sh->mlp_rows < sh->rows ? sh->mlp_rows : sh->rows;
    sh->head_rows = sh->head_rows < sh->rows ? sh->head_rows : sh->rows;
}

void sp_shape_init(struct sp_shape *sh, const struct sp_model *m, int batch, int seq,
                   int micro_batches)
{
    int64_t rows = (int64_t)batch * seq;
    int T = rows < INT_MAX ? (int)rows : INT_MAX; /* refused by sp_memory_check */

    *sh = (struct sp_shape){
        .whole = *m,
        .rms = m->arch == SP_ARCH_LLAMA,
        .batch = batch,
        .seq = seq,
        .rows = T,
        .mlp_rows = T,
        .head_rows = default_head_rows(m),
        .context = 1,
        .ulysses = 1,
        .ring = 1,
        .stride = 1,
        .tensor = 1,
        .pipelines = 1,
        .loss_scale = 1.0f / ((float)micro_batches * (float)T),
    };
    take_widths(sh, m);
    take_blocks(sh, m);
    limit_rows(sh);
}

void sp_shape_cut(struct sp_shape *sh, int mlp_rows, int head_rows)
{
    sh->mlp_rows = mlp_rows > 0 ? mlp_rows : sh->mlp_rows;
    sh->head_rows = head_rows > 0 ? head_rows : sh->head_rows;
    limit_rows(sh);
}

void sp_shape_share(struct sp_shape *sh, int pipelines, int zero)
{
    sh->pipelines = pipelines;
    sh->zero = pipelines > 1 ? zero : 0;
    sh->loss_scale /= (float)pipelines;
}

void sp_shape_join(struct sp_shape *sh, int slices)
{
    sh->joins = sh->tensor > 1 && (sh->context > 1 || slices * sp_shape_shares(sh) > SP_MAX_SLICES);
}

static void spread_rows(struct sp_shape *sh, int devices)
{
    sh->rows /= devices;
    limit_rows(sh);
}

bool sp_shape_divides_heads(const struct sp_model *held, int devices)
{
    return held->heads % devices == 0 &&
           (held->kv_heads % devices == 0 || devices % held->kv_heads == 0);
}

void sp_shape_context(struct sp_shape *sh, int context, int ulysses)
{
    if (!ulysses)
        for (ulysses = context; context % ulysses || !sp_shape_divides_heads(&sh->held, ulysses);)
            ulysses--;
    sh->context = context;
    sh->ulysses = ulysses;
    sh->ring = context / ulysses;
    spread_rows(sh, context);
    sh->loss_scale *= (float)context; /* sp_shape_share counts these devices as pipelines */
    sp_shape_join(sh, 1);
}

void sp_shape_stripe(struct sp_shape *sh)
{
    sh->stride = sh->context;
    sh->joins = false; /* what they exchange is joined anyway */
}

void sp_shape_tensor(struct sp_shape *sh, int devices, bool sequence)
{
    struct sp_model part;

    if (devices <= 1)
        return;
    sh->tensor = devices;
    sh->sequence = sequence;
    sp_model_divide(&sh->model, devices, &part);
    take_blocks(sh, &part);
    if (sequence) {
        sh->mlp_rows = sh->mlp_rows < devices ? 1 : sh->mlp_rows / devices;
        spread_rows(sh, devices);
        part = sh->model;
        part.kv_heads = sh->held.kv_heads * devices;
    }
    take_widths(sh, &part);
}

void sp_shape_member(const struct sp_shape *sh, int part, int share, struct sp_shape *member)
{
    int shares = sp_shape_shares(sh), len = sh->seq / sp_shape_unit(sh);

    *member = *sh;
    member->seq /= sp_shape_spread(sh);
    if (sh->stride > 1) {
        member->first += part / sh->ulysses + part % sh->ulysses * sh->ring;
        return;
    }
    member->first += (part * shares + share) * len;
    if (sh->ring > 1)
        member->second = sh->first + (sp_shape_second(sh, part) * shares + share) * len;
}

void sp_shape_share_of(const struct sp_shape *member, struct sp_shape *share)
{
    *share = *member;
    take_widths(share, &member->held);
}

void sp_shape_joined(const struct sp_shape *sh, struct sp_shape *joined)
{
    *joined = *sh;
    take_widths(joined, &sh->held);
    joined->rows *= sp_shape_shares(sh);
    joined->tensor = 1;
    joined->joins = false;
    joined->sequence = false;
}

void sp_shape_heads(const struct sp_shape *member, struct sp_shape *heads)
{
    *heads = *member;
    heads->model.heads /= member->ulysses;
    heads->model.kv_heads =
        member->model.kv_heads > member->ulysses ? member->model.kv_heads / member->ulysses : 1;
    heads->q_width = sp_model_q_width(&heads->model);
    heads->kv_width = sp_model_kv_width(&heads->model);
    if (member->stride == 1)
        return;
    heads->stride = member->ring;
    heads->first -= heads->first % heads->context / heads->ring * heads->ring;
    heads->seq *= member->ulysses;
    heads->rows *= member->ulysses;
}

void sp_shape_slice(const struct sp_shape *whole, int first, int len, struct sp_shape *sh)
{
    *sh = *whole;
    sh->first = first;
    sh->seq = len;
    sh->rows = whole->batch * len / sp_shape_spread(whole);
    limit_rows(sh);
}

void sp_shape_rows(const struct sp_shape *whole, int rows, struct sp_shape *sh)
{
    *sh = *whole;
    sh->rows = rows;
    limit_rows(sh);
}
