/* An MLP on plain arrays, without its last product: for `post`, and for `mlp` if devices share
 * it. */
#ifndef SP_MLP_H
#define SP_MLP_H

#include "codelets/projections.h"

/* Some rows of an MLP, with the block w of the layer's second half. */
struct sp_mlp {
    const struct sp_shape *sh;
    int rows;
    void *w, *u; /* u(rows,up) */
};

/* g(rows,f) = act(u) */
static inline void sp_mlp_activate(const struct sp_backend *k, const struct sp_mlp *m, void *g)
{
    const struct sp_model *model = &m->sh->model;
    enum sp_activation act = sp_model_act(model);

    if (model->arch == SP_ARCH_LLAMA)
        k->gated(k, &(struct sp_gated){.act = act, .T = m->rows, .f = model->mlp}, m->u, g);
    else
        k->act(k, act, (size_t)m->rows * (size_t)model->mlp, m->u, g);
}

/* u = n2 Wup^T + bup, and g = act(u), if wanted. */
static inline void sp_mlp_up(const struct sp_backend *k, const struct sp_mlp *m, const void *n2,
                             void *g)
{
    const struct sp_linear up = sp_linear_of(m->sh, SP_TO_UP, m->rows, m->w);

    if (g && m->sh->model.arch != SP_ARCH_LLAMA) {
        k->linear_act(k, &up, sp_model_act(&m->sh->model), n2, m->u, g);
        return;
    }
    k->linear(k, &up, n2, m->u);
    if (g)
        sp_mlp_activate(k, m, g);
}

/* Backward, from dy of the MLP's output: du = act'(u) (dy Wdown), dn = du Wup. dg(rows,f) is
 * scratch, needed for a gate. */
static inline void sp_mlp_backward(const struct sp_backend *k, const struct sp_mlp *m,
                                   const void *dy, void *dg, void *du, void *dn)
{
    const struct sp_model *model = &m->sh->model;
    enum sp_activation act = sp_model_act(model);
    const struct sp_linear up = sp_linear_of(m->sh, SP_TO_UP, m->rows, m->w);
    const struct sp_linear down = sp_linear_of(m->sh, SP_TO_DOWN, m->rows, m->w);

    if (model->arch == SP_ARCH_LLAMA) {
        k->linear_dx(k, &down, dy, dg, false);
        k->gated_bwd(k, &(struct sp_gated){.act = act, .T = m->rows, .f = model->mlp}, m->u, dg,
                     du);
    } else {
        k->linear_dx_act(k, &down, act, dy, m->u, du);
    }
    k->linear_dx(k, &up, du, dn, false);
}

#endif
