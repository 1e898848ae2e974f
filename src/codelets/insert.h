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
                         starpu_data_handle_t ids, starpu_data_handle_t tokens,
                         starpu_data_handle_t positions, starpu_data_handle_t x, int64_t stashed);

/* dtokens, dpositions += from dx(T,h). */
void sp_embed_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           starpu_data_handle_t ids, starpu_data_handle_t dx,
                           starpu_data_handle_t dtokens, starpu_data_handle_t dpositions);

/* What a layer's forward writes: NULL handles are not kept. */
struct sp_pre {
    starpu_data_handle_t x;     /* (T,h) input of the layer */
    starpu_data_handle_t saved; /* sp_shape_pre_saved */
    starpu_data_handle_t q, kv; /* (T,q) (T,kv), rotated for Llama; kv NULL: q alone */
    bool keep_outputs;          /* saved holds n1 */
};

struct sp_post {
    starpu_data_handle_t x;     /* (T,h) residual */
    starpu_data_handle_t o;     /* (T,q) attention output; NULL: x is r already (see out.c) */
    starpu_data_handle_t saved; /* sp_shape_post_saved; NULL: a forward that keeps nothing */
    bool keep_outputs;          /* saved holds n2 and g */
    bool residual;              /* saved is sp_shape_residual_saved */
};

/* Keys and values (b,len,kv) of `len` tokens from position `first` on; or (2,b,len/2,kv), of halves from `first`
 * and from `second` on, where that is not 0. */
struct sp_attn_keys {
    int first, second, len;
    size_t at; /* in their buffers, which those that follow may share: elements */
    starpu_data_handle_t kv, dkv;
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
    starpu_data_handle_t q, o, lse;  /* (b,q_len,q) twice, (b,a,q_len) */
    /* (b,q_len,q) in f32, where tensors of another type are computed in several parts; else NULL */
    starpu_data_handle_t sum;
};

/* n1 = norm1(x); q = n1 Wq^T, kv = n1 Wkv^T, rotated. Written: saved (if any), q, kv (if any). */
void sp_pre_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       const struct sp_pre *t, starpu_data_handle_t w_norm,
                       starpu_data_handle_t w_qkv, int64_t stashed);

/* dx(T,h) = dr + norm1'(dq Wq + dkv Wkv); dq, dkv rotated back in place; g_norm accumulated. Where
 * heads have norms, so are the gains' gradients: in `gains`, the block of the product's, or, `apart`,
 * sp_shape_gains elements. */
void sp_pre_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       const struct sp_pre *t, starpu_data_handle_t w_norm,
                       starpu_data_handle_t w_qkv, starpu_data_handle_t g_norm,
                       starpu_data_handle_t gains, bool apart, starpu_data_handle_t dq,
                       starpu_data_handle_t dkv, starpu_data_handle_t dr, starpu_data_handle_t dx);

/* g_qkv += (dq, dkv)^T n1, after sp_pre_bwd. */
void sp_pre_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         const struct sp_pre *t, starpu_data_handle_t w_norm,
                         starpu_data_handle_t dq, starpu_data_handle_t dkv,
                         starpu_data_handle_t g_qkv, int64_t released);

/*
 * The two halves of pre, where the QKV product runs beside attention: n1 = norm1(x), its statistics
 * to t->saved. With `keep_outputs` n1 goes there too, and its own handle must be NULL; otherwise NULL
 * says that no task reads n1. t->q and t->kv are not used.
 */
void sp_norm_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, starpu_data_handle_t n1,
                        starpu_data_handle_t w_norm, int64_t stashed);

/* dx(T,h) = dr + norm1'(dn1); g_norm accumulated. */
void sp_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, starpu_data_handle_t w_norm,
                        starpu_data_handle_t g_norm, starpu_data_handle_t dn1,
                        starpu_data_handle_t dr, starpu_data_handle_t dx, int64_t released);

/* q = n1 Wq^T, kv = n1 Wkv^T, rotated; kv NULL: q alone. */
void sp_qkv_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       starpu_data_handle_t n1, starpu_data_handle_t w, starpu_data_handle_t q,
                       starpu_data_handle_t kv, int64_t stashed);

