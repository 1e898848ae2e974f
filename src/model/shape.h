/*
 * The sizes that every codelet of a run shares: the model, the rows of a micro-batch, how the MLP
 * and the logits are cut, and where each tensor lies in its block. Computed once.
 */
#ifndef SP_SHAPE_H
#define SP_SHAPE_H

#include "kernels/dtype.h"
#include "model/params.h"

/* Of a sequence, at most, parts of slices counted. */
#define SP_MAX_SLICES 256

struct sp_shape {
    /* `model` has the widths of tensors of `rows`; `held` is whose blocks of parameters a device has: a part of the
     * model, or all of it. */
    struct sp_model model, held;
    int vocab;           /* V of the whole model */
    enum sp_dtype dtype; /* of activations and of weights as products read them */
    bool rms;            /* RMSNorm, SwiGLU, RoPE: Llama style */
    int batch;           /* b, sequences of a micro-batch */
    int seq;             /* s; of a slice, its tokens */
    int context;         /* devices that share the tokens of a sequence; 1: it is whole on one */
    bool ring;  /* keys and values travel around them; else they share the heads of attention out */
    int tensor; /* devices that share heads, MLP and vocabulary (model/tensor_parts.h); 1: none do */
    bool sequence; /* and the tokens of all else; otherwise each has all tokens of all else */
    int first;     /* position of the first token: not 0 in later slices of a sequence */
    int second; /* of the first token of the second half, where that does not follow the first half: then all
                 * first halves lie before all second ones; else 0 */
    int rows;      /* T = b*s / sp_shape_spread */
    int mlp_rows;  /* rows of the MLP computed at a time */
    int head_rows; /* rows of logits that live at a time */
    int q_width, kv_width, up_width;
    int pipelines;                  /* that share a step, each with micro-batches of its own */
    bool zero;                      /* and share the update out, see graphs/weights/zero.h */
    float loss_scale;               /* 1 / tokens of a step: the loss is the mean over the step */
    const struct sp_shape *longest; /* of the slices that take turns; NULL: it is alone */

    /* Offsets in their blocks, the gain of a norm block being at 0; (size_t)-1: absent. */
    size_t norm_bias; /* of SP_BLOCK_NORM1 and SP_BLOCK_NORM */
    size_t qkv, qkv_bias, q_gain, k_gain;
    size_t out, out_bias, gain, bias, up, up_bias, down, down_bias;
};

/* Rows of logits at a time that suit a GPU: 4096, or what 512 MiB of them hold in bf16. More rows mean fewer passes over
 * the gradient of the table, which a GPU's products do not hide. */
int sp_head_rows_of_gpu(const struct sp_model *m);

/* mlp_rows 0: all rows; head_rows 0: what 128 MiB of logits hold. */
void sp_shape_init(struct sp_shape *sh, const struct sp_model *m, int batch, int seq,
                   int micro_batches, int mlp_rows, int head_rows);

/* So many devices share the tokens of every sequence: T is what one of them has. */
void sp_shape_context(struct sp_shape *sh, int context, bool ring);

/*
 * So many devices share the parameters of every layer, embedding and head. `sequence`: T is what one of them has, and
 * `model` stays, so that tensors of all heads have as many elements as those of a device's heads for all tokens.
 * Otherwise T stays, and `model` becomes the part. Either way what a device computes and keeps is what `model` computes
 * and keeps for T tokens.
 */
void sp_shape_tensor(struct sp_shape *sh, int devices, bool sequence);

/* The model, of which devices may have parts. */
struct sp_model sp_shape_whole(const struct sp_shape *sh);

/* Parts of a member's tokens that devices which share parameters have each one of; 1: all have all. */
static inline int sp_shape_shares(const struct sp_shape *sh)
{
    return sh->sequence ? sh->tensor : 1;
}

/* Devices that have different tokens of a sequence. */
static inline int sp_shape_spread(const struct sp_shape *sh)
{
    return sh->context * sp_shape_shares(sh);
}

/* What tokens that they share must be a multiple of. */
static inline int sp_shape_unit(const struct sp_shape *sh)
{
    return sp_shape_spread(sh) * (sh->ring ? 2 : 1);
}

