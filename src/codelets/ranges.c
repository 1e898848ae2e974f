/*
 * Some elements of a block's gradient by themselves, to be summed with those of other devices:
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
    ONE(g, STARPU_R)    /* f32 */                                                                  \
    ONE(part, STARPU_W) /* = elements of the ranges */
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
    ONE(part, STARPU_R) /* elements of the ranges, f32 */                                          \
    ONE(g, STARPU_RW)   /* = in the ranges */
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

static struct starpu_task *new_task(const struct sp_task_context *ctx, struct starpu_codelet *cl,
                                    int n, const struct sp_block_range *range)
{
    struct starpu_task *task = sp_task_new(ctx, cl, "ranges", NULL, sizeof(struct ranges_args));
    struct ranges_args *a = task->cl_arg;

    a->n = n;
    memcpy(a->range, range, (size_t)n * sizeof *range);
    return task;
}

void sp_pack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                    starpu_data_handle_t g, starpu_data_handle_t part)
{
    struct starpu_task *task = new_task(ctx, &pack_cl, n, range);

    SP_TASK_BUFFERS(task, pack, .g = g, .part = part);
    sp_task_submit(ctx, task, 0);
}

void sp_unpack_insert(const struct sp_task_context *ctx, int n, const struct sp_block_range *range,
                      starpu_data_handle_t part, starpu_data_handle_t g)
{
    struct starpu_task *task = new_task(ctx, &unpack_cl, n, range);

    SP_TASK_BUFFERS(task, unpack, .part = part, .g = g);
    sp_task_submit(ctx, task, 0);
}