/* dn1 = dq Wq + dkv Wkv; dq, dkv rotated back in place. Where heads have norms, these read n1, and
 * g += the gradients of their gains, in the product's block or, `apart`, sp_shape_gains elements; `fresh`: g =, and
 * what else is in the block 0. */
void sp_qkv_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       starpu_data_handle_t n1, starpu_data_handle_t w, starpu_data_handle_t dq,
                       starpu_data_handle_t dkv, starpu_data_handle_t dn1, starpu_data_handle_t g,
                       bool apart, bool fresh);

/* g += (dq, dkv)^T n1, after sp_qkv_bwd with the same `fresh`: g =, and what else is in the block 0,
 * unless sp_qkv_bwd has begun it. */
void sp_qkv_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         starpu_data_handle_t n1, starpu_data_handle_t dq, starpu_data_handle_t dkv,
                         starpu_data_handle_t g, bool fresh, int64_t released);

/* o, lse = attention(q, kv), or merged with it; o is there after the last part. */
void sp_attn_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed);

/* dq = or +=, there after the last part; dkv of the keys += (cleared first if `first`: the last slice of the
 * sequence). */
void sp_attn_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, starpu_data_handle_t d_o,
                        starpu_data_handle_t dq, int64_t released);

/* A part that was computed elsewhere, as attention of its own of the same queries over the keys of t, whose positions
 * alone count: merged with o and lse; added to dq. As above after parts before it. */
void sp_attn_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_attn *t, starpu_data_handle_t part,
                          starpu_data_handle_t part_lse);
void sp_attn_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, starpu_data_handle_t dq,
                        starpu_data_handle_t part);

/* r = x + o Wo^T, or x; y = r + MLP(norm2(r)), in chunks of rows; y NULL: only what saved needs. */
void sp_post_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, starpu_data_handle_t w, starpu_data_handle_t y,
                        int64_t stashed);

/* du(T,up), dr(T,h), d_o(T,q) if not NULL = from dy(T,h); norm2's gradient accumulated into g: the block's, or,
 * `apart`, one laid out like norm1's. */
void sp_post_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, starpu_data_handle_t w, starpu_data_handle_t g,
                        bool apart, starpu_data_handle_t dy, starpu_data_handle_t du,
                        starpu_data_handle_t dr, starpu_data_handle_t d_o);

/* Nothing, once these n are there: from then on they count as stashed, so many bytes. */
void sp_hold_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int n,
                    const starpu_data_handle_t *held, int64_t stashed);

/* Both gradients of post from t->residual, t->o and dy(T,h): dr(T,h), d_o(T,q) =, the block's += g; t->o and d_o
 * NULL: but for those of the output product. The inside of the MLP is computed again, mlp_rows rows at a time. */
void sp_post_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_post *t, starpu_data_handle_t w, starpu_data_handle_t g,
                          starpu_data_handle_t dy, starpu_data_handle_t dr,
                          starpu_data_handle_t d_o, int64_t released);

/*
 * Where devices share heads, MLP and vocabulary: a layer's second half and the head in parts. `sh` is the shape of a
 * device's heads, of T rows of one part of the tokens; of sp_partial_sum to sp_sum_norm_bwd that of its own tokens.
 */

/* y(T,h) = o Wo^T, `biased`: with the bias; + x, or, x NULL, a part of a sum over devices. w and g are the block, or as
 * much of it as the product has. */
void sp_out_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       starpu_data_handle_t o, starpu_data_handle_t w, bool biased,
                       starpu_data_handle_t x, starpu_data_handle_t y);
/* d_o(T,q) = dr Wo; g += dr^T o, with the bias. */
void sp_out_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       starpu_data_handle_t dr, starpu_data_handle_t w, starpu_data_handle_t d_o);
void sp_out_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         starpu_data_handle_t o, starpu_data_handle_t dr, starpu_data_handle_t g);

/* u(T,up) = n2 Wup^T; g(T,f) = act(u) unless NULL; y(T,h) = g Wdown^T unless NULL, a part of a sum as above. */
void sp_mlp_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       starpu_data_handle_t n2, starpu_data_handle_t w, starpu_data_handle_t u,
                       starpu_data_handle_t g, bool biased, starpu_data_handle_t y);
/* du(T,up) and dn(T,h), a part of a sum, from dy(T,h). */
void sp_mlp_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       starpu_data_handle_t u, starpu_data_handle_t w, starpu_data_handle_t dy,
                       starpu_data_handle_t du, starpu_data_handle_t dn);
