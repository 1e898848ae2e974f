/*
 * The tensors of a model, one row each: block, shape, name in Hugging Face files, initial value,
 * weight decay, and the models that have it. Parameters, weight files, the optimizer and the
 * counting of operations read this table and nothing else.
 */
#ifndef SP_TENSOR_TABLE_H
#define SP_TENSOR_TABLE_H

#include "model/block_kinds.h"
#include "model/model.h"

/* A dimension, by the letter of the model; a vector has rows SP_DIM_ONE. */
enum sp_dim {
    SP_DIM_ONE,
    SP_DIM_HIDDEN,
    SP_DIM_Q,  /* a*d */
    SP_DIM_KV, /* g*d, of keys or of values */
    SP_DIM_HEAD,
    SP_DIM_QKV, /* (a + 2g)*d */
    SP_DIM_MLP,
    SP_DIM_VOCAB,
    SP_DIM_POSITIONS
};

/* A model has a row's tensor if it has a name for it and meets this condition. */
enum sp_when {
    SP_ALWAYS,
    SP_WHEN_UNTIED,
    SP_WHEN_QKV_BIAS,
    SP_WHEN_OUT_BIAS,
    SP_WHEN_MLP_BIAS,
    SP_WHEN_QK_NORM
};

struct sp_tensor_row {
    enum sp_block_kind block;
    enum sp_role role;
    enum sp_dim rows, cols;   /* [out, in] */
    const char *gpt2, *llama; /* name, of a layer's tensor what follows "h.3." or "layers.3.";
                               * NULL: models of that style have no such tensor */
    enum sp_when when;
    enum sp_init init;
    bool decay;
};

/* In the order of the model; layers share one set of rows. */
extern const struct sp_tensor_row sp_tensor_table[];
extern const int sp_tensor_rows;

/* The name of a row's tensor, a layer's without its prefix; NULL: the model has no such tensor. */
const char *sp_row_name(const struct sp_model *m, const struct sp_tensor_row *row);

int sp_dim(const struct sp_model *m, enum sp_dim dim);

#endif
