/*
 * The sizes that every codelet of a run shares: the model, the rows of a micro-batch, how the MLP
 * and the logits are cut, and where each tensor lies in its block. Computed once.
 */
#ifndef SP_SHAPE_H
#define SP_SHAPE_H

#include "kernels/dtype.h"
#include "model/params.h"

/* The most slices of a sequence, counting the parts of slices. */
#define SP_MAX_SLICES 256

struct sp_shape {
    /* `model` has the widths of tensors of `rows`. `held` describes the parameter blocks that a
     * device has: all of the model or a part of it. */
    struct sp_model model, held;
    struct sp_model whole; /* all of it, also when a device has a part */
    enum sp_dtype dtype;   /* of activations and of weights as products read them */
    bool rms;              /* RMSNorm, SwiGLU, RoPE: Llama style */
    int batch;             /* b, sequences of a micro-batch */
    int seq;               /* s; of a slice, its tokens */
    int context;           /* devices that share the tokens of a sequence; 1: none do */
    int ulysses;           /* of these, neighbours that divide the heads of attention */
    int ring;              /* groups of such neighbours, around which keys and values travel */
    int tensor; /* devices that share heads, MLP and vocabulary (model/tensor_parts.h); 1: none do */
    bool joins;    /* they join their shares of the tokens for attention */
    bool sequence; /* they also share the tokens of all else; otherwise each has all tokens there */
    int table_first; /* the first row of the position table that a device has */
    int first;       /* position of the first token: not 0 in later slices of a sequence */
    int stride; /* positions from one token of a device to the next: 1, or `context` if devices take
                 * the tokens in turns */
    int second; /* position of the first token of the second half, if that does not follow the first
                 * half: all first halves then lie before all second ones. Else 0 */
    int rows;   /* T = b*s / sp_shape_spread */
    int mlp_rows;  /* rows of the MLP computed at a time; if devices share the tokens, of each */
    int head_rows; /* rows of logits that live at a time */
    int q_width, kv_width, up_width;
    int pipelines;                  /* pipelines that share a step, each with its own
                                     * micro-batches */
    int replica;                    /* this process's place among them; of a plan: the first */
    int zero;                       /* 1: they also divide the update; 2: and the gradients of
                                     * layers; 3: and their weights (graphs/weights/zero.h). 0: no */
    float loss_scale;               /* 1 / tokens of a step: the loss is the mean over the step */
    const struct sp_shape *longest; /* the longest of a sequence's slices; NULL: no slices */

    /* Offsets in their blocks, the gain of a norm block being at 0; (size_t)-1: absent. */
    size_t norm_bias; /* of SP_BLOCK_NORM1 and SP_BLOCK_NORM */
    size_t qkv, qkv_bias, q_gain, k_gain;
    size_t out, out_bias, gain, bias, up, up_bias, down, down_bias;
};

/* The rows of logits that a GPU computes at a time: 4096, or as many as 512 MiB hold in bf16. More
 * rows mean fewer passes over the gradient of the table, which a GPU's products do not hide. */
int sp_head_rows_of_gpu(const struct sp_model *m);

/* The whole sequences of a micro-batch on one device: all rows of the MLP at a time, and as many rows
 * of logits as 128 MiB hold. */
void sp_shape_init(struct sp_shape *sh, const struct sp_model *m, int batch, int seq,
                   int micro_batches);

/* Right after sp_shape_init: the rows of the MLP and of logits at a time; 0: as they are. */
void sp_shape_cut(struct sp_shape *sh, int mlp_rows, int head_rows);

/* Lets so many devices share the tokens of every sequence: T becomes the tokens of one device.
 * `ulysses`, a divisor, of them divide the heads of attention; 0: as many as can
 * (sp_shape_divides_heads), after sp_shape_tensor. */
void sp_shape_context(struct sp_shape *sh, int context, int ulysses);

/* Lets these devices take the tokens in turns ("stripes": Brandon et al. 2023, "Striped Attention"):
 * device k has every context-th token from the k-th on. Then sequences may be cut anywhere at a
 * multiple of their number, and no token changes its device. Attention joins what the devices
 * exchange in the order of the tokens. To be called last; not with `sequence`. */
void sp_shape_stripe(struct sp_shape *sh);

/* Joins the shares of devices that share parameters for attention, if they share tokens too, or if
 * sequences have so many slices that attention would have more than SP_MAX_SLICES parts of keys. To
 * be called after the sizes of groups are set. */
void sp_shape_join(struct sp_shape *sh, int slices);

/* True if so many devices can divide the heads that a device has of queries, and of keys and values.
 * Several may have the same head of the latter. */
bool sp_shape_divides_heads(const struct sp_model *held, int devices);

/*
 * Lets so many devices share the parameters of every layer, embedding and head. With `sequence`, T
 * becomes the tokens of one device and `model` stays: tensors of all heads for these tokens have as
 * many elements as tensors of a device's heads for all tokens; a head of keys and values that
 * several devices have counts as several. Otherwise T stays and `model`
 * becomes the part. Either way a device computes and keeps as much as `model` does for T tokens.
 */
void sp_shape_tensor(struct sp_shape *sh, int devices, bool sequence);

/* The number of shares into which devices that share parameters divide a member's tokens; 1: each
 * has all. */
static inline int sp_shape_shares(const struct sp_shape *sh)
{
    return sh->sequence ? sh->tensor : 1;
}

