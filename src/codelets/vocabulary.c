/*
 * The head where devices share the vocabulary, of a part of a micro-batch's tokens, n = norm(x) of which all have:
 *
 *   logit_stats   Z(T,V) = n E^T of this device's rows of E;  stats(T,2) = log(sum e^Z), Z[target] if that is here
 *   logit_merge   stats of some devices as if they were one
 *   vocabulary    of the stats of all devices: lse(T), loss = sum of lse - Z[target]; then
 *                 was: Z = n E^T     so: dZ = scale (e^(Z - lse) - onehot), dn = dZ E, a part of the sum over devices,
 *                                        dE += dZ^T n
 *
 * The logits stay in between if they are few; else they are computed twice, head_rows rows at a time, so that no more of
 * them live.
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"

struct vocabulary_args {
    struct sp_task_args base;
    int rows;    /* of E that are here */
    bool counts; /* the loss of these tokens, on one of the devices */
};

/* Rows of logits at a time. */
static int rows_of(const struct sp_shape *sh, bool kept)
{
    return kept ? sh->rows : sh->head_rows;
}

/* lse, and logits that are not kept. */
static size_t scratch_elements(const struct sp_shape *sh, int rows, bool kept)
{
    return sp_shape_f32(sh, (size_t)sh->rows) +
           (kept ? 0 : (size_t)sh->head_rows * (size_t)sp_logits_ld(rows));
}

#define LOGIT_STATS_BUFFERS(ONE, OPTIONAL, LIST)                                                   \
    ONE(n, STARPU_R)                  /* (T,h) */                                                  \
    ONE(targets, STARPU_R)            /* (T) int32, -1: not here */                                \
    ONE(w, STARPU_R)                  /* (V,h) */                                                  \
    ONE(stats, STARPU_W)              /* = (T,2) f32 */                                            \
    OPTIONAL(logits, STARPU_W)        /* = (T,V), or: */                                           \
    OPTIONAL(scratch, STARPU_SCRATCH) /* logits(head_rows,V) */
SP_BUFFERS(logit_stats, LOGIT_STATS_BUFFERS)

static void logit_stats(const struct sp_backend *k, const struct logit_stats_buffers *b,
                        const struct vocabulary_args *a)
{
    const struct sp_shape *sh = a->base.shape;

    k->logit_stats(k, sh->rows, sh->model.hidden, a->rows, rows_of(sh, b->logits), b->n, b->w,
                   b->targets, b->stats, b->logits ? b->logits : b->scratch);
}

#define LOGIT_MERGE_BUFFERS(ONE, OPTIONAL, LIST)                                                   \
    ONE(merged, STARPU_W) /* = (T,2) f32 */                                                        \
    LIST(stats, STARPU_R) /* (T,2) f32 of each device */
SP_BUFFERS(logit_merge, LOGIT_MERGE_BUFFERS)

static void logit_merge(const struct sp_backend *k, const struct logit_merge_buffers *b,
                        const struct vocabulary_args *a)
{
    k->merge_stats(k, a->base.shape->rows, b->n_stats, (const float *const *)b->stats, b->merged);
}

#define VOCABULARY_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(n, STARPU_R)             /* (T,h) */                                                       \
    ONE(targets, STARPU_R)       /* (T) int32, -1: not here */                                     \
    ONE(w, STARPU_R)             /* (V,h) */                                                       \
    ONE(g, STARPU_RW)            /* += (V,h) */                                                    \
    ONE(dn, STARPU_W)            /* = (T,h) */                                                     \
    ONE(tally, STARPU_RW)        /* += [SP_TALLY_LOSS] */                                          \
    LIST(stats, STARPU_R)        /* (T,2) f32 of each device */                                    \
    OPTIONAL(logits, STARPU_RW)  /* (T,V), overwritten; in scratch if they were not kept */        \
    ONE(scratch, STARPU_SCRATCH) /* lse(T) f32, logits(head_rows,V) */
SP_BUFFERS(vocabulary, VOCABULARY_BUFFERS)

static void vocabulary(const struct sp_backend *k, const struct vocabulary_buffers *b,
                       const struct vocabulary_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    int T = sh->rows, h = sh->model.hidden;
    double *tally = b->tally;
    float *lse = b->scratch;

    k->merge_logits(k, T, b->n_stats, (const float *const *)b->stats, lse,
                    a->counts ? &tally[SP_TALLY_LOSS] : NULL);
    k->logits_bwd(k, T, h, a->rows, rows_of(sh, b->logits), b->n, b->w, b->targets, lse,
                  sh->loss_scale, b->logits != NULL, b->dn, b->g,
                  b->logits ? b->logits : sp_skip(sh, b->scratch, sp_shape_f32(sh, (size_t)T)));
    sp_check_finite(&a->base, k, "dn", b->dn, (size_t)T * (size_t)h);
}

SP_CODELET(logit_stats);
SP_CODELET(logit_merge);
SP_CODELET(vocabulary);

static struct starpu_task *new_task(const struct sp_task_context *ctx, struct starpu_codelet *cl,
                                    const struct sp_shape *sh, int rows)
{
    struct starpu_task *task = sp_task_new(ctx, cl, "head", sh, sizeof(struct vocabulary_args));
    struct vocabulary_args *a = task->cl_arg;

    a->base.in_stream = false; /* the host writes the targets and reads the tally */
    a->rows = rows;
    return task;
}

void sp_logit_stats_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                           starpu_data_handle_t n, starpu_data_handle_t targets,
                           starpu_data_handle_t w, starpu_data_handle_t stats,
                           starpu_data_handle_t logits)
{
    struct starpu_task *task = new_task(ctx, &logit_stats_cl, sh, rows);
    size_t scratch = scratch_elements(sp_shape_scratch(sh), rows, false);

    SP_TASK_BUFFERS(task, logit_stats, .n = n, .targets = targets, .w = w, .stats = stats,
                    .logits = logits, .scratch = logits ? NULL : sp_scratch_handle(sh, scratch));
    sp_task_submit(ctx, task, sp_flops_linear(sh->rows, sh->model.hidden, rows));
}

void sp_logit_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           int devices, const starpu_data_handle_t *stats,
                           starpu_data_handle_t merged)
{
    struct starpu_task *task = new_task(ctx, &logit_merge_cl, sh, 0);

    SP_TASK_BUFFERS(task, logit_merge, .merged = merged, .stats = stats, .n_stats = devices);
    sp_task_submit(ctx, task, 2.0 * devices * sh->rows);
}

void sp_vocabulary_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                          bool counts, starpu_data_handle_t n, starpu_data_handle_t targets,
                          starpu_data_handle_t w, starpu_data_handle_t g, int devices,
                          const starpu_data_handle_t *stats, starpu_data_handle_t logits,
                          starpu_data_handle_t dn, starpu_data_handle_t tally)
{
    struct starpu_task *task = new_task(ctx, &vocabulary_cl, sh, rows);
    size_t scratch = scratch_elements(sp_shape_scratch(sh), rows, logits != NULL);

    ((struct vocabulary_args *)task->cl_arg)->counts = counts;
    SP_TASK_BUFFERS(task, vocabulary, .n = n, .targets = targets, .w = w, .g = g, .dn = dn,
                    .tally = tally, .stats = stats, .n_stats = devices, .logits = logits,
                    .scratch = sp_scratch_handle(sh, scratch));
    sp_task_submit(ctx, task, (logits ? 2 : 3) * sp_flops_linear(sh->rows, sh->model.hidden, rows));
}
