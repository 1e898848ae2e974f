/*
 * Finds the tasks and messages that each task of a traced run waited for. StarPU records which of
 * its own tasks a message waited for, but not that the task is a message. So a message follows the
 * last writer of the sender's buffer, and the next reader of the receiver's buffer follows the
 * message.
 */
#ifndef SP_FXT_DEPENDENCIES_H
#define SP_FXT_DEPENDENCIES_H

#include "trace/fxt/messages.h"
#include "trace/fxt/tasks.h"

/* One task or message waited for another; either is a task, or the number of a message. */
struct sp_fxt_dependency {
    const struct sp_fxt_task *task, *after; /* NULL: a message */
    int message, after_message;             /* -1: a task */
};

struct sp_fxt_dependencies {
    int n, cap;
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
