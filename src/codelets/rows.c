/*
 * Tokens of one cut of a sequence to another: rows of (b,len,width) tensors.
 *
 *   to(b, at .. at+n-1, width) = from(b, from_at .. from_at+n-1, width)
 */
#include "codelets/insert.h"
#include <string.h>

struct rows_args {
    struct sp_task_args base;
    struct sp_rows rows;
};

/* from R, to W or RW */
static void rows_cpu(void *buffers[], void *arg)
{
    const struct rows_args *a = arg;
    const struct sp_rows *r = &a->rows;
    size_t width = (size_t)r->width, n = (size_t)r->n * width;
    const float *from = sp_buffer(buffers, 0) + (size_t)r->from_at * width;
    float *to = sp_buffer(buffers, 1) + (size_t)r->to_at * width;

    for (int b = 0; b < r->batch; b++)
        memcpy(to + (size_t)b * (size_t)r->to_len * width,
               from + (size_t)b * (size_t)r->from_len * width, n * sizeof *to);
}

SP_MODEL(rows);

static struct starpu_codelet rows_cl = {
    SP_CPU(rows_cpu),
    SP_CUDA(rows_cuda).nbuffers = STARPU_VARIABLE_NBUFFERS,
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
