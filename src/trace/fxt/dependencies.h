/*
 * What each task of a traced run waited for: tasks, and messages. StarPU knows which of its own tasks a message
 * waited for, but not that it is one; so a message follows who last wrote the sender's buffer, and who reads the
 * receiver's next follows it.
 */
#ifndef SP_FXT_DEPENDENCIES_H
#define SP_FXT_DEPENDENCIES_H

#include "trace/fxt/messages.h"
#include "trace/fxt/tasks.h"

/* One waited for another; of both, a task or the number of a message. */
struct sp_fxt_dependency {
    const struct sp_fxt_task *task, *after; /* NULL: a message */
    int message, after_message;             /* -1: a task */
};

struct sp_fxt_dependencies {
    int n, cap;
    struct sp_fxt_dependency *at;
};

/* Those with messages that carry a tensor of a step. To be destroyed. */
void sp_fxt_dependencies_of_messages(const struct sp_fxt_tasks *tasks,
                                     const struct sp_fxt_messages *messages,
                                     struct sp_fxt_dependencies *d);
/* Adds those between tasks that ran; what never ran, but was waited for, is left out in between. */
void sp_fxt_dependencies_of_tasks(const struct sp_fxt_tasks *tasks, struct sp_fxt_dependencies *d);
void sp_fxt_dependencies_destroy(struct sp_fxt_dependencies *d);

#endif
