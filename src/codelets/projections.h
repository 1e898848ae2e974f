/*
 * The products of a layer: y(T,out) = x(T,in) W^T + b, with W and b in a block of parameters.
 */
#ifndef SP_PROJECTIONS_H
#define SP_PROJECTIONS_H

#include "kernels/backend.h"
#include "model/shape.h"

struct sp_projection {
    int T, in, out;
    size_t weight, bias; /* offsets in the block; bias (size_t)-1: none */
};

enum sp_projection_of { SP_TO_QKV, SP_TO_OUT, SP_TO_UP, SP_TO_DOWN };

/* A product of the shape's layers on T rows. */
static inline struct sp_projection sp_projection(const struct sp_shape *sh,
                                                 enum sp_projection_of which, int T)
{
    int h = sh->model.hidden;
    const struct sp_projection all[] = {
        [SP_TO_QKV] = {T, h, sh->q_width + sh->kv_width, sh->qkv, sh->qkv_bias},
        [SP_TO_OUT] = {T, sh->q_width, h, sh->out, sh->out_bias},
        [SP_TO_UP] = {T, h, sh->up_width, sh->up, sh->up_bias},
        [SP_TO_DOWN] = {T, sh->model.mlp, h, sh->down, sh->down_bias},
    };

    return all[which];
}

/* The n outputs from `first` on: rows of W that follow each other. */
static inline struct sp_projection sp_projection_part(struct sp_projection p, int first, int n)
{
    p.out = n;
    p.weight += (size_t)first * (size_t)p.in;
    p.bias += p.bias == (size_t)-1 ? 0 : (size_t)first;
    return p;
}

/* It as kernels take it, with the weights in block w. */
static inline struct sp_linear sp_linear_at(const struct sp_shape *sh, struct sp_projection p,
                                            void *w)
{
    return (struct sp_linear){.T = p.T,
                              .in = p.in,
                              .out = p.out,
                              .w = sp_weight_at(sh, w, p.weight),
                              .bias = sp_weight_at(sh, w, p.bias)};
}

/* The whole product of a kind as kernels take it. */
static inline struct sp_linear sp_linear_of(const struct sp_shape *sh, enum sp_projection_of which,
                                            int T, void *w)
{
    return sp_linear_at(sh, sp_projection(sh, which, T), w);
}

/* The gradients of W and b in block g: += dy^T x, += column sums of dy. */
static inline void sp_projection_wgrad(const struct sp_backend *k, struct sp_projection p,
                                       const void *x, const void *dy, float *g)
{
    k->linear_dw(k, &(struct sp_linear){.T = p.T, .in = p.in, .out = p.out}, x, dy, g + p.weight,
                 sp_at(g, p.bias));
}

#endif
