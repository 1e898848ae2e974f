/*
 * Attention, parameter-free part of a layer, one (micro-batch, slice i):
 *
 *   O(b,s_i,a,d) = softmax(Q_i K_{0..i}^T / sqrt(d) + causal) V_{0..i}     LSE(b,a,s_i) kept
 *
 * Backward (B only, there are no weights), slices in reverse:
 *   was: O = P V               so: dV_j += P^T dO, dP = dO V^T, dS = P o (dP - rowsum(dO o O))
 *   was: S = Q K^T / sqrt(d)   so: dQ_i = dS K / sqrt(d), dK_j += dS^T Q / sqrt(d)
 *
 * Where keys and values do not come all at once there is a task for each part of them. What one computed is merged
 * with what the ones before it did (equations in kernels/cpu/attention/attention_merge.c), in f32; P of the backward
 * is that of the whole, by LSE, so that dQ is a sum.
 *
 * Where documents are told apart, one after the other: each with its own keys, and its own part of LSE.
 */
#include "codelets/insert.h"
#include "codelets/sight.h"
#include <string.h>

/* Tokens of a buffer of keys and values, as struct sp_attn_keys has them. */
struct keys_arg {
    int first, second, len, buffer;
    size_t at;
};

struct attention_args {
    struct sp_task_args base;
    int q_len, q_pos, q_second;
    bool begins, ends;
    int n;
    struct keys_arg keys[SP_MAX_SLICES]; /* args are allocated up to the last one used */
};

static bool is_whole(const struct attention_args *a)
{
    return a->begins && a->ends;
}

/* The queries, as a shape has tokens. */
static struct sp_shape queries_of(const struct attention_args *a)
{
    struct sp_shape q = *a->base.shape;

    q.first = a->q_pos;
    q.seq = a->q_len;
    q.second = a->q_second;
    return q;
}

static size_t query_elements(const struct attention_args *a)
{
    const struct sp_shape *sh = a->base.shape;

    return (size_t)sh->batch * (size_t)a->q_len * (size_t)sh->q_width;
}

/* Where the tokens of all buffers are, by their positions; how many runs of them. */
static int pieces_of(const struct attention_args *a, void *const *kv, void *const *dkv,
                     struct sp_keys *piece)
{
    const struct sp_shape *sh = a->base.shape;
    int n = 0;

    for (int j = 0; j < a->n; j++) {
        const struct keys_arg *keys = &a->keys[j];
        int runs = keys->second ? 2 : 1, len = keys->len / runs, b = keys->buffer;

        for (int i = 0; i < runs; i++) {
            size_t at =
                keys->at + (size_t)i * (size_t)sh->batch * (size_t)len * (size_t)sh->kv_width;

            piece[n++] = (struct sp_keys){i ? keys->second : keys->first, len,
                                          kv ? sp_skip(sh, kv[b], at) : NULL,
                                          dkv && dkv[b] ? sp_skip(sh, dkv[b], at) : NULL};
        }
    }
    return n;
}

/* ---- a part of it -------------------------------------------------------------------------------- */

/* Rows that a kernel takes at a time, at most. */
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

/* Where the sum of parts is: in what it becomes, or, where that has no room for f32, apart. */
struct sum {
    void *whole; /* what it becomes; NULL: not yet */
    float *at;
    bool direct; /* the first part is computed where it stays */
};

static struct sum sum_of(const struct attention_args *a, void *whole, float *apart)
{
    if (is_whole(a))
        return (struct sum){.whole = whole, .direct = true};
    if (a->base.dtype == SP_F32)
        return (struct sum){.whole = whole, .at = whole, .direct = a->begins};
    return (struct sum){.whole = whole, .at = apart};
}

static void add_part(const struct sp_backend *k, const struct attention_args *a, size_t n,
                     const void *part, float *sum)
{
    if (a->begins)
        k->clear(k, n * sizeof *sum, sum);
    k->add_to_f32(k, n, part, sum);
}

static void end_sum(const struct sp_backend *k, const struct attention_args *a, const struct sum *s)
{
    if (a->ends && s->at && s->whole != s->at)
        k->round(k, query_elements(a), s->at, s->whole);
}

/* ---- forward -------------------------------------------------------------------------------------- */

#define ATTN_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, STARPU_R)            /* (b,s_i,q) */                                                    \
    OPTIONAL(o, STARPU_RW)      /* (b,s_i,q), merged with */                                       \
    OPTIONAL(lse, STARPU_RW)    /* (b,a,s_i), likewise */                                          \
    OPTIONAL(sum, STARPU_RW)    /* (b,s_i,q) f32, in place of o until the last part */             \
    OPTIONAL(new_o, STARPU_W)   /* = in place of o: in the first part, or, after sum, the last */  \
    OPTIONAL(new_lse, STARPU_W) /* = in the first part */                                          \
    OPTIONAL(new_sum, STARPU_W) /* = likewise */                                                   \
    LIST(kv, STARPU_R)          /* (b,s_j,kv) of some of the slices j = 0..i */                    \
    OPTIONAL(scratch, STARPU_SCRATCH)
