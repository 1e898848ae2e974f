/*
 * Attention, parameter-free part of a layer, one (micro-batch, slice i):
 *
 *   O(b,s_i,a,d) = softmax(Q_i K_{0..i}^T / sqrt(d) + causal) V_{0..i}     LSE(b,a,s_i) kept
 *
 * Backward (B only, there are no weights), slices in reverse:
 *   was: O = P V               so: dV_j += P^T dO, dP = dO V^T, dS = P o (dP - rowsum(dO o O))
 *   was: S = Q K^T / sqrt(d)   so: dQ_i = dS K / sqrt(d), dK_j += dS^T Q / sqrt(d)
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"
#include <math.h>
#include <string.h>

struct attention_args {
    struct sp_task_args base;
    struct sp_attention at;
    int kv_len[SP_MAX_SLICES]; /* args are allocated up to the last one used */
};

static size_t query_elements(const struct attention_args *a)
{
    return (size_t)a->at.batch * (size_t)a->at.q_len * (size_t)a->base.shape->q_width;
}

#define ATTN_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, STARPU_R)   /* (b,s_i,q) */                                                             \
    ONE(o, STARPU_W)   /* = (b,s_i,q) */                                                           \
    ONE(lse, STARPU_W) /* = (b,a,s_i) */                                                           \
    LIST(kv, STARPU_R) /* (b,s_j,kv) of slices j = 0..i */
SP_BUFFERS(attn_fwd, ATTN_FWD_BUFFERS)

static void attn_fwd(const struct sp_backend *k, const struct attn_fwd_buffers *b,
                     struct attention_args *a)
{
    a->at.kv_len = a->kv_len;
    k->attention(k, &a->at, b->q, (const void *const *)b->kv, b->o, b->lse);
    sp_check_finite(&a->base, k, "o", b->o, query_elements(a));
}

#define ATTN_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, STARPU_R)        /* (b,s_i,q) */                                                        \
    ONE(o, STARPU_R)        /* (b,s_i,q) */                                                        \
    ONE(lse, STARPU_R)      /* (b,a,s_i) */                                                        \
    ONE(d_o, STARPU_R)      /* (b,s_i,q) */                                                        \
    ONE(dq, STARPU_W)       /* = (b,s_i,q) */                                                      \
    LIST(kv, STARPU_R)      /* (b,s_j,kv) of slices j = 0..i */                                    \
    LIST(dkv, STARPU_RW)    /* += (b,s_j,kv) */                                                    \
    LIST(new_dkv, STARPU_W) /* = (b,s_j,kv), in place of dkv, in the last slice: it runs first */
SP_BUFFERS(attn_bwd, ATTN_BWD_BUFFERS)

static void attn_bwd(const struct sp_backend *k, const struct attn_bwd_buffers *b,
                     struct attention_args *a)
{
    bool first = b->n_new_dkv > 0;

    a->at.kv_len = a->kv_len;
    k->attention_bwd(k, &a->at, b->q, (const void *const *)b->kv, b->o, b->lse, b->d_o, b->dq,
                     first ? b->new_dkv : b->dkv, first);
    sp_check_finite(&a->base, k, "dq", b->dq, query_elements(a));
}

SP_CODELET(attn_fwd);
SP_CODELET(attn_bwd);

static struct starpu_task *new_task(const struct sp_task_context *ctx, struct starpu_codelet *cl,
                                    const struct sp_shape *sh, const struct sp_attn *t)
{
    struct starpu_task *task;
    struct attention_args *a;

    STARPU_ASSERT_MSG(t->n_kv <= SP_MAX_SLICES, "starpipe: more than %d slices", SP_MAX_SLICES);
    task = sp_task_new(ctx, cl, "attn", sh,
                       offsetof(struct attention_args, kv_len) + sizeof(int) * (size_t)t->n_kv);
    a = task->cl_arg;
    a->at = (struct sp_attention){
        .batch = sh->batch,
        .heads = sh->model.heads,
        .kv_heads = sh->model.kv_heads,
        .head_dim = sh->model.head_dim,
        .scale = 1.0f / sqrtf((float)sh->model.head_dim),
        .q_len = t->q_len,
        .q_pos = t->q_pos,
        .n_kv = t->n_kv,
    };
    memcpy(a->kv_len, t->kv_len, sizeof(int) * (size_t)t->n_kv);
    a->at.kv_len = a->kv_len;
    a->base.variant = (uint32_t)t->q_pos;
    return task;
}

void sp_attn_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed)
{
    struct starpu_task *task = new_task(ctx, &attn_fwd_cl, sh, t);
    const struct attention_args *a = task->cl_arg;

    SP_TASK_BUFFERS(task, attn_fwd, .q = t->q, .o = t->o, .lse = t->lse, .kv = t->kv,
                    .n_kv = t->n_kv);
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, sp_flops_attention(&a->at));
}

void sp_attn_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, starpu_data_handle_t d_o,
                        starpu_data_handle_t dq, const starpu_data_handle_t *dkv, int64_t released)
{
    struct starpu_task *task = new_task(ctx, &attn_bwd_cl, sh, t);
    const struct attention_args *a = task->cl_arg;

    SP_TASK_BUFFERS(task, attn_bwd, .q = t->q, .o = t->o, .lse = t->lse, .d_o = d_o, .dq = dq,
                    .kv = t->kv, .n_kv = t->n_kv, .dkv = dkv, .n_dkv = first ? 0 : t->n_kv,
                    .new_dkv = dkv, .n_new_dkv = first ? t->n_kv : 0);
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, 2.5 * sp_flops_attention(&a->at));
}
