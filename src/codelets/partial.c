/*
 * Puts together the parts that devices of a stage computed, on the device that has the tokens:
 *
 *   sum          y(T,h) += parts
 *   sum_norm     r(T,h) += parts;  n = norm(r), with statistics
 *   norm_again   n = norm(r), from the statistics of sum_norm
 *
 * Backward of sum_norm, from parts of dn, the first of which becomes the sum, and the gradient dy
 * of the residual:
 *   was: n = norm(r)     so: dr = dy + norm'(dn); gain, bias +=
 */
#include "codelets/insert.h"
#include "codelets/norms.h"
#include "kernels/kernels.h"

struct partial_args {
    struct sp_task_args base;
    bool in_post; /* the norm is in the block of the layer's second half */
    bool apart;   /* its gradient is laid out like one of norm1 even so */
};

static void add_parts(const struct sp_backend *k, const struct sp_shape *sh, void *const *part,
                      int n, void *sum)
{
    if (n)
        k->add_parts(k, (size_t)sh->rows * (size_t)sh->model.hidden, n, (const void *const *)part,
                     sum);
}

/* The norm of a task, in block w. */
static struct sp_norm norm_of(const struct partial_args *a, void *w)
{
    const struct sp_shape *sh = a->base.shape;

    return (a->in_post ? sp_post_norm : sp_block_norm)(sh, sh->rows, w);
}

#define PARTIAL_SUM_BUFFERS(ONE, OPTIONAL, LIST)                                                   \
    ONE(y, SP_READ_WRITE) /* += (T,h) */                                                           \
    LIST(part, SP_READ)   /* (T,h) each */
SP_BUFFERS(partial_sum, PARTIAL_SUM_BUFFERS)

static void partial_sum(const struct sp_backend *k, const struct partial_sum_buffers *b,
                        const struct partial_args *a)
{
    const struct sp_shape *sh = a->base.shape;

    add_parts(k, sh, b->part, b->n_part, b->y);
    sp_check_finite(&a->base, k, "y", b->y, (size_t)sh->rows * (size_t)sh->model.hidden);
}

#define SUM_NORM_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(r, SP_READ_WRITE)     /* += (T,h) */                                                       \
    ONE(w, SP_READ)           /* block of the norm */                                              \
    ONE(n, SP_WRITE)          /* = (T,h) */                                                        \
    OPTIONAL(stats, SP_WRITE) /* = (T,2) f32 */                                                    \
    LIST(part, SP_READ)       /* (T,h) each */
SP_BUFFERS(sum_norm, SUM_NORM_BUFFERS)

static void sum_norm(const struct sp_backend *k, const struct sum_norm_buffers *b,
                     const struct partial_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = norm_of(a, b->w);
    int T = sh->rows, h = sh->model.hidden;

    add_parts(k, sh, b->part, b->n_part, b->r);
    k->norm(k, &norm, b->r, b->n, b->stats);
    sp_check_finite(&a->base, k, "n", b->n, (size_t)T * (size_t)h);
}

#define NORM_AGAIN_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(r, SP_READ)     /* (T,h) */                                                                \
    ONE(stats, SP_READ) /* (T,2) f32 */                                                            \
    ONE(w, SP_READ)     /* block of the norm */                                                    \
    ONE(n, SP_WRITE)    /* = (T,h) */
SP_BUFFERS(norm_again, NORM_AGAIN_BUFFERS)

static void norm_again(const struct sp_backend *k, const struct norm_again_buffers *b,
                       const struct partial_args *a)
{
    const struct sp_norm norm = norm_of(a, b->w);

    k->norm_apply(k, &norm, b->r, b->stats, b->n);
}

#define SUM_NORM_BWD_BUFFERS(ONE, OPTIONAL, LIST)                                                  \
    ONE(dn, SP_READ_WRITE) /* (T,h), the first part: becomes the sum */                            \
    ONE(r, SP_READ)        /* (T,h) */                                                             \
    ONE(stats, SP_READ)    /* (T,2) f32 */                                                         \
    ONE(w, SP_READ)        /* block of the norm */                                                 \
    ONE(g, SP_ADD)         /* += gain and bias: in the norm's block, or apart */                   \
    ONE(dr, SP_WRITE)      /* = (T,h) */                                                           \
    OPTIONAL(dy, SP_READ)  /* (T,h), of the residual */                                            \
    LIST(part, SP_READ)    /* (T,h) each, the other parts of dn */