SP_BUFFERS(attn_fwd, ATTN_FWD_BUFFERS)

static void attn_fwd(const struct sp_backend *k, const struct attn_fwd_buffers *b,
                     struct attention_args *a)
{
    const struct sp_shape sh = queries_of(a);
    struct sum sum = sum_of(a, b->new_o ? b->new_o : b->o, b->new_sum ? b->new_sum : b->sum);
    float *lse = a->begins ? b->new_lse : b->lse;
    struct sp_keys piece[2 * SP_MAX_SLICES];
    int n = pieces_of(a, b->kv, NULL, piece);
    struct sp_segment s = {0};
    struct sp_sight see;

    while (sp_segment_next(&sh, a->base.documents, &s)) {
        size_t at = s.row * (size_t)sh.q_width, stats = sp_segment_stats(&sh, &s);
        size_t elements = (size_t)(s.sequences * s.len) * (size_t)sh.q_width;
        void *o = sum.direct ? sp_skip(&sh, sum.whole, at) : b->scratch;
        float *part_lse = a->begins ? lse + stats : scratch_lse(a->base.shape, b->scratch);

        if (!sp_sight_of(&sh, &s, n, piece, &see))
            continue;
        k->attention(k, &see.at, sp_skip(&sh, b->q, at), (const void *const *)see.keys, o,
                     part_lse);
        if (!a->begins)
            k->attention_merge(k, &see.at, o, part_lse, sum.at + at, lse + stats);
        else if (!sum.direct)
            add_part(k, a, elements, o, sum.at + at);
    }
    end_sum(k, a, &sum);
    if (a->ends)
        sp_check_finite(&a->base, k, "o", sum.whole, query_elements(a));
}

/* ---- backward ------------------------------------------------------------------------------------- */

#define ATTN_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(q, STARPU_R)            /* (b,s_i,q) */                                                    \
    ONE(o, STARPU_R)            /* (b,s_i,q) */                                                    \
    ONE(lse, STARPU_R)          /* (b,a,s_i) */                                                    \
    ONE(d_o, STARPU_R)          /* (b,s_i,q) */                                                    \
    OPTIONAL(dq, STARPU_RW)     /* += (b,s_i,q) */                                                 \
    OPTIONAL(sum, STARPU_RW)    /* += (b,s_i,q) f32, in place of dq until the last part */         \
    OPTIONAL(new_dq, STARPU_W)  /* = in place of dq, as new_o above */                             \
    OPTIONAL(new_sum, STARPU_W) /* = in the first part */                                          \
    LIST(kv, STARPU_R)          /* (b,s_j,kv) of some of the slices j = 0..i */                    \
    LIST(dkv, STARPU_RW)        /* += (b,s_j,kv) */                                                \
    LIST(new_dkv, STARPU_W) /* = (b,s_j,kv), in place of dkv, in the last slice: it runs first */  \
    OPTIONAL(scratch, STARPU_SCRATCH)
SP_BUFFERS(attn_bwd, ATTN_BWD_BUFFERS)

static void attn_bwd(const struct sp_backend *k, const struct attn_bwd_buffers *b,
                     struct attention_args *a)
{
    const struct sp_shape sh = queries_of(a);
    struct sum sum = sum_of(a, b->new_dq ? b->new_dq : b->dq, b->new_sum ? b->new_sum : b->sum);
    bool first = b->n_new_dkv > 0;
    /* documents that end before these queries, and the second part of a buffer, have no part in what follows */
    bool clears = first && (a->base.documents || sh.second);
    struct sp_keys piece[2 * SP_MAX_SLICES];
    int n = pieces_of(a, b->kv, first ? b->new_dkv : b->dkv, piece);
    struct sp_segment s = {0};
    struct sp_sight see;

    for (int j = 0; clears && j < b->n_new_dkv; j++)
        k->clear(k, b->new_dkv_bytes[j], b->new_dkv[j]);
    while (sp_segment_next(&sh, a->base.documents, &s)) {
        size_t at = s.row * (size_t)sh.q_width;
        size_t elements = (size_t)(s.sequences * s.len) * (size_t)sh.q_width;
        void *dq = sum.direct ? sp_skip(&sh, sum.whole, at) : b->scratch;

        if (!sp_sight_of(&sh, &s, n, piece, &see))
            continue;
        k->attention_bwd(k, &see.at, sp_skip(&sh, b->q, at), (const void *const *)see.keys,
                         sp_skip(&sh, b->o, at), (const float *)b->lse + sp_segment_stats(&sh, &s),
                         sp_skip(&sh, b->d_o, at), dq, see.gradients, first && !clears);
        if (!sum.direct)
            add_part(k, a, elements, dq, sum.at + at);
    }
    end_sum(k, a, &sum);
    if (a->ends)
        sp_check_finite(&a->base, k, "dq", sum.whole, query_elements(a));
}

SP_CODELET(attn_fwd);
SP_CODELET(attn_bwd);

/* ---- tasks ---------------------------------------------------------------------------------------- */

/* Keys that follow each other may share a buffer. */
static bool begins_buffer(const struct sp_attn *t, int j)
{
    return j == 0 || t->keys[j].kv != t->keys[j - 1].kv;
}

