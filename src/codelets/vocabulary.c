/*
 * The head if devices share the vocabulary, for a part of a micro-batch's tokens. All devices have
 * their n = norm(x):
 *
 *   logit_stats   Z(T,V) = n E^T for this device's rows of E;
 *                 stats(T,2) = log(sum e^Z), Z[target] if this device has it
 *   logit_merge   merges the stats of some devices as if they were one
 *   vocabulary    from the stats of all devices: lse(T), loss = sum of lse - Z[target]; then
 *                 was: Z = n E^T     so: dZ = scale (e^(Z - lse) - onehot), dE += dZ^T n,
 *                                        dn = dZ E, a part of the sum over devices
 *
 * If the logits are few, they are kept in between; otherwise both tasks compute them, head_rows
 * rows at a time, so that no more than those live.
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"

struct vocabulary_args {
    struct sp_task_args base;
    int rows;    /* rows of E that this device has */
    bool counts; /* adds the loss of these tokens: true on one of the devices */
};

/* Rows of logits that are computed at a time. */
static int rows_of(const struct sp_shape *sh, bool kept)
{
    return kept ? sh->rows : sh->head_rows;
}

/* Room for lse, and for logits that are not kept. */
static size_t scratch_elements(const struct sp_shape *sh, int rows, bool kept)
{
    return sp_shape_f32(sh, (size_t)sh->rows) +
           (kept ? 0 : (size_t)sh->head_rows * (size_t)sp_logits_ld(rows));
}

#define LOGIT_STATS_BUFFERS(ONE, OPTIONAL, LIST)                                                   \
    ONE(n, SP_READ)               /* (T,h) */                                                      \
    ONE(targets, SP_READ)         /* (T) int32, -1: not here */                                    \
    ONE(w, SP_READ)               /* (V,h) */                                                      \
    ONE(stats, SP_WRITE)          /* = (T,2) f32 */                                                \
    OPTIONAL(logits, SP_WRITE)    /* = (T,V), or: */                                               \
    OPTIONAL(scratch, SP_SCRATCH) /* logits(head_rows,V) */
SP_BUFFERS(logit_stats, LOGIT_STATS_BUFFERS)

static void logit_stats(const struct sp_backend *k, const struct logit_stats_buffers *b,
                        const struct vocabulary_args *a)
{
    const struct sp_shape *sh = a->base.shape;

    k->logit_stats(k,
                   &(struct sp_logits){.T = sh->rows,
                                       .h = sh->model.hidden,
                                       .V = a->rows,
                                       .rows = rows_of(sh, b->logits),
                                       .x = b->n,
                                       .w = b->w,
                                       .targets = b->targets,
                                       .scratch = b->logits ? b->logits : b->scratch},
                   b->stats);
}

#define LOGIT_MERGE_BUFFERS(ONE, OPTIONAL, LIST)                                                   \
    ONE(merged, SP_WRITE) /* = (T,2) f32 */                                                        \
    LIST(stats, SP_READ)  /* (T,2) f32 of each device */
SP_BUFFERS(logit_merge, LOGIT_MERGE_BUFFERS)

static void logit_merge(const struct sp_backend *k, const struct logit_merge_buffers *b,
                        const struct vocabulary_args *a)
{
    k->merge_stats(k, a->base.shape->rows, b->n_stats, (const float *const *)b->stats, b->merged);
}

#define VOCABULARY_BUFFERS(ONE, OPTIONAL, LIST)                                                    \
    ONE(n, SP_READ)                 /* (T,h) */                                                    \
    ONE(targets, SP_READ)           /* (T) int32, -1: not here */                                  \
    ONE(w, SP_READ)                 /* (V,h) */                                                    \
    ONE(g, SP_READ_WRITE)           /* += (V,h) */                                                 \
    ONE(dn, SP_WRITE)               /* = (T,h) */                                                  \
    ONE(tally, SP_READ_WRITE)       /* += [SP_TALLY_LOSS] */                                       \
    LIST(stats, SP_READ)            /* (T,2) f32 of each device */                                 \
    OPTIONAL(logits, SP_READ_WRITE) /* (T,V), overwritten; in scratch if they were not kept */     \
    ONE(scratch, SP_SCRATCH)        /* lse(T) f32, logits(head_rows,V) */
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
    k->logits_bwd(k,
                  &(struct sp_logits){
                      .T = T,
                      .h = h,
                      .V = a->rows,
                      .rows = rows_of(sh, b->logits),
                      .x = b->n,
                      .w = b->w,
                      .targets = b->targets,
                      .scale = sh->loss_scale,
                      .scratch = b->logits ? b->logits
                                           : sp_skip(sh, b->scratch, sp_shape_f32(sh, (size_t)T))},
                  lse, b->logits != NULL, b->dn, b->g);
    sp_check_finite(&a->base, k, "dn", b->dn, (size_t)T * (size_t)h);
}

SP_CODELET(logit_stats);
SP_CODELET(logit_merge);
SP_CODELET(vocabulary);

static struct sp_task *new_task(const struct sp_task_context *ctx, struct sp_codelet *cl,
                                const struct sp_shape *sh, int rows)
{
    struct sp_task *task = sp_task_new(ctx, cl, "head", sh, sizeof(struct vocabulary_args));
    struct vocabulary_args *a = task->args;

    a->base.dtype = sp_dtype_elements(sh->dtype);
    a->base.in_stream = false; /* the host writes the targets and reads the tally */
    a->rows = rows;
    return task;
}

void sp_logit_stats_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                           struct sp_tensor *n, struct sp_tensor *targets, struct sp_tensor *w,
                           struct sp_tensor *stats, struct sp_tensor *logits)
{
    struct sp_task *task = new_task(ctx, &logit_stats_cl, sh, rows);
    size_t scratch = scratch_elements(sp_shape_scratch(sh), rows, false);

    SP_TASK_BUFFERS(task, logit_stats, .n = n, .targets = targets, .w = w, .stats = stats,
                    .logits = logits,
                    .scratch = logits ? NULL : sp_scratch_handle(ctx, sh, scratch));
    sp_task_submit(ctx, task, sp_flops_linear(sh->rows, sh->model.hidden, rows));
}

void sp_logit_merge_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           int devices, struct sp_tensor *const *stats, struct sp_tensor *merged)
{
    struct sp_task *task = new_task(ctx, &logit_merge_cl, sh, 0);

    SP_TASK_BUFFERS(task, logit_merge, .merged = merged, .stats = stats, .n_stats = devices);
    sp_task_submit(ctx, task, 2.0 * devices * sh->rows);
}

void sp_vocabulary_insert(const struct sp_task_context *ctx, const struct sp_shape *sh, int rows,
                          bool counts, struct sp_tensor *n, struct sp_tensor *targets,
                          struct sp_tensor *w, struct sp_tensor *g, int devices,
                          struct sp_tensor *const *stats, struct sp_tensor *logits,
                          struct sp_tensor *dn, struct sp_tensor *tally)
{
    struct sp_task *task = new_task(ctx, &vocabulary_cl, sh, rows);
    size_t scratch = scratch_elements(sp_shape_scratch(sh), rows, logits != NULL);

    ((struct vocabulary_args *)task->args)->counts = counts;
    SP_TASK_BUFFERS(task, vocabulary, .n = n, .targets = targets, .w = w, .g = g, .dn = dn,
                    .tally = tally, .stats = stats, .n_stats = devices, .logits = logits,
                    .scratch = sp_scratch_handle(ctx, sh, scratch));
    sp_task_submit(ctx, task, (logits ? 2 : 3) * sp_flops_linear(sh->rows, sh->model.hidden, rows));
}
