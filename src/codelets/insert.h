/*
 * One insert a sub-layer task. Handles are vectors of elements of the shape's type (ids and targets:
 * int32) with the sizes of struct sp_shape; T rows, h hidden, q and kv widths of a token. "w" is a
 * parameter block as products read it (R), "g" its gradient, in f32 (RW, accumulated), `ctx` says
 * where and when the task runs.
 * Each function submits one task and returns it done: failures end the run with the task's name.
 */
#ifndef SP_INSERT_H
#define SP_INSERT_H

#include "codelets/task/codelet.h"
#include "model/tensor_parts.h"

/* x(T,h) = tokens[ids] + positions; positions NULL for Llama. */
void sp_embed_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *ids, struct sp_tensor *tokens,
                         struct sp_tensor *positions, struct sp_tensor *x, int64_t stashed);

/* dtokens, dpositions += from dx(T,h). */
void sp_embed_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           struct sp_tensor *ids, struct sp_tensor *dx, struct sp_tensor *dtokens,
                           struct sp_tensor *dpositions);

/* What a layer's forward writes: NULL handles are not kept. */
struct sp_pre {
    struct sp_tensor *x;      /* (T,h) input of the layer */
    struct sp_tensor *saved;  /* sp_shape_pre_saved */
    struct sp_tensor *q, *kv; /* (T,q) (T,kv), rotated for Llama; kv NULL: q alone */
    bool keep_outputs;        /* saved holds n1 */
};

struct sp_post {
    struct sp_tensor *x;     /* (T,h) residual */
    struct sp_tensor *o;     /* (T,q) attention output; NULL: x is r already (see out.c) */
    struct sp_tensor *saved; /* sp_shape_post_saved; NULL: a forward that keeps nothing */
    bool keep_outputs;       /* saved holds n2 and g */
    bool residual;           /* saved is sp_shape_residual_saved */
};

/* Keys and values (b,len,kv) of `len` tokens from position `first` on; or (2,b,len/2,kv), of halves from `first`
 * and from `second` on, where that is not 0. */
struct sp_attn_keys {
    int first, second, len;
    size_t at; /* in their buffers, which those that follow may share: elements */
    struct sp_tensor *kv, *dkv;
};

/*
 * Attention of the queries of slice i over keys and values of slices 0..i, or of some of them: then a task for each
 * such part, one after the other, computes and merges. One slice is the whole sequence.
 */
struct sp_attn {
    int q_len, q_pos, q_second; /* as seq, first and second of a shape */
    bool begins, ends;          /* the first part, which has the queries' own keys; the last one */
    int n_keys;
    const struct sp_attn_keys *keys; /* [n_keys] by their positions */
    struct sp_tensor *q, *o, *lse;   /* (b,q_len,q) twice, (b,a,q_len) */
    /* (b,q_len,q) in f32, where tensors of another type are computed in several parts; else NULL */
    struct sp_tensor *sum;
};

/* n1 = norm1(x); q = n1 Wq^T, kv = n1 Wkv^T, rotated. Written: saved (if any), q, kv (if any). */
void sp_pre_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *w_qkv,
                       int64_t stashed);

/* dx(T,h) = dr + norm1'(dq Wq + dkv Wkv); dq, dkv rotated back in place; g_norm accumulated. Where
 * heads have norms, so are the gains' gradients: in `gains`, the block of the product's, or, `apart`,
 * sp_shape_gains elements. */
void sp_pre_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *w_qkv,
                       struct sp_tensor *g_norm, struct sp_tensor *gains, bool apart,
                       struct sp_tensor *dq, struct sp_tensor *dkv, struct sp_tensor *dr,
                       struct sp_tensor *dx);

/* g_qkv += (dq, dkv)^T n1, after sp_pre_bwd. */
void sp_pre_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *dq,
                         struct sp_tensor *dkv, struct sp_tensor *g_qkv, int64_t released);

/*
 * The two halves of pre, where the QKV product runs beside attention: n1 = norm1(x), its statistics
 * to t->saved. With `keep_outputs` n1 goes there too, and its own handle must be NULL; otherwise NULL
 * says that no task reads n1. t->q and t->kv are not used.
 */
void sp_norm_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, struct sp_tensor *n1, struct sp_tensor *w_norm,
                        int64_t stashed);