SP_BUFFERS(sum_norm_bwd, SUM_NORM_BWD_BUFFERS)

static void sum_norm_bwd(const struct sp_backend *k, const struct sum_norm_bwd_buffers *b,
                         const struct partial_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = norm_of(a, b->w);
    int T = sh->rows, h = sh->model.hidden;
    bool in_post = a->in_post && !a->apart;
    float *g = b->g;

    add_parts(k, sh, b->part, b->n_part, b->dn);
    k->norm_bwd(k, &norm, b->r, b->stats,
                &(struct sp_norm_bwd){.dy = b->dn,
                                      .dres = b->dy,
                                      .dx = b->dr,
                                      .dgain = in_post ? g + sh->gain : g,
                                      .dbias = sp_at(g, in_post ? sh->bias : sh->norm_bias)});
    sp_check_finite(&a->base, k, "dr", b->dr, (size_t)T * (size_t)h);
}

SP_CODELET(partial_sum);
SP_CODELET(sum_norm);
SP_CODELET(norm_again);
SP_CODELET(sum_norm_bwd);

static struct sp_task *new_task(const struct sp_task_context *ctx, struct sp_codelet *cl,
                                const char *part, const struct sp_shape *sh, bool in_post)
{
    struct sp_task *task = sp_task_new(ctx, cl, part, sh, sizeof(struct partial_args));

    ((struct partial_args *)task->args)->in_post = in_post;
    return task;
}

/* Operations of `passes` over a tensor. */
static double flops(const struct sp_shape *sh, int passes)
{
    return (double)passes * sh->rows * sh->model.hidden;
}

void sp_partial_sum_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           struct sp_tensor *y, int n, struct sp_tensor *const *part)
{
    struct sp_task *task = new_task(ctx, &partial_sum_cl, "sum", sh, false);

    SP_TASK_BUFFERS(task, partial_sum, .y = y, .part = part, .n_part = n);
    sp_task_submit(ctx, task, flops(sh, n));
}

void sp_sum_norm_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, bool in_post,
                        struct sp_tensor *w, struct sp_tensor *r, int n_part,
                        struct sp_tensor *const *part, struct sp_tensor *n, struct sp_tensor *stats,
                        int64_t stashed)
{
    struct sp_task *task = new_task(ctx, &sum_norm_cl, "norm", sh, in_post);

    ((struct sp_task_args *)task->args)->variant = stats != NULL;
    SP_TASK_BUFFERS(task, sum_norm, .r = r, .w = w, .n = n, .stats = stats, .part = part,
                    .n_part = n_part);
    sp_task_acquires(task, stashed);
    sp_task_submit(ctx, task, flops(sh, 8 + n_part));
}

void sp_norm_again_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                          bool in_post, struct sp_tensor *w, struct sp_tensor *r,
                          struct sp_tensor *stats, struct sp_tensor *n)
{
    struct sp_task *task = new_task(ctx, &norm_again_cl, "norm", sh, in_post);

    SP_TASK_BUFFERS(task, norm_again, .r = r, .stats = stats, .w = w, .n = n);
    sp_task_submit(ctx, task, flops(sh, 4));
}

void sp_sum_norm_bwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                            bool in_post, bool apart, struct sp_tensor *w, struct sp_tensor *g,
                            struct sp_tensor *r, struct sp_tensor *stats, struct sp_tensor *dn,
                            int n_part, struct sp_tensor *const *part, struct sp_tensor *dy,
                            struct sp_tensor *dr, int64_t released)
{
    struct sp_task *task = new_task(ctx, &sum_norm_bwd_cl, "norm", sh, in_post);

    ((struct partial_args *)task->args)->apart = apart;
    SP_TASK_BUFFERS(task, sum_norm_bwd, .dn = dn, .r = r, .stats = stats, .w = w, .g = g, .dr = dr,
                    .dy = dy, .part = part, .n_part = n_part);
    sp_task_releases(task, released);
    sp_task_submit(ctx, task, flops(sh, 16 + n_part));
}
