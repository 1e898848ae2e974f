/* The task builder: name, position on a worker, accounting. */
#include "codelets/task/codelet.h"
#include "codelets/task/window.h"
#include "offload/mover.h"
#include "sp_activity.h"
#include "sp_atomic.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Is a switch of the environment on? Read once: *known is -1 before. */
static bool wanted(const char *name, int *known)
{
    if (*known < 0)
        *known = getenv(name) && atoi(getenv(name));
    return *known;
}

double sp_now_us(void)
{
#ifdef HAVE_SIMGRID
    return starpu_timing_now();
#else
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
#endif
}

static double thread_cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* How long the scheduler held this worker, since it was last asked, until tensors had left memory. */
static double held_us(void)
{
    static double before[STARPU_NMAXWORKERS];
    int worker = starpu_worker_get_id();
    double now = worker < 0 ? 0 : sp_order_held_us(worker), held;

    if (worker < 0)
        return 0;
    held = now - before[worker];
    before[worker] = now;
    return fmax(0, held);
}

/* A worker is about to run the task: its activations come alive. */
static void starts(void *arg)
{
    struct sp_task_args *a = arg;
    int64_t live = __atomic_add_fetch(&a->meter->live_bytes, a->acquire_bytes, __ATOMIC_RELAXED);

    a->began_us = sp_now_us();
    a->stalled_us = a->meter->moves ? held_us() : 0;
    a->began_cpu_us = thread_cpu_us();
    sp_raise(&a->meter->peak_bytes, live);
    for (struct sp_move *m = a->returning, *next; m; m = next) {
        next = m->next; /* once it is back it may be used again */
        sp_move_back(m);
    }
}

/* How long a task waited for its data, where that takes any time: those on disk. */
static double fetched_us(const struct starpu_task *task)
{
    struct starpu_profiling_task_info *info = task ? task->profiling_info : NULL;

    return info ? starpu_timing_timespec_delay_us(&info->acquire_data_start_time,
                                                  &info->acquire_data_end_time)
                : 0;
}

/* What a worker, which alone uses it, has done; microseconds. */
struct history {
    double ended;        /* the last task that was waited for */
    double began, ready; /* the first task after it that was not; 0: there was none */
};

/* Times of a task, or of those that were not waited for with the one that was; microseconds. */
struct spent {
    double took;  /* its worker was at work */
    double idle;  /* and had been idle before that */
    double ready; /* from when the first of them was ready until the end */
};

/*
 * From StarPU's profiling: right for asynchronous devices too. Tasks that are not waited for count with the
 * next one that is.
 */
static struct spent time_spent(const struct sp_task_args *a, const struct starpu_task *task)
{
    static struct history of_worker[STARPU_NMAXWORKERS];
    struct starpu_profiling_task_info *info = task ? task->profiling_info : NULL;
    int worker = starpu_worker_get_id();
    struct history *h = worker < 0 ? NULL : &of_worker[worker];
    double start, end, ready;
    struct spent spent;

    if (!info)
        return (struct spent){0};
    start = starpu_timing_timespec_to_us(&info->start_time);
    end = starpu_timing_timespec_to_us(&info->end_time);
    ready = starpu_timing_timespec_to_us(&info->push_end_time);
    if (!h)
        return (struct spent){.took = end - start, .ready = end - ready};
    if (a->in_stream) {
        if (h->began <= 0)
            *h = (struct history){.ended = h->ended, .began = start, .ready = ready};
        return (struct spent){0};
    }
    if (h->began > 0) {
        start = fmax(h->began, h->ended);
        ready = h->ready;
    }
    spent = (struct spent){.took = end - start,
                           .idle = h->ended > 0 ? fmax(0, start - h->ended) : 0,
                           .ready = fmax(end - start, end - ready)};
    *h = (struct history){.ended = end};
    return spent;
}

/*
 * How much of a task its worker spent without a core, others having them all: time in which its
 * thread neither ran nor fetched data. Of a team, its first thread tells. A GPU's worker only watches.
 */
