/*
 * The end of a step, one parameter block at a time:
 *
 *   norm^2 = sum over blocks of sum of g^2 (replicas once)
 *   AdamW with factor g, factor = min(1, clip / norm); decoupled weight decay on matrices and
 *   tables; g = 0, as far as the next step does not overwrite it
 */
#include "codelets/insert.h"
#include "codelets/projections.h"
#include "kernels/kernels.h"

struct sumsq_args {
    struct sp_task_args base;
    int n_skipped;
    struct sp_block_range skipped[SP_BLOCK_RANGES]; /* of the buffer, ascending */
};

#define SUMSQ_BUFFERS(ONE, OPTIONAL, LIST)                                                         \
    ONE(g, SP_READ)           /* f32 */                                                            \
    ONE(tally, SP_READ_WRITE) /* += [SP_TALLY_SUMSQ] */
SP_BUFFERS(sumsq, SUMSQ_BUFFERS)

static void sumsq(const struct sp_backend *k, const struct sumsq_buffers *b,
                  const struct sumsq_args *a)
{
    double *tally = b->tally;
    const float *g = b->g;
    size_t n = b->g_bytes / sizeof(float), at = 0;

    for (int i = 0; i <= a->n_skipped; i++) {
        size_t end = i < a->n_skipped ? a->skipped[i].first : n;

        if (end > at)
            k->sumsq(k, end - at, g + at, tally + SP_TALLY_SUMSQ);
        at = i < a->n_skipped ? end + a->skipped[i].n : n;
    }
}

#define SUM_BUFFERS(ONE, OPTIONAL, LIST)                                                           \
    ONE(a, SP_READ_WRITE)         /* += b */                                                       \
    OPTIONAL(b, SP_READ)          /* read only, or: */                                             \
    OPTIONAL(both, SP_READ_WRITE) /* b where it gets the sum too: = a */
SP_BUFFERS(sum, SUM_BUFFERS)

static void sum(const struct sp_backend *k, const struct sum_buffers *b,
                const struct sp_task_args *args)
{
    k->add(k, b->a_bytes / sp_dtype_bytes(args->dtype), b->both ? b->both : b->b, b->a);
    if (b->both)
        k->copy(k, b->a_bytes, b->a, b->both);
}

struct part_add_args {
    struct sp_task_args base;
    size_t first;
};

#define PART_ADD_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(part, SP_READ)    /* f32 */                                                                \
    ONE(g, SP_READ_WRITE) /* += from element `first` on */
SP_BUFFERS(part_add, PART_ADD_BUFFERS)

static void part_add(const struct sp_backend *k, const struct part_add_buffers *b,
                     const struct part_add_args *a)
{
    k->add_f32(k, b->part_bytes / sizeof(float), b->part, (float *)b->g + a->first);
}

struct update_args {
    struct sp_task_args base;
    const struct sp_params *params;
    enum sp_block_kind kind;
    int layer;
    size_t first; /* the block's element that the buffers begin with */
    struct sp_adamw hp;
    float decay;
    bool keeps_g;
    unsigned stale;             /* matrices whose gradients stay as well, see sp_task_overwrites */
    const struct sp_backend *k; /* this and the fields below are set while the task runs */
    float *w, *g, *m, *v;
    char *low;
    size_t n;
};

static void update_tensor(void *arg, const struct sp_parameter *t)
{
    struct update_args *a = arg;
    size_t from = t->offset, to = from + (size_t)t->rows * (size_t)t->cols, at;

    from = from > a->first ? from : a->first;
    to = to < a->first + a->n ? to : a->first + a->n;
    if (from >= to)
        return;
    at = from - a->first;
    a->hp.weight_decay = t->decay ? a->decay : 0;
    a->k->adamw(a->k, &a->hp,
                &(struct sp_adamw_arrays){
                    .n = to - from,
                    .w = a->w + at,
                    .g = a->g + at,
                    .m = a->m + at,
                    .v = a->v + at,
                    .keeps_g = a->keeps_g || (a->stale & sp_matrix_of(t->role)),
                    .low = a->low ? a->low + at * sp_dtype_bytes(a->base.dtype) : NULL});
}

