/* The parts of layers, and the tokens, that an op computes. Its cost follows from them. Pure. */
#ifndef SP_WORK_H
#define SP_WORK_H

#include "model/shape.h"
#include "policies/plan.h"

struct sp_op_work {
    int first, layers;         /* layers first .. first + layers - 1, */
    bool pre, attention, post; /* these parts of each */
    bool qkv_with_attention;   /* attention begins with the QKV product, pre ends before it */
    bool out_with_attention;   /* attention ends with the output product, post begins after it */
    bool embed, head;          /* in addition; the head is forward and backward in one */
    bool head_norm;            /* in addition: the norm before a head that all stages share */
    bool head_share;      /* or only the forward or the backward of a stage's share of that head */
    bool to_head;         /* only the head reads post's output */
    bool keeps_attention; /* even if all else is recomputed */
    bool forward;
    bool input, weight;      /* backward: gradients of inputs, of weights */
    int first_token, tokens; /* of every sequence */
};

/* A block of the attention-parallel family is post of one layer and pre of the next. */
enum { SP_MOST_WORK = 2 };

/*
 * Writes the work of an op of a stage into work[SP_MOST_WORK], one entry for each set of parts;
 * returns how many. If weight gradients have an op of their own, all of attention's backward is in
 * the other one.
 */
int sp_op_work(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
               const struct sp_op *op, struct sp_op_work work[SP_MOST_WORK]);

/* The blocks of each of its layers whose weights, or gradients, it uses: a bit 1 << k for
 * sp_layer_block(k). `stage` computes it. */
unsigned sp_work_blocks(const struct sp_plan *plan, const struct sp_shape *sh,
                        enum sp_recompute recompute, int stage, const struct sp_op_work *work);

#endif
