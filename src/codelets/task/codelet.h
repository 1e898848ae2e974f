/*
 * What every codelet file shares: the backend slots, the task builder and the accounting of one
 * op. A codelet file holds, in this order: args, body, codelet, insert.
 */
#ifndef SP_CODELET_H
#define SP_CODELET_H

#include "config.h"
#include "codelets/task/buffers.h"
#include "codelets/task/simulated.h"
#include "kernels/backend.h"
#include "offload/pool.h"
#include "starpipe/op.h"
#include <starpu.h>

/*
 * A codelet's body is written once, in the kernels of whatever device runs it, and reads its buffers by
 * the names that SP_BUFFERS(op, ...) gave them:
 *
 *   static void op(const struct sp_backend *k, const struct op_buffers *b, const struct op_args *a);
 *
 * SP_CODELET(op) makes of it op_cl, with a function that StarPU calls for each device and a performance
 * model: history-based, by sizes and variant. CUDA's functions queue their kernels on the worker's
 * stream and return.
 */
#define SP_CODELET(op)                                                                             \
    static void op##_task(const struct sp_backend *k, void *buffers[], void *arg)                  \
    {                                                                                              \
        struct op##_buffers b = {0};                                                               \
                                                                                                   \
        op##_buffers_read(&b, buffers, ((const struct sp_task_args *)arg)->n_buffers);             \
        op(k, &b, arg);                                                                            \
    }                                                                                              \
    SP_BODY(op##_task)                                                                             \
    SP_MODEL(op);                                                                                  \
    static struct starpu_codelet op##_cl = {                                                       \
        SP_DEVICES(op##_task),                                                                     \
        .nbuffers = STARPU_VARIABLE_NBUFFERS,                                                      \
        .model = &op##_model,                                                                      \
        .name = #op,                                                                               \
    }

/* SP_BODY(f) makes StarPU's functions of f(kernels, buffers, args), SP_DEVICES(f) names them. */
#define SP_BODY_CPU(f)                                                                             \
    static void f##_cpu(void *buffers[], void *arg)                                                \
    {                                                                                              \
        f(sp_cpu_kernels(arg), buffers, arg);                                                      \
    }
#define SP_BODY_CUDA(f)                                                                            \
    static void f##_cuda(void *buffers[], void *arg)                                               \
    {                                                                                              \
        f(sp_cuda_kernels(arg), buffers, arg);                                                     \
        sp_cuda_queued(arg);                                                                       \
    }

#ifdef HAVE_CUDA
#define SP_BODY(f) SP_BODY_CPU(f) SP_BODY_CUDA(f)
#define SP_DEVICES(f)                                                                              \
    .cpu_funcs = {f##_cpu}, .cpu_funcs_name = {#f "_cpu"}, .cuda_funcs = {f##_cuda},               \
    .cuda_flags = {STARPU_CUDA_ASYNC}
#else
#define SP_BODY(f) SP_BODY_CPU(f)
#define SP_DEVICES(f) .cpu_funcs = {f##_cpu}, .cpu_funcs_name = {#f "_cpu"}
#endif

#ifdef HAVE_SIMGRID
#define SP_MODEL(name)                                                                             \
    static struct starpu_perfmodel name##_model = {.type = STARPU_PER_ARCH,                        \
                                                   .arch_cost_function = sp_simulated_us}
#else
#define SP_MODEL(name)                                                                             \
    static struct starpu_perfmodel name##_model = {                                                \
        .type = STARPU_HISTORY_BASED, .symbol = "starpipe_" #name, .footprint = sp_task_footprint}
#endif

/* When the tasks of one op ran, and what they keep alive on a stage. */
struct sp_op_record {
    double start_us, end_us; /* first task start, last task end; on the clock of sp_now_us */
    double busy_us;          /* sum of task durations */
    double core_wait_us;     /* part of it in which the worker of a CPU had no core to run on */
    double out_us;       /* when the task ended that wrote what other ops wait for; 0: the last */
    double arrived_us;   /* when the last of its messages was there; 0: it had none */
    double submitted_us; /* when its first task was submitted */
    double ready_us;     /* when that had all it waits for */
    double late_us;     /* between its tasks: the next one was not submitted yet, the worker free */
    double stall_us;    /* time that its tasks waited for tensors to leave memory or to come back */
    double exchange_us; /* between its tasks: for what other devices of its stage send */
};

/* Accounting of one local stage; written by its worker (and read after the step). */
struct sp_meter {
    int64_t live_bytes, peak_bytes; /* stashed activations */
    int n_ops;
    struct sp_op_record *ops; /* [n_ops], by program index */
    double update_us;         /* time in tasks outside the ops: norms, optimizer */
    double fetch_us;          /* time that tasks waited for their data to be fetched */
    bool moves;               /* activations leave memory and come back */
    struct sp_op_time *times; /* [n_ops] where runs are simulated; NULL elsewhere */
};

struct sp_move; /* offload/mover.h */

/* Where tasks go: a worker and its next position, the stage's accounting, the window. */
struct sp_task_context {
    int worker;             /* -1: no program position (set-up tasks) */
    unsigned *order;        /* last position given out on that worker */
    struct sp_meter *meter; /* NULL: tasks of a program without a trainer, which nobody counts */
    struct sp_window *window;
    struct sp_window_op *op;    /* the op that tasks are being added to, NULL outside ops */
    struct sp_move **returning; /* what the next task brings back when it starts; NULL: nothing */
    int op_index;               /* index in the program, -1 outside ops */
    int stage;
    bool in_stream; /* tasks of ops may end for StarPU once they are queued: see task/cuda.h */
    const struct sp_documents *documents; /* of the micro-batch; NULL: they are not told apart */
    bool exchanged; /* the next task reads what other devices of its stage send */
    bool visited;   /* the next task reads what comes back to memory for it */
    bool output;    /* the next task writes what other ops wait for */
    char pass;      /* 'F', 'B', ... for the task name */
    int mb, slice;  /* slice -1: the whole sequence */
    int layer;
};

/* First member of every args struct. */
struct sp_task_args {
    char name[40]; /* "F s2 m5 l3 attn" */
    struct sp_meter *meter;
    struct sp_window_op *op;
    int op_index;
    int number;                           /* among the tasks of its op; where runs are simulated */
    const struct sp_documents *documents; /* as in struct sp_task_context */
    bool output;                          /* likewise */
    bool exchanged, visited;              /* likewise */
    bool in_stream;      /* likewise; not where others than this worker's tasks use its tensors */
    uint32_t variant;    /* what changes the time besides the sizes */
    enum sp_dtype dtype; /* of the tensors: that of the shape, where the task has one */
    uint16_t n_buffers[SP_BUFFERS_MAX]; /* of each row of the codelet's table; 0: left out */
    int64_t acquire_bytes, release_bytes;
    struct sp_move *returning; /* as in struct sp_task_context */
    const struct sp_shape *shape;
    double began_us,
        began_cpu_us; /* when its worker took it: by the clock, of the worker's CPU time */
    double submitted_us;
    double stalled_us; /* that its worker was held before that */
};

/*
 * A task being built: args of `size` bytes (zeroed, first member struct sp_task_args) that StarPU
 * frees with the task. `part` ends the name. Never fails: without memory the run ends here.
 */
struct starpu_task *sp_task_new(const struct sp_task_context *ctx, struct starpu_codelet *cl,
                                const char *part, const struct sp_shape *shape, size_t size);

/* Gives the task its position and submits it; `flops` for StarPU's statistics. A task that no
 * worker can run ends the run here: its op would never be done. */
void sp_task_submit(const struct sp_task_context *ctx, struct starpu_task *task, double flops);

/* The tasks of an op are all there; where they end early, one more that ends with the last of them. */
void sp_op_close(const struct sp_task_context *ctx);

/* Stashed bytes that come alive when this task starts, or die when it ends. */
static inline void sp_task_acquires(struct starpu_task *task, int64_t bytes)
{
    ((struct sp_task_args *)task->cl_arg)->acquire_bytes += bytes;
}

static inline void sp_task_releases(struct starpu_task *task, int64_t bytes)
{
    ((struct sp_task_args *)task->cl_arg)->release_bytes += bytes;
}

uint32_t sp_task_footprint(struct starpu_task *task);

/* Microseconds of wall-clock time (Unix epoch), the same clock for all tasks of a machine. */
double sp_now_us(void);

/* Whether the environment has SP_CHECK=1. */
bool sp_checks(void);
/* Where it has: ends the run with the task's name if an output of n elements holds a NaN or an
 * infinity. */
void sp_check_finite(const struct sp_task_args *args, const struct sp_backend *k, const char *what,
                     const void *x, size_t n);

/* The kernels of the worker that runs a task, for its element type. */
static inline const struct sp_backend *sp_cpu_kernels(const void *arg)
{
    return sp_cpu_backend(((const struct sp_task_args *)arg)->dtype);
}
/* codelets/task/cuda.c; and what the task queued is all of it. */
const struct sp_backend *sp_cuda_kernels(const void *arg);
void sp_cuda_queued(const void *arg);

#endif
