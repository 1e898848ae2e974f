/*
 * Attention of one turn around a ring: the queries of a member with the keys and values of another one, which pass.
 * Each has two parts of a slice, the k-th and the last but k of 2t; of slices before it too.
 *
 *   forward   o, lse = those of this turn, merged with those of the turns before
 *   backward  dq +=, dkv +=: P = exp(S - lse) of the whole is known by then
 */
#include "codelets/insert.h"
#include "codelets/sight.h"
#include <string.h>

struct ring_args {
    struct sp_task_args base;
    int me, from, n;
    bool first_q, first_keys;
    int len[SP_MAX_SLICES]; /* args are allocated up to the last one used */
};

/* Which of 2t parts of a slice a half of a member is. */
static int part_of(const struct ring_args *a, int member, int half)
{
    return half ? 2 * a->base.shape->context - 1 - member : member;
}

static void *half_of(const struct ring_args *a, void *const *tensors, int j, int half)
{
    const struct sp_shape *sh = a->base.shape;
    size_t rows = (size_t)sh->batch * (size_t)(a->len[j] / 2);

    return tensors ? sp_skip(sh, tensors[j], (size_t)half * rows * (size_t)sh->kv_width) : NULL;
}

/* Where the halves of all slices are, by their positions. */
static int pieces_of(const struct ring_args *a, void *const *kv, void *const *dkv,
                     struct sp_keys *piece)
{
    int n = 0;

    for (int j = 0, begin = 0; j < a->n; begin += a->len[j++] * a->base.shape->context)
        for (int half = 0; half < 2; half++) {
            int len = a->len[j] / 2;

            piece[n++] = (struct sp_keys){begin + part_of(a, a->from, half) * len, len,
                                          half_of(a, kv, j, half), half_of(a, dkv, j, half)};
        }
    return n;
}

static size_t half_rows(const struct sp_shape *sh)
{
    return (size_t)sh->rows / 2;
}

/* A half's o or dq, and its lse. */
static size_t scratch_elements(const struct sp_shape *slice)
{
    const struct sp_shape *sh = sp_shape_scratch(slice);

    return half_rows(sh) * (size_t)sh->q_width +
           sp_shape_f32(sh, half_rows(sh) * (size_t)sh->model.heads + 1);
}

#define RING_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, STARPU_R)            /* (2,b,s/2,q) */                                                  \
    OPTIONAL(o, STARPU_RW)      /* (2,b,s/2,q) */                                                  \
    OPTIONAL(lse, STARPU_RW)    /* (2,b,a,s/2) */                                                  \
    OPTIONAL(new_o, STARPU_W)   /* = in place of o, in the first turn */                           \
    OPTIONAL(new_lse, STARPU_W) /* = likewise */                                                   \
    LIST(kv, STARPU_R)          /* (2,b,s_j/2,kv) of slices j = 0..n-1 of another member */        \
    OPTIONAL(scratch, STARPU_SCRATCH)
SP_BUFFERS(ring_fwd, RING_FWD_BUFFERS)

static void ring_fwd(const struct sp_backend *k, const struct ring_fwd_buffers *b,
                     struct ring_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    void *o = a->first_q ? b->new_o : b->o;
    float *lse = a->first_q ? b->new_lse : b->lse;
    size_t half = half_rows(sh) * (size_t)sh->q_width;
    struct sp_keys piece[2 * SP_MAX_SLICES];
    int n = pieces_of(a, b->kv, NULL, piece);
    struct sp_segment s = {0};
    struct sp_sight see;

    while (sp_segment_next(sh, a->base.documents, &s)) {
        size_t at = s.row * (size_t)sh->q_width, stats = sp_segment_stats(sh, &s);
        float *part_lse = a->first_q ? NULL : sp_skip(sh, b->scratch, half + half % 2);

        if (!sp_sight_of(sh, &s, n, piece, &see))
            continue;
        k->attention(k, &see.at, sp_skip(sh, b->q, at), (const void *const *)see.keys,
                     a->first_q ? sp_skip(sh, o, at) : b->scratch,
                     a->first_q ? lse + stats : part_lse);
        if (!a->first_q)
            k->attention_merge(k, &see.at, b->scratch, part_lse, sp_skip(sh, o, at), lse + stats);
    }
    sp_check_finite(&a->base, k, "o", o, 2 * half);
}

#define RING_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, STARPU_R)                                                                               \
    ONE(o, STARPU_R)                                                                               \
    ONE(lse, STARPU_R)                                                                             \
    ONE(d_o, STARPU_R)         /* (2,b,s/2,q) */                                                   \
    OPTIONAL(dq, STARPU_RW)    /* += (2,b,s/2,q) */                                                \
    OPTIONAL(new_dq, STARPU_W) /* = in place of dq, in the first turn */                           \
    LIST(kv, STARPU_R)                                                                             \
    LIST(dkv, STARPU_RW)    /* += (2,b,s_j/2,kv) */                                                \
    LIST(new_dkv, STARPU_W) /* = in place of dkv, where nobody made it yet */                      \
    OPTIONAL(scratch, STARPU_SCRATCH)
