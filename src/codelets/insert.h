/*
 * One insert function for each sub-layer task. Handles are vectors of elements of the shape's type
 * (ids and targets: int32) with the sizes of struct sp_shape: T rows, h hidden, and the widths q
 * and kv of a token. "w" is a parameter block as products read it (R), "g" its gradient, in f32
 * (RW, accumulated); `ctx` says where and when the task runs. Each function submits one task.
 * Failures end the run with the task's name.
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

/* The tensors that a layer's forward writes. A NULL `saved` keeps nothing. */
struct sp_pre {
    struct sp_tensor *x;      /* (T,h) input of the layer */
    struct sp_tensor *saved;  /* sp_shape_pre_saved */
    struct sp_tensor *q, *kv; /* (T,q) (T,kv), rotated for Llama; kv NULL: only q */
    bool keep_outputs;        /* saved holds n1 */
};

struct sp_post {
    struct sp_tensor *x;     /* (T,h) residual */
    struct sp_tensor *o;     /* (T,q) attention output; NULL: x is r already, see out.c */
    struct sp_tensor *saved; /* sp_shape_post_saved; NULL: a forward that keeps nothing */
    bool keep_outputs;       /* saved holds n2 and g */
    bool residual;           /* saved is sp_shape_residual_saved */
};

/* Keys and values (b,len,kv) of `len` tokens from position `first` on. If `second` is not 0:
 * (2,b,len/2,kv), two halves that begin at `first` and at `second`. */
struct sp_attn_keys {
    int first, second, len;
    size_t at; /* offset in their buffer, in elements: keys that follow may share the buffer */
    struct sp_tensor *kv, *dkv;
};

/*
 * Attention of the queries of slice i over keys and values of slices 0..i, or over some of them:
 * then each such part has a task, one after the other, which merges its result. A single slice is
 * the whole sequence.
 */
struct sp_attn {
    int q_len, q_pos, q_second; /* like seq, first and second of a shape */
    bool begins, ends;          /* first part, with the queries' own keys; last part */
    int n_keys;
    const struct sp_attn_keys *keys; /* [n_keys] by their first positions */
    struct sp_tensor *q, *o, *lse;   /* (b,q_len,q) twice, (b,a,q_len) */
    /* (b,q_len,q) in f32, if o or dq is of another type and is computed in several parts; else
     * NULL */
    struct sp_tensor *sum;
};

/* n1 = norm1(x); q = n1 Wq^T, kv = n1 Wkv^T, rotated. Writes q, and saved and kv unless they are
 * NULL. */
void sp_pre_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *w_qkv,
                       int64_t stashed);

/* dx(T,h) = dr + norm1'(dq Wq + dkv Wkv); dq, dkv rotated back in place; g_norm accumulated. If
 * heads have norms, it also accumulates the gradients of their gains in `gains`: the block of
 * the product's gradient, or with `apart` a tensor of sp_shape_gains elements. */
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
 * The two halves of pre, for a QKV product that runs next to attention: n1 = norm1(x), its
 * statistics go to t->saved. With `keep_outputs` n1 goes there too, and its own handle must be
 * NULL; otherwise a NULL n1 means that no task reads it. t->q and t->kv are not used.
 */
void sp_norm_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, struct sp_tensor *n1, struct sp_tensor *w_norm,
                        int64_t stashed);

/* dx(T,h) = dr + norm1'(dn1); g_norm accumulated. */
void sp_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *g_norm,
                        struct sp_tensor *dn1, struct sp_tensor *dr, struct sp_tensor *dx,
                        int64_t released);

/* q = n1 Wq^T, kv = n1 Wkv^T, rotated; kv NULL: only q. */
void sp_qkv_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n1, struct sp_tensor *w, struct sp_tensor *q,
                       struct sp_tensor *kv, int64_t stashed);

