/*
 * Attention, parameter-free part of a layer, one (micro-batch, slice i):
 *
 *   O(b,s_i,a,d) = softmax(Q_i K_{0..i}^T / sqrt(d) + causal) V_{0..i}     LSE(b,a,s_i) kept
 *
 * Backward (B only, there are no weights), slices in reverse:
 *   was: O = P V               so: dV_j += P^T dO, dP = dO V^T, dS = P o (dP - rowsum(dO o O))
 *   was: S = Q K^T / sqrt(d)   so: dQ_i = dS K / sqrt(d), dK_j += dS^T Q / sqrt(d)
 *
 * If keys and values do not come all at once, each part of them has its own task. A task merges its
 * result with that of the parts before it, in f32 (equations in
 * kernels/cpu/attention/attention_merge.c). The backward computes P of the whole from LSE, so that
 * dQ is a sum over parts.
 *
 * If documents are told apart, they are computed one after the other, each with its own keys and
 * its own part of LSE.
 */
#include "codelets/attention/parts.h"

/* ---- one part -------------------------------------------------------------------------------- */

/* The most rows that a kernel takes at a time. */
static size_t run_rows(const struct sp_shape *slice)
{
    const struct sp_shape *sh = sp_shape_scratch(slice);

    return (size_t)sh->batch * (size_t)(sh->seq / sp_shape_runs(sh));
}

static size_t scratch_elements(const struct sp_shape *sh)
{
    size_t rows = run_rows(sh), part = rows * (size_t)sh->q_width;

    return part + part % 2 + sp_shape_f32(sh, rows * (size_t)sh->model.heads);
}

static float *scratch_lse(const struct sp_shape *sh, void *scratch)
{
    size_t part = run_rows(sh) * (size_t)sh->q_width;

    return sp_skip(sh, scratch, part + part % 2);
}

/* Queries that see none of these keys get a zero. That happens if they are computed for another
 * stage, which skips them when it merges. */
static void see_nothing(const struct sp_backend *k, const struct sp_attn_args *a, size_t elements,
                        void *part)
{
    if (a->begins)
        k->clear(k, elements * sp_shape_elem(a->base.shape), part);
}

/* ---- forward --------------------------------------------------------------------------------- */

#define ATTN_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, SP_READ)              /* (b,s_i,q) */                                                   \
    OPTIONAL(o, SP_READ_WRITE)   /* (b,s_i,q), merged with */                                      \
    OPTIONAL(lse, SP_READ_WRITE) /* (b,a,s_i), likewise */                                         \
    OPTIONAL(sum, SP_READ_WRITE) /* (b,s_i,q) f32, in place of o until the last part */            \
    OPTIONAL(new_o, SP_WRITE)    /* = in place of o: in the first part, or, after sum, the last */ \
    OPTIONAL(new_lse, SP_WRITE)  /* = in the first part */                                         \
    OPTIONAL(new_sum, SP_WRITE)  /* = likewise */                                                  \
    LIST(kv, SP_READ)            /* (b,s_j,kv) of some of the slices j = 0..i */                   \
    OPTIONAL(scratch, SP_SCRATCH)
SP_BUFFERS(attn_fwd, ATTN_FWD_BUFFERS)

static void attn_fwd(const struct sp_backend *k, const struct attn_fwd_buffers *b,
                     struct sp_attn_args *a)
{
    struct sp_attn_sum sum =
        sp_attn_sum_of(a, b->new_o ? b->new_o : b->o, b->new_sum ? b->new_sum : b->sum);
    float *lse = a->begins ? b->new_lse : b->lse;
    struct sp_attn_walk w;

    sp_attn_start(&w, a, b->kv, NULL);
    while (sp_attn_next(&w)) {
        void *o = sum.direct ? sp_skip(&w.sh, sum.whole, w.at) : b->scratch;
        float *part_lse = a->begins ? lse + w.stats : scratch_lse(a->base.shape, b->scratch);

        if (!w.sees) {
            see_nothing(k, a, w.elements, o);
            if (a->begins)
                k->clear(k, w.elements / (size_t)w.sh.model.head_dim * sizeof(float), part_lse);
            continue;
        }
        k->attention(k, &w.see.at, sp_skip(&w.sh, b->q, w.at), (const void *const *)w.see.keys, o,
                     part_lse);
        if (!a->begins)
            k->attention_merge(k, &w.see.at, o, part_lse, sum.at + w.at, lse + w.stats);
        else if (!sum.direct)
            sp_attn_add(k, a, w.elements, o, sum.at + w.at);
    }
    sp_attn_end(k, a, &sum);
    if (a->ends)
        sp_check_finite(&a->base, k, "o", sum.whole, sp_attn_elements(a));
}

/* ---- backward -------------------------------------------------------------------------------- */

#define ATTN_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, SP_READ)              /* (b,s_i,q) */                                                   \
    ONE(o, SP_READ)              /* (b,s_i,q) */                                                   \
    ONE(lse, SP_READ)            /* (b,a,s_i) */                                                   \
    ONE(d_o, SP_READ)            /* (b,s_i,q) */                                                   \
    OPTIONAL(dq, SP_READ_WRITE)  /* += (b,s_i,q) */                                                \
    OPTIONAL(sum, SP_READ_WRITE) /* += (b,s_i,q) f32, in place of dq until the last part */        \
    OPTIONAL(new_dq, SP_WRITE)   /* = in place of dq, as new_o above */                            \
    OPTIONAL(new_sum, SP_WRITE)  /* = in the first part */                                         \
    LIST(kv, SP_READ)            /* (b,s_j,kv) of some of the slices j = 0..i */                   \
    LIST(dkv, SP_READ_WRITE)     /* += (b,s_j,kv) */                                               \
    LIST(new_dkv, SP_WRITE) /* = (b,s_j,kv), in place of dkv, in the last slice: it runs first */  \
    OPTIONAL(scratch, SP_SCRATCH)
