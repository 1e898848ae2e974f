/*
 * The output product of attention by itself:
 *
 *   y(T,h) = x + o Wo^T + bo         if all of attention is one op (ship=attention of HelixPipe)
 *   y(T,h) = o Wo^T, over a device's heads, if devices share them, for a part of a micro-batch's
 *                                    tokens: a part of the sum over devices; one adds bo
 *
 * Backward B, from the gradient dr of y: do = dr Wo
 * Backward W: dWo += dr^T o, with the bias
 */
#include "codelets/insert.h"
#include "codelets/projections.h"

struct out_args {
    struct sp_task_args base;
    bool biased;
};

#define OUT_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(o, SP_READ)      /* (T,q) */                                                               \
    ONE(w, SP_READ)      /* block of the layer's second half, or the part of it up to bo */        \
    OPTIONAL(x, SP_READ) /* (T,h) */                                                               \
    ONE(y, SP_WRITE)     /* = (T,h) */
SP_BUFFERS(out_fwd, OUT_FWD_BUFFERS)

static void out_fwd(const struct sp_backend *k, const struct out_fwd_buffers *b,
                    const struct out_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    struct sp_linear out = sp_linear_of(sh, SP_TO_OUT, sh->rows, b->w);

    if (!a->biased)
        out.bias = NULL;
    if (b->x)
        k->linear_add(k, &out, b->o, b->x, b->y);
    else
        k->linear(k, &out, b->o, b->y);
    sp_check_finite(&a->base, k, "y", b->y, (size_t)sh->rows * (size_t)sh->model.hidden);
}

#define OUT_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(dr, SP_READ)   /* (T,h) */                                                                 \
    ONE(w, SP_READ)    /* block of the layer's second half */                                      \
    ONE(d_o, SP_WRITE) /* = (T,q) */
SP_BUFFERS(out_bwd, OUT_BWD_BUFFERS)

static void out_bwd(const struct sp_backend *k, const struct out_bwd_buffers *b,
                    const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;
    const struct sp_linear out = sp_linear_of(sh, SP_TO_OUT, sh->rows, b->w);

    k->linear_dx(k, &out, b->dr, b->d_o, false);
    sp_check_finite(a, k, "do", b->d_o, (size_t)sh->rows * (size_t)sh->q_width);
}

#define OUT_WGRAD_BUFFERS(ONE, OPTIONAL, LIST)                                                     \
    ONE(o, SP_READ)  /* (T,q) */                                                                   \
    ONE(dr, SP_READ) /* (T,h) */                                                                   \
    ONE(g, SP_ADD)   /* += weight and bias of the product in the block */
SP_BUFFERS(out_wgrad, OUT_WGRAD_BUFFERS)

static void out_wgrad(const struct sp_backend *k, const struct out_wgrad_buffers *b,
                      const struct sp_task_args *a)
{
    sp_projection_wgrad(k, sp_projection(a->shape, SP_TO_OUT, a->shape->rows), a->overwrites, b->o,
                        b->dr, b->g);
}

SP_CODELET(out_fwd);
SP_CODELET(out_bwd);
SP_CODELET(out_wgrad);

static double flops(const struct sp_shape *sh)
{
    return sh->rows * sp_product_flops(&sh->model, SP_ROLE_OUT);
}

static struct sp_task *new_task(const struct sp_task_context *ctx, struct sp_codelet *cl,
                                const char *part, const struct sp_shape *sh)
{
    return sp_task_new(ctx, cl, part, sh, sizeof(struct out_args));
}

void sp_out_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *o, struct sp_tensor *w, bool biased, struct sp_tensor *x,
                       struct sp_tensor *y)
{
    struct sp_task *task = new_task(ctx, &out_fwd_cl, "out", sh);
    struct out_args *a = task->args;

    a->biased = biased;
    a->base.variant = x != NULL;
    SP_TASK_BUFFERS(task, out_fwd, .o = o, .w = w, .x = x, .y = y);
    sp_task_submit(ctx, task, flops(sh));
}

void sp_out_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *dr, struct sp_tensor *w, struct sp_tensor *d_o)
{
    struct sp_task *task = new_task(ctx, &out_bwd_cl, "out", sh);

    SP_TASK_BUFFERS(task, out_bwd, .dr = dr, .w = w, .d_o = d_o);
    sp_task_submit(ctx, task, flops(sh));
}

void sp_out_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *o, struct sp_tensor *dr, struct sp_tensor *g)
{
    struct sp_task *task = new_task(ctx, &out_wgrad_cl, "out.w", sh);

    sp_task_overwrites(task, g, SP_OUT_MATRIX);
    SP_TASK_BUFFERS(task, out_wgrad, .o = o, .dr = dr, .g = g);
    sp_task_submit(ctx, task, flops(sh));
}
