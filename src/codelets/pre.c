/*
 * Pre-attention part of a layer, one micro-batch:
 *
 *   n1(T,h) = norm1(x)      q(T,a*d) = n1 Wq^T + bq      kv(T,2g*d) = n1 Wkv^T + bkv
 *   Llama style: q and the keys are rotated by their position (RoPE); Qwen 3: their heads are
 *   normalised before (qkv_product.c)
 *
 * Backward B, from dq, dkv and the gradient dr of the residual:
 *   was: rotate             so: rotate dq, dk back (and through the heads' norms; gains +=)
 *   was: q = n1 Wq^T        so: dn1 = dq Wq + dkv Wkv
 *   was: n1 = norm1(x)      so: dx = dr + norm1'(dn1); gain, bias +=
 * Backward W: dWq += dq^T n1, dWkv += dkv^T n1.
 */
#include "codelets/insert.h"
#include "codelets/norms.h"
#include "codelets/qkv_product.h"

struct pre_args {
    struct sp_task_args base;
    bool keep_outputs;
    bool apart; /* the gradients of the heads' gains have a tensor of their own, not the block */
};

/* Scratch of a task: first that of the heads' norms, which holds f32 and has an even number of
 * elements, then n1 unless it is kept. */
static size_t scratch_elements(const struct sp_shape *sh, bool keeps_n1)
{
    size_t n1 = (size_t)sp_shape_scratch(sh)->rows * (size_t)sh->model.hidden;

    return sp_heads_scratch(sh) + (keeps_n1 ? 0 : n1);
}

static void *n1_in(const struct sp_shape *sh, void *scratch)
{
    return sp_skip(sh, scratch, sp_heads_scratch(sh));
}

#define PRE_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(x, SP_READ)               /* (T,h) */                                                      \
    ONE(w_norm, SP_READ)          /* block of norm1 */                                             \
    ONE(w_qkv, SP_READ)           /* block of the QKV product */                                   \
    ONE(q, SP_WRITE)              /* = (T,q) */                                                    \
    OPTIONAL(kv, SP_WRITE)        /* = (T,kv) */                                                   \
    OPTIONAL(saved, SP_WRITE)     /* = sp_shape_pre_saved */                                       \
    OPTIONAL(scratch, SP_SCRATCH) /* scratch_elements */
SP_BUFFERS(pre_fwd, PRE_FWD_BUFFERS)

static void pre_fwd(const struct sp_backend *k, const struct pre_fwd_buffers *b,
                    const struct pre_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_block_norm(sh, sh->rows, b->w_norm);
    int T = sh->rows;
    struct sp_pre_saved s = {0};
    struct sp_qkv qkv;
    void *n1;

    if (b->saved)
        s = sp_shape_pre_view(sh, a->keep_outputs, b->saved);
    n1 = s.n1 ? s.n1 : n1_in(sh, b->scratch);
    qkv = sp_qkv_of(&a->base, n1, b->w_qkv, b->scratch, b->q, b->kv);
    k->norm(k, &norm, b->x, n1, s.stats);
    sp_qkv_forward(k, &qkv);
    sp_check_finite(&a->base, k, "q", b->q, (size_t)T * (size_t)sh->q_width);
    if (b->kv)
        sp_check_finite(&a->base, k, "kv", b->kv, (size_t)T * (size_t)sh->kv_width);
}

#define PRE_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(x, SP_READ)               /* (T,h) */                                                      \
    ONE(saved, SP_READ)           /* sp_shape_pre_saved */                                         \
    ONE(w_norm, SP_READ)          /* block of norm1 */                                             \
    ONE(w_qkv, SP_READ)           /* block of the QKV product */                                   \
    ONE(g_norm, SP_READ_WRITE)    /* += */                                                         \
    ONE(dq, SP_READ_WRITE)        /* (T,q), brought back to the product */                         \
    ONE(dkv, SP_READ_WRITE)       /* (T,kv), likewise */                                           \
    ONE(dr, SP_READ)              /* (T,h) */                                                      \
    ONE(dx, SP_WRITE)             /* = (T,h) */                                                    \
    OPTIONAL(gains, SP_ADD)       /* += of heads: block of the product, or apart */                \
    OPTIONAL(scratch, SP_SCRATCH) /* scratch_elements, where heads have norms */
SP_BUFFERS(pre_bwd, PRE_BWD_BUFFERS)

static void pre_bwd(const struct sp_backend *k, const struct pre_bwd_buffers *b,
                    const struct pre_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_block_norm(sh, sh->rows, b->w_norm);
    int T = sh->rows, h = sh->model.hidden;
    struct sp_pre_saved s = sp_shape_pre_view(sh, a->keep_outputs, b->saved);
    void *n1 = s.n1 ? s.n1 : n1_in(sh, b->scratch);
    struct sp_qkv qkv = sp_qkv_of(&a->base, n1, b->w_qkv, b->scratch, b->dq, b->dkv);
    float *gains = b->gains && !a->apart ? (float *)b->gains + sh->q_gain : b->gains;

    if (b->gains && !s.n1)
        k->norm_apply(k, &norm, b->x, s.stats, n1);
    /* dx holds dn1 until norm1's backward overwrites it, row by row. */
    sp_qkv_backward(k, &qkv, gains, b->dx);
    k->norm_bwd(k, &norm, b->x, s.stats,
                &(struct sp_norm_bwd){.dy = b->dx,
                                      .dres = b->dr,
                                      .dx = b->dx,
                                      .dgain = b->g_norm,
                                      .dbias = sp_at(b->g_norm, sh->norm_bias)});
    sp_check_finite(&a->base, k, "dx", b->dx, (size_t)T * (size_t)h);
}

