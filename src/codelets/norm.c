/*
 * The norm before attention by itself, for a QKV product that runs next to attention (HelixPipe
 * section 4.2), one micro-batch:
 *
 *   n1(T,h) = norm1(x), with its statistics
 *
 * Backward B, from dn1 and the gradient dr of the residual:
 *   was: n1 = norm1(x)      so: dx = dr + norm1'(dn1); gain, bias +=
 */
#include "codelets/insert.h"
#include "codelets/norms.h"
#include "kernels/kernels.h"
#include "sp_error.h"

struct norm_args {
    struct sp_task_args base;
    bool keep_outputs;
};

#define NORM_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(x, SP_READ)               /* (T,h) */                                                      \
    ONE(w_norm, SP_READ)          /* block of norm1 */                                             \
    OPTIONAL(saved, SP_WRITE)     /* = sp_shape_pre_saved */                                       \
    OPTIONAL(n1, SP_WRITE)        /* = (T,h), unless saved holds it */                             \
    OPTIONAL(scratch, SP_SCRATCH) /* n1(T,h), if no other buffer holds it */
SP_BUFFERS(norm_fwd, NORM_FWD_BUFFERS)

static void norm_fwd(const struct sp_backend *k, const struct norm_fwd_buffers *b,
                     const struct norm_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_block_norm(sh, sh->rows, b->w_norm);
    int T = sh->rows, h = sh->model.hidden;
    struct sp_pre_saved s = {0};
    void *n1;

    if (b->saved)
        s = sp_shape_pre_view(sh, a->keep_outputs, b->saved);
    n1 = s.n1 ? s.n1 : b->n1 ? b->n1 : b->scratch;
    k->norm(k, &norm, b->x, n1, s.stats);
    sp_check_finite(&a->base, k, "n1", n1, (size_t)T * (size_t)h);
}

#define NORM_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(x, SP_READ)            /* (T,h) */                                                         \
    ONE(saved, SP_READ)        /* sp_shape_pre_saved */                                            \
    ONE(w_norm, SP_READ)       /* block of norm1 */                                                \
    ONE(g_norm, SP_READ_WRITE) /* += */                                                            \
    ONE(dn1, SP_READ)          /* (T,h) */                                                         \
    ONE(dr, SP_READ)           /* (T,h) */                                                         \
    ONE(dx, SP_WRITE)          /* = (T,h) */
SP_BUFFERS(norm_bwd, NORM_BWD_BUFFERS)

static void norm_bwd(const struct sp_backend *k, const struct norm_bwd_buffers *b,
                     const struct norm_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_block_norm(sh, sh->rows, b->w_norm);
    int T = sh->rows, h = sh->model.hidden;
    struct sp_pre_saved s = sp_shape_pre_view(sh, a->keep_outputs, b->saved);

    k->norm_bwd(k, &norm, b->x, s.stats,
                &(struct sp_norm_bwd){.dy = b->dn1,
                                      .dres = b->dr,
                                      .dx = b->dx,
                                      .dgain = b->g_norm,
                                      .dbias = sp_at(b->g_norm, sh->norm_bias)});
    sp_check_finite(&a->base, k, "dx", b->dx, (size_t)T * (size_t)h);
}

SP_CODELET(norm_fwd);
SP_CODELET(norm_bwd);

static double norm_flops(const struct sp_shape *sh)
{
    return 8.0 * sh->rows * sh->model.hidden;
}

void sp_norm_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, struct sp_tensor *n1, struct sp_tensor *w_norm,
                        int64_t stashed)
{
    struct sp_task *task = sp_task_new(ctx, &norm_fwd_cl, "norm", sh, sizeof(struct norm_args));
    struct norm_args *a = task->args;

    SP_NEED(!n1 || !t->saved || !t->keep_outputs, "n1 is wanted twice");
    a->keep_outputs = t->keep_outputs;
    a->base.variant = (uint32_t)(2 * (t->saved != NULL) + t->keep_outputs);
    SP_TASK_BUFFERS(task, norm_fwd, .x = t->x, .w_norm = w_norm, .saved = t->saved, .n1 = n1,
                    .scratch = n1 || (t->saved && t->keep_outputs)
                                   ? NULL
                                   : sp_scratch_rows(ctx, sh, sh->model.hidden));
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, norm_flops(sh));
}

void sp_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *g_norm,
                        struct sp_tensor *dn1, struct sp_tensor *dr, struct sp_tensor *dx,
                        int64_t released)
{
    struct sp_task *task = sp_task_new(ctx, &norm_bwd_cl, "norm", sh, sizeof(struct norm_args));
    struct norm_args *a = task->args;

    a->keep_outputs = t->keep_outputs;
    SP_TASK_BUFFERS(task, norm_bwd, .x = t->x, .saved = t->saved, .w_norm = w_norm,
                    .g_norm = g_norm, .dn1 = dn1, .dr = dr, .dx = dx);
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, 2 * norm_flops(sh));
}