/* grad += of up and down, with biases; g NULL: it is made again of u. */
void sp_mlp_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         starpu_data_handle_t n2, starpu_data_handle_t u, starpu_data_handle_t g,
                         starpu_data_handle_t dy, starpu_data_handle_t du,
                         starpu_data_handle_t grad, int64_t released);

/* y(T,h) += n parts. */
void sp_partial_sum_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           starpu_data_handle_t y, int n, const starpu_data_handle_t *part);
/* r(T,h) += n_part parts; n = norm(r), stats(T,2) = if not NULL. The norm's block `w` is one like NORM1, or, `in_post`,
 * that of the layer's second half. */
void sp_sum_norm_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool in_post,
                        starpu_data_handle_t w, starpu_data_handle_t r, int n_part,
                        const starpu_data_handle_t *part, starpu_data_handle_t n,
                        starpu_data_handle_t stats, int64_t stashed);
/* n(T,h) = that norm once more. */
void sp_norm_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          bool in_post, starpu_data_handle_t w, starpu_data_handle_t r,
                          starpu_data_handle_t stats, starpu_data_handle_t n);
/* dn(T,h) += n_part parts; dr(T,h) = norm'(dn), + dy if not NULL; gain and bias in g +=: laid out as in `w`, or,
 * `apart`, as in NORM1. Ends the life of `released` bytes. */
void sp_sum_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                            bool in_post, bool apart, starpu_data_handle_t w,
                            starpu_data_handle_t g, starpu_data_handle_t r,
                            starpu_data_handle_t stats, starpu_data_handle_t dn, int n_part,
                            const starpu_data_handle_t *part, starpu_data_handle_t dy,
                            starpu_data_handle_t dr, int64_t released);

/* stats(T,2) of the logits of n(T,h), of `rows` rows of the table w that are here; logits(T,V) = if not NULL. */
void sp_logit_stats_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                           starpu_data_handle_t n, starpu_data_handle_t targets,
                           starpu_data_handle_t w, starpu_data_handle_t stats,
                           starpu_data_handle_t logits);
/* merged(T,2) = the stats of the parts of some devices, as if they were one part. */
void sp_logit_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           int devices, const starpu_data_handle_t *stats,
                           starpu_data_handle_t merged);
/* Of the stats of all devices, and of these logits if they were kept: dn(T,h) =, a part of a sum; g += of the table;
 * `counts`: tally[SP_TALLY_LOSS] += . */
void sp_vocabulary_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                          bool counts, starpu_data_handle_t n, starpu_data_handle_t targets,
                          starpu_data_handle_t w, starpu_data_handle_t g, int devices,
                          const starpu_data_handle_t *stats, starpu_data_handle_t logits,
                          starpu_data_handle_t dn, starpu_data_handle_t tally);

/* g += part from its element `first` on, in f32: gradients that were apart from their block. */
void sp_part_add_insert(const struct sp_task_context *ctx, starpu_data_handle_t part,
                        starpu_data_handle_t g, size_t first);

/* g += weight gradients of up and down products, and if t->o is not NULL of the output product, from dy, du, dr. */
void sp_post_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_post *t, starpu_data_handle_t w, starpu_data_handle_t g,
                          starpu_data_handle_t dy, starpu_data_handle_t du, starpu_data_handle_t dr,
                          int64_t released);

/*
 * Final norm, logits and cross-entropy, forward and backward in one pass over chunks of rows, so
 * that no more than head_rows x V logits ever live: dx(T,h) = ; g_norm, g_table += ;
 * tally[SP_TALLY_LOSS] += sum of -log p over the rows. Ends the life of `released` bytes (x).
 */
void sp_head_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                    starpu_data_handle_t x, starpu_data_handle_t targets,
                    starpu_data_handle_t w_norm, starpu_data_handle_t w_table,
                    starpu_data_handle_t g_norm, starpu_data_handle_t g_table,
                    starpu_data_handle_t dx, starpu_data_handle_t tally, int64_t released);

/* logits(n,ld) = norm(x) E^T of rows first .. first+n-1 of x(T,h); ld is sp_logits_ld(V), and what
 * lies beyond V in a row is not written. */
