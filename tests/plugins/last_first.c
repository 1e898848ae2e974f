/*
 * Two StarPU policies for STARPU_SCHED_LIB. last-first: of the ready tasks of a worker the one of the lowest
 * priority runs, against the order of the schedule. never: no task runs.
 */
#include <starpu.h>
#include <starpu_scheduler.h>
#include <stdio.h>
#include <string.h>

static starpu_pthread_mutex_t mutex = STARPU_PTHREAD_MUTEX_INITIALIZER;
static struct starpu_task_list tasks;
static int most;

static void begin(unsigned ctx)
{
    (void)ctx;
    starpu_task_list_init(&tasks);
    most = 0;
}

static void end(unsigned ctx)
{
    fprintf(stderr, "last-first: priorities up to %d of %d\n", most,
            starpu_sched_ctx_get_max_priority(ctx));
}

static int push(struct starpu_task *task)
{
    STARPU_ASSERT(task->priority >= starpu_sched_ctx_get_min_priority(task->sched_ctx) &&
                  task->priority <= starpu_sched_ctx_get_max_priority(task->sched_ctx));
    STARPU_PTHREAD_MUTEX_LOCK(&mutex);
    most = task->priority > most ? task->priority : most;
    starpu_task_list_push_back(&tasks, task);
    starpu_push_task_end(task);
    STARPU_PTHREAD_MUTEX_UNLOCK(&mutex);
    for (unsigned w = 0; w < starpu_worker_get_count(); w++)
        starpu_wake_worker_relax_light(w);
    return 0;
}

static struct starpu_task *pop(unsigned ctx)
{
    unsigned worker = (unsigned)starpu_worker_get_id_check();
    struct starpu_task *found = NULL;

    (void)ctx;
    starpu_worker_relax_on();
    STARPU_PTHREAD_MUTEX_LOCK(&mutex);
    starpu_worker_relax_off();
    for (struct starpu_task *t = starpu_task_list_begin(&tasks); t != starpu_task_list_end(&tasks);
         t = starpu_task_list_next(t))
        if (starpu_worker_can_execute_task_first_impl(worker, t, NULL) &&
            (!found || t->priority <= found->priority))
            found = t;
    if (found)
        starpu_task_list_erase(&tasks, found);
    STARPU_PTHREAD_MUTEX_UNLOCK(&mutex);
    return found;
}

static struct starpu_task *pop_nothing(unsigned ctx)
{
    (void)ctx;
    return NULL;
}

static struct starpu_sched_policy last_first = {.init_sched = begin,
                                                .deinit_sched = end,
                                                .push_task = push,
                                                .pop_task = pop,
                                                .policy_name = "last-first",
                                                .policy_description = "the lowest priority first"};
static struct starpu_sched_policy never = {.init_sched = begin,
                                           .push_task = push,
                                           .pop_task = pop_nothing,
                                           .policy_name = "never",
                                           .policy_description = "no task"};

struct starpu_sched_policy *starpu_get_sched_lib_policy(const char *name)
{
    return strcmp(name, "never") == 0        ? &never
           : strcmp(name, "last-first") == 0 ? &last_first
                                             : NULL;
}

struct starpu_sched_policy **starpu_get_sched_lib_policies(void)
{
    static struct starpu_sched_policy *all[] = {&last_first, &never, NULL};

    return all;
}