/* dn1 = dq Wq + dkv Wkv; dq, dkv rotated back in place. If heads have norms, it also reads n1
 * and does g += the gradients of their gains, in the product's block or, with `apart`, in
 * sp_shape_gains elements; `fresh`: it writes them, and sets the rest of the block to 0. */
void sp_qkv_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n1, struct sp_tensor *w, struct sp_tensor *dq,
                       struct sp_tensor *dkv, struct sp_tensor *dn1, struct sp_tensor *g,
                       bool apart, bool fresh);

/* g += (dq, dkv)^T n1, after sp_qkv_bwd with the same `fresh`. With `fresh` it writes them and
 * sets the rest of the block to 0, unless sp_qkv_bwd has written the block already. */
void sp_qkv_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *n1, struct sp_tensor *dq, struct sp_tensor *dkv,
                         struct sp_tensor *g, bool fresh, int64_t released);

/* o, lse = attention(q, kv), merged with earlier parts; o is complete after the last part. */
void sp_attn_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed);

/* Writes or adds to dq, which is complete after the last part; adds to dkv of the keys, or
 * overwrites it if `first`, which is the sequence's last slice. */
void sp_attn_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, struct sp_tensor *d_o,
                        struct sp_tensor *dq, int64_t released);

/* Takes in a part that was computed elsewhere, by an attention task for the same queries over
 * the keys of t, of which only the positions count: forward it is merged with o and lse,
 * backward added to dq. Comes after earlier parts, as above. */
void sp_attn_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_attn *t, struct sp_tensor *part,
                          struct sp_tensor *part_lse);
void sp_attn_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, struct sp_tensor *dq, struct sp_tensor *part);

/* r = x + o Wo^T, or x; y = r + MLP(norm2(r)), in chunks of rows; y NULL: only what `saved`
 * needs. */
void sp_post_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *y,
                        int64_t stashed);

/* du(T,up), dr(T,h), and d_o(T,q) if not NULL, from dy(T,h). Accumulates norm2's gradient into
 * g: the block's, or with `apart` one laid out like norm1's. */
void sp_post_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                        bool apart, struct sp_tensor *dy, struct sp_tensor *du,
                        struct sp_tensor *dr, struct sp_tensor *d_o);

/* Computes nothing. Once these n tensors are there, they count as `stashed` bytes. */
void sp_hold_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int n,
                    struct sp_tensor *const *held, int64_t stashed);

/* Computes nothing. These n tensors, which lose their values, are in memory from this task's place in
 * the order on; whatever used them has ended by then. */
void sp_room_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int n,
                    struct sp_tensor *const *tensors);

/* Both gradients of post from t->residual, t->o and dy(T,h): writes dr(T,h) and d_o(T,q), and
 * adds to the block's g. If t->o and d_o are NULL, it leaves out the output product. It computes
 * the inside of the MLP again, mlp_rows rows at a time. */
void sp_post_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_post *t, struct sp_tensor *w, struct sp_tensor *g,
                          struct sp_tensor *dy, struct sp_tensor *dr, struct sp_tensor *d_o,
                          int64_t released);

/*
 * For devices that share heads, MLP and vocabulary: a layer's second half and the head, in parts.
 * `sh` is the shape of a device's heads, with T rows of one part of the tokens; from sp_partial_sum
 * to sp_sum_norm_bwd it has the device's own tokens.
 */

/* y(T,h) = o Wo^T, `biased`: with the bias; + x, or with x NULL a part of a sum over devices. w
 * and g are the block, or only the front of it, up to the end of this product. */
void sp_out_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *o, struct sp_tensor *w, bool biased, struct sp_tensor *x,
                       struct sp_tensor *y);
/* d_o(T,q) = dr Wo; g += dr^T o, with the bias. */
void sp_out_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *dr, struct sp_tensor *w, struct sp_tensor *d_o);
void sp_out_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *o, struct sp_tensor *dr, struct sp_tensor *g);

/* u(T,up) = n2 Wup^T; g(T,f) = act(u) unless NULL; y(T,h) = g Wdown^T unless NULL, a part of a
 * sum over devices. */
