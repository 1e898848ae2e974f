/*
 * Ops: the words a schedule is written in.
 *
 * An op is (pass, part, micro-batch, chunk or layer, slice), executed on a stage. Notation:
 *   F<mb>.<c> forward, B<mb>.<c> backward, W<mb>.<c> weight gradient, R<mb>.<c> recompute of a
 *   whole chunk c; B is the full backward when the schedule has no W for that micro-batch and
 *   chunk. A slice is appended as s<i>: F3s1. Sub-layer ops carry a layer and a letter for the
 *   part: A<mb>.<l> attention, P<mb>.<j> parameter block j, bA, bP their backward. L<mb> is the
 *   head with the loss, when it is an op of its own, and bL its backward. With a parallel
 *   vocabulary, L covers the stage's own rows of the vocabulary.
 */
#ifndef STARPIPE_OP_H
#define STARPIPE_OP_H

#include <stddef.h>

#pragma GCC visibility push(default)

enum sp_pass { SP_F, SP_B, SP_W, SP_R, SP_PASSES };

enum sp_part {
    SP_CHUNK, /* every part of the layers of one chunk, embedding and head included */
    SP_EMBED, /* token and position embedding */
    SP_PRE,   /* norm and QKV product */
    SP_ATTN,  /* attention */
    SP_POST,  /* output product, residual, norm, MLP, residual */
    SP_HEAD,  /* final norm, logits, cross-entropy */
    SP_BLOCK, /* parameter block j: post of layer j-1 and pre of layer j (HelixPipe) */
    SP_UPDATE /* optimizer */
};

struct sp_op {
    unsigned char pass;    /* enum sp_pass */
    unsigned char part;    /* enum sp_part */
    unsigned char overlap; /* one unit with the next op of the program: layer by layer in turns */
    unsigned short slice;  /* subsequence, 0 when the sequence is whole */
    int mb;                /* micro-batch */
    int chunk;             /* local chunk for SP_CHUNK, layer or block otherwise */
};

/* The ops of one stage, in the order in which they run. */
struct sp_program {
    int n, cap;
    struct sp_op *ops;
};

#define SP_OP_TEXT 32

/* Writes the notation of an op ("F3.0") into text[SP_OP_TEXT] and returns it; `sliced` picks the
 * slice form. */
char *sp_op_print(const struct sp_op *op, int sliced, char *text);

/* Parses the notation. 0, or -EINVAL. */
int sp_op_parse(const char *text, struct sp_op *op);

/* Appends an op; aborts the process when memory is exhausted (programs are small). */
void sp_program_add(struct sp_program *prog, enum sp_pass pass, int mb, int chunk);
void sp_program_add_op(struct sp_program *prog, struct sp_op op);
/* Appends the forward of one micro-batch and the backward of another as one overlapped unit. */
void sp_program_add_pair(struct sp_program *prog, int f_mb, int f_chunk, int b_mb, int b_chunk);
void sp_program_clear(struct sp_program *prog);

#pragma GCC visibility pop

#endif
