/*
 * The MLP if devices share its width, for a part of a micro-batch's tokens:
 *
 *   u(T,up) = n2 Wup^T + bup     g(T,f) = act(u)
 *   y(T,h) = g Wdown^T over this device's columns: a part of the sum over devices; one adds bdown
 *
 * Backward B, from that sum's dy:
 *   was: y = g Wdown^T      so: dg = dy Wdown
 *   was: g = act(u)         so: du = act'(u) dg
 *   was: u = n2 Wup^T       so: dn = du Wup, a part of the sum over devices
 * Backward W: dWdown += dy^T g, dWup += du^T n2, with biases
 */
#include "codelets/mlp.h"
#include "codelets/insert.h"

struct mlp_args {
    struct sp_task_args base;
    bool biased; /* y */
};

#define MLP_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(n2, SP_READ)      /* (T,h) */                                                              \
    ONE(w, SP_READ)       /* block of the layer's second half */                                   \
    ONE(u, SP_WRITE)      /* = (T,up) */                                                           \
    OPTIONAL(g, SP_WRITE) /* = (T,f) */                                                            \
    OPTIONAL(y, SP_WRITE) /* = (T,h), which wants g */
SP_BUFFERS(mlp_fwd, MLP_FWD_BUFFERS)

static void mlp_fwd(const struct sp_backend *k, const struct mlp_fwd_buffers *b,
                    const struct mlp_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    struct sp_linear down = sp_linear_of(sh, SP_TO_DOWN, sh->rows, b->w);

    sp_mlp_up(k, &(struct sp_mlp){sh, sh->rows, b->w, b->u}, b->n2, b->g);
    if (!b->y)
        return;
    if (!a->biased)
        down.bias = NULL;
    k->linear(k, &down, b->g, b->y);
    sp_check_finite(&a->base, k, "y", b->y, (size_t)sh->rows * (size_t)sh->model.hidden);
}

#define MLP_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(u, SP_READ)          /* (T,up) */                                                          \
    ONE(w, SP_READ)          /* block of the layer's second half */                                \
    ONE(dy, SP_READ)         /* (T,h) */                                                           \
    ONE(du, SP_WRITE)        /* = (T,up) */                                                        \
    ONE(dn, SP_WRITE)        /* = (T,h) */                                                         \
    OPTIONAL(dg, SP_SCRATCH) /* (T,f), for SwiGLU */
SP_BUFFERS(mlp_bwd, MLP_BWD_BUFFERS)

static void mlp_bwd(const struct sp_backend *k, const struct mlp_bwd_buffers *b,
                    const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;

    sp_mlp_backward(k, &(struct sp_mlp){sh, sh->rows, b->w, b->u}, b->dy, b->dg, b->du, b->dn);
    sp_check_finite(a, k, "dn", b->dn, (size_t)sh->rows * (size_t)sh->model.hidden);
}

#define MLP_WGRAD_BUFFERS(ONE, OPTIONAL, LIST)                                                     \
    ONE(n2, SP_READ)              /* (T,h) */                                                      \
    ONE(dy, SP_READ)              /* (T,h) */                                                      \
    ONE(du, SP_READ)              /* (T,up) */                                                     \
    ONE(grad, SP_ADD)             /* += products' weights and biases in the block */               \
    OPTIONAL(g, SP_READ)          /* (T,f), or: */                                                 \
    OPTIONAL(u, SP_READ)          /* (T,up), of which g is made again */                           \
    OPTIONAL(scratch, SP_SCRATCH) /* for that */
SP_BUFFERS(mlp_wgrad, MLP_WGRAD_BUFFERS)

static void mlp_wgrad(const struct sp_backend *k, const struct mlp_wgrad_buffers *b,
                      const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;
    void *g = b->g ? b->g : b->scratch;

    if (!b->g)
        sp_mlp_activate(k, &(struct sp_mlp){.sh = sh, .rows = sh->rows, .u = b->u}, g);
    sp_projection_wgrad(k, sp_projection(sh, SP_TO_UP, sh->rows), a->overwrites, b->n2, b->du,
                        b->grad);
    sp_projection_wgrad(k, sp_projection(sh, SP_TO_DOWN, sh->rows), a->overwrites, g, b->dy,
                        b->grad);
}

SP_CODELET(mlp_fwd);
SP_CODELET(mlp_bwd);
SP_CODELET(mlp_wgrad);

static double flops(const struct sp_shape *sh, bool down)
{
    return sh->rows * (sp_product_flops(&sh->model, SP_ROLE_UP) +
                       (down ? sp_product_flops(&sh->model, SP_ROLE_DOWN) : 0));
}

void sp_mlp_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n2, struct sp_tensor *w, struct sp_tensor *u,
                       struct sp_tensor *g, bool biased, struct sp_tensor *y)
{
    struct sp_task *task = sp_task_new(ctx, &mlp_fwd_cl, "mlp", sh, sizeof(struct mlp_args));
    struct mlp_args *a = task->args;

    a->biased = biased;
    a->base.variant = (uint32_t)(2 * (g != NULL) + (y != NULL));
    SP_TASK_BUFFERS(task, mlp_fwd, .n2 = n2, .w = w, .u = u, .g = g, .y = y);
    sp_task_submit(ctx, task, flops(sh, y != NULL));
}

void sp_mlp_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *u, struct sp_tensor *w, struct sp_tensor *dy,
                       struct sp_tensor *du, struct sp_tensor *dn)
{
    struct sp_task *task = sp_task_new(ctx, &mlp_bwd_cl, "mlp", sh, sizeof(struct sp_task_args));

    SP_TASK_BUFFERS(task, mlp_bwd, .u = u, .w = w, .dy = dy, .du = du, .dn = dn,
                    .dg = sh->model.arch == SP_ARCH_LLAMA ? sp_scratch_rows(ctx, sh, sh->model.mlp)
                                                          : NULL);
    sp_task_submit(ctx, task, flops(sh, true));
}

void sp_mlp_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *n2, struct sp_tensor *u, struct sp_tensor *g,
                         struct sp_tensor *dy, struct sp_tensor *du, struct sp_tensor *grad,
                         int64_t released)
{
    struct sp_task *task =
        sp_task_new(ctx, &mlp_wgrad_cl, "mlp.w", sh, sizeof(struct sp_task_args));

    ((struct sp_task_args *)task->args)->variant = g != NULL;
    sp_task_overwrites(task, grad, SP_MLP_MATRICES);
    SP_TASK_BUFFERS(task, mlp_wgrad, .n2 = n2, .dy = dy, .du = du, .grad = grad, .g = g,
                    .u = g ? NULL : u,
                    .scratch = g ? NULL : sp_scratch_rows(ctx, sh, sh->model.mlp));
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, flops(sh, true));
}
