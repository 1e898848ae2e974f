/*
 * Attention, parameter-free part of a layer, one (micro-batch, slice i):
 *
 *   O(b,s_i,a,d) = softmax(Q_i K_{0..i}^T / sqrt(d) + causal) V_{0..i}     LSE(b,a,s_i) kept
 *
 * Backward (B only, there are no weights), slices in reverse:
 *   was: O = P V               so: dV_j += P^T dO, dP = dO V^T, dS = P o (dP - rowsum(dO o O))
 *   was: S = Q K^T / sqrt(d)   so: dQ_i = dS K / sqrt(d), dK_j += dS^T Q / sqrt(d)
 *
 * Where documents are told apart, one after the other: each with its own keys, and its own part of LSE.
 */
#include "codelets/insert.h"
#include "codelets/sight.h"
#include <string.h>

struct attention_args {
    struct sp_task_args base;
    int q_len, q_pos, n_kv;
    int kv_len[SP_MAX_SLICES]; /* args are allocated up to the last one used */
};

/* The queries, as a shape has tokens. */
static struct sp_shape queries_of(const struct attention_args *a)
{
    struct sp_shape q = *a->base.shape;

    q.first = a->q_pos;
    q.seq = a->q_len;
    q.second = 0;
    return q;
}

static void pieces_of(const struct attention_args *a, void *const *kv, void *const *dkv,
                      struct sp_keys *piece)
{
    for (int j = 0, at = 0; j < a->n_kv; at += a->kv_len[j++])
        piece[j] = (struct sp_keys){at, a->kv_len[j], kv ? kv[j] : NULL, dkv ? dkv[j] : NULL};
}

static size_t query_elements(const struct attention_args *a)
{
    const struct sp_shape *sh = a->base.shape;

    return (size_t)sh->batch * (size_t)a->q_len * (size_t)sh->q_width;
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
    const struct sp_shape sh = queries_of(a);
    struct sp_keys piece[SP_MAX_SLICES];
    struct sp_segment s = {0};
    struct sp_sight see;

    pieces_of(a, b->kv, NULL, piece);
    while (sp_segment_next(&sh, a->base.documents, &s)) {
        size_t at = s.row * (size_t)sh.q_width;

        sp_sight_of(&sh, &s, a->n_kv, piece, &see);
        k->attention(k, &see.at, sp_skip(&sh, b->q, at), (const void *const *)see.keys,
                     sp_skip(&sh, b->o, at), (float *)b->lse + sp_segment_stats(&sh, &s));
    }
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
    const struct sp_shape sh = queries_of(a);
    bool first = b->n_new_dkv > 0;
    struct sp_keys piece[SP_MAX_SLICES];
    struct sp_segment s = {0};
    struct sp_sight see;

    /* documents that end before these queries have no part in what follows */
    for (int j = 0; a->base.documents && j < b->n_new_dkv; j++)
        k->clear(k, b->new_dkv_bytes[j], b->new_dkv[j]);
    pieces_of(a, b->kv, first ? b->new_dkv : b->dkv, piece);
    while (sp_segment_next(&sh, a->base.documents, &s)) {
        size_t at = s.row * (size_t)sh.q_width;

        sp_sight_of(&sh, &s, a->n_kv, piece, &see);
        k->attention_bwd(k, &see.at, sp_skip(&sh, b->q, at), (const void *const *)see.keys,
                         sp_skip(&sh, b->o, at), (const float *)b->lse + sp_segment_stats(&sh, &s),
                         sp_skip(&sh, b->d_o, at), sp_skip(&sh, b->dq, at), see.gradients,
                         first && !a->base.documents);
    }
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
    a->q_len = t->q_len;
    a->q_pos = t->q_pos;
    a->n_kv = t->n_kv;
    memcpy(a->kv_len, t->kv_len, sizeof(int) * (size_t)t->n_kv);
    a->base.variant = (uint32_t)t->q_pos;
    return task;
}

/* Of all tokens before the queries, whatever documents there are. */
static double flops(const struct attention_args *a)
{
    const struct sp_model *m = &a->base.shape->model;
    struct sp_attention at = {.batch = a->base.shape->batch,
                              .heads = m->heads,
                              .kv_heads = m->kv_heads,
                              .head_dim = m->head_dim,
                              .q_len = a->q_len,
                              .q_pos = a->q_pos};

    return sp_flops_attention(&at);
}

void sp_attn_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed)
{
    struct starpu_task *task = new_task(ctx, &attn_fwd_cl, sh, t);

    SP_TASK_BUFFERS(task, attn_fwd, .q = t->q, .o = t->o, .lse = t->lse, .kv = t->kv,
                    .n_kv = t->n_kv);
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, flops(task->cl_arg));
}

void sp_attn_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, starpu_data_handle_t d_o,
                        starpu_data_handle_t dq, const starpu_data_handle_t *dkv, int64_t released)
{
    struct starpu_task *task = new_task(ctx, &attn_bwd_cl, sh, t);

    SP_TASK_BUFFERS(task, attn_bwd, .q = t->q, .o = t->o, .lse = t->lse, .d_o = d_o, .dq = dq,
                    .kv = t->kv, .n_kv = t->n_kv, .dkv = dkv, .n_dkv = first ? 0 : t->n_kv,
                    .new_dkv = dkv, .n_new_dkv = first ? t->n_kv : 0);
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, 2.5 * flops(task->cl_arg));
}