/* dx(T,h) = dr + norm1'(dn1); g_norm accumulated. */
void sp_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *g_norm,
                        struct sp_tensor *dn1, struct sp_tensor *dr, struct sp_tensor *dx,
                        int64_t released);

/* q = n1 Wq^T, kv = n1 Wkv^T, rotated; kv NULL: q alone. */
void sp_qkv_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n1, struct sp_tensor *w, struct sp_tensor *q,
                       struct sp_tensor *kv, int64_t stashed);

/* dn1 = dq Wq + dkv Wkv; dq, dkv rotated back in place. Where heads have norms, these read n1, and
 * g += the gradients of their gains, in the product's block or, `apart`, sp_shape_gains elements; `fresh`: g =, and
 * what else is in the block 0. */
void sp_qkv_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n1, struct sp_tensor *w, struct sp_tensor *dq,
                       struct sp_tensor *dkv, struct sp_tensor *dn1, struct sp_tensor *g,
                       bool apart, bool fresh);

/* g += (dq, dkv)^T n1, after sp_qkv_bwd with the same `fresh`: g =, and what else is in the block 0,
 * unless sp_qkv_bwd has begun it. */
void sp_qkv_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *n1, struct sp_tensor *dq, struct sp_tensor *dkv,
                         struct sp_tensor *g, bool fresh, int64_t released);

/* o, lse = attention(q, kv), or merged with it; o is there after the last part. */
void sp_attn_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed);

/* dq = or +=, there after the last part; dkv of the keys += (cleared first if `first`: the last slice of the
 * sequence). */
void sp_attn_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, struct sp_tensor *d_o,
                        struct sp_tensor *dq, int64_t released);

/* A part that was computed elsewhere, as attention of its own of the same queries over the keys of t, whose positions
 * alone count: merged with o and lse; added to dq. As above after parts before it. */
void sp_attn_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_attn *t, struct sp_tensor *part,
                          struct sp_tensor *part_lse);
void sp_attn_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, struct sp_tensor *dq, struct sp_tensor *part);

/* r = x + o Wo^T, or x; y = r + MLP(norm2(r)), in chunks of rows; y NULL: only what saved needs. */
void sp_post_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *y,
                        int64_t stashed);

/* du(T,up), dr(T,h), d_o(T,q) if not NULL = from dy(T,h); norm2's gradient accumulated into g: the block's, or,
 * `apart`, one laid out like norm1's. */
void sp_post_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                        bool apart, struct sp_tensor *dy, struct sp_tensor *du,
                        struct sp_tensor *dr, struct sp_tensor *d_o);

/* Nothing, once these n are there: from then on they count as stashed, so many bytes. */
void sp_hold_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int n,
                    struct sp_tensor *const *held, int64_t stashed);

/* Both gradients of post from t->residual, t->o and dy(T,h): dr(T,h), d_o(T,q) =, the block's += g; t->o and d_o
 * NULL: but for those of the output product. The inside of the MLP is computed again, mlp_rows rows at a time. */
void sp_post_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                          struct sp_tensor *dy, struct sp_tensor *dr, struct sp_tensor *d_o,
                          int64_t released);

/*
 * Where devices share heads, MLP and vocabulary: a layer's second half and the head in parts. `sh` is the shape of a
 * device's heads, of T rows of one part of the tokens; of sp_partial_sum to sp_sum_norm_bwd that of its own tokens.
 */

/* y(T,h) = o Wo^T, `biased`: with the bias; + x, or, x NULL, a part of a sum over devices. w and g are the block, or as
 * much of it as the product has. */
void sp_out_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *o, struct sp_tensor *w, bool biased, struct sp_tensor *x,
                       struct sp_tensor *y);
/* d_o(T,q) = dr Wo; g += dr^T o, with the bias. */
void sp_out_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *dr, struct sp_tensor *w, struct sp_tensor *d_o);
void sp_out_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *o, struct sp_tensor *dr, struct sp_tensor *g);

/* u(T,up) = n2 Wup^T; g(T,f) = act(u) unless NULL; y(T,h) = g Wdown^T unless NULL, a part of a sum as above. */
void sp_mlp_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n2, struct sp_tensor *w, struct sp_tensor *u,
                       struct sp_tensor *g, bool biased, struct sp_tensor *y);
