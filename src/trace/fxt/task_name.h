/* The names of tasks in traces, as src/codelets/task/task.c makes them: "F s2 m5.1 l3 attn", "U s0
 * l-1 update". */
#ifndef SP_TASK_NAME_H
#define SP_TASK_NAME_H

#include <stdbool.h>

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

#endif
