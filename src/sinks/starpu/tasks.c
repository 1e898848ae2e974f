/* Tasks: their submission to StarPU, and the measurement of their times. */
#include "sinks/starpu/tensor.h"
#include "codelets/task/codelet.h"
#include "codelets/task/window.h"
#include "config.h"
#include "offload/evicted.h"
#include "offload/mover.h"
#include "policies/simulation/starpu_idle.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/simulated.h"
#include "sinks/starpu/sink.h"
#include "sp_activity.h"
#include "sp_atomic.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "transport/clock.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double sp_now_us(void)
{
#ifdef HAVE_SIMGRID
    return starpu_timing_now();
#else
    return sp_clock_us(CLOCK_REALTIME);
#endif
}

/* How long the scheduler held this worker, since the last call, until tensors had left memory. */
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

static bool follows = true;

void sp_tasks_follow(bool programs, int workers)
{
    follows = programs;
    sp_idle_count(programs ? 0 : workers - sp_order_waiting());
}

/* A worker is about to run the task: its activations come alive. */
static void starts(void *arg)
{
    struct sp_task_args *a = arg;
    int64_t live = __atomic_add_fetch(&a->meter->live_bytes, a->acquire_bytes, __ATOMIC_RELAXED);

    if (!follows)
        sp_idle_count(-1);
    a->began_us = sp_now_us();
    a->stalled_us = a->meter->moves ? held_us() : 0;
    a->began_cpu_us = sp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    sp_raise(&a->meter->peak_bytes, live);
    for (struct sp_move *m = a->returning, *next; m; m = next) {
        next = m->next; /* a move that has returned may be reused */
        if (m->returns)
            sp_return_begin(m->returns);
        else
            sp_move_back(m);
    }
}

/* How long a task waited for its data; only data on disk take noticeable time. */
static double fetched_us(const struct starpu_task *task)
{
    struct starpu_profiling_task_info *info = task ? task->profiling_info : NULL;

    return info ? starpu_timing_timespec_delay_us(&info->acquire_data_start_time,
                                                  &info->acquire_data_end_time)
                : 0;
}

/* Recent tasks of a worker, in microseconds. Only that worker uses it. */
struct history {
    double ended;        /* the last task that StarPU waited for */
    double began, ready; /* the first `in_stream` task after it; 0: there was none */
};

/* Times of a task, including `in_stream` tasks before it, in microseconds. */
struct spent {
    double took;  /* its worker was at work */
    double idle;  /* its worker was idle before that */
    double ready; /* from when the first of them was ready until the end */
};

/*
 * Takes times from StarPU's profiling, which is right for asynchronous devices too. `in_stream`
 * tasks, which StarPU does not wait for, count with the next task that it waits for.
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
 * How long a task's worker had no core, because others used them all: the time in which its thread
 * neither ran nor fetched data. For a team only its first thread is measured. A GPU's worker only
 * watches the GPU, so it counts as 0.
 */
static double core_wait_us(const struct sp_task_args *a, double fetched, double took, double end)
{
    int worker = starpu_worker_get_id();

    if (worker < 0 || starpu_worker_get_type(worker) != STARPU_CPU_WORKER)
        return 0;
    return fmin(took,
                fmax(0, end - a->began_us -
                            (sp_clock_us(CLOCK_THREAD_CPUTIME_ID) - a->began_cpu_us) - fetched));
}

/* Adds the times of a task to the record of its op. */
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
        if (a->streamed) {
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
    if (!follows)
        sp_idle_count(1);
    sp_activity_touch();
    if (a->op)
        sp_window_done(a->op);
}

/* ---- codelets --------------------------------------------------------------------------------- */

#ifndef HAVE_SIMGRID /* where all models give the simulated times */
static uint32_t footprint(struct starpu_task *task)
{
    const struct sp_task_args *a = task->cl_arg;

    return starpu_hash_crc32c_be(a->variant + ((uint32_t)a->dtype << 24),
                                 starpu_task_data_footprint(task));
}
#endif

/* Runs a task's body on its buffers. */
static void run(const struct sp_backend *k, void *buffers[], void *arg)
{
    const struct sp_task_args *a = arg;
    int n = STARPU_TASK_GET_NBUFFERS(starpu_task_get_current());
    void *at[n + 1];
    size_t bytes[n + 1];

    for (int i = 0; i < n; i++) {
        at[i] = (void *)STARPU_VECTOR_GET_PTR(buffers[i]);
        bytes[i] =
            (size_t)STARPU_VECTOR_GET_NX(buffers[i]) * STARPU_VECTOR_GET_ELEMSIZE(buffers[i]);
    }
    a->codelet->run(k, at, bytes, arg);
}

static void run_cpu(void *buffers[], void *arg)
{
    run(sp_cpu_backend(((const struct sp_task_args *)arg)->dtype), buffers, arg);
}

#ifdef HAVE_CUDA
static void run_cuda(void *buffers[], void *arg)
{
    run(sp_cuda_kernels(arg), buffers, arg);
    sp_cuda_queued(arg, buffers, STARPU_TASK_GET_NBUFFERS(starpu_task_get_current()));
}
#endif