/* du(T,up) and dn(T,h), a part of a sum, from dy(T,h). */
void sp_mlp_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *u, struct sp_tensor *w, struct sp_tensor *dy,
                       struct sp_tensor *du, struct sp_tensor *dn);
/* grad += of up and down, with biases; g NULL: it is made again of u. */
void sp_mlp_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *n2, struct sp_tensor *u, struct sp_tensor *g,
                         struct sp_tensor *dy, struct sp_tensor *du, struct sp_tensor *grad,
                         int64_t released);

/* y(T,h) += n parts. */
void sp_partial_sum_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           struct sp_tensor *y, int n, struct sp_tensor *const *part);
/* r(T,h) += n_part parts; n = norm(r), stats(T,2) = if not NULL. The norm's block `w` is one like NORM1, or, `in_post`,
 * that of the layer's second half. */
void sp_sum_norm_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool in_post,
                        struct sp_tensor *w, struct sp_tensor *r, int n_part,
                        struct sp_tensor *const *part, struct sp_tensor *n, struct sp_tensor *stats,
                        int64_t stashed);
/* n(T,h) = that norm once more. */
void sp_norm_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          bool in_post, struct sp_tensor *w, struct sp_tensor *r,
                          struct sp_tensor *stats, struct sp_tensor *n);
/* dn(T,h) += n_part parts; dr(T,h) = norm'(dn), + dy if not NULL; gain and bias in g +=: laid out as in `w`, or,
 * `apart`, as in NORM1. Ends the life of `released` bytes. */
void sp_sum_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                            bool in_post, bool apart, struct sp_tensor *w, struct sp_tensor *g,
                            struct sp_tensor *r, struct sp_tensor *stats, struct sp_tensor *dn,
                            int n_part, struct sp_tensor *const *part, struct sp_tensor *dy,
                            struct sp_tensor *dr, int64_t released);

/* stats(T,2) of the logits of n(T,h), of `rows` rows of the table w that are here; logits(T,V) = if not NULL. */
void sp_logit_stats_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                           struct sp_tensor *n, struct sp_tensor *targets, struct sp_tensor *w,
                           struct sp_tensor *stats, struct sp_tensor *logits);
/* merged(T,2) = the stats of the parts of some devices, as if they were one part. */
void sp_logit_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           int devices, struct sp_tensor *const *stats, struct sp_tensor *merged);
/* Of the stats of all devices, and of these logits if they were kept: dn(T,h) =, a part of a sum; g += of the table;
 * `counts`: tally[SP_TALLY_LOSS] += . */
void sp_vocabulary_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                          bool counts, struct sp_tensor *n, struct sp_tensor *targets,
                          struct sp_tensor *w, struct sp_tensor *g, int devices,
                          struct sp_tensor *const *stats, struct sp_tensor *logits,
                          struct sp_tensor *dn, struct sp_tensor *tally);

/* g += part from its element `first` on, in f32: gradients that were apart from their block. */
void sp_part_add_insert(const struct sp_task_context *ctx, struct sp_tensor *part,
                        struct sp_tensor *g, size_t first);

/* g += weight gradients of up and down products, and if t->o is not NULL of the output product, from dy, du, dr. */
void sp_post_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                          struct sp_tensor *dy, struct sp_tensor *du, struct sp_tensor *dr,
                          int64_t released);

/*
 * Final norm, logits and cross-entropy, forward and backward in one pass over chunks of rows, so
 * that no more than head_rows x V logits ever live: dx(T,h) = ; g_norm, g_table += ;
 * tally[SP_TALLY_LOSS] += sum of -log p over the rows. Ends the life of `released` bytes (x).
 */
void sp_head_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                    struct sp_tensor *x, struct sp_tensor *targets, struct sp_tensor *w_norm,
                    struct sp_tensor *w_table, struct sp_tensor *g_norm, struct sp_tensor *g_table,
                    struct sp_tensor *dx, struct sp_tensor *tally, int64_t released);

/* logits(n,ld) = norm(x) E^T of rows first .. first+n-1 of x(T,h); ld is sp_logits_ld(V), and what
 * lies beyond V in a row is not written. */
void sp_logits_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int first,
                      int n, struct sp_tensor *x, struct sp_tensor *w_norm,
                      struct sp_tensor *w_table, struct sp_tensor *logits);

