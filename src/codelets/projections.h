/*
 * The products of a layer: y(T,out) = x(T,in) W^T + b, with W and b in a block of parameters.
 */
#ifndef SP_PROJECTIONS_H
#define SP_PROJECTIONS_H

#include "kernels/backend.h"
#include "model/shape.h"

enum sp_projection_of { SP_TO_QKV, SP_TO_OUT, SP_TO_UP, SP_TO_DOWN };

struct sp_projection {
    enum sp_projection_of of;
    int T, in, out;
    size_t weight, bias; /* offsets in the block; bias (size_t)-1: none */
};

/* A product of the shape's layers on T rows. */
static inline struct sp_projection sp_projection(const struct sp_shape *sh,
                                                 enum sp_projection_of which, int T)
{
    int h = sh->model.hidden;
    const struct sp_projection all[] = {
        [SP_TO_QKV] = {SP_TO_QKV, T, h, sh->q_width + sh->kv_width, sh->qkv, sh->qkv_bias},
        [SP_TO_OUT] = {SP_TO_OUT, T, sh->q_width, h, sh->out, sh->out_bias},
        [SP_TO_UP] = {SP_TO_UP, T, h, sh->up_width, sh->up, sh->up_bias},
        [SP_TO_DOWN] = {SP_TO_DOWN, T, sh->model.mlp, h, sh->down, sh->down_bias},
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

/* The matrices W, for sp_task_overwrites. */
enum {
    SP_QKV_MATRIX = 1 << SP_TO_QKV,
    SP_OUT_MATRIX = 1 << SP_TO_OUT,
    SP_MLP_MATRICES = 1 << SP_TO_UP | 1 << SP_TO_DOWN
};

/* The matrices of a block. */
static inline unsigned sp_matrices(enum sp_block_kind kind)
{
    return kind == SP_BLOCK_QKV    ? SP_QKV_MATRIX
           : kind == SP_BLOCK_POST ? SP_OUT_MATRIX | SP_MLP_MATRICES
                                   : 0;
}

/* The one that a tensor is, or a part of; 0: it is none. */
static inline unsigned sp_matrix_of(enum sp_role role)
{
    switch (role) {
    case SP_ROLE_QKV:
        return SP_QKV_MATRIX;
    case SP_ROLE_OUT:
        return SP_OUT_MATRIX;
    case SP_ROLE_UP:
        return 1 << SP_TO_UP;
    case SP_ROLE_DOWN:
        return 1 << SP_TO_DOWN;
    default:
        return 0;
    }
}

/* The gradients of W and b in block g: += dy^T x, or = if the matrix is among those that
 * `overwrites` names; += column sums of dy. */
static inline void sp_projection_wgrad(const struct sp_backend *k, struct sp_projection p,
                                       unsigned overwrites, const void *x, const void *dy, float *g)
{
    const struct sp_linear l = {
        .T = p.T, .in = p.in, .out = p.out, .first = overwrites >> p.of & 1};

    k->linear_dw(k, &l, x, dy, g + p.weight, sp_at(g, p.bias));
}

#endif
