/*
 * Tokens of one cut of a sequence to another: rows of (b,len,width) tensors.
 *
 *   to(b, at .. at+n-1, width) = from(b, from_at .. from_at+n-1, width)
 */
#include "codelets/insert.h"

struct rows_args {
    struct sp_task_args base;
    struct sp_rows rows;
};

/* from R, to W or RW */
static void rows(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct rows_args *a = arg;
    const struct sp_shape *sh = a->base.shape;
    const struct sp_rows *r = &a->rows;
    size_t width = (size_t)r->width, elem = sp_shape_elem(sh);

    k->copy_rows(k, (size_t)r->batch, (size_t)r->n * width * elem,
                 sp_skip(sh, sp_buffer(buffers, 0), (size_t)r->from_at * width),
                 (size_t)r->from_len * width * elem,
                 sp_skip(sh, sp_buffer(buffers, 1), (size_t)r->to_at * width),
                 (size_t)r->to_len * width * elem);
}

SP_BODY(rows)

SP_MODEL(rows);

static struct starpu_codelet rows_cl = {
    SP_DEVICES(rows),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &rows_model,
    .name = "rows",
};

void sp_rows_insert(const struct sp_lane *lane, const struct sp_shape *sh,
                    const struct sp_rows *rows, starpu_data_handle_t from, starpu_data_handle_t to,
                    bool first)
{
    struct starpu_task *task = sp_task_new(lane, &rows_cl, "rows", sh, sizeof(struct rows_args));
    struct rows_args *a = task->cl_arg;

    a->rows = *rows;
    a->base.variant = (uint32_t)rows->n;
    sp_task_buffer(task, from, STARPU_R);
    sp_task_buffer(task, to, first ? STARPU_W : STARPU_RW);
    sp_task_submit(lane, task, 0);
}
