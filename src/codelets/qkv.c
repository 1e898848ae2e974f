/*
 * The QKV product next to attention, with weights that came with the input (HelixPipe section 4.2),
 * one micro-batch:
 *
 *   q(T,a*d) = n1 Wq^T + bq      kv(T,2g*d) = n1 Wkv^T + bkv      heads' norms, rotated: see pre.c
 *
 * Backward B: dq, dkv brought back, gains (+)=; dn1 = dq Wq + dkv Wkv
 * Backward W: dWq (+)= dq^T n1, dWkv (+)= dkv^T n1, with biases
 */
#include "codelets/insert.h"
#include "codelets/qkv_product.h"

#define QKV_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(n1, SP_READ)              /* (T,h) */                                                      \
    ONE(w, SP_READ)               /* block of the product */                                       \
    ONE(q, SP_WRITE)              /* = (T,q) */                                                    \
    OPTIONAL(kv, SP_WRITE)        /* = (T,kv) */                                                   \
    OPTIONAL(scratch, SP_SCRATCH) /* sp_heads_scratch */
SP_BUFFERS(qkv_fwd, QKV_FWD_BUFFERS)

static void qkv_fwd(const struct sp_backend *k, const struct qkv_fwd_buffers *b,
                    const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;
    struct sp_qkv qkv = sp_qkv_of(a, b->n1, b->w, b->scratch, b->q, b->kv);

    sp_qkv_forward(k, &qkv);
    sp_check_finite(a, k, "q", b->q, (size_t)sh->rows * (size_t)sh->q_width);
    if (b->kv)
        sp_check_finite(a, k, "kv", b->kv, (size_t)sh->rows * (size_t)sh->kv_width);
}

struct qkv_bwd_args {
    struct sp_task_args base;
    bool apart; /* the gradients of the heads' gains have a tensor of their own, not the block */
};

#define QKV_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                       \
    ONE(w, SP_READ)               /* block of the product */                                       \
    ONE(dq, SP_READ_WRITE)        /* (T,q), brought back to the product */                         \
    ONE(dkv, SP_READ_WRITE)       /* (T,kv), likewise */                                           \
    ONE(dn1, SP_WRITE)            /* = (T,h) */                                                    \
    OPTIONAL(n1, SP_READ)         /* (T,h), only if heads have norms, like the next */             \
    OPTIONAL(g, SP_ADD)           /* += gains in the block of the product, or apart */             \
    OPTIONAL(new_g, SP_WRITE)     /* = block of the product, in place of g */                      \
    OPTIONAL(scratch, SP_SCRATCH) /* sp_heads_scratch */
SP_BUFFERS(qkv_bwd, QKV_BWD_BUFFERS)

static void qkv_bwd(const struct sp_backend *k, const struct qkv_bwd_buffers *b,
                    const struct qkv_bwd_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    struct sp_qkv qkv = sp_qkv_of(&a->base, b->n1, b->w, b->scratch, b->dq, b->dkv);
    float *g = b->new_g ? b->new_g : b->g;

    if (b->new_g)
        k->clear(k, b->new_g_bytes, b->new_g);
    sp_qkv_backward(k, &qkv, a->apart ? g : sp_at(g, sh->q_gain), b->dn1);
    sp_check_finite(&a->base, k, "dn1", b->dn1, (size_t)sh->rows * (size_t)sh->model.hidden);
}

#define QKV_WGRAD_BUFFERS(ONE, OPTIONAL, LIST)                                                     \
    ONE(n1, SP_READ)          /* (T,h) */                                                          \
    ONE(dq, SP_READ)          /* (T,q) */                                                          \
    ONE(dkv, SP_READ)         /* (T,kv) */                                                         \
    OPTIONAL(g, SP_ADD)       /* += block of the product */                                        \
    OPTIONAL(new_g, SP_WRITE) /* = block of the product, in place of g */
SP_BUFFERS(qkv_wgrad, QKV_WGRAD_BUFFERS)

static void qkv_wgrad(const struct sp_backend *k, const struct qkv_wgrad_buffers *b,
                      const struct sp_task_args *a)
{
    struct sp_qkv qkv = sp_qkv_of(a, b->n1, NULL, NULL, b->dq, b->dkv);

    if (b->new_g)
        k->clear(k, b->new_g_bytes, b->new_g);
    sp_qkv_wgrad(k, &qkv, a->overwrites, b->new_g ? b->new_g : b->g);
}

SP_CODELET(qkv_fwd);
SP_CODELET(qkv_bwd);
SP_CODELET(qkv_wgrad);

/* Scratch for the heads' norms; NULL if there are none. */
static struct sp_tensor *heads_of(const struct sp_task_context *ctx, const struct sp_shape *sh)
{
    return sh->model.qk_norm ? sp_scratch_handle(ctx, sh, sp_heads_scratch(sh)) : NULL;
}

void sp_qkv_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n1, struct sp_tensor *w, struct sp_tensor *q,
                       struct sp_tensor *kv, int64_t stashed)
{
    struct sp_task *task = sp_task_new(ctx, &qkv_fwd_cl, "qkv", sh, sizeof(struct sp_task_args));

    ((struct sp_task_args *)task->args)->variant = !kv;
    SP_TASK_BUFFERS(task, qkv_fwd, .n1 = n1, .w = w, .q = q, .kv = kv,
                    .scratch = heads_of(ctx, sh));
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, sp_qkv_flops(sh));
}

void sp_qkv_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                       struct sp_tensor *n1, struct sp_tensor *w, struct sp_tensor *dq,
                       struct sp_tensor *dkv, struct sp_tensor *dn1, struct sp_tensor *g,
                       bool apart, bool fresh)
{
    bool heads = sh->model.qk_norm;
    struct sp_task *task = sp_task_new(ctx, &qkv_bwd_cl, "qkv", sh, sizeof(struct qkv_bwd_args));

    ((struct qkv_bwd_args *)task->args)->apart = apart;
    SP_TASK_BUFFERS(task, qkv_bwd, .w = w, .dq = dq, .dkv = dkv, .dn1 = dn1,
                    .n1 = heads ? n1 : NULL, .g = heads && !fresh ? g : NULL,
                    .new_g = heads && fresh ? g : NULL, .scratch = heads_of(ctx, sh));
    sp_task_submit(ctx, task, sp_qkv_flops(sh) + (heads ? sp_heads_flops(sh) : 0));
}

void sp_qkv_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *n1, struct sp_tensor *dq, struct sp_tensor *dkv,
                         struct sp_tensor *g, bool fresh, int64_t released)
{
    struct sp_task *task =
        sp_task_new(ctx, &qkv_wgrad_cl, "qkv.w", sh, sizeof(struct sp_task_args));

    fresh = fresh && !sh->model.qk_norm; /* with such norms B has written the block already */
    if (!fresh)
        sp_task_overwrites(task, g, SP_QKV_MATRIX);
    SP_TASK_BUFFERS(task, qkv_wgrad, .n1 = n1, .dq = dq, .dkv = dkv, .g = fresh ? NULL : g,
                    .new_g = fresh ? g : NULL);
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, sp_qkv_flops(sh));
}
