/*
 * Takes some elements of a block's gradient out, to be summed with those of other devices, and puts
 * them back:
 *
 *   pack     part = g[ranges], one after the other
 *   unpack   g[ranges] = part
 */
#include "codelets/insert.h"
#include <string.h>

struct ranges_args {
    struct sp_task_args base;
    int n;
    struct sp_block_range range[SP_BLOCK_RANGES]; /* of the buffer */
};

#define PACK_BUFFERS(ONE, OPTIONAL, LIST)                                                          \
    ONE(g, SP_READ)     /* f32 */                                                                  \
    ONE(part, SP_WRITE) /* = elements of the ranges */
SP_BUFFERS(pack, PACK_BUFFERS)

static void pack(const struct sp_backend *k, const struct pack_buffers *b,
                 const struct ranges_args *a)
{
    const float *g = b->g;
    float *part = b->part;

    for (int i = 0; i < a->n; part += a->range[i++].n)
        k->copy(k, a->range[i].n * sizeof *part, g + a->range[i].first, part);
}

#define UNPACK_BUFFERS(ONE, OPTIONAL, LIST)                                                        \
    ONE(part, SP_READ)    /* elements of the ranges, f32 */                                        \
    ONE(g, SP_READ_WRITE) /* = in the ranges */
SP_BUFFERS(unpack, UNPACK_BUFFERS)

static void unpack(const struct sp_backend *k, const struct unpack_buffers *b,
                   const struct ranges_args *a)
{
    const float *part = b->part;
    float *g = b->g;

    for (int i = 0; i < a->n; part += a->range[i++].n)
        k->copy(k, a->range[i].n * sizeof *part, part, g + a->range[i].first);
}

SP_CODELET(pack);
SP_CODELET(unpack);

static struct sp_task *new_task(const struct sp_task_context *ctx, struct sp_codelet *cl, int n,
                                const struct sp_block_range *range)
{
    struct sp_task *task = sp_task_new(ctx, cl, "ranges", NULL, sizeof(struct ranges_args));
    struct ranges_args *a = task->args;

    a->n = n;
    memcpy(a->range, range, (size_t)n * sizeof *range);
    return task;
}

void sp_pack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                    struct sp_tensor *g, struct sp_tensor *part)
{
    struct sp_task *task = new_task(ctx, &pack_cl, n, range);

    SP_TASK_BUFFERS(task, pack, .g = g, .part = part);
    sp_task_submit(ctx, task, 0);
}

void sp_unpack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                      struct sp_tensor *part, struct sp_tensor *g)
{
    struct sp_task *task = new_task(ctx, &unpack_cl, n, range);

    SP_TASK_BUFFERS(task, unpack, .part = part, .g = g);
    sp_task_submit(ctx, task, 0);
}
