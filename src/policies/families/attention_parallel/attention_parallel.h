/*
 * Parts of layers as ops (attention-parallel): their stages, and the tensors that stages keep for
 * them. Letters: x = bsh numbers, q and kv = the widths of a token times bs.
 *
 * Kept from forward to backward, in floats (HelixPipe section 4.4: 4bsh a layer, of which x + q
 * with attention and x + q with the block after it):
 *
 *   attention of layer l   weights: n1 (x), o (q), log-sum-exp; none and selective: q, kv too
 *                          activations: q, kv, o, log-sum-exp
 *   block j > 0, post      no-attention: residual (x), o (q); none and selective: o, post saved
 *   block j < L, pre       none and selective: x, and weights: statistics; activations: pre saved
 *   block L                none and selective: x, the head's input
 *
 * A block that follows attention on its own stage shares o with it. With `full`, attention runs
 * again and keeps neither o nor its log-sum-exp: 3bsh. With ship=attention it is 3bsh, and 2bsh
 * with `full`:
 *
 *   attention of layer l   x, o (q), log-sum-exp; none and selective: pre saved, q, kv too
 *   block j > 0            no-attention: r (x); none and selective: post saved
 */
#ifndef SP_ATTENTION_PARALLEL_H
#define SP_ATTENTION_PARALLEL_H

#include "policies/families/activations.h"

/* The stage of parameter block j of 0 .. layers, and of attention of a layer. */
int sp_block_stage(const struct sp_layout *lay, int j);
int sp_attention_stage(const struct sp_layout *lay, int mb, int layer);

/* The tensors that go to attention in addition to the residual stream. */
enum sp_shipment {
    SP_SHIP_ACTIVATIONS, /* q, k, v: with the residual 4bsh numbers a message */
    SP_SHIP_QKV,         /* the QKV product's input, 2bsh; and once a step its weights, 3h^2 */
    SP_SHIP_ATTENTION    /* bsh; and once a step all weights of the attention module, norm and both
                       * products: 4h^2 */
};

/* Values of the options ship= and qkv=. */
enum sp_ship_wish {
    SP_WISH_SMALLER,     /* neither is given: the smaller shipment */
    SP_WISH_ATTENTION,   /* ship=attention */
    SP_WISH_ACTIVATIONS, /* qkv=activations */
    SP_WISH_WEIGHTS,     /* qkv=weights */
    SP_WISH_PUBLISHED    /* qkv=published: weights and their gradients go with every micro-batch */
};
enum sp_ship_wish sp_ship_wish(const struct sp_layout *lay);

/* Micro-batches that share a slot. */
int sp_attention_fold(const struct sp_layout *lay);

/*
 * The shipment that ship= and qkv= ask for. By default QKV weights, if a micro-batch's share of
 * them is smaller than the activations that they save (HelixPipe section 4.2).
 */
enum sp_shipment sp_shipment(const struct sp_plan *plan, const struct sp_shape *sh);

/* For the family (family.h) and its variant with a shared vocabulary. */
int sp_parts_groups(const struct sp_layout *lay);
int sp_parts_refuse(const struct sp_plan *plan, const struct sp_train_wish *wish);
extern const struct sp_owners sp_parts_owners;

/* True if weights and their gradients go with every micro-batch, as published. */
bool sp_ships_each_time(const struct sp_plan *plan);

/* True if a block and the attention before it are on one stage, which then keeps attention's output
 * once. The bytes count for attention, whose backward comes last. False if attention recomputes its
 * output, or has it by heads or for all token shares. `op` is either of the two. */
bool sp_shares_output(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int stage, const struct sp_op *op);

/* 1 for a block with the attention before it on its own stage, which depends on the micro-batch;
 * otherwise 0. */
int sp_parts_kind(const struct sp_layout *lay, int stage, const struct sp_op *op);

/* Elements of each tensor that the part of an op keeps; the QKV product's input counts as one of
 * pre. */
void sp_parts_stash_tensors(const struct sp_plan *plan, const struct sp_shape *sh,
                            enum sp_recompute recompute, int stage, const struct sp_op *op,
                            int64_t elements[SP_STASH_TENSORS]);

/* Bytes kept by the part that an op works on; *head of them are the head's input, which is freed
 * first. */
int64_t sp_parts_stash(const struct sp_plan *plan, const struct sp_shape *sh,
                       enum sp_recompute recompute, int stage, const struct sp_op *op,
                       int64_t *head);

#endif