#define UPDATE_BUFFERS(ONE, OPTIONAL, LIST)                                                        \
    ONE(w, SP_READ_WRITE)        /* += the step of AdamW, f32 as the next three */                 \
    OPTIONAL(g, SP_READ_WRITE)   /* = 0 once it is used; or: */                                    \
    OPTIONAL(kept_g, SP_READ)    /* it stays */                                                    \
    ONE(m, SP_READ_WRITE)        /* = beta1 m + (1 - beta1) g */                                   \
    ONE(v, SP_READ_WRITE)        /* = beta2 v + (1 - beta2) g^2 */                                 \
    OPTIONAL(low, SP_READ_WRITE) /* = w rounded; what lies between tensors stays */
SP_BUFFERS(update, UPDATE_BUFFERS)

static void update(const struct sp_backend *k, const struct update_buffers *b,
                   struct update_args *a)
{
    a->k = k;
    a->w = b->w;
    a->g = b->g ? b->g : b->kept_g;
    a->m = b->m;
    a->v = b->v;
    a->low = b->low;
    a->n = b->w_bytes / sizeof(float);
    sp_block_each(a->params, a->kind, a->layer, update_tensor, a);
    if (a->low)
        sp_check_finite(&a->base, k, "rounded w", a->low, a->n);
    else
        sp_check_finite(&a->base, k, "w", a->w, a->n);
}

#define ROUND_WEIGHTS_BUFFERS(ONE, OPTIONAL, LIST)                                                 \
    ONE(w, SP_READ)    /* f32 */                                                                   \
    ONE(low, SP_WRITE) /* = w rounded */
SP_BUFFERS(round_weights, ROUND_WEIGHTS_BUFFERS)

static void round_weights(const struct sp_backend *k, const struct round_weights_buffers *b,
                          const void *arg)
{
    (void)arg;
    k->round(k, b->w_bytes / sizeof(float), b->w, b->low);
}

#define STATE_COPY_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    LIST(from, SP_READ) /* weights, moments */                                                     \
    LIST(to, SP_WRITE)  /* = from */
SP_BUFFERS(state_copy, STATE_COPY_BUFFERS)

static void state_copy(const struct sp_backend *k, const struct state_copy_buffers *b,
                       const void *arg)
{
    (void)arg;
    for (int i = 0; i < b->n_from; i++)
        k->copy(k, b->from_bytes[i], b->from[i], b->to[i]);
}

#define COPY_BUFFERS(ONE, OPTIONAL, LIST)                                                          \
    ONE(from, SP_READ) /* any elements */                                                          \
    ONE(to, SP_WRITE)  /* = from, or what that begins with */
SP_BUFFERS(copy, COPY_BUFFERS)

static void copy(const struct sp_backend *k, const struct copy_buffers *b, const void *arg)
{
    (void)arg;
    k->copy(k, b->to_bytes, b->from, b->to);
}

#define CLEAR_BUFFERS(ONE, OPTIONAL, LIST) ONE(a, SP_WRITE) /* = 0 */
SP_BUFFERS(clear, CLEAR_BUFFERS)

static void clear(const struct sp_backend *k, const struct clear_buffers *b, const void *arg)
{
    (void)arg;
    k->clear(k, b->a_bytes, b->a);
}

SP_CODELET(sumsq);
SP_CODELET(sum);
SP_CODELET(part_add);
SP_CODELET(update);
SP_CODELET(round_weights);
SP_CODELET(state_copy);
SP_CODELET(copy);
SP_CODELET(clear);

static double f32_of(struct sp_tensor *handle)
{
    return (double)(sp_tensor_size(handle) / sizeof(float));
}

void sp_sumsq_insert(const struct sp_task_context *ctx, struct sp_tensor *g, int n_skipped,
                     const struct sp_block_range *skipped, struct sp_tensor *tally, bool more)
{
    struct sp_task *t = sp_task_new(ctx, &sumsq_cl, "norm", NULL, sizeof(struct sumsq_args));
    struct sumsq_args *a = t->args;

    a->base.in_stream = ctx->in_stream && more;
    a->n_skipped = n_skipped;
    for (int i = 0; i < n_skipped; i++)
        a->skipped[i] = skipped[i];
    SP_TASK_BUFFERS(t, sumsq, .g = g, .tally = tally);
    sp_task_submit(ctx, t, 2.0 * f32_of(g));
}