/* x, w_norm and scratch serve to compute n1, unless saved holds it. */
#define PRE_WGRAD_BUFFERS(ONE, OPTIONAL, LIST)                                                     \
    ONE(saved, SP_READ)           /* sp_shape_pre_saved */                                         \
    ONE(dq, SP_READ)              /* (T,q) */                                                      \
    ONE(dkv, SP_READ)             /* (T,kv) */                                                     \
    ONE(g_qkv, SP_ADD)            /* += */                                                         \
    OPTIONAL(x, SP_READ)          /* (T,h) */                                                      \
    OPTIONAL(w_norm, SP_READ)     /* block of norm1 */                                             \
    OPTIONAL(scratch, SP_SCRATCH) /* n1(T,h) */
SP_BUFFERS(pre_wgrad, PRE_WGRAD_BUFFERS)

static void pre_wgrad(const struct sp_backend *k, const struct pre_wgrad_buffers *b,
                      const struct pre_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_block_norm(sh, sh->rows, b->w_norm);
    struct sp_pre_saved s = sp_shape_pre_view(sh, a->keep_outputs, b->saved);
    const void *n1 = s.n1 ? s.n1 : b->scratch;
    struct sp_qkv qkv = sp_qkv_of(&a->base, n1, NULL, NULL, b->dq, b->dkv);

    if (!s.n1)
        k->norm_apply(k, &norm, b->x, s.stats, b->scratch);
    sp_qkv_wgrad(k, &qkv, a->base.overwrites, b->g_qkv);
}

SP_CODELET(pre_fwd);
SP_CODELET(pre_bwd);
SP_CODELET(pre_wgrad);

void sp_pre_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *w_qkv,
                       int64_t stashed)
{
    struct sp_task *task = sp_task_new(ctx, &pre_fwd_cl, "pre", sh, sizeof(struct pre_args));
    struct pre_args *a = task->args;
    size_t scratch = scratch_elements(sh, t->saved && t->keep_outputs);

    a->keep_outputs = t->keep_outputs;
    a->base.variant = (uint32_t)(4 * !t->kv + 2 * (t->saved != NULL) + t->keep_outputs);
    SP_TASK_BUFFERS(task, pre_fwd, .x = t->x, .w_norm = w_norm, .w_qkv = w_qkv, .q = t->q,
                    .kv = t->kv, .saved = t->saved,
                    .scratch = scratch ? sp_scratch_handle(ctx, sh, scratch) : NULL);
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, sp_qkv_flops(sh));
}

void sp_pre_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *w_qkv,
                       struct sp_tensor *g_norm, struct sp_tensor *gains, bool apart,
                       struct sp_tensor *dq, struct sp_tensor *dkv, struct sp_tensor *dr,
                       struct sp_tensor *dx)
{
    struct sp_task *task = sp_task_new(ctx, &pre_bwd_cl, "pre", sh, sizeof(struct pre_args));
    struct pre_args *a = task->args;
    bool heads = sh->model.qk_norm;
    struct sp_tensor *scratch =
        heads ? sp_scratch_handle(ctx, sh, scratch_elements(sh, t->keep_outputs)) : NULL;

    a->keep_outputs = t->keep_outputs;
    a->apart = apart;
    SP_TASK_BUFFERS(task, pre_bwd, .x = t->x, .saved = t->saved, .w_norm = w_norm, .w_qkv = w_qkv,
                    .g_norm = g_norm, .dq = dq, .dkv = dkv, .dr = dr, .dx = dx,
                    .gains = heads ? gains : NULL, .scratch = scratch);
    sp_task_submit(ctx, task, sp_qkv_flops(sh) + (heads ? sp_heads_flops(sh) : 0));
}

void sp_pre_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         const struct sp_pre *t, struct sp_tensor *w_norm, struct sp_tensor *dq,
                         struct sp_tensor *dkv, struct sp_tensor *g_qkv, int64_t released)
{
    struct sp_task *task = sp_task_new(ctx, &pre_wgrad_cl, "pre.w", sh, sizeof(struct pre_args));
    struct pre_args *a = task->args;

    a->keep_outputs = t->keep_outputs;
    a->base.variant = t->keep_outputs;
    sp_task_overwrites(task, g_qkv, SP_QKV_MATRIX);
    SP_TASK_BUFFERS(task, pre_wgrad, .saved = t->saved, .dq = dq, .dkv = dkv, .g_qkv = g_qkv,
                    .x = t->keep_outputs ? NULL : t->x, .w_norm = t->keep_outputs ? NULL : w_norm,
                    .scratch = t->keep_outputs ? NULL : sp_scratch_rows(ctx, sh, sh->model.hidden));
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, sp_qkv_flops(sh));
}
