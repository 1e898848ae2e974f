/*
 * Merges the part of these queries' attention that another stage computed, over keys that it was
 * sent. Forward, O and LSE are merged (equations in kernels/cpu/attention/attention_merge.c);
 * backward, dQ is added.
 *
 * Queries that see none of these keys, because they belong to other documents, are left out.
 */
#include "codelets/attention/parts.h"

/* ---- forward -------------------------------------------------------------------------------- */

#define ATTN_MERGE_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(part, SP_READ)           /* (b,s_i,q) */                                                   \
    ONE(part_lse, SP_READ)       /* (b,a,s_i) */                                                   \
    ONE(lse, SP_READ_WRITE)      /* likewise, merged with */                                       \
    OPTIONAL(o, SP_READ_WRITE)   /* (b,s_i,q), likewise */                                         \
    OPTIONAL(sum, SP_READ_WRITE) /* (b,s_i,q) f32, in place of o until the last part */            \
    OPTIONAL(new_o, SP_WRITE)    /* = in place of o: after sum, in the last part */
SP_BUFFERS(attn_merge, ATTN_MERGE_BUFFERS)

static void attn_merge(const struct sp_backend *k, const struct attn_merge_buffers *b,
                       struct sp_attn_args *a)
{
    struct sp_attn_sum sum = sp_attn_sum_of(a, b->new_o ? b->new_o : b->o, b->sum);
    struct sp_attn_walk w;

    sp_attn_start(&w, a, NULL, NULL);
    while (sp_attn_next(&w))
        if (w.sees)
            k->attention_merge(k, &w.see.at, sp_skip(&w.sh, b->part, w.at),
                               (const float *)b->part_lse + w.stats, sum.at + w.at,
                               (float *)b->lse + w.stats);
    sp_attn_end(k, a, &sum);
    if (a->ends)
        sp_check_finite(&a->base, k, "o", sum.whole, sp_attn_elements(a));
}

/* ---- backward ------------------------------------------------------------------------------- */

#define ATTN_ADD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(part, SP_READ)           /* (b,s_i,q) */                                                   \
    OPTIONAL(dq, SP_READ_WRITE)  /* += (b,s_i,q) */                                                \
    OPTIONAL(sum, SP_READ_WRITE) /* += (b,s_i,q) f32, in place of dq until the last part */        \
    OPTIONAL(new_dq, SP_WRITE)   /* = in place of dq, as new_o above */
SP_BUFFERS(attn_add, ATTN_ADD_BUFFERS)

static void attn_add(const struct sp_backend *k, const struct attn_add_buffers *b,
                     struct sp_attn_args *a)
{
    struct sp_attn_sum sum = sp_attn_sum_of(a, b->new_dq ? b->new_dq : b->dq, b->sum);
    struct sp_attn_walk w;

    sp_attn_start(&w, a, NULL, NULL);
    while (sp_attn_next(&w))
        if (w.sees)
            sp_attn_add(k, a, w.elements, sp_skip(&w.sh, b->part, w.at), sum.at + w.at);
    sp_attn_end(k, a, &sum);
    if (a->ends)
        sp_check_finite(&a->base, k, "dq", sum.whole, sp_attn_elements(a));
}

SP_CODELET(attn_merge);
SP_CODELET(attn_add);

/* ---- tasks ---------------------------------------------------------------------------------- */

void sp_attn_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          const struct sp_attn *t, struct sp_tensor *part,
                          struct sp_tensor *part_lse)
{
    struct sp_task *task = sp_attn_task(ctx, &attn_merge_cl, "merge", sh, t);
    struct sp_attn_summed o = sp_attn_summed(sh, t, t->o);

    SP_TASK_BUFFERS(task, attn_merge, .part = part, .part_lse = part_lse, .lse = t->lse,
                    .o = o.whole, .sum = o.sum, .new_o = o.new_whole);
    sp_task_submit(ctx, task, 0);
}

void sp_attn_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, struct sp_tensor *dq, struct sp_tensor *part)
{
    struct sp_task *task = sp_attn_task(ctx, &attn_add_cl, "merge", sh, t);
    struct sp_attn_summed sum = sp_attn_summed(sh, t, dq);

    SP_TASK_BUFFERS(task, attn_add, .part = part, .dq = sum.whole, .sum = sum.sum,
                    .new_dq = sum.new_whole);
    sp_task_submit(ctx, task, 0);
}