void sp_logits_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int first,
                      int n, starpu_data_handle_t x, starpu_data_handle_t w_norm,
                      starpu_data_handle_t w_table, starpu_data_handle_t logits);

/*
 * Heads of attention to as many parts as devices share them, and back: `keys` says that `whole` is keys and values
 * (T,kv), else queries or outputs (T,q). Part j has the heads from j heads / sh->context on, as a tensor of so many
 * fewer columns. Back, of parts that have the same key and value head the first counts.
 */
void sp_heads_split_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                           starpu_data_handle_t whole, const starpu_data_handle_t *parts);
void sp_heads_join_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                          const starpu_data_handle_t *parts, starpu_data_handle_t whole);

/* Rows of tokens in tensors (b,len,width) that are cut differently. */
struct sp_rows {
    int batch, width, n;
    int from_len, from_at, to_len, to_at;
};

/* to = n rows of from, of every sequence; the rest of `to` stays, unless it is the `first` to be
 * written. */
void sp_rows_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                    const struct sp_rows *rows, starpu_data_handle_t from, starpu_data_handle_t to,
                    bool first);
/* The same, added to what they are. */
void sp_rows_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_rows *rows, starpu_data_handle_t from,
                        starpu_data_handle_t to);

/* What a stage adds up in a step: a vector of doubles. */
enum sp_tally { SP_TALLY_LOSS, SP_TALLY_SUMSQ, SP_TALLIES };

/* tally[SP_TALLY_SUMSQ] += sum of g^2, but of elements that are skipped: ascending ranges of the handle's.
 * `more`: the worker's next task adds to the same tally, so that nobody need wait for this one (cuda.h). */
void sp_sumsq_insert(const struct sp_task_context *ctx, starpu_data_handle_t g, int n_skipped,
                     const struct sp_block_range *skipped, starpu_data_handle_t tally, bool more);

/* part = g[ranges], and g[ranges] = part; f32, ranges of the handle's elements. */
void sp_pack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                    starpu_data_handle_t g, starpu_data_handle_t part);
void sp_unpack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                      starpu_data_handle_t part, starpu_data_handle_t g);

/*
 * Gradients that travel in `dtype`, a type of fewer bytes: travelling += own, f32, rounded at random with the bits of
 * `stream` (kernels/backend.h); gradient, f32, += travelling.
 */
void sp_travel_add_insert(const struct sp_task_context *ctx, enum sp_dtype dtype, uint32_t stream,
                          starpu_data_handle_t own, starpu_data_handle_t travelling);
void sp_travel_end_insert(const struct sp_task_context *ctx, enum sp_dtype dtype,
                          starpu_data_handle_t travelling, starpu_data_handle_t gradient);

/* a += b, elements of `dtype`; `both`: then b = a, for replicas in one process. */
void sp_sum_insert(const struct sp_task_context *ctx, enum sp_dtype dtype, starpu_data_handle_t a,
                   starpu_data_handle_t b, bool both);

/* a = 0 */
void sp_clear_insert(const struct sp_task_context *ctx, starpu_data_handle_t a);

/* to = what from begins with: all of it, or less. */
void sp_copy_insert(const struct sp_task_context *ctx, starpu_data_handle_t from,
                    starpu_data_handle_t to);

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
                      starpu_data_handle_t w, starpu_data_handle_t g, starpu_data_handle_t m,
                      starpu_data_handle_t v, enum sp_dtype dtype, starpu_data_handle_t low);

/* low = w, rounded to `dtype`. */
void sp_round_insert(const struct sp_task_context *ctx, starpu_data_handle_t w, enum sp_dtype dtype,
                     starpu_data_handle_t low);

/* to[i] = from[i] for n handles: a block's state to another. */
void sp_state_copy_insert(const struct sp_task_context *ctx, int n,
                          const starpu_data_handle_t *from, const starpu_data_handle_t *to);

/* Frees the scratch handles of the codelets; before starpu_shutdown. */
void sp_scratch_release(void);

/* A scratch buffer of n elements of a shape for one task (STARPU_SCRATCH), shared by size. */
starpu_data_handle_t sp_scratch_handle(const struct sp_shape *sh, size_t n);
/* One of (T,width), T of the longest slice. */
starpu_data_handle_t sp_scratch_rows(const struct sp_shape *sh, int width);

#endif
