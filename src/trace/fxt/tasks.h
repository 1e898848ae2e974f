/*
 * Reads the tasks of a traced run from the tasks.rec of starpu_fxt_tool: records of recutils, with
 * a line for each field and an empty line between records.
 */
#ifndef SP_FXT_TASKS_H
#define SP_FXT_TASKS_H

#include "trace/fxt/messages.h"
#include "trace/fxt/task_name.h"
#include <stdbool.h>
#include <stdint.h>

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

#endif
