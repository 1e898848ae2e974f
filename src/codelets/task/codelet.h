/*
 * Shared by every codelet file: the backend slots, the task builder and the accounting of one op. A
 * codelet file holds, in this order: args, body, codelet, insert.
 */
#ifndef SP_CODELET_H
#define SP_CODELET_H

#include "codelets/task/buffers.h"
#include "kernels/backend.h"
#include "sinks/pool.h"
#include "starpipe/op.h"

/*
 * A codelet's body is written once, with the kernels of whichever device runs it. It reads its
 * buffers by the names that SP_BUFFERS(op, ...) gave them:
 *
 *   static void op(const struct sp_backend *k, const struct op_buffers *b,
 *                  const struct op_args *a);
 *
 * SP_CODELET(op) makes op_cl from it, which knows no runtime: a sink finds out which device runs a
 * task. On CUDA a body queues its kernels on the worker's stream and returns.
 */
#define SP_CODELET(op)                                                                             \
    static void op##_run(const struct sp_backend *k, void *const *at, const size_t *bytes,         \
                         void *arg)                                                                \
    {                                                                                              \
        struct op##_buffers b = {0};                                                               \
                                                                                                   \
        op##_buffers_read(&b, at, bytes, ((const struct sp_task_args *)arg)->n_buffers);           \
        op(k, &b, arg);                                                                            \
    }                                                                                              \
    static struct sp_codelet op##_cl = {.name = #op, .run = op##_run}

struct sp_codelet {
    const char *name;
    /* `arg`: the task's args. `at`, `bytes`: its buffers and their sizes, in the order in which
     * they were added. */
    void (*run)(const struct sp_backend *k, void *const *at, const size_t *bytes, void *arg);
    bool timed; /* its caller times it: sinks have no model of its time */
    void *own;  /* belongs to the sink, which makes it at first use */
};

/* The times of one op's tasks. */
struct sp_op_record {
    double start_us, end_us; /* first task start, last task end; on the clock of sp_now_us */
    double busy_us;          /* sum of task durations */
    double core_wait_us;     /* part of it in which a CPU worker had no core to run on */
    double out_us;           /* end of the task that wrote what other ops wait for; 0: the last */
    double arrived_us;       /* when the last of its messages had arrived; 0: it had none */
    double submitted_us;     /* when its first task was submitted */
    double ready_us;         /* when that task had all it waits for */
    double late_us;     /* between its tasks: the worker was free, the next task not submitted */
    double stall_us;    /* time that its tasks waited for tensors to be evicted or fetched */
    double exchange_us; /* between its tasks: waiting for what the stage's other devices send */
};

/* Accounting of one local stage; its worker writes it, and it is read after the step. */
struct sp_meter {
    int64_t live_bytes, peak_bytes; /* stashed activations */
    int n_ops;
    struct sp_op_record *ops; /* [n_ops], by program index */
    double update_us;         /* time in tasks outside the ops: norms, optimizer */
    double fetch_us;          /* time that tasks waited for their data to be fetched */
    bool moves;               /* activations are evicted and fetched */
    struct sp_op_time *times; /* [n_ops] in simulated runs; NULL in others */
};

struct sp_op_time; /* sinks/starpu/simulated.h */
struct sp_window;
struct sp_window_op;

/* A task's place: its worker and its position there, the stage's accounting, the window. */
struct sp_task_context {
    struct sp_sink *sink;
    int worker;             /* -1: no program position (set-up tasks) */
    unsigned *order;        /* last position given out on that worker */
    int priority;           /* for schedulers that follow no program: higher runs earlier */
    struct sp_meter *meter; /* NULL: tasks that are not counted, of a program without a trainer */
    struct sp_window *window;
    struct sp_window_op *op;    /* the op that tasks are being added to; NULL outside ops */
    struct sp_move **returning; /* what the next task fetches when it starts; NULL: nothing */
    int op_index;               /* index in the program, -1 outside ops */
    int stage;
    bool in_stream; /* tasks of ops may end for StarPU once queued: see sinks/starpu/cuda.h */
    const struct sp_documents *documents; /* of the micro-batch; NULL: they are not told apart */
    bool exchanged; /* the next task reads what other devices of its stage send */
    bool streamed;  /* the next task reads keys that are fetched for it */
    bool output;    /* the next task writes what other ops wait for */
    char pass;      /* 'F', 'B', ... for the task name */
    int mb, slice;  /* slice -1: the whole sequence */
    int layer;
};

