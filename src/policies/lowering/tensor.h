/*
 * The tensors that stages send, receive and free: their kinds, their names and their sizes.
 */
#ifndef SP_TENSOR_H
#define SP_TENSOR_H

#include "model/shape.h"
#include "policies/lowering/tensor_id.h"
#include "policies/plan.h"

/* A tensor of an op's micro-batch and slice. */
static inline struct sp_tensor_id sp_tensor_of(enum sp_tensor_kind kind, const struct sp_op *op,
                                               int at)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = op->slice, .mb = op->mb, .at = at};
}

/* A stage that computes attention of another stage's queries gets some tensors for that, besides
 * keys and values, and leaves others for that stage. Writes their kinds; returns how many. */
enum sp_attention_tensors { SP_ATTENTION_INPUTS, SP_ATTENTION_RESULTS };
enum { SP_ATTENTION_KINDS = 4 };
int sp_attention_kinds(enum sp_pass pass, enum sp_attention_tensors which,
                       enum sp_tensor_kind out[SP_ATTENTION_KINDS]);

/* The name of a kind: "x", "dx", "kv", ... */
const char *sp_tensor_name(enum sp_tensor_kind kind);

#define SP_TENSOR_TEXT 40

/* Writes "x3.1", "kv0.2s1", "dw.2", "w.post.4" into text[SP_TENSOR_TEXT] and returns it: the kind;
 * the micro-batch if it has one (down a line of workers, the round of weights); `at`; the stage
 * whose share of keys it is; the slice if sequences are cut. */
char *sp_tensor_print(const struct sp_plan *plan, const struct sp_tensor_id *t, char *text);

/* Messages in which a tensor is sent: one for each block or layer of its kind, or share of the
 * tokens. shape NULL: 1. */
int sp_tensor_pieces(const struct sp_plan *plan, const struct sp_shape *shape,
                     const struct sp_tensor_id *t);

/* Elements of piece i (0: the model has no such block), and bytes of each. */
size_t sp_tensor_piece(const struct sp_plan *plan, const struct sp_shape *shape,
                       const struct sp_tensor_id *t, int i, size_t *elem_bytes);

/* The block of parameters to which piece i of weights, or of their gradients, belongs. */
struct sp_tensor_block {
    enum sp_block_kind kind;
    int layer; /* -1 outside the layers */
    bool gradient;
};
struct sp_tensor_block sp_tensor_block(const struct sp_plan *plan, const struct sp_shape *shape,
                                       const struct sp_tensor_id *t, int i);

/* True if gradients that travel with weights are rounded to the type of the run, which is not
 * f32. */
bool sp_rounds_gradients(const struct sp_plan *plan, const struct sp_shape *shape);

/* Bytes of the tensor; shape NULL: 0. All other gradients of parameters are f32. */
int64_t sp_tensor_bytes(const struct sp_plan *plan, const struct sp_shape *shape,
                        const struct sp_tensor_id *t);

#endif