/* Whether they exchange tokens for heads before attention, and back after it. */
static inline bool sp_shape_exchanges(const struct sp_shape *sh)
{
    return sh->context > 1 && !sh->ring;
}

/* Parts in which attention has the tokens of a slice: those of each device that exchanges them for heads, or the shares
 * of those that share parameters; 1 where it has them as they are. */
static inline int sp_shape_parts(const struct sp_shape *sh)
{
    return sh->ring ? 1 : sh->context > 1 ? sh->context : sp_shape_shares(sh);
}

/*
 * What a device computes of a sequence or slice: seq and first are of its own tokens, of `part` of sh->context parts the
 * `share` of sp_shape_shares. Around a ring parts are two halves, part `part` and the last but `part` of twice as many
 * as devices: so that each sees as many keys as the others ("zigzag").
 */
void sp_shape_member(const struct sp_shape *sh, int part, int share, struct sp_shape *member);

/* What such a share is to products and attention of a device's own heads and part of the MLP. */
void sp_shape_share_of(const struct sp_shape *member, struct sp_shape *share);

/* The shares of a part together, of a device's own heads: as if there were no others that share parameters. */
void sp_shape_joined(const struct sp_shape *sh, struct sp_shape *joined);

/* The attention of a member of those that exchange tokens for heads, where each has some of the heads for all tokens: of
 * as many query tokens as one has. A key and value head is on several where there are fewer of them than devices. */
void sp_shape_heads(const struct sp_shape *member, struct sp_shape *heads);

/* Runs of tokens of a member that follow each other in the sequence; of run i, where it begins, in the sequence
 * and in the rows of all sequences, and how many tokens it has. */
static inline int sp_shape_runs(const struct sp_shape *sh)
{
    return sh->second ? 2 : 1;
}

struct sp_tokens_run {
    int first, len;
    size_t row;
};

static inline struct sp_tokens_run sp_shape_run(const struct sp_shape *sh, int i)
{
    int len = sh->seq / sp_shape_runs(sh);

    return (struct sp_tokens_run){i ? sh->second : sh->first, len,
                                  (size_t)i * (size_t)sh->batch * (size_t)len};
}

/* So many pipelines share the step: it has as many times the tokens. `zero`: and its update. */
void sp_shape_share(struct sp_shape *sh, int pipelines, bool zero);

/* The shape of tokens first .. first+len-1 of every sequence. The loss stays that of the step. */
void sp_shape_slice(const struct sp_shape *whole, int first, int len, struct sp_shape *sh);

/* The shape whose scratch buffers serve: one of each kind, not one a slice. */
static inline const struct sp_shape *sp_shape_scratch(const struct sp_shape *sh)
{
    return sh->longest ? sh->longest : sh;
}

static inline size_t sp_shape_elem(const struct sp_shape *sh)
{
    return sp_dtype_bytes(sh->dtype);
}

/* Elements that n f32 take in a buffer of elements: statistics, log-sum-exp. */
static inline uint64_t sp_shape_f32(const struct sp_shape *sh, uint64_t n)
{
    return n * (sizeof(float) / sp_shape_elem(sh));
}

/* Whether the logits of a device's part of the vocabulary stay from the sums over all devices to the gradients: of a share
 * of the tokens they are no more than head_rows rows. Else they are made again, so many at a time. */
static inline bool sp_shape_keeps_logits(const struct sp_shape *sh)
{
    return sh->head_rows >= sh->rows;
}

/* The pointer n elements on. */
static inline void *sp_skip(const struct sp_shape *sh, void *at, size_t n)
{
    return (char *)at + n * sp_shape_elem(sh);
}

/* Elements of the gains of the heads' norms by themselves, laid out as in SP_BLOCK_QKV. 0: none. */
static inline size_t sp_shape_gains(const struct sp_shape *sh)
{
    return sh->model.qk_norm ? 2 * (sh->k_gain - sh->q_gain) : 0;
}

/* A tensor of a block of weights; NULL where the model has none such. */
static inline void *sp_weight_at(const struct sp_shape *sh, void *block, size_t offset)
{
    return offset == (size_t)-1 ? NULL : sp_skip(sh, block, offset);
}

/* The same of its gradient, f32 whatever the weights are. */
static inline float *sp_at(float *block, size_t offset)
{
    return offset == (size_t)-1 ? NULL : block + offset;
}

#endif
