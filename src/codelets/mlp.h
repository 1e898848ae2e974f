/* The first half of an MLP on plain arrays, as `post` computes it, and `mlp` where devices share it. */
#ifndef SP_MLP_H
#define SP_MLP_H

#include "kernels/backend.h"
#include "model/shape.h"

/* g(rows,f) = act(u) */
static inline void sp_mlp_activate(const struct sp_backend *k, const struct sp_shape *sh, int rows,
                                   const void *u, void *g)
{
    if (sh->model.arch == SP_ARCH_LLAMA)
        k->swiglu(k, rows, sh->model.mlp, u, g);
    else
        k->gelu(k, (size_t)rows * (size_t)sh->model.mlp, u, g);
}

/* u = n2 Wup^T + bup, and g = act(u), if wanted. */
static inline void sp_mlp_up(const struct sp_backend *k, const struct sp_shape *sh, int rows,
                             const void *n2, void *w, void *u, void *g)
{
    int h = sh->model.hidden, width = sh->up_width;
    void *weight = sp_weight_at(sh, w, sh->up), *bias = sp_weight_at(sh, w, sh->up_bias);

    if (g && sh->model.arch != SP_ARCH_LLAMA) {
        k->linear_gelu(k, rows, h, width, n2, weight, bias, u, g);
        return;
    }
    k->linear(k, rows, h, width, n2, weight, bias, u, width);
    if (g)
        sp_mlp_activate(k, sh, rows, u, g);
}

#endif
