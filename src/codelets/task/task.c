/* The task builder: name, tensors, accounting. */
#include "codelets/task/codelet.h"
#include "codelets/task/window.h"
#include "sp_error.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without blanks, which StarPU's traces do not quote. */
static void name_task(const struct sp_task_context *ctx, const char *part, char *name, size_t n)
{
    if (ctx->op_index >= 0 && ctx->slice >= 0)
        snprintf(name, n, "%c_s%d_m%d.%d_l%d_%s", ctx->pass, ctx->stage, ctx->mb, ctx->slice,
                 ctx->layer, part);
    else if (ctx->op_index >= 0)
        snprintf(name, n, "%c_s%d_m%d_l%d_%s", ctx->pass, ctx->stage, ctx->mb, ctx->layer, part);
    else
        snprintf(name, n, "%c_s%d_l%d_%s", ctx->pass, ctx->stage, ctx->layer, part);
}

struct sp_task *sp_task_new(const struct sp_task_context *ctx, struct sp_codelet *cl,
                            const char *part, const struct sp_shape *shape, size_t size)
{
    struct sp_task *task = malloc(sizeof *task);
    struct sp_task_args *a = calloc(1, size);

    SP_NEED(task && a, "out of memory for a task");
    memset(task, 0, offsetof(struct sp_task, own)); /* a count builds every task: clear only this */
    task->codelet = cl;
    task->args = a;
    task->args_bytes = size;
    task->room = SP_USES;
    task->use = task->own;
    a->codelet = cl;
    if (sp_sink_computes(ctx->sink))
        name_task(ctx, part, a->name, sizeof a->name);
    a->meter = ctx->meter;
    a->op = ctx->op;
    a->op_index = ctx->op_index;
    a->output = ctx->output;
    a->documents = ctx->documents;
    a->exchanged = ctx->exchanged;
    a->streamed = ctx->streamed;
    a->in_stream = ctx->in_stream && ctx->op_index >= 0;
    a->shape = shape;
    a->dtype = shape ? shape->dtype : SP_F32;
    return task;
}

void sp_task_use(struct sp_task *task, struct sp_tensor *t, enum sp_access access)
{
    if (task->n == task->room) {
        struct sp_use *more = realloc(task->use == task->own ? NULL : task->use,
                                      2 * (size_t)task->room * sizeof *more);

        SP_NEED(more, "out of memory for a task");
        if (task->use == task->own)
            memcpy(more, task->own, sizeof task->own);
        task->use = more;
        task->room *= 2;
    }
    if (access == SP_WRITE)
        t->stale = 0;
    SP_NEED(!t->stale || access == SP_ADD, "internal: %s uses a gradient whose step never wrote it",
            ((struct sp_task_args *)task->args)->name);
    task->use[task->n++] = (struct sp_use){t, access == SP_ADD ? SP_READ_WRITE : access};
}

void sp_task_overwrites(struct sp_task *task, struct sp_tensor *g, unsigned matrices)
{
    ((struct sp_task_args *)task->args)->overwrites = (unsigned char)(g->stale & matrices);
    g->stale &= (unsigned char)~matrices;
}

void sp_buffers_add(struct sp_task *task, int row, const char *name, int n,
                    struct sp_tensor *const *tensors, enum sp_access access)
{
    struct sp_task_args *a = task->args;

    a->n_buffers[row] = (uint16_t)n;
    for (int i = 0; i < n; i++) {
        SP_NEED(tensors[i], "internal: %s: no tensor for %s", a->name, name);
        sp_task_use(task, tensors[i], access);
    }
}

void sp_buffers_read(void *const **at, const size_t **bytes, int n, void **to, size_t *to_bytes)
{
    for (int i = 0; i < n; i++) {
        to[i] = *(*at)++;
        to_bytes[i] = *(*bytes)++;
    }
}

void sp_task_free(struct sp_task *task, bool whole)
{
    if (whole)
        free(task->args);
    if (task->use != task->own)
        free(task->use);
    free(task);
}

void sp_task_submit(const struct sp_task_context *ctx, struct sp_task *task, double flops)
{
    struct sp_task_args *a = task->args;

    if (ctx->returning) {
        a->returning = *ctx->returning;
        *ctx->returning = NULL;
    }
    ctx->sink->ops->insert(ctx, task, flops);
}

struct sp_tensor *sp_scratch_handle(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                    size_t n)
{
    return sp_sink_scratch(ctx->sink, n, sp_shape_elem(sh));
}

struct sp_tensor *sp_scratch_rows(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                  int width)
{
    return sp_scratch_handle(ctx, sh, (size_t)sp_shape_scratch(sh)->rows * (size_t)width);
}

/* ---- the end of an op ------------------------------------------------------------------------ */

static void end_run(const struct sp_backend *k, void *const *at, const size_t *bytes, void *arg)
{
    (void)k, (void)at, (void)bytes, (void)arg;
}

static struct sp_codelet end_cl = {.name = "end", .run = end_run};

void sp_op_close(const struct sp_task_context *ctx)
{
    struct sp_task *task;

    if (ctx->in_stream) {
        task = sp_task_new(ctx, &end_cl, "end", NULL, sizeof(struct sp_task_args));
        ((struct sp_task_args *)task->args)->in_stream = false;
        sp_task_submit(ctx, task, 0);
    }
    sp_window_close(ctx->op);
}

/* ---- checks ---------------------------------------------------------------------------------- */

bool sp_switch_is_on(const char *name, int *known)
{
    if (*known < 0)
        *known = getenv(name) && atoi(getenv(name));
    return *known;
}

bool sp_checks(void)
{
    static int check = -1;

    return sp_switch_is_on("SP_CHECK", &check);
}

void sp_check_finite(const struct sp_task_args *args, const struct sp_backend *k, const char *what,
                     const void *x, size_t n)
{
    size_t i;

    if (!sp_checks())
        return;
    i = k->first_not_finite(k, k->dtype, x, n);
    SP_NEED(i == n, "%s: %s[%zu] is not a finite number", args->name, what, i);
}