void sp_mlp_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n2, struct sp_tensor *w, struct sp_tensor *u,
                       struct sp_tensor *g, bool biased, struct sp_tensor *y);
/* du(T,up) and dn(T,h), a part of a sum over devices, from dy(T,h). */
void sp_mlp_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *u, struct sp_tensor *w, struct sp_tensor *dy,
                       struct sp_tensor *du, struct sp_tensor *dn);
/* grad += gradients of up and down, with biases; g NULL: it is computed again from u. */
void sp_mlp_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *n2, struct sp_tensor *u, struct sp_tensor *g,
                         struct sp_tensor *dy, struct sp_tensor *du, struct sp_tensor *grad,
                         int64_t released);

/* y(T,h) += n parts. */
void sp_partial_sum_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           struct sp_tensor *y, int n, struct sp_tensor *const *part);
/* r(T,h) += n_part parts; n = norm(r), and stats(T,2) unless NULL. `w` is the norm's block, like
 * NORM1, or with `in_post` the block of the layer's second half. */
void sp_sum_norm_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool in_post,
                        struct sp_tensor *w, struct sp_tensor *r, int n_part,
                        struct sp_tensor *const *part, struct sp_tensor *n, struct sp_tensor *stats,
                        int64_t stashed);
/* n(T,h) = the same norm once more, from r and its statistics. */
void sp_norm_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          bool in_post, struct sp_tensor *w, struct sp_tensor *r,
                          struct sp_tensor *stats, struct sp_tensor *n);
/* dn(T,h) += n_part parts; dr(T,h) = norm'(dn), + dy if not NULL; g += gain and bias, laid out
 * as in `w`, or with `apart` as in NORM1. Ends the life of `released` bytes. */
void sp_sum_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                            bool in_post, bool apart, struct sp_tensor *w, struct sp_tensor *g,
                            struct sp_tensor *r, struct sp_tensor *stats, struct sp_tensor *dn,
                            int n_part, struct sp_tensor *const *part, struct sp_tensor *dy,
                            struct sp_tensor *dr, int64_t released);

/* stats(T,2) of the logits of n(T,h), over the `rows` rows of the table that w has; logits(T,V)
 * = unless NULL. */
void sp_logit_stats_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                           struct sp_tensor *n, struct sp_tensor *targets, struct sp_tensor *w,
                           struct sp_tensor *stats, struct sp_tensor *logits);
/* merged(T,2) = the stats of some devices' parts, as if they were one part. */
void sp_logit_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           int devices, struct sp_tensor *const *stats, struct sp_tensor *merged);
/* From the stats of all devices, and from the logits if they were kept: dn(T,h) =, a part of a
 * sum over devices; g += the table's gradient; `counts`: tally[SP_TALLY_LOSS] += . */
void sp_vocabulary_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                          bool counts, struct sp_tensor *n, struct sp_tensor *targets,
                          struct sp_tensor *w, struct sp_tensor *g, int devices,
                          struct sp_tensor *const *stats, struct sp_tensor *logits,
                          struct sp_tensor *dn, struct sp_tensor *tally);

/* g += part, from g's element `first` on, in f32: for gradients that were apart from their
 * block. */
void sp_part_add_insert(const struct sp_task_context *ctx, struct sp_tensor *part,
                        struct sp_tensor *g, size_t first);

/* g += weight gradients of the up and down products, and of the output product unless t->o is
 * NULL, from dy, du, dr. */
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

/* logits(n,ld) = norm(x) E^T for rows first .. first+n-1 of x(T,h); ld is sp_logits_ld(V).
 * Nothing beyond V in a row is written. */
void sp_logits_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int first,
                      int n, struct sp_tensor *x, struct sp_tensor *w_norm,
                      struct sp_tensor *w_table, struct sp_tensor *logits);

