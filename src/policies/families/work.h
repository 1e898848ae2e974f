/* What an op computes: which parts of which layers, of which tokens. What it costs follows from it. Pure. */
#ifndef SP_WORK_H
#define SP_WORK_H

#include "model/shape.h"
#include "policies/plan.h"

struct sp_op_work {
    int first, layers;         /* layers first .. first + layers - 1, */
    bool pre, attention, post; /* these parts of each */
    bool qkv_with_attention;   /* attention begins with the QKV product, pre ends before it */
    bool out_with_attention;   /* attention ends with the output product, post begins after it */
    bool embed, head;          /* besides; the head is forward and backward in one */
    bool head_norm;            /* besides: of a head that all stages share, the norm before it */
    bool head_share; /* or the forward or the backward of a stage's share of it, and nothing else */
    bool to_head;    /* post's output is the head's input alone */
    bool keeps_attention; /* whatever else is recomputed */
    bool forward;
    bool input, weight;      /* backward: gradients of inputs, of weights */
    int first_token, tokens; /* of every sequence */
};

/* A block of the attention-parallel family is post of one layer and pre of the next. */
enum { SP_MOST_WORK = 2 };

/*
 * Writes what an op of a stage computes into work[SP_MOST_WORK], one entry for each set of parts; returns
 * how many. Where weight gradients are computed apart, all of attention's backward is with the inputs.
 */
int sp_op_work(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
               const struct sp_op *op, struct sp_op_work work[SP_MOST_WORK]);

#endif