static double core_wait_us(const struct sp_task_args *a, double fetched, double took, double end)
{
    int worker = starpu_worker_get_id();

    if (worker < 0 || starpu_worker_get_type(worker) != STARPU_CPU_WORKER)
        return 0;
    return fmin(took, fmax(0, end - a->began_us - (thread_cpu_us() - a->began_cpu_us) - fetched));
}

/* The op that a task is of. */
static void count_op(const struct sp_task_args *a, const struct spent *spent, double fetched,
                     double end)
{
    struct sp_meter *m = a->meter;
    struct sp_op_record *r = &m->ops[a->op_index];
    double start = end - spent->took;

    if (r->start_us <= 0) {
        r->start_us = start;
        r->ready_us = end - spent->ready;
    } else {
        double late = fmin(spent->idle, fmax(0, a->submitted_us - (start - spent->idle)));
        double waited = fmax(late, fmin(spent->idle, end - spent->ready - (start - spent->idle)));

        r->late_us += late;
        if (a->exchanged)
            r->exchange_us += waited - late;
        if (a->visited) {
            r->stall_us += waited - late;
            m->fetch_us += waited - late;
        }
    }
    r->end_us = end;
    r->busy_us += spent->took;
    r->core_wait_us += core_wait_us(a, fetched, spent->took, end);
    r->stall_us += m->moves ? fetched + a->stalled_us : 0;
    if (a->output)
        r->out_us = end;
}

static void ends(void *arg)
{
    struct sp_task_args *a = arg;
    struct sp_meter *m = a->meter;
    double end = sp_now_us();
    struct spent spent = time_spent(a, starpu_task_get_current());
    double fetched = fetched_us(starpu_task_get_current());

    m->fetch_us += fetched;
    __atomic_sub_fetch(&m->live_bytes, a->release_bytes, __ATOMIC_RELAXED);
    if (a->in_stream) {
        /* counted with the end of its op */
    } else if (a->op_index >= 0 && a->op_index < m->n_ops) {
        count_op(a, &spent, fetched, end);
    } else {
        m->update_us += spent.took;
    }
    sp_activity_touch();
    if (a->op)
        sp_window_done(a->op);
}

struct starpu_task *sp_task_new(const struct sp_task_context *ctx, struct starpu_codelet *cl,
                                const char *part, const struct sp_shape *shape, size_t size)
{
    struct starpu_task *task = starpu_task_create();
    struct sp_task_args *a = calloc(1, size);

    SP_NEED(task && a, "out of memory for a task");
    if (ctx->op_index >= 0 && ctx->slice >= 0)
        snprintf(a->name, sizeof a->name, "%c s%d m%d.%d l%d %s", ctx->pass, ctx->stage, ctx->mb,
                 ctx->slice, ctx->layer, part);
    else if (ctx->op_index >= 0)
        snprintf(a->name, sizeof a->name, "%c s%d m%d l%d %s", ctx->pass, ctx->stage, ctx->mb,
                 ctx->layer, part);
    else
        snprintf(a->name, sizeof a->name, "%c s%d l%d %s", ctx->pass, ctx->stage, ctx->layer, part);
    a->meter = ctx->meter;
    a->op = ctx->op;
    a->op_index = ctx->op_index;
    a->output = ctx->output;
    a->documents = ctx->documents;
    a->exchanged = ctx->exchanged;
    a->visited = ctx->visited;
    a->in_stream = ctx->in_stream && ctx->op_index >= 0;
    a->shape = shape;
    a->dtype = shape ? shape->dtype : SP_F32;

    task->cl = cl;
    task->cl_arg = a;
    task->cl_arg_size = size;
    task->cl_arg_free = 1;
    task->name = a->name;
    task->nbuffers = 0;
    if (!ctx->meter) {
        task->where = STARPU_CPU; /* GPUs have kernels while a trainer is open */
        return task;
    }
    task->callback_func = ends;
    task->callback_arg = a;
    task->prologue_callback_pop_func = starts;
    task->prologue_callback_pop_arg = a;
    return task;
}