/*
 * Splits heads of attention into as many parts as devices share them, and joins them: with `keys`,
 * `whole` holds keys and values (T,kv), else queries or outputs (T,q). Part j is a narrower tensor
 * with the heads from j heads / sh->ulysses on. If parts have the same key and value head, the join
 * takes the first.
 */
void sp_heads_split_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                           struct sp_tensor *whole, struct sp_tensor *const *parts);
void sp_heads_join_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool keys,
                          struct sp_tensor *const *parts, struct sp_tensor *whole);

/* The same for tokens that sh->ulysses devices have in turns: whole(b, n len, width), part
 * (b,len,width), where `sh` describes a part. */
void sp_turns_split_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int width,
                           struct sp_tensor *whole, struct sp_tensor *const *parts);
void sp_turns_join_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int width,
                          struct sp_tensor *const *parts, struct sp_tensor *whole);

/* Rows of tokens that move between (b,len,width) tensors with different cuts. */
struct sp_rows {
    int batch, width, n;
    int from_len, from_at, to_len, to_at;
};

/* to = n rows of from, in every sequence; the rest of `to` stays, unless these are the `first`
 * rows to be written. */
void sp_rows_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                    const struct sp_rows *rows, struct sp_tensor *from, struct sp_tensor *to,
                    bool first);
/* Adds the rows to those in `to`. */
void sp_rows_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_rows *rows, struct sp_tensor *from, struct sp_tensor *to);

/* The sums of a stage in a step: a vector of doubles. */
enum sp_tally { SP_TALLY_LOSS, SP_TALLY_SUMSQ, SP_TALLIES };

/* tally[SP_TALLY_SUMSQ] += sum of g^2, without the skipped elements: ascending ranges of the
 * handle's. `more`: the worker's next task adds to the same tally, so that nobody need wait for
 * this one (sinks/starpu/cuda.h). */
void sp_sumsq_insert(const struct sp_task_context *ctx, struct sp_tensor *g, int n_skipped,
                     const struct sp_block_range *skipped, struct sp_tensor *tally, bool more);

/* part = g[ranges], and g[ranges] = part; f32, ranges of the handle's elements. */
void sp_pack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                    struct sp_tensor *g, struct sp_tensor *part);
void sp_unpack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                      struct sp_tensor *part, struct sp_tensor *g);

/*
 * For gradients that travel in `dtype`, a type of fewer bytes. Add: travelling += own (f32),
 * rounded at random with the bits of `stream` (kernels/backend.h). End: gradient (f32) +=
 * travelling.
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

/* to = the first elements of from, as many as `to` has. */
void sp_copy_insert(const struct sp_task_context *ctx, struct sp_tensor *from,
                    struct sp_tensor *to);

/* The step's hyper-parameters of the optimizer. */
struct sp_update {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2;  /* 1 - beta^t */
    float factor;        /* of the gradient: min(1, clip / norm) */
    bool keeps_gradient; /* it is not cleared: another task does that where it lies */
    unsigned restarts;   /* these of its matrices are not cleared either, and become stale */
};

/* AdamW on the elements of a block from `first` on, as many as the handles have, all f32; clears
 * the gradient, as far as `hp` wants that. Weight decay applies to the tensors marked for it. low = w, rounded to `dtype`,
 * unless that is f32. */
void sp_update_insert(const struct sp_task_context *ctx, const struct sp_params *params,
                      enum sp_block_kind kind, int layer, size_t first, const struct sp_update *hp,
                      struct sp_tensor *w, struct sp_tensor *g, struct sp_tensor *m,
                      struct sp_tensor *v, enum sp_dtype dtype, struct sp_tensor *low);

/* low = w, rounded to `dtype`. */
void sp_round_insert(const struct sp_task_context *ctx, struct sp_tensor *w, enum sp_dtype dtype,
                     struct sp_tensor *low);

/* to[i] = from[i] for n handles: copies one block's state to another. */
void sp_state_copy_insert(const struct sp_task_context *ctx, int n, struct sp_tensor *const *from,
                          struct sp_tensor *const *to);

#endif
