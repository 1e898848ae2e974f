/*
 * Attention of one turn around a ring: the queries of a member with the keys and values of another one, which pass.
 * Each has two parts of a slice, `me` and the last but `me` of 2t; slices before it are seen whole.
 *
 *   forward   o, lse = those of this turn, merged with those of the turns before
 *   backward  dq +=, dkv +=: P = exp(S - lse) of the whole is known by then
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"
#include <math.h>
#include <string.h>

struct ring_args {
    struct sp_task_args base;
    int me, from, n;
    bool first_q, first_keys;
    int len[SP_MAX_SLICES]; /* args are allocated up to the last one used */
};

/* What a half of the queries sees: keys and values, or their gradients, in the order of their positions. */
struct sight {
    struct sp_attention at;
    int n, len[2 * SP_MAX_SLICES];
    void *keys[2 * SP_MAX_SLICES], *gradients[2 * SP_MAX_SLICES];
};

static void *half_of(const struct ring_args *a, void *const *tensors, int j, int half)
{
    const struct sp_shape *sh = a->base.shape;
    size_t rows = (size_t)sh->batch * (size_t)(a->len[j] / 2);

    return tensors ? sp_skip(sh, tensors[j], (size_t)half * rows * (size_t)sh->kv_width) : NULL;
}

static void see(const struct ring_args *a, int j, int half, void *const *kv, void *const *dkv,
                struct sight *s)
{
    s->keys[s->n] = half_of(a, kv, j, half);
    s->gradients[s->n] = half_of(a, dkv, j, half);
    s->len[s->n++] = a->len[j] / 2;
}

/* Which of 2t parts of a slice a half of a member is. */
static int part_of(const struct ring_args *a, int member, int half)
{
    return half ? 2 * a->base.shape->context - 1 - member : member;
}

/* Of half `half` of the queries; false: it sees nothing in this turn. */
static bool look(const struct ring_args *a, int half, void *const *kv, void *const *dkv,
                 struct sight *s)
{
    const struct sp_shape *sh = a->base.shape;
    int mine = part_of(a, a->me, half), seen = 0, queries = sh->seq / 2;
    bool itself = false;

    s->n = 0;
    for (int j = 0; j < a->n; j++)
        for (int x = 0; x < 2; x++) {
            int part = part_of(a, a->from, x);

            if (j < a->n - 1 || part <= mine)
                see(a, j, x, kv, dkv, s);
            itself |= j == a->n - 1 && part == mine;
        }
    for (int i = 0; i < s->n; i++)
        seen += s->len[i];
    s->at = (struct sp_attention){
        .batch = sh->batch,
        .heads = sh->model.heads,
        .kv_heads = sh->model.kv_heads,
        .head_dim = sh->model.head_dim,
        .scale = 1.0f / sqrtf((float)sh->model.head_dim),
        .q_len = queries,
        .q_pos = seen - (itself ? queries : 0),
        .n_kv = s->n,
        .kv_len = s->len,
    };
    return s->n > 0;
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
    size_t n = half_rows(sh) * (size_t)sh->q_width, stats = half_rows(sh) * (size_t)sh->model.heads;
    struct sight s;

    for (int half = 0; half < 2; half++) {
        void *q = sp_skip(sh, b->q, (size_t)half * n);
        void *o = sp_skip(sh, a->first_q ? b->new_o : b->o, (size_t)half * n);
        float *lse = (float *)(a->first_q ? b->new_lse : b->lse) + (size_t)half * stats;
        float *part_lse;

        if (!look(a, half, b->kv, NULL, &s))
            continue;
        if (a->first_q) {
            k->attention(k, &s.at, q, (const void *const *)s.keys, o, lse);
            continue;
        }
        part_lse = (float *)sp_skip(sh, b->scratch, n + n % 2);
        k->attention(k, &s.at, q, (const void *const *)s.keys, b->scratch, part_lse);
        k->attention_merge(k, &s.at, b->scratch, part_lse, o, lse);
    }
    sp_check_finite(&a->base, k, "o", a->first_q ? b->new_o : b->o, 2 * n);
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

/* The second half first: in the first turn it sees all keys that there are. */
static void ring_bwd(const struct sp_backend *k, const struct ring_bwd_buffers *b,
                     struct ring_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    size_t n = half_rows(sh) * (size_t)sh->q_width, stats = half_rows(sh) * (size_t)sh->model.heads;
    struct sight s;

    for (int half = 1; half >= 0; half--) {
        size_t at = (size_t)half * n;
        void *dq = sp_skip(sh, a->first_q ? b->new_dq : b->dq, at);

        if (!look(a, half, b->kv, a->first_keys ? b->new_dkv : b->dkv, &s))
            continue;
        k->attention_bwd(k, &s.at, sp_skip(sh, b->q, at), (const void *const *)s.keys,
                         sp_skip(sh, b->o, at), (const float *)b->lse + (size_t)half * stats,
                         sp_skip(sh, b->d_o, at), a->first_q ? dq : b->scratch, s.gradients,
                         a->first_keys && half == 1);
        if (!a->first_q)
            k->add(k, n, b->scratch, dq);
    }
    sp_check_finite(&a->base, k, "dq", a->first_q ? b->new_dq : b->dq, 2 * n);
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

static double flops(const struct ring_args *a)
{
    struct sight s;
    double sum = 0;

    for (int half = 0; half < 2; half++)
        if (look(a, half, NULL, NULL, &s))
            sum += sp_flops_attention(&s.at);
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
                        const starpu_data_handle_t *dkv)
{
    struct starpu_task *task = new_task(ctx, &ring_bwd_cl, sh, t, first, first_keys);

    SP_TASK_BUFFERS(task, ring_bwd, .q = q, .o = o, .lse = lse, .d_o = d_o, .dq = first ? NULL : dq,
                    .new_dq = first ? dq : NULL, .kv = t->kv, .n_kv = t->n, .dkv = dkv,
                    .n_dkv = first_keys ? 0 : t->n, .new_dkv = dkv,
                    .n_new_dkv = first_keys ? t->n : 0,
                    .scratch = first ? NULL : sp_scratch_handle(sh, scratch_elements(sh)));
    sp_task_submit(ctx, task, 2.5 * flops(task->cl_arg));
}