/* One-bit masks, one a worker, that outlive the tasks. */
static uint32_t *mask_of(int worker, unsigned *len)
{
    static uint32_t masks[STARPU_NMAXWORKERS][(STARPU_NMAXWORKERS + 31) / 32];

    masks[worker][worker / 32] = 1u << (worker % 32);
    *len = (STARPU_NMAXWORKERS + 31) / 32;
    return masks[worker];
}

/*
 * An op has been submitted since its first task was. Other tasks can only be late where a worker waits: then
 * alone is their time taken. The record is written by the op's worker, so it is looked at once an op.
 */
static void note_submission(const struct sp_task_context *ctx, struct sp_task_args *a)
{
    static __thread const struct sp_op_record *last;
    struct sp_meter *m = ctx->meter;
    struct sp_op_record *r;

    if (!m || ctx->op_index < 0 || ctx->op_index >= m->n_ops)
        return;
    r = &m->ops[ctx->op_index];
    if (r != last || sp_order_waiting() > 0)
        a->submitted_us = sp_now_us();
    if (r != last && r->submitted_us <= 0)
        r->submitted_us = a->submitted_us;
    last = r;
}

void sp_task_submit(const struct sp_task_context *ctx, struct starpu_task *task, double flops)
{
    static int sync = -1;
    struct sp_task_args *a = task->cl_arg;
    int err;

    task->flops = flops;
    if (a->meter && a->meter->times)
        sp_simulated_add(task);
    task->synchronous = wanted("SP_SYNC", &sync);
    if (ctx->worker >= 0) {
        task->workerids = mask_of(ctx->worker, &task->workerids_len);
        task->workerorder = ++*ctx->order;
        if (a->acquire_bytes || a->release_bytes)
            sp_order_memory(ctx->worker, task->workerorder, a->acquire_bytes, a->release_bytes);
    }
    if (ctx->returning) {
        a->returning = *ctx->returning;
        *ctx->returning = NULL;
    }
    if (ctx->op)
        sp_window_add(ctx->op);
    note_submission(ctx, a);
    err = starpu_task_submit(task);
    STARPU_ASSERT_MSG(!err, "starpipe: %s: no worker takes the task (%s)", a->name, strerror(-err));
}

/* ---- the end of an op ------------------------------------------------------------------------- */

static void nothing(const struct sp_backend *k, void *buffers[], void *arg)
{
    (void)k, (void)buffers, (void)arg;
}

SP_BODY(nothing)
SP_MODEL(nothing);

static struct starpu_codelet end_cl = {
    SP_DEVICES(nothing),
    .nbuffers = STARPU_VARIABLE_NBUFFERS,
    .model = &nothing_model,
    .name = "end",
};

void sp_op_close(const struct sp_task_context *ctx)
{
    struct starpu_task *task;

    if (ctx->in_stream) {
        task = sp_task_new(ctx, &end_cl, "end", NULL, sizeof(struct sp_task_args));
        ((struct sp_task_args *)task->cl_arg)->in_stream = false;
        sp_task_submit(ctx, task, 0);
    }
    sp_window_close(ctx->op);
}

uint32_t sp_task_footprint(struct starpu_task *task)
{
    const struct sp_task_args *a = task->cl_arg;

    return starpu_hash_crc32c_be(a->variant + ((uint32_t)a->dtype << 24),
                                 starpu_task_data_footprint(task));
}

bool sp_checks(void)
{
    static int check = -1;

    return wanted("SP_CHECK", &check);
}

void sp_check_finite(const struct sp_task_args *args, const struct sp_backend *k, const char *what,
                     const void *x, size_t n)
{
    size_t i;

    if (!sp_checks())
        return;
    i = k->first_not_finite(k, k->dtype, x, n);
    STARPU_ASSERT_MSG(i == n, "starpipe: %s: %s[%zu] is not a finite number", args->name, what, i);
}