SP_BUFFERS(attn_bwd, ATTN_BWD_BUFFERS)

static void attn_bwd(const struct sp_backend *k, const struct attn_bwd_buffers *b,
                     struct sp_attn_args *a)
{
    struct sp_attn_sum sum =
        sp_attn_sum_of(a, b->new_dq ? b->new_dq : b->dq, b->new_sum ? b->new_sum : b->sum);
    bool first = b->n_new_dkv > 0;
    /* the kernels below skip documents that end before these queries, and the second half of a
     * buffer */
    bool clears = first && (a->base.documents || a->q_second);
    struct sp_attn_walk w;

    for (int j = 0; clears && j < b->n_new_dkv; j++)
        k->clear(k, b->new_dkv_bytes[j], b->new_dkv[j]);
    sp_attn_start(&w, a, b->kv, first ? b->new_dkv : b->dkv);
    while (sp_attn_next(&w)) {
        void *dq = sum.direct ? sp_skip(&w.sh, sum.whole, w.at) : b->scratch;

        if (!w.sees) {
            see_nothing(k, a, w.elements, dq);
            continue;
        }
        k->attention_bwd(k, &w.see.at,
                         &(struct sp_attention_bwd){.q = sp_skip(&w.sh, b->q, w.at),
                                                    .kv = (const void *const *)w.see.keys,
                                                    .o = sp_skip(&w.sh, b->o, w.at),
                                                    .lse = (const float *)b->lse + w.stats,
                                                    .d_o = sp_skip(&w.sh, b->d_o, w.at),
                                                    .dq = dq,
                                                    .dkv = w.see.gradients,
                                                    .first = first && !clears});
        if (!sum.direct)
            sp_attn_add(k, a, w.elements, dq, sum.at + w.at);
    }
    sp_attn_end(k, a, &sum);
    if (a->ends)
        sp_check_finite(&a->base, k, "dq", sum.whole, sp_attn_elements(a));
}

SP_CODELET(attn_fwd);
SP_CODELET(attn_bwd);

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Counts as if documents were not told apart. */
static double flops(const struct sp_attn_args *a)
{
    struct sp_attn_walk w;
    double sum = 0;

    sp_attn_start(&w, a, NULL, NULL);
    w.documents = NULL;
    while (sp_attn_next(&w))
        sum += w.sees ? sp_flops_attention(&w.see.at) : 0;
    return sum;
}

static struct sp_tensor *scratch_of(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                    const struct sp_attn *t)
{
    bool direct = t->begins && !sp_attn_sums_apart(sh, t);

    return direct ? NULL : sp_scratch_handle(ctx, sh, scratch_elements(sh));
}

/* Lists the buffers of keys and values, or of their gradients, each once. Returns how many there
 * are. */
static int buffers_of(const struct sp_attn *t, bool gradients, struct sp_tensor **buffer)
{
    int n = 0;

    for (int j = 0; j < t->n_keys; j++)
        if (sp_attn_begins_buffer(t, j))
            buffer[n++] = gradients ? t->keys[j].dkv : t->keys[j].kv;
    return n;
}

void sp_attn_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed)
{
    struct sp_task *task = sp_attn_task(ctx, &attn_fwd_cl, "attn", sh, t);
    struct sp_attn_summed o = sp_attn_summed(sh, t, t->o);
    struct sp_tensor *kv[SP_MAX_SLICES];
    int n = buffers_of(t, false, kv);

    SP_TASK_BUFFERS(task, attn_fwd, .q = t->q, .o = o.whole, .new_o = o.new_whole, .sum = o.sum,
                    .new_sum = o.new_sum, .lse = t->begins ? NULL : t->lse,
                    .new_lse = t->begins ? t->lse : NULL, .kv = kv, .n_kv = n,
                    .scratch = scratch_of(ctx, sh, t));
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, flops(task->args));
}

void sp_attn_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, struct sp_tensor *d_o,
                        struct sp_tensor *dq, int64_t released)
{
    struct sp_task *task = sp_attn_task(ctx, &attn_bwd_cl, "attn", sh, t);
    struct sp_attn_summed sum = sp_attn_summed(sh, t, dq);
    struct sp_tensor *kv[SP_MAX_SLICES], *dkv[SP_MAX_SLICES];
    int n = buffers_of(t, false, kv);

    buffers_of(t, true, dkv);
    SP_TASK_BUFFERS(task, attn_bwd, .q = t->q, .o = t->o, .lse = t->lse, .d_o = d_o,
                    .dq = sum.whole, .new_dq = sum.new_whole, .sum = sum.sum,
                    .new_sum = sum.new_sum, .kv = kv, .n_kv = n, .dkv = dkv, .n_dkv = first ? 0 : n,
                    .new_dkv = dkv, .n_new_dkv = first ? n : 0, .scratch = scratch_of(ctx, sh, t));
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, 2.5 * flops(task->args));
}
