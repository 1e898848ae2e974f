/* An MLP on plain arrays, without its last product: for `post`, and for `mlp` if devices share
 * it. */
#ifndef SP_MLP_H
#define SP_MLP_H

#include "kernels/backend.h"
#include "model/shape.h"

/* g(rows,f) = act(u) */
static inline void sp_mlp_activate(const struct sp_backend *k, const struct sp_shape *sh, int rows,
                                   const void *u, void *g)
{
    if (sh->model.arch == SP_ARCH_LLAMA)
        k->gated(k,
                 &(struct sp_gated){.act = sp_model_act(&sh->model), .T = rows, .f = sh->model.mlp},
                 u, g);
    else
        k->act(k, sp_model_act(&sh->model), (size_t)rows * (size_t)sh->model.mlp, u, g);
}

/* u = n2 Wup^T + bup, and g = act(u), if wanted. */
static inline void sp_mlp_up(const struct sp_backend *k, const struct sp_shape *sh, int rows,
                             const void *n2, void *w, void *u, void *g)
{
    int h = sh->model.hidden, width = sh->up_width;
    void *weight = sp_weight_at(sh, w, sh->up), *bias = sp_weight_at(sh, w, sh->up_bias);
    const struct sp_linear up = {.T = rows, .in = h, .out = width, .w = weight, .bias = bias};

    if (g && sh->model.arch != SP_ARCH_LLAMA) {
        k->linear_act(k, &up, sp_model_act(&sh->model), n2, u, g);
        return;
    }
    k->linear(k, &up, n2, u);
    if (g)
        sp_mlp_activate(k, sh, rows, u, g);
}

/* Backward, from dy of the MLP's output: du = act'(u) (dy Wdown), dn = du Wup. dg(rows,f) is
 * scratch, needed for a gate. */
static inline void sp_mlp_backward(const struct sp_backend *k, const struct sp_shape *sh, int rows,
                                   const void *dy, void *w, const void *u, void *dg, void *du,
                                   void *dn)
{
    int h = sh->model.hidden, f = sh->model.mlp, width = sh->up_width;
    void *down = sp_weight_at(sh, w, sh->down);
    const struct sp_linear last = {.T = rows, .in = f, .out = h, .w = down};

    if (sh->model.arch == SP_ARCH_LLAMA) {
        k->linear_dx(k, &last, dy, dg, false);
        k->gated_bwd(k, &(struct sp_gated){.act = sp_model_act(&sh->model), .T = rows, .f = f}, u,
                     dg, du);
    } else {
        k->linear_dx_act(k, &last, sp_model_act(&sh->model), dy, u, du);
    }
    k->linear_dx(
        k, &(struct sp_linear){.T = rows, .in = h, .out = width, .w = sp_weight_at(sh, w, sh->up)},
        du, dn, false);
}

#endif