static struct starpu_task *new_task(const struct sp_task_context *ctx, struct starpu_codelet *cl,
                                    const struct sp_shape *sh, const struct sp_attn *t)
{
    struct starpu_task *task;
    struct attention_args *a;

    STARPU_ASSERT_MSG(t->n_keys <= SP_MAX_SLICES, "starpipe: more than %d slices", SP_MAX_SLICES);
    task = sp_task_new(ctx, cl, "attn", sh,
                       offsetof(struct attention_args, keys) +
                           sizeof(struct keys_arg) * (size_t)t->n_keys);
    a = task->cl_arg;
    a->q_len = t->q_len;
    a->q_pos = t->q_pos;
    a->q_second = t->q_second;
    a->begins = t->begins;
    a->ends = t->ends;
    a->n = t->n_keys;
    for (int j = 0, buffer = -1; j < t->n_keys; j++) {
        buffer += begins_buffer(t, j);
        a->keys[j] = (struct keys_arg){t->keys[j].first, t->keys[j].second, t->keys[j].len, buffer,
                                       t->keys[j].at};
    }
    a->base.variant = (uint32_t)(2 * (t->q_pos - t->keys[0].first) + t->begins);
    return task;
}

/* Whatever documents there are. */
static double flops(const struct attention_args *a)
{
    const struct sp_shape sh = queries_of(a);
    struct sp_keys piece[2 * SP_MAX_SLICES];
    int n = pieces_of(a, NULL, NULL, piece);
    struct sp_segment s = {0};
    struct sp_sight see;
    double sum = 0;

    while (sp_segment_next(&sh, NULL, &s))
        if (sp_sight_of(&sh, &s, n, piece, &see))
            sum += sp_flops_attention(&see.at);
    return sum;
}

/* Whether o or dq is summed up apart, and has what is made by this part. */
static bool sums_apart(const struct sp_shape *sh, const struct sp_attn *t)
{
    return sh->dtype != SP_F32 && !(t->begins && t->ends);
}

static starpu_data_handle_t scratch_of(const struct sp_shape *sh, const struct sp_attn *t)
{
    bool direct = t->begins && !sums_apart(sh, t);

    return direct ? NULL : sp_scratch_handle(sh, scratch_elements(sh));
}

/* The handles of what a task sums up, of which one was and the others are NULL. */
struct summed {
    starpu_data_handle_t whole, new_whole, sum, new_sum;
};

static struct summed summed_of(const struct sp_shape *sh, const struct sp_attn *t,
                               starpu_data_handle_t whole)
{
    if (!sums_apart(sh, t))
        return (struct summed){.whole = t->begins ? NULL : whole,
                               .new_whole = t->begins ? whole : NULL};
    return (struct summed){.new_whole = t->ends ? whole : NULL,
                           .sum = t->begins ? NULL : t->sum,
                           .new_sum = t->begins ? t->sum : NULL};
}

/* The buffers of keys and values, or of their gradients, each once; how many. */
static int buffers_of(const struct sp_attn *t, bool gradients, starpu_data_handle_t *buffer)
{
    int n = 0;

    for (int j = 0; j < t->n_keys; j++)
        if (begins_buffer(t, j))
            buffer[n++] = gradients ? t->keys[j].dkv : t->keys[j].kv;
    return n;
}

void sp_attn_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, int64_t stashed)
{
    struct starpu_task *task = new_task(ctx, &attn_fwd_cl, sh, t);
    struct summed o = summed_of(sh, t, t->o);
    starpu_data_handle_t kv[SP_MAX_SLICES];
    int n = buffers_of(t, false, kv);

    SP_TASK_BUFFERS(task, attn_fwd, .q = t->q, .o = o.whole, .new_o = o.new_whole, .sum = o.sum,
                    .new_sum = o.new_sum, .lse = t->begins ? NULL : t->lse,
                    .new_lse = t->begins ? t->lse : NULL, .kv = kv, .n_kv = n,
                    .scratch = scratch_of(sh, t));
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, flops(task->cl_arg));
}

void sp_attn_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_attn *t, bool first, starpu_data_handle_t d_o,
                        starpu_data_handle_t dq, int64_t released)
{
    struct starpu_task *task = new_task(ctx, &attn_bwd_cl, sh, t);
    struct summed sum = summed_of(sh, t, dq);
    starpu_data_handle_t kv[SP_MAX_SLICES], dkv[SP_MAX_SLICES];
    int n = buffers_of(t, false, kv);

    buffers_of(t, true, dkv);
    SP_TASK_BUFFERS(task, attn_bwd, .q = t->q, .o = t->o, .lse = t->lse, .d_o = d_o,
                    .dq = sum.whole, .new_dq = sum.new_whole, .sum = sum.sum,
                    .new_sum = sum.new_sum, .kv = kv, .n_kv = n, .dkv = dkv, .n_dkv = first ? 0 : n,
                    .new_dkv = dkv, .n_new_dkv = first ? n : 0, .scratch = scratch_of(sh, t));
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, 2.5 * flops(task->cl_arg));
}
