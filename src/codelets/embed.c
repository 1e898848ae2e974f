/*
 * Token and position embedding:
 *
 *   x(b,s,h) = tokens[ids(b,s)] + positions[0..s-1]     (positions: GPT-2 style, per document)
 *
 * If devices share the tables, it is the part of the sum over devices that this one has rows of.
 * There is no input gradient; weight gradient: dtokens[ids] += dx, dpositions += sum_b dx.
 */
#include "codelets/insert.h"
#include "kernels/kernels.h"
#include "model/documents.h"

#define EMBED_FWD_BUFFERS(ONE, OPTIONAL, LIST)                                                     \
    ONE(ids, SP_READ)            /* (b,s) int32 */                                                 \
    ONE(x, SP_WRITE)             /* = (T,h) */                                                     \
    ONE(tokens, SP_READ)         /* (V,h) */                                                       \
    OPTIONAL(positions, SP_READ) /* (s,h), of GPT-2 style */
SP_BUFFERS(embed_fwd, EMBED_FWD_BUFFERS)

static void embed_fwd(const struct sp_backend *k, const struct embed_fwd_buffers *b,
                      const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;
    struct sp_segment s = {0};

    while (sp_segment_next(sh, a->documents, &s))
        k->embed(k,
                 &(struct sp_embed){.batch = s.sequences,
                                    .len = s.len,
                                    .h = sh->model.hidden,
                                    .pos0 = s.position - sh->table_first,
                                    .here = sh->held.positions,
                                    .skip = sh->stride - 1,
                                    .ids = (int32_t *)b->ids + s.row},
                 b->tokens, b->positions, sp_skip(sh, b->x, s.row * (size_t)sh->model.hidden));
    sp_check_finite(a, k, "x", b->x, (size_t)sh->rows * (size_t)sh->model.hidden);
}

#define EMBED_WGRAD_BUFFERS(ONE, OPTIONAL, LIST)                                                   \
    ONE(ids, SP_READ)                   /* (b,s) int32 */                                          \
    ONE(dx, SP_READ)                    /* (T,h) */                                                \
    ONE(dtokens, SP_READ_WRITE)         /* += (V,h) */                                             \
    OPTIONAL(dpositions, SP_READ_WRITE) /* += (s,h) */
SP_BUFFERS(embed_wgrad, EMBED_WGRAD_BUFFERS)

static void embed_wgrad(const struct sp_backend *k, const struct embed_wgrad_buffers *b,
                        const struct sp_task_args *a)
{
    const struct sp_shape *sh = a->shape;
    struct sp_segment s = {0};

    while (sp_segment_next(sh, a->documents, &s))
        k->embed_bwd(k,
                     &(struct sp_embed){.batch = s.sequences,
                                        .len = s.len,
                                        .h = sh->model.hidden,
                                        .pos0 = s.position - sh->table_first,
                                        .here = sh->held.positions,
                                        .skip = sh->stride - 1,
                                        .ids = (int32_t *)b->ids + s.row},
                     sp_skip(sh, b->dx, s.row * (size_t)sh->model.hidden), b->dtokens,
                     b->dpositions);
}

SP_CODELET(embed_fwd);
SP_CODELET(embed_wgrad);

static struct sp_task *new_task(const struct sp_task_context *ctx, struct sp_codelet *cl,
                                const struct sp_shape *sh)
{
    struct sp_task *t = sp_task_new(ctx, cl, "embed", sh, sizeof(struct sp_task_args));

    ((struct sp_task_args *)t->args)->in_stream = false; /* the host writes the ids */
    return t;
}

void sp_embed_fwd_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                         struct sp_tensor *ids, struct sp_tensor *tokens,
                         struct sp_tensor *positions, struct sp_tensor *x, int64_t stashed)
{
    struct sp_task *t = new_task(ctx, &embed_fwd_cl, sh);

    SP_TASK_BUFFERS(t, embed_fwd, .ids = ids, .x = x, .tokens = tokens, .positions = positions);
    sp_task_acquires(t, stashed);
    sp_task_submit(ctx, t, (double)sh->rows * sh->model.hidden);
}

void sp_embed_wgrad_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                           struct sp_tensor *ids, struct sp_tensor *dx, struct sp_tensor *dtokens,
                           struct sp_tensor *dpositions)
{
    struct sp_task *t = new_task(ctx, &embed_wgrad_cl, sh);

    SP_TASK_BUFFERS(t, embed_wgrad, .ids = ids, .dx = dx, .dtokens = dtokens,
                    .dpositions = dpositions);
    sp_task_submit(ctx, t, (double)sh->rows * sh->model.hidden);
}
