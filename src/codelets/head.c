/*
 * Head, one micro-batch, forward and backward in one pass over chunks of rows:
 *
 *   n(T,h) = norm(x)     logits(rows,V) = n E^T     loss += sum of -log softmax(logits)[target]
 *
 *   dlogits = (softmax - onehot) / tokens of the step
 *   was: logits = n E^T        so: dn = dlogits E, dE += dlogits^T n
 *   was: n = norm(x)           so: dx = norm'(dn); gain, bias +=
 *
 * Sampling computes only the logits of some rows.
 */
#include "codelets/insert.h"
#include "codelets/norms.h"
#include "kernels/kernels.h"

static size_t scratch_elements(const struct sp_shape *sh)
{
    size_t T = (size_t)sh->rows, h = (size_t)sh->model.hidden;

    return 2 * T * h + (size_t)sh->head_rows * (size_t)sp_logits_ld(sh->model.vocab) +
           sp_shape_f32(sh, 2 * T);
}

#define HEAD_BUFFERS(ONE, OPTIONAL, LIST)                                                          \
    ONE(x, SP_READ)             /* (T,h) */                                                        \
    ONE(targets, SP_READ)       /* (T) int32 */                                                    \
    ONE(w_norm, SP_READ)        /* block of the final norm */                                      \
    ONE(w_table, SP_READ)       /* (V,h) */                                                        \
    ONE(g_norm, SP_READ_WRITE)  /* += */                                                           \
    ONE(g_table, SP_READ_WRITE) /* += (V,h) */                                                     \
    ONE(dx, SP_WRITE)           /* = (T,h) */                                                      \
    ONE(tally, SP_READ_WRITE)   /* += [SP_TALLY_LOSS] */                                           \
    ONE(scratch, SP_SCRATCH)    /* n(T,h), dn(T,h), logits(head_rows,V), stats(T,2) */
SP_BUFFERS(head, HEAD_BUFFERS)

static void head(const struct sp_backend *k, const struct head_buffers *b,
                 const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;
    size_t T = (size_t)sh->rows, h = (size_t)sh->model.hidden;
    double *tally = b->tally;
    void *n = b->scratch, *dn = sp_skip(sh, n, T * h), *logits = sp_skip(sh, dn, T * h);
    float *stats =
        sp_skip(sh, logits, (size_t)sh->head_rows * (size_t)sp_logits_ld(sh->model.vocab));
    const struct sp_norm norm = sp_block_norm(sh, sh->rows, b->w_norm);

    k->norm(k, &norm, b->x, n, stats);
    k->cross_entropy(k,
                     &(struct sp_logits){.T = sh->rows,
                                         .h = sh->model.hidden,
                                         .V = sh->model.vocab,
                                         .rows = sh->head_rows,
                                         .x = n,
                                         .w = b->w_table,
                                         .targets = b->targets,
                                         .scale = sh->loss_scale,
                                         .scratch = logits},
                     &tally[SP_TALLY_LOSS], dn, b->g_table);
    k->norm_bwd(
        k, &norm, b->x, stats,
        &(struct sp_norm_bwd){
            .dy = dn, .dx = b->dx, .dgain = b->g_norm, .dbias = sp_at(b->g_norm, sh->norm_bias)});
    sp_check_finite(a, k, "dx", b->dx, T * h);
}

struct logits_args {
    struct sp_task_args base;
    int first, n; /* rows of x */
};

#define LOGITS_BUFFERS(ONE, OPTIONAL, LIST)                                                        \
    ONE(x, SP_READ)          /* (T,h) */                                                           \
    ONE(w_norm, SP_READ)     /* block of the final norm */                                         \
    ONE(w_table, SP_READ)    /* (V,h) */                                                           \
    ONE(logits, SP_WRITE)    /* = (n,ld), columns below V */                                       \
    ONE(scratch, SP_SCRATCH) /* norm(x), (n,h) */
SP_BUFFERS(logits, LOGITS_BUFFERS)

static void logits(const struct sp_backend *k, const struct logits_buffers *b,
                   const struct logits_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_norm norm = sp_block_norm(sh, a->n, b->w_norm);
    int h = sh->model.hidden, V = sh->model.vocab, ld = sp_logits_ld(V);
    void *x = sp_skip(sh, b->x, (size_t)a->first * (size_t)h);

    k->norm(k, &norm, x, b->scratch, NULL);
    k->linear(k, &(struct sp_linear){.T = a->n, .in = h, .out = V, .w = b->w_table, .ld = ld},
              b->scratch, b->logits);
    for (int r = 0; r < a->n; r++)
        sp_check_finite(&a->base, k, "logits", sp_skip(sh, b->logits, (size_t)r * (size_t)ld),
                        (size_t)V);
}

SP_CODELET(head);
SP_CODELET(logits);

void sp_head_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                    struct sp_tensor *x, struct sp_tensor *targets, struct sp_tensor *w_norm,
                    struct sp_tensor *w_table, struct sp_tensor *g_norm, struct sp_tensor *g_table,
                    struct sp_tensor *dx, struct sp_tensor *tally, int64_t released)
{
    struct sp_task *t = sp_task_new(ctx, &head_cl, "head", sh, sizeof(struct sp_task_args));

    ((struct sp_task_args *)t->args)->dtype = sp_dtype_elements(sh->dtype);
    /* the host writes the targets and reads the tally */
    ((struct sp_task_args *)t->args)->in_stream = false;
    SP_TASK_BUFFERS(t, head, .x = x, .targets = targets, .w_norm = w_norm, .w_table = w_table,
                    .g_norm = g_norm, .g_table = g_table, .dx = dx, .tally = tally,
                    .scratch = sp_scratch_handle(ctx, sh, scratch_elements(sp_shape_scratch(sh))));
    sp_task_releases(t, released);
    sp_task_submit(ctx, t, 3 * sp_flops_linear(sh->rows, sh->model.hidden, sh->model.vocab));
}

void sp_logits_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int first,
                      int n, struct sp_tensor *x, struct sp_tensor *w_norm,
                      struct sp_tensor *w_table, struct sp_tensor *logits)
{
    struct sp_task *t = sp_task_new(ctx, &logits_cl, "logits", sh, sizeof(struct logits_args));
    struct logits_args *a = t->args;

    a->base.dtype = sp_dtype_elements(sh->dtype);
    a->base.in_stream = false; /* the host reads the logits */
    a->first = first;
    a->n = n;
    SP_TASK_BUFFERS(t, logits, .x = x, .w_norm = w_norm, .w_table = w_table, .logits = logits,
                    .scratch = sp_scratch_handle(ctx, sh, (size_t)n * (size_t)sh->model.hidden));
    sp_task_submit(ctx, t, sp_flops_linear(n, sh->model.hidden, sh->model.vocab));
}
