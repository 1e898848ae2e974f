/*
 * Moves tokens between different cuts of a sequence: rows of (b,len,width) tensors.
 *
 *   rows      to(b, at .. at+n-1, width) = from(b, from_at .. from_at+n-1, width)
 *   add_rows  the same, +=
 */
#include "codelets/insert.h"

struct rows_args {
    struct sp_task_args base;
    struct sp_rows rows;
};

#define ROWS_BUFFERS(ONE, OPTIONAL, LIST)                                                          \
    ONE(from, SP_READ)          /* (b,from_len,width) */                                           \
    OPTIONAL(to, SP_READ_WRITE) /* = rows of (b,to_len,width), whose others stay */                \
    OPTIONAL(new_to, SP_WRITE) /* = rows of it, in place of to, where the others hold nothing yet */
SP_BUFFERS(rows, ROWS_BUFFERS)

static void rows(const struct sp_backend *k, const struct rows_buffers *b,
                 const struct rows_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_rows *r = &a->rows;
    size_t width = (size_t)r->width, elem = sp_shape_elem(sh);

    k->copy_rows(k,
                 &(struct sp_row_copy){.n = (size_t)r->batch,
                                       .bytes = (size_t)r->n * width * elem,
                                       .from = (size_t)r->from_len * width * elem,
                                       .to = (size_t)r->to_len * width * elem},
                 sp_skip(sh, b->from, (size_t)r->from_at * width),
                 sp_skip(sh, b->to ? b->to : b->new_to, (size_t)r->to_at * width));
}

#define ADD_ROWS_BUFFERS(ONE, OPTIONAL, LIST)                                                      \
    ONE(from, SP_READ)     /* (b,from_len,width) */                                                \
    ONE(to, SP_READ_WRITE) /* += rows of (b,to_len,width) */
SP_BUFFERS(add_rows, ADD_ROWS_BUFFERS)

static void add_rows(const struct sp_backend *k, const struct add_rows_buffers *b,
                     const struct rows_args *a)
{
    const struct sp_shape *sh = a->base.shape;
    const struct sp_rows *r = &a->rows;
    size_t width = (size_t)r->width;

    for (size_t i = 0; i < (size_t)r->batch; i++)
        k->add(k, (size_t)r->n * width,
               sp_skip(sh, b->from, (i * (size_t)r->from_len + (size_t)r->from_at) * width),
               sp_skip(sh, b->to, (i * (size_t)r->to_len + (size_t)r->to_at) * width));
}

SP_CODELET(rows);
SP_CODELET(add_rows);

void sp_rows_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                    const struct sp_rows *rows, struct sp_tensor *from, struct sp_tensor *to,
                    bool first)
{
    struct sp_task *task = sp_task_new(ctx, &rows_cl, "rows", sh, sizeof(struct rows_args));
    struct rows_args *a = task->args;

    a->rows = *rows;
    a->base.variant = (uint32_t)rows->n;
    SP_TASK_BUFFERS(task, rows, .from = from, .to = first ? NULL : to, .new_to = first ? to : NULL);
    sp_task_submit(ctx, task, 0);
}

void sp_rows_add_insert(const struct sp_task_context *ctx, const struct sp_shape *sh,
                        const struct sp_rows *rows, struct sp_tensor *from, struct sp_tensor *to)
{
    struct sp_task *task = sp_task_new(ctx, &add_rows_cl, "add rows", sh, sizeof(struct rows_args));
    struct rows_args *a = task->args;

    a->rows = *rows;
    a->base.variant = (uint32_t)rows->n;
    SP_TASK_BUFFERS(task, add_rows, .from = from, .to = to);
    sp_task_submit(ctx, task, 0);
}
