/*
 * The tensors that a layer keeps from its forward to its backward: one table of their sizes and of
 * the modes of recomputation that keep them. The graph, the plan of memory and the codelets read
 * it.
 */
#ifndef SP_MODEL_STASH_H
#define SP_MODEL_STASH_H

#include "model/shape.h"

enum sp_recompute {
    SP_RECOMPUTE_NONE,         /* keeps 16 bsh a layer (GPT-2 style): nothing is computed twice */
    SP_RECOMPUTE_SELECTIVE,    /* keeps what products and attention wrote; norms and activations
                                * are applied again in backward */
    SP_RECOMPUTE_NO_ATTENTION, /* keeps a layer's input and attention's output; attention is the
                                * one thing not computed twice (HelixPipe section 4.4) */
    SP_RECOMPUTE_FULL          /* keeps a layer's input, every K-th layer's with every=K */
};

/* "none", "selective", "no-attention" or "full", as users type it. */
const char *sp_recompute_name(enum sp_recompute recompute);
/* '-', 's', 'a' or 'f': the letter of a layer in a list of layers. */
char sp_recompute_letter(enum sp_recompute recompute);

/* The i-th part of a layer's computation, as the field names it: "norms", "activation", "qkv",
 * "attention", "mlp" (with the product before it). NULL past the last. */
const char *sp_sub_operation_name(int i);
/* The ones that a mode computes again, as bits 1 << i. */
unsigned sp_recompute_again(enum sp_recompute recompute);

/* Buffers of a layer; their places in struct sp_layer_activations have the same names. */
enum sp_stash_tensor {
    SP_STASH_X,
    SP_STASH_PRE, /* what pre writes for its backward: [n1(T,h)] stats1(T,2) */
    SP_STASH_Q,
    SP_STASH_KV,
    SP_STASH_O,
    SP_STASH_LSE,
    SP_STASH_POST, /* what post writes: r(T,h) u(T,up) [n2(T,h) g(T,f)] stats2(T,2) */
    SP_STASH_TENSORS
};

/* True if a mode keeps a buffer or a part of it. */
bool sp_stash_keeps(enum sp_recompute recompute, enum sp_stash_tensor tensor);

/* The elements of a buffer that a mode keeps; 0: it is computed again. Statistics are f32. */
uint64_t sp_stash_elements(const struct sp_shape *sh, enum sp_recompute recompute,
                           enum sp_stash_tensor tensor);

/* The bytes of each buffer; 0: it is computed again. `keeps_x`: the layer is the first of K with
 * every=K; `sliced`: keys and values stay for later slices. */
void sp_stash_of_layer(const struct sp_shape *sh, enum sp_recompute recompute, bool keeps_x,
                       bool sliced, int64_t bytes[SP_STASH_TENSORS]);

/* The elements of SP_STASH_PRE and SP_STASH_POST. `keep_outputs`: the outputs of norms and
 * activations, in brackets above, are kept too. */
uint64_t sp_shape_pre_saved(const struct sp_shape *sh, bool keep_outputs);
uint64_t sp_shape_post_saved(const struct sp_shape *sh, bool keep_outputs);

/* The elements of r(T,h) stats2(T,2): all that a backward of post needs if it computes the rest
 * again. */
uint64_t sp_shape_residual_saved(const struct sp_shape *sh);

/* The elements that such a backward keeps at a time, for mlp_rows rows: n2(h), u(up), g(f), du(up),
 * and dg(f) for SwiGLU. */
uint64_t sp_shape_post_chunk(const struct sp_shape *sh);

/* The same buffers by name. n1, n2, g are NULL unless `keep_outputs`. */
struct sp_pre_saved {
    void *n1;
    float *stats;
};
struct sp_post_saved {
    void *r, *u, *n2, *g;
    float *stats;
};
struct sp_pre_saved sp_shape_pre_view(const struct sp_shape *sh, bool keep_outputs, void *base);
struct sp_post_saved sp_shape_post_view(const struct sp_shape *sh, bool keep_outputs, void *base);
struct sp_post_saved sp_shape_residual_view(const struct sp_shape *sh, void *base);

#endif