void sp_sum_insert(const struct sp_task_context *ctx, enum sp_dtype dtype, struct sp_tensor *a,
                   struct sp_tensor *b, bool both)
{
    struct sp_task *t = sp_task_new(ctx, &sum_cl, "sum", NULL, sizeof(struct sp_task_args));

    ((struct sp_task_args *)t->args)->dtype = dtype;
    SP_TASK_BUFFERS(t, sum, .a = a, .b = both ? NULL : b, .both = both ? b : NULL);
    sp_task_submit(ctx, t, f32_of(a));
}

void sp_part_add_insert(const struct sp_task_context *ctx, struct sp_tensor *part,
                        struct sp_tensor *g, size_t first)
{
    struct sp_task *t = sp_task_new(ctx, &part_add_cl, "part", NULL, sizeof(struct part_add_args));

    ((struct part_add_args *)t->args)->first = first;
    SP_TASK_BUFFERS(t, part_add, .part = part, .g = g);
    sp_task_submit(ctx, t, f32_of(part));
}

void sp_update_insert(const struct sp_task_context *ctx, const struct sp_params *params,
                      enum sp_block_kind kind, int layer, size_t first, const struct sp_update *hp,
                      struct sp_tensor *w, struct sp_tensor *g, struct sp_tensor *m,
                      struct sp_tensor *v, enum sp_dtype dtype, struct sp_tensor *low)
{
    struct sp_task *t = sp_task_new(ctx, &update_cl, "update", NULL, sizeof(struct update_args));
    struct update_args *a = t->args;

    a->params = params;
    a->kind = kind;
    a->layer = layer;
    a->first = first;
    a->decay = hp->weight_decay;
    a->keeps_g = hp->keeps_gradient;
    a->stale = hp->keeps_gradient ? 0 : hp->restarts;
    a->hp = (struct sp_adamw){
        .lr = hp->lr,
        .beta1 = hp->beta1,
        .beta2 = hp->beta2,
        .eps = hp->eps,
        .bias1 = hp->bias1,
        .bias2 = hp->bias2,
        .grad_scale = hp->factor,
    };
    a->base.dtype = dtype;
    SP_TASK_BUFFERS(t, update, .w = w, .g = hp->keeps_gradient ? NULL : g,
                    .kept_g = hp->keeps_gradient ? g : NULL, .m = m, .v = v,
                    .low = dtype == SP_F32 ? NULL : low);
    g->stale = (unsigned char)a->stale;
    sp_task_submit(ctx, t, 15.0 * f32_of(w));
}

void sp_round_insert(const struct sp_task_context *ctx, struct sp_tensor *w, enum sp_dtype dtype,
                     struct sp_tensor *low)
{
    struct sp_task *t =
        sp_task_new(ctx, &round_weights_cl, "round", NULL, sizeof(struct sp_task_args));

    ((struct sp_task_args *)t->args)->dtype = dtype;
    SP_TASK_BUFFERS(t, round_weights, .w = w, .low = low);
    sp_task_submit(ctx, t, f32_of(w));
}

void sp_state_copy_insert(const struct sp_task_context *ctx, int n, struct sp_tensor *const *from,
                          struct sp_tensor *const *to)
{
    struct sp_task *t = sp_task_new(ctx, &state_copy_cl, "copy", NULL, sizeof(struct sp_task_args));

    SP_TASK_BUFFERS(t, state_copy, .from = from, .n_from = n, .to = to, .n_to = n);
    sp_task_submit(ctx, t, n * f32_of(from[0]));
}

void sp_copy_insert(const struct sp_task_context *ctx, struct sp_tensor *from, struct sp_tensor *to)
{
    struct sp_task *t = sp_task_new(ctx, &copy_cl, "copy", NULL, sizeof(struct sp_task_args));

    SP_TASK_BUFFERS(t, copy, .from = from, .to = to);
    sp_task_submit(ctx, t, f32_of(to));
}

void sp_clear_insert(const struct sp_task_context *ctx, struct sp_tensor *a)
{
    struct sp_task *t = sp_task_new(ctx, &clear_cl, "clear", NULL, sizeof(struct sp_task_args));

    SP_TASK_BUFFERS(t, clear, .a = a);
    sp_task_submit(ctx, t, f32_of(a));
}
