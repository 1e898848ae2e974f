/* The norms of a model, for a backend's norm, norm_apply and norm_bwd: each reads the fields that
 * it needs. */
#ifndef SP_NORMS_H
#define SP_NORMS_H

#include "kernels/backend.h"
#include "model/shape.h"

/* A norm of `rows` rows with gain and bias at these offsets of block w. */
static inline struct sp_norm sp_norm_at(const struct sp_shape *sh, int rows, void *w, size_t gain,
                                        size_t bias)
{
    return (struct sp_norm){.rms = sh->rms,
                            .T = rows,
                            .h = sh->model.hidden,
                            .eps = sh->model.norm_eps,
                            .gain = sp_weight_at(sh, w, gain),
                            .bias = sp_weight_at(sh, w, bias)};
}

/* The norm before attention, or the last one: a block of its own. */
static inline struct sp_norm sp_block_norm(const struct sp_shape *sh, int rows, void *w)
{
    return sp_norm_at(sh, rows, w, 0, sh->norm_bias);
}

/* The norm before the MLP, in the block of the layer's second half. */
static inline struct sp_norm sp_post_norm(const struct sp_shape *sh, int rows, void *w)
{
    return sp_norm_at(sh, rows, w, sh->gain, sh->bias);
}

#endif