SP_BUFFERS(ring_bwd, RING_BWD_BUFFERS)

static void ring_bwd(const struct sp_backend *k, const struct ring_bwd_buffers *b,
                     struct ring_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    void *dq = a->first_q ? b->new_dq : b->dq;
    struct sp_keys piece[2 * SP_MAX_SLICES];
    int n = pieces_of(a, b->kv, a->first_keys ? b->new_dkv : b->dkv, piece);
    struct sp_segment s = {0};
    struct sp_sight see;

    for (int j = 0; j < b->n_new_dkv; j++)
        k->clear(k, b->new_dkv_bytes[j], b->new_dkv[j]);
    while (sp_segment_next(sh, a->base.documents, &s)) {
        size_t at = s.row * (size_t)sh->q_width;
        size_t elements = (size_t)(s.sequences * s.len) * (size_t)sh->q_width;

        if (!sp_sight_of(sh, &s, n, piece, &see))
            continue;
        k->attention_bwd(k, &see.at, sp_skip(sh, b->q, at), (const void *const *)see.keys,
                         sp_skip(sh, b->o, at), (const float *)b->lse + sp_segment_stats(sh, &s),
                         sp_skip(sh, b->d_o, at), a->first_q ? sp_skip(sh, dq, at) : b->scratch,
                         see.gradients, false);
        if (!a->first_q)
            k->add(k, elements, b->scratch, sp_skip(sh, dq, at));
    }
    sp_check_finite(&a->base, k, "dq", dq, (size_t)sh->rows * (size_t)sh->q_width);
}

SP_CODELET(ring_fwd);
SP_CODELET(ring_bwd);

static struct starpu_task *new_task(const struct sp_task_context *ctx, struct starpu_codelet *cl,
                                    const struct sp_shape *sh, const struct sp_ring_turn *t,
                                    bool first_q, bool first_keys)
{
    struct starpu_task *task;
    struct ring_args *a;

    STARPU_ASSERT_MSG(t->n <= SP_MAX_SLICES, "starpipe: more than %d slices", SP_MAX_SLICES);
    task = sp_task_new(ctx, cl, "attn", sh,
                       offsetof(struct ring_args, len) + sizeof(int) * (size_t)t->n);
    a = task->cl_arg;
    a->me = t->me;
    a->from = t->from;
    a->n = t->n;
    a->first_q = first_q;
    a->first_keys = first_keys;
    memcpy(a->len, t->len, sizeof(int) * (size_t)t->n);
    a->base.variant = (uint32_t)(t->n * 4 + (t->from < t->me) * 2 + first_q);
    return task;
}

/* Whatever documents there are. */
static double flops(const struct ring_args *a)
{
    struct sp_keys piece[2 * SP_MAX_SLICES];
    int n = pieces_of(a, NULL, NULL, piece);
    struct sp_segment s = {0};
    struct sp_sight see;
    double sum = 0;

    while (sp_segment_next(a->base.shape, NULL, &s))
        if (sp_sight_of(a->base.shape, &s, n, piece, &see))
            sum += sp_flops_attention(&see.at);
    return sum;
}

void sp_ring_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_ring_turn *t, bool first, starpu_data_handle_t q,
                        starpu_data_handle_t o, starpu_data_handle_t lse, int64_t stashed)
{
    struct starpu_task *task = new_task(ctx, &ring_fwd_cl, sh, t, first, false);

    SP_TASK_BUFFERS(task, ring_fwd, .q = q, .o = first ? NULL : o, .lse = first ? NULL : lse,
                    .new_o = first ? o : NULL, .new_lse = first ? lse : NULL, .kv = t->kv,
                    .n_kv = t->n,
                    .scratch = first ? NULL : sp_scratch_handle(sh, scratch_elements(sh)));
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, flops(task->cl_arg));
}

void sp_ring_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_ring_turn *t, bool first, bool first_keys,
                        starpu_data_handle_t q, starpu_data_handle_t o, starpu_data_handle_t lse,
                        starpu_data_handle_t d_o, starpu_data_handle_t dq,
                        const starpu_data_handle_t *dkv, int64_t released)
{
    struct starpu_task *task = new_task(ctx, &ring_bwd_cl, sh, t, first, first_keys);

    SP_TASK_BUFFERS(task, ring_bwd, .q = q, .o = o, .lse = lse, .d_o = d_o, .dq = first ? NULL : dq,
                    .new_dq = first ? dq : NULL, .kv = t->kv, .n_kv = t->n, .dkv = dkv,
                    .n_dkv = first_keys ? 0 : t->n, .new_dkv = dkv,
                    .n_new_dkv = first_keys ? t->n : 0,
                    .scratch = first ? NULL : sp_scratch_handle(sh, scratch_elements(sh)));
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, 2.5 * flops(task->cl_arg));
}