/*
 * Heads of attention to as many parts as devices share them, and back: `keys` says that `whole` is keys and values
 * (T,kv), else queries or outputs (T,q). Part j has the heads from j heads / sh->context on, as a tensor of so many
 * fewer columns. Back, of parts that have the same key and value head the first counts.
 */
void sp_heads_split_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                           struct sp_tensor *whole, struct sp_tensor *const *parts);
void sp_heads_join_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                          struct sp_tensor *const *parts, struct sp_tensor *whole);

/* Rows of tokens in tensors (b,len,width) that are cut differently. */
struct sp_rows {
    int batch, width, n;
    int from_len, from_at, to_len, to_at;
};

/* to = n rows of from, of every sequence; the rest of `to` stays, unless it is the `first` to be
 * written. */
void sp_rows_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                    const struct sp_rows *rows, struct sp_tensor *from, struct sp_tensor *to,
                    bool first);
/* The same, added to what they are. */
void sp_rows_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_rows *rows, struct sp_tensor *from, struct sp_tensor *to);

/* What a stage adds up in a step: a vector of doubles. */
enum sp_tally { SP_TALLY_LOSS, SP_TALLY_SUMSQ, SP_TALLIES };

/* tally[SP_TALLY_SUMSQ] += sum of g^2, but of elements that are skipped: ascending ranges of the handle's.
 * `more`: the worker's next task adds to the same tally, so that nobody need wait for this one (cuda.h). */
void sp_sumsq_insert(const struct sp_task_context *ctx, struct sp_tensor *g, int n_skipped,
                     const struct sp_block_range *skipped, struct sp_tensor *tally, bool more);

/* part = g[ranges], and g[ranges] = part; f32, ranges of the handle's elements. */
void sp_pack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                    struct sp_tensor *g, struct sp_tensor *part);
void sp_unpack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                      struct sp_tensor *part, struct sp_tensor *g);

/*
 * Gradients that travel in `dtype`, a type of fewer bytes: travelling += own, f32, rounded at random with the bits of
 * `stream` (kernels/backend.h); gradient, f32, += travelling.
 */
void sp_travel_add_insert(const struct sp_task_context *ctx, enum sp_dtype dtype, uint32_t stream,
                          struct sp_tensor *own, struct sp_tensor *travelling);
void sp_travel_end_insert(const struct sp_task_context *ctx, enum sp_dtype dtype,
                          struct sp_tensor *travelling, struct sp_tensor *gradient);

/* a += b, elements of `dtype`; `both`: then b = a, for replicas in one process. */
void sp_sum_insert(const struct sp_task_context *ctx, enum sp_dtype dtype, struct sp_tensor *a,
                   struct sp_tensor *b, bool both);

/* a = 0 */
void sp_clear_insert(const struct sp_task_context *ctx, struct sp_tensor *a);

/* to = what from begins with: all of it, or less. */
void sp_copy_insert(const struct sp_task_context *ctx, struct sp_tensor *from,
                    struct sp_tensor *to);

/* The step's hyper-parameters of the optimizer. */
struct sp_update {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; /* 1 - beta^t */
    float factor;       /* of the gradient: min(1, clip / norm) */
};

/* AdamW on the elements of a block from `first` on, as many as the handles have, all f32; gradient
 * cleared. Weight decay applies to the tensors marked for it. low = w, rounded to `dtype`, unless that
 * is f32. */
void sp_update_insert(const struct sp_task_context *ctx, const struct sp_params *params,
                      enum sp_block_kind kind, int layer, size_t first, const struct sp_update *hp,
                      struct sp_tensor *w, struct sp_tensor *g, struct sp_tensor *m,
                      struct sp_tensor *v, enum sp_dtype dtype, struct sp_tensor *low);

/* low = w, rounded to `dtype`. */
void sp_round_insert(const struct sp_task_context *ctx, struct sp_tensor *w, enum sp_dtype dtype,
                     struct sp_tensor *low);

/* to[i] = from[i] for n handles: a block's state to another. */
void sp_state_copy_insert(const struct sp_task_context *ctx, int n, struct sp_tensor *const *from,
                          struct sp_tensor *const *to);

/* A scratch buffer of n elements of a shape for one task (SP_SCRATCH), shared by size. */
struct sp_tensor *sp_scratch_handle(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                    size_t n);
/* One of (T,width), T of the longest slice. */
struct sp_tensor *sp_scratch_rows(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                  int width);

#endif
