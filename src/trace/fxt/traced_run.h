/* A traced run, read from the files of its ranks: its clocks, messages, tasks and dependencies. */
#ifndef SP_TRACED_RUN_H
#define SP_TRACED_RUN_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Puts all ranks of a trace on one clock. starpu_fxt_tool aligns ranks by when they left a barrier,
 * which on a crowded machine differs by milliseconds. Marks in the trace (transport/messages.h)
 * give a rank's times back in its own clock; offsets that the run measured at its start and its end
 * convert these to rank 0's clock. Times between the two are interpolated, which removes the drift.
 */

/* As measured: nanoseconds of the rank's clock. */
struct sp_rank_offset {
    double local_ns, offset_ns, round_trip_ns;
};

struct sp_rank_clock {
    struct {
        double trace_ms, local_ns; /* the tightest mark; local_ns 0: none */
    } mark[2];                     /* at the start, at the end */
    struct sp_rank_offset offset[2];
};

/* Call this once the offsets are set. If they are equal within their errors, both become the more
 * precise one. An unproven drift counts as none: otherwise one bad exchange would distort the whole
 * run. */
void sp_rank_clock_settle(struct sp_rank_clock *c);

/* Records an event at `trace_ms` of the trace that says that the clock was at `local_ns` just
 * before; `end` is 0 at the start of the run, 1 at its end. */
void sp_rank_clock_mark(struct sp_rank_clock *c, int end, double trace_ms, double local_ns);

/* Converts a time of the rank's clock, or of the trace, to rank 0's clock; nanoseconds. */
double sp_rank_clock_global(const struct sp_rank_clock *c, double local_ns);
double sp_rank_clock_of_trace(const struct sp_rank_clock *c, double trace_ms);

/* Reads the messages of a traced run from the messages_RANK.jsonl of its ranks
 * (transport/messages.h). */

struct sp_fxt_message {
    int src, dst;
    int64_t tag, bytes;
    char tensor[40];
    uint64_t handle[2];        /* the sender's and the receiver's buffer, as in tasks.rec */
    double start_ns, end_ns;   /* from MPI's send call to arrival; rank 0's clock */
    double posted_ns, sent_ns; /* when the receive was posted, and the sender was done */
};

struct sp_fxt_messages {
    int ranks;
    struct sp_rank_clock *clocks; /* [ranks] without marks */
    int n;
    struct sp_fxt_message *message; /* by their start */
    int turned;       /* messages that seemed to end before they started, and take no time now */
    double turned_ns; /* the largest correction */
};

/* Reads and matches the messages in `dir`. 0 or -errno after one line: the files are not all of one
 * run, or a message was sent but not received. The caller destroys *m in any case. */
int sp_fxt_messages_read(const char *dir, int ranks, struct sp_fxt_messages *m);
void sp_fxt_messages_destroy(struct sp_fxt_messages *m);

/* The name of a task in traces, as src/codelets/task/task.c makes it: "F_s2_m5.1_l3_attn",
 * "U_s0_l-1_update". */
struct sp_task_name {
    char pass; /* F, B, W, R; N norm, T sum of replicas, U update, ... */
    int stage;
    int micro_batch;  /* -1: none */
    int slice;        /* -1: sequences are not cut */
    int layer;        /* of the model; -1: embedding or head */
    const char *part; /* in the text that was read */
};

enum { SP_TASK_KIND = 64 };

/* False: the task is not one of ours. */
bool sp_task_name_read(const char *text, struct sp_task_name *name);

/* Writes "F attn" into kind[SP_TASK_KIND] and returns it: tasks of one kind take equally long. */
char *sp_task_kind(const struct sp_task_name *name, char *kind);

/*
 * Reads the tasks of a traced run from the tasks.rec of starpu_fxt_tool: records of recutils, with
 * a line for each field and an empty line between records.
 */

struct sp_fxt_task {
    char *text;  /* the record, a line for each field */
    char *name;  /* "": none */
    char *job;   /* "1_98"; of one process "98" */
    char *after; /* jobs that it waited for, separated by blanks */
    char *handles, *modes;
    int rank, worker;
    int64_t step; /* -1: of none */
    double start_ns,
        end_ns; /* rank 0's clock; end_ns 0: it never ran, such as one that waits for a message */
    bool known; /* the task is one of ours, and this is its name: */
    struct sp_task_name what;
};

struct sp_fxt_tasks {
    int n;
    struct sp_fxt_task *task; /* by their job */
};

/* Reads the tasks. 0 or -errno after one line. The caller destroys *tasks in any case. */
int sp_fxt_tasks_read(const char *path, const struct sp_rank_clock *clocks, int ranks,
                      struct sp_fxt_tasks *tasks);
void sp_fxt_tasks_destroy(struct sp_fxt_tasks *tasks);

/* NULL: no such task. */
struct sp_fxt_task *sp_fxt_task_find(const struct sp_fxt_tasks *tasks, const char *job);

/* Writes the records again: times in ms since zero_ns, and for our tasks Pass, Stage, MicroBatch,
 * Slice, Layer and Part. 0 or -errno after one line. */
int sp_fxt_tasks_write(const struct sp_fxt_tasks *tasks, const struct sp_rank_clock *clocks,
                       double zero_ns, const char *path);

/*
 * Finds the tasks and messages that each task of a traced run waited for. StarPU records which of
 * its own tasks a message waited for, but not that the task is a message. So a message follows the
 * last writer of the sender's buffer, and the next reader of the receiver's buffer follows the
 * message.
 */

/* One task or message waited for another; either is a task, or the number of a message. */
struct sp_fxt_dependency {
    const struct sp_fxt_task *task, *after; /* NULL: a message */
    int message, after_message;             /* -1: a task */
};

struct sp_fxt_dependencies {
    int n;
    size_t cap;
    struct sp_fxt_dependency *at;
};

/* Finds the dependencies with messages that carry a tensor of a step. The caller destroys *d. */
void sp_fxt_dependencies_of_messages(const struct sp_fxt_tasks *tasks,
                                     const struct sp_fxt_messages *messages,
                                     struct sp_fxt_dependencies *d);
/* Adds the dependencies between tasks that ran; chains through tasks that never ran become direct
 * ones. */
void sp_fxt_dependencies_of_tasks(const struct sp_fxt_tasks *tasks, struct sp_fxt_dependencies *d);
void sp_fxt_dependencies_destroy(struct sp_fxt_dependencies *d);

#endif