/* First member of every args struct. */
struct sp_task_args {
    const struct sp_codelet *codelet;
    char name[40]; /* "F_s2_m5_l3_attn" */
    struct sp_meter *meter;
    struct sp_window_op *op;
    int op_index;
    int number;                           /* among the tasks of its op; in simulated runs */
    const struct sp_documents *documents; /* as in struct sp_task_context */
    bool output;                          /* likewise */
    bool exchanged, streamed;             /* likewise */
    bool in_stream;   /* likewise; false if other workers' tasks or the host use its tensors */
    uint32_t variant; /* distinguishes tasks whose times differ at the same sizes */
    /* Says in which table the kernels are: the shape's, if the task has one. A head, whose products
     * fp8 would harm most, takes that of the shape's elements. */
    enum sp_dtype dtype;
    uint16_t n_buffers[SP_BUFFERS_MAX]; /* of each row of the codelet's table; 0: left out */
    unsigned char overwrites;           /* see sp_task_overwrites */
    int64_t acquire_bytes, release_bytes;
    struct sp_move *returning; /* as in struct sp_task_context */
    const struct sp_shape *shape;
    double began_us,
        began_cpu_us; /* when its worker took it: clock time, and CPU time of the worker */
    double submitted_us;
    double stalled_us; /* time that its worker was held before that */
};

/* A tensor that a task uses. */
struct sp_use {
    struct sp_tensor *tensor;
    enum sp_access access;
};

enum { SP_USES = 16 }; /* uses that a task has room for at first */

/* A task being built. */
struct sp_task {
    struct sp_codelet *codelet;
    void *args; /* first member struct sp_task_args; of the codelet's size, zeroed */
    size_t args_bytes;
    int n, room;
    struct sp_use *use; /* [n] */
    struct sp_use own[SP_USES];
};

/*
 * Begins a task. Its args, of `size` bytes, go with the task (zeroed, first member struct
 * sp_task_args). `part` ends the name. Never fails: without memory the run ends here.
 */
struct sp_task *sp_task_new(const struct sp_task_context *ctx, struct sp_codelet *cl,
                            const char *part, const struct sp_shape *shape, size_t size);

/* Adds the next tensor that the task uses. */
void sp_task_use(struct sp_task *task, struct sp_tensor *t, enum sp_access access);

/*
 * A gradient that starts anew need not be cleared: its matrices are stale, and the first task of a
 * step that would add to one overwrites it. Says that the task adds to these matrices of block g, a
 * bit for each enum sp_projection_of; those that it is to overwrite are its `overwrites`.
 */
void sp_task_overwrites(struct sp_task *task, struct sp_tensor *g, unsigned matrices);

/* Gives the task to the sink; `flops` for statistics. If no worker can run the task, the run
 * ends here, because its op would never be done. */
void sp_task_submit(const struct sp_task_context *ctx, struct sp_task *task, double flops);

/* Frees the task but not its args, which outlive it in the sink; `whole`: frees both. */
void sp_task_free(struct sp_task *task, bool whole);

/* Ends an op's list of tasks. If its tasks may end early for StarPU, adds one more that ends
 * with the last of them. */
void sp_op_close(const struct sp_task_context *ctx);

/* A scratch buffer of n elements of a shape for one task (SP_SCRATCH), shared by size. */
struct sp_tensor *sp_scratch_handle(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                    size_t n);
/* A scratch buffer of (T,width), for the T of the longest slice. */
struct sp_tensor *sp_scratch_rows(const struct sp_task_context *ctx, const struct sp_shape *sh,
                                  int width);

/* Stashed bytes that come alive when this task starts, or die when it ends. */
static inline void sp_task_acquires(struct sp_task *task, int64_t bytes)
{
    ((struct sp_task_args *)task->args)->acquire_bytes += bytes;
}

static inline void sp_task_releases(struct sp_task *task, int64_t bytes)
{
    ((struct sp_task_args *)task->args)->release_bytes += bytes;
}

/* True if a variable of the environment is a number other than 0. It is read once; *known must
 * be -1 at first. */
bool sp_switch_is_on(const char *name, int *known);

/* True if SP_CHECK=1 is in the environment. */
bool sp_checks(void);
/* With SP_CHECK=1, ends the run with the task's name if an output of n elements holds a NaN or
 * an infinity. */
void sp_check_finite(const struct sp_task_args *args, const struct sp_backend *k, const char *what,
                     const void *x, size_t n);

#endif