/* Devices that have different tokens of a sequence. */
static inline int sp_shape_spread(const struct sp_shape *sh)
{
    return sh->context * sp_shape_shares(sh);
}

/* The tokens of a sequence or slice must be a multiple of this. */
static inline int sp_shape_unit(const struct sp_shape *sh)
{
    return sp_shape_spread(sh) * (sh->ring > 1 && sh->stride == 1 ? 2 : 1);
}

/* True if the devices exchange tokens for heads before attention, and back after it. */
static inline bool sp_shape_exchanges(const struct sp_shape *sh)
{
    return sh->ulysses > 1;
}

/* The number of parts in which attention receives the tokens of a slice: one from each device that
 * exchanges tokens for heads, or one from each that shares parameters; 1 if it has them in one
 * piece, or joins them. */
static inline int sp_shape_parts(const struct sp_shape *sh)
{
    return sh->context > 1 ? (sh->stride > 1 ? 1 : sh->ulysses)
           : sh->joins     ? 1
                           : sp_shape_shares(sh);
}

/*
 * The shape of one device's tokens of a sequence or slice: seq and first describe share `share` (of
 * sp_shape_shares) of part `part` (of sh->context). Around a ring of R groups of devices a sequence
 * has 2R chunks. Group k has chunk k and the last but k, so that all see as many keys ("zigzag");
 * a part is a piece of each of both. Stripes alternate between the groups first.
 */
void sp_shape_member(const struct sp_shape *sh, int part, int share, struct sp_shape *member);

/* The number of the second piece of a part, if the 2R chunks have sh->ulysses pieces each; the first
 * has the number of the part. */
static inline int sp_shape_second(const struct sp_shape *sh, int part)
{
    return (2 * sh->ring - 1 - part / sh->ulysses) * sh->ulysses + part % sh->ulysses;
}

/* The same tokens with the widths of the device's own heads and its part of the MLP. */
void sp_shape_share_of(const struct sp_shape *member, struct sp_shape *share);

/* All shares of a part together, with the widths of a device's own heads: as if no devices shared
 * parameters. */
void sp_shape_joined(const struct sp_shape *sh, struct sp_shape *joined);

/* The shape of attention after devices exchanged tokens for heads: each has some of the heads, for
 * all tokens. Its query rows still count the tokens of one device, unless these are stripes: those
 * of all are in one piece then. If there are fewer key and value
 * heads than devices, several devices have the same one. */
void sp_shape_heads(const struct sp_shape *member, struct sp_shape *heads);

/* A member's tokens are one or two runs of consecutive tokens. Run i begins at `first` in the
 * sequence and at `row` in the rows of all sequences, and has `len` tokens. */
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

/* The shape of `rows` of the rows, for tasks that do the same with each. */
void sp_shape_rows(const struct sp_shape *whole, int rows, struct sp_shape *sh);

/* True if each pipeline keeps a shard of a layer's gradients, or weights, which are whole only while
 * ops use them. layer -1: embedding and head, which stay whole. */
static inline bool sp_shape_shards_gradients(const struct sp_shape *sh, int layer)
{
    return layer >= 0 && sh->zero >= 2;
}

static inline bool sp_shape_shards_weights(const struct sp_shape *sh, int layer)
{
    return layer >= 0 && sh->zero >= 3;
}

/* Lets so many pipelines share the step, which then has as many times the tokens. `zero`: as in
 * struct sp_shape; 0 if there is one pipeline. */
void sp_shape_share(struct sp_shape *sh, int pipelines, int zero);

/* The shape of tokens first .. first+len-1 of every sequence. The loss stays that of the step. */
void sp_shape_slice(const struct sp_shape *whole, int first, int len, struct sp_shape *sh);

/* The shape that scratch buffers are sized by: one buffer of each kind serves all slices. */
static inline const struct sp_shape *sp_shape_scratch(const struct sp_shape *sh)
{
    return sh->longest ? sh->longest : sh;
}

static inline size_t sp_shape_elem(const struct sp_shape *sh)
{
    return sp_dtype_bytes(sh->dtype);
}

/* The elements that n floats (statistics, log-sum-exp) take in a buffer of elements. */
static inline uint64_t sp_shape_f32(const struct sp_shape *sh, uint64_t n)
{
    return n * (sizeof(float) / sp_shape_elem(sh));
}

/* True if the logits of a device's part of the vocabulary stay from the sums over all devices to
 * the gradients, because all rows fit into head_rows. Else they are computed again, head_rows at a
 * time. */
static inline bool sp_shape_keeps_logits(const struct sp_shape *sh)
{
    return sh->head_rows >= sh->rows;
}

/* `at` moved on by n elements. */
static inline void *sp_skip(const struct sp_shape *sh, void *at, size_t n)
{
    return (char *)at + n * sp_shape_elem(sh);
}

/* The elements of the gains of the heads' norms alone, laid out as in SP_BLOCK_QKV. 0: none. */
static inline size_t sp_shape_gains(const struct sp_shape *sh)
{
    return sh->model.qk_norm ? 2 * (sh->k_gain - sh->q_gain) : 0;
}

/* A tensor of a block of weights; NULL if the model has none such. */
static inline void *sp_weight_at(const struct sp_shape *sh, void *block, size_t offset)
{
    return offset == (size_t)-1 ? NULL : sp_skip(sh, block, offset);
}

/* The same in a gradient, which is f32 whatever the weights are. */
static inline float *sp_at(float *block, size_t offset)
{
    return offset == (size_t)-1 ? NULL : block + offset;
}

#endif