/* StarPU's form of a codelet, with a performance model by sizes and variant. It is made once, and
 * lives as long as the process. */
static struct starpu_codelet *codelet_of(struct sp_codelet *c)
{
    struct {
        struct starpu_codelet cl;
        struct starpu_perfmodel model;
        char symbol[64];
    } *own = c->own;

    if (own)
        return &own->cl;
    own = calloc(1, sizeof *own);
    SP_NEED(own, "out of memory for a codelet");
    own->cl = (struct starpu_codelet){
        .cpu_funcs = {run_cpu},
        .cpu_funcs_name = {"run_cpu"},
#ifdef HAVE_CUDA
        .cuda_funcs = {run_cuda},
        .cuda_flags = {STARPU_CUDA_ASYNC},
#endif
        .nbuffers = STARPU_VARIABLE_NBUFFERS,
        .name = c->name,
    };
#ifdef HAVE_SIMGRID
    own->model =
        (struct starpu_perfmodel){.type = STARPU_PER_ARCH, .arch_cost_function = sp_simulated_us};
#else
    snprintf(own->symbol, sizeof own->symbol, "starpipe_%s", c->name);
    own->model = (struct starpu_perfmodel){
        .type = STARPU_HISTORY_BASED, .symbol = own->symbol, .footprint = footprint};
#endif
    if (!c->timed)
        own->cl.model = &own->model;
    c->own = own;
    return &own->cl;
}

/* ---- submission ------------------------------------------------------------------------------- */

/* Beyond STARPU_NMAXBUFS buffers StarPU reads arrays of the task, which it also frees. */
static void give_buffers(struct starpu_task *task, const struct sp_task *from)
{
    int n = 0;

    if (from->n > STARPU_NMAXBUFS) {
        task->dyn_handles = malloc((size_t)from->n * sizeof *task->dyn_handles);
        task->dyn_modes = malloc((size_t)from->n * sizeof *task->dyn_modes);
        SP_NEED(task->dyn_handles && task->dyn_modes, "out of memory for a task");
    }
    for (int i = 0; i < from->n; i++) {
        const struct sp_use *use = &from->use[i];

#ifdef HAVE_SIMGRID
        if (use->access == SP_SCRATCH)
            continue; /* StarPU would allocate it, for kernels that do not run */
#endif
        STARPU_TASK_SET_HANDLE(task, sp_handle(use->tensor), n);
        STARPU_TASK_SET_MODE(task, (enum starpu_data_access_mode)use->access, n);
        n++;
    }
    task->nbuffers = n;
}

_Static_assert((int)SP_READ == (int)STARPU_R && (int)SP_WRITE == (int)STARPU_W &&
                   (int)SP_READ_WRITE == (int)STARPU_RW && (int)SP_SCRATCH == (int)STARPU_SCRATCH,
               "accesses are StarPU's");

/* Masks with one bit, one for each worker; they outlive the tasks. */
static uint32_t *mask_of(int worker, unsigned *len)
{
    static uint32_t masks[STARPU_NMAXWORKERS][(STARPU_NMAXWORKERS + 31) / 32];

    masks[worker][worker / 32] = 1u << (worker % 32);
    *len = (STARPU_NMAXWORKERS + 31) / 32;
    return masks[worker];
}

/*
 * Notes the time of submission: of an op that of its first task, and of other tasks only if a
 * worker waits, since otherwise they cannot be late. The op's worker writes the record, so this
 * reads it only once an op.
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

void sp_starpu_insert(const struct sp_task_context *ctx, struct sp_task *from, double flops)
{
    static int sync = -1;
    struct sp_task_args *a = from->args;
    struct starpu_task *task = starpu_task_create();
    int err;

    SP_NEED(task, "out of memory for a task");
    task->cl = codelet_of(from->codelet);
    task->cl_arg = a;
    task->cl_arg_size = from->args_bytes;
    task->cl_arg_free = 1;
    task->name = a->name;
    task->flops = flops;
    give_buffers(task, from);
    sp_task_free(from, false);
    if (ctx->meter) {
        task->callback_func = ends;
        task->callback_arg = a;
        task->prologue_callback_pop_func = starts;
        task->prologue_callback_pop_arg = a;
    } else {
        task->where = STARPU_CPU; /* GPUs have kernels while a trainer is open */
    }
    if (a->meter && a->meter->times)
        sp_simulated_add(task);
    task->synchronous = sp_switch_is_on("SP_SYNC", &sync);
    if (ctx->worker >= 0) {
        task->workerids = mask_of(ctx->worker, &task->workerids_len);
        if (follows)
            task->workerorder = ++*ctx->order;
        else
            task->priority = ctx->priority;
        if (follows && (a->acquire_bytes || a->release_bytes))
            sp_order_memory(ctx->worker, task->workerorder, a->acquire_bytes, a->release_bytes);
    }
    if (ctx->op)
        sp_window_add(ctx->op);
    note_submission(ctx, a);
    err = starpu_task_submit(task);
    STARPU_ASSERT_MSG(!err, "starpipe: %s: no worker takes the task (%s)", a->name, strerror(-err));
}
