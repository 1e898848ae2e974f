/* Starts StarPU for the program, and queries it. */
#ifndef SP_STARPU_RUNTIME_H
#define SP_STARPU_RUNTIME_H

#include "graphs/placement.h"
#include <string.h>

struct sp_runtime {
    const struct sp_placement *place; /* names the workers to start */
    bool host_limit;                  /* see sp_starpu_environment_set */
    const char *scheduler;            /* sp_runtime_scheduler; NULL: strict */
    int ops;                          /* of a step: the highest priority of a task */
    /* `prepare` is called once the environment is set; 0 or -errno. `undo` reverts it if StarPU
     * does not start. NULL: nothing. */
    int (*prepare)(void *arg);
    void (*undo)(void *arg);
    void *arg;
};

/* True if workers follow their programs. Under other schedulers a task has only a worker, and the
 * priority that its op has in the order of submission. */
static inline bool sp_scheduler_follows(const char *name)
{
    return !strcmp(name, "strict") || !strcmp(name, "ready");
}

struct starpu_sched_policy;

/* Finds "strict", "ready", or another policy in the library that STARPU_SCHED_LIB names, or in
 * StarPU. `policy` may be NULL. 0, or -EINVAL after one line with the names of all. */
int sp_runtime_scheduler(const char *name, struct starpu_sched_policy **policy);

/* Starts StarPU, joined to the other processes. 0 or -errno after one line. If *started becomes
 * true, end it with sp_transport_stop. */
int sp_runtime_start(const struct sp_runtime *r, bool *started);

/* "1.4.8" */
void sp_runtime_version(char text[32]);

/* The memory node of worker 0; the bytes that StarPU may use on a node, 0 or less: no limit. */
unsigned sp_runtime_node(void);
int64_t sp_runtime_room(unsigned node);
enum { SP_MAIN_MEMORY = 0 }; /* the node of main memory */

/* The workers that StarPU finds by itself: their names, which the caller frees, and the number of
 * each kind, -1: StarPU does not start. */
struct sp_runtime_workers {
    int cpus, gpus, n;
    char (*name)[64]; /* [n] */
};
int sp_runtime_look(struct sp_runtime_workers *w);

#endif
