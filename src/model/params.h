/*
 * The parameters of a model, grouped in blocks. A block is the unit of ownership, of transfer
 * and of the optimizer: one contiguous array of floats. Weight matrices are stored [out, in]
 * whatever the architecture; GPT-2's files hold [in, out] and are transposed on the way.
 */
#ifndef SP_PARAMS_H
#define SP_PARAMS_H

#include "model/block_kinds.h"
#include "model/model.h"
#include <stddef.h>

/* One tensor of the file, and where it lies in its block. */
struct sp_parameter {
    char name[80]; /* Hugging Face name, e.g. "transformer.h.3.attn.c_attn.weight" */
    enum sp_block_kind block;
    enum sp_role
        role;        /* Llama: q, k, v share SP_ROLE_QKV; gate, up share SP_ROLE_UP (gate first) */
    int layer;       /* -1 outside the layers */
    size_t offset;   /* first element in the block */
    int rows, cols;  /* as stored in the block, [out, in]; a vector has rows == 1 */
    bool is_vector;  /* one dimension in the file */
    bool transposed; /* the file holds [cols, rows]: GPT-2's Conv1D */
    bool decay;      /* weight decay applies: matrices and tables yes, gains and biases no */
    enum sp_init init;
    float std; /* of SP_INIT_NORMAL: 0.02; residual projections 0.02/sqrt(2L) */
};

struct sp_params {
    struct sp_model model;
    int n; /* tensors, in the order of the model */
    struct sp_parameter *tensors;
};

/* Lists every tensor of the model. 0 or -ENOMEM. */
int sp_params_create(const struct sp_model *m, struct sp_params *p);
void sp_params_destroy(struct sp_params *p);

/* Elements of a block (0: the model has no such block), a multiple of 8. Each role starts at a
 * multiple of 8 elements, what lies between is zero; tensors of one role (query, key, value; gate,
 * up) follow each other without a gap, so they are one matrix. */
uint64_t sp_block_elements(const struct sp_model *m, enum sp_block_kind kind);

/* The block that holds the table of the head: the embedding's own when the weights are tied. */
static inline enum sp_block_kind sp_head_table(const struct sp_model *m)
{
    return m->tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
}

/*
 * Offset in its block of the first element with a role; `norm2` picks norm2's gain and bias
 * out of SP_BLOCK_POST the same way as SP_ROLE_GAIN elsewhere. (size_t)-1: no such tensor.
 */
size_t sp_block_offset(const struct sp_model *m, enum sp_block_kind kind, enum sp_role role);

/*
 * Initial values of one block, from a counter-based generator keyed by (seed, tensor name,
 * element): the same whatever the layout. `w` has sp_block_elements elements.
 */
void sp_block_init(const struct sp_params *p, enum sp_block_kind kind, int layer, uint64_t seed,
                   float *w);

/* Which elements of the block get weight decay: calls `range` for each tensor in order. */
typedef void (*sp_block_range_fn)(void *arg, const struct sp_parameter *t);
void sp_block_each(const struct sp_params *p, enum sp_block_kind kind, int layer,
                   sp_block_range_fn fn, void *arg);

/* Parameters of the whole model, tied weights once. */
uint64_t sp_model_parameters(const struct sp_model *m);

/* Floating-point operations of the forward of a layer's product, for each token. */
double sp_product_flops(const struct sp_model *m, enum sp_role role);

#endif
