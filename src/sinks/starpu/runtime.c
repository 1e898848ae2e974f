#include "sinks/starpu/runtime.h"
#include "sinks/starpu/tensor.h"
#include "policies/simulation/starpu_idle.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "transport/starpu_environment.h"
#include "transport/transport.h"
#include <dlfcn.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)SP_MAIN_MEMORY == (int)STARPU_MAIN_RAM, "main memory is StarPU's first node");

static void choose_workers(const struct sp_placement *pl, struct starpu_conf *conf)
{
    conf->precedence_over_environment_variables = 1;
    conf->ncpus = pl->gpus ? pl->update_threads > 0 : pl->workers;
    conf->ncuda = pl->gpus;
    conf->nopencl = 0;
    conf->nhip = 0;
    conf->use_explicit_workers_cuda_gpuid = pl->gpus > 0;
    for (int i = 0; i < pl->gpus; i++)
        conf->workers_cuda_gpuid[i] = (unsigned)pl->gpu[i];
}

static int check_workers(const struct sp_placement *pl)
{
    unsigned workers = pl->gpus ? starpu_cuda_worker_get_count() : starpu_cpu_worker_get_count();

    if (pl->gpus && pl->update_threads &&
        starpu_worker_get_by_type(STARPU_CPU_WORKER, 0) != sp_update_worker(pl))
        return sp_error(ENODEV,
                        "StarPU started no CPU worker after %u CUDA workers, which would "
                        "update parameters: use --optimizer-device gpu",
                        workers);
    if ((int)workers >= pl->workers)
        return 0;
    return sp_error(ENODEV, "StarPU started %u %s workers, %d are needed", workers,
                    pl->gpus ? "CUDA" : "CPU", pl->workers);
}

/* ---- the scheduler ----------------------------------------------------------------------------- */

/* The functions of the user's library, which stays loaded, if there is one; it need not have `all`.
 * 0, or -EINVAL after one line. */
static int load_policies(struct starpu_sched_policy **(**all)(void),
                         struct starpu_sched_policy *(**named)(const char *name))
{
    static const char *const entry[] = {"starpu_get_sched_lib_policy",
                                        "starpu_get_sched_lib_policies"};
    const char *file = getenv("STARPU_SCHED_LIB");
    void *library = file && *file ? dlopen(file, RTLD_NOW) : NULL;

    *all = NULL;
    *named = NULL;
    if (!file || !*file)
        return 0;
    if (!library)
        return sp_error(EINVAL, "STARPU_SCHED_LIB in the environment: %s", dlerror());
    *(void **)named = dlsym(library, entry[0]);
    *(void **)all = dlsym(library, entry[1]);
    return *named ? 0 : sp_error(EINVAL, "STARPU_SCHED_LIB=%s: it has no %s", file, entry[0]);
}

/* A policy that orders the whole graph waits for a call that never comes: submission waits for
 * tasks. StarPU's modular policies and heteroprio stop at a task that another worker must run. */
static bool is_usable(const struct starpu_sched_policy *policy)
{
    const char *name = policy->policy_name;

    return name && !policy->do_schedule && strncmp(name, "modular-", 8) &&
           strcmp(name, "heteroprio");
}

static struct starpu_sched_policy *policy_in(struct starpu_sched_policy **list, const char *name)
{
    for (; list && *list; list++)
        if (is_usable(*list) && !strcmp((*list)->policy_name, name))
            return *list;
    return NULL;
}

static size_t add_names(struct starpu_sched_policy **list, char *text, size_t used, size_t n)
{
    for (; list && *list && used < n; list++)
        if (is_usable(*list))
            used += (size_t)snprintf(text + used, n - used, ", %s", (*list)->policy_name);
    return used;
}

int sp_runtime_scheduler(const char *name, struct starpu_sched_policy **policy)
{
    struct starpu_sched_policy *found = !strcmp(name, "strict")  ? &sp_order_strict
                                        : !strcmp(name, "ready") ? &sp_order_ready
                                                                 : NULL;
    struct starpu_sched_policy **(*all)(void) = NULL;
    struct starpu_sched_policy *(*named)(const char *name) = NULL;
    char known[2048];

    if (!found) {
        int err = load_policies(&all, &named);

        if (err)
            return err;
        found = named ? named(name) : NULL;
        found = found && is_usable(found) ? found : NULL;
        found = found ? found : policy_in(starpu_sched_get_predefined_policies(), name);
    }
    if (!found) {
        add_names(starpu_sched_get_predefined_policies(), known,
                  add_names(all ? all() : NULL, known, 0, sizeof known), sizeof known);
        return sp_error(EINVAL,
                        "train: --scheduler %s: no such policy, or it does not keep tasks on their "
                        "workers; there are "
                        "strict, ready%s",
                        name, known);
    }
    if (policy)
        *policy = found;
    return 0;
}

/* ---- start ------------------------------------------------------------------------------------- */

int sp_runtime_start(const struct sp_runtime *r, bool *started)
{
    struct starpu_conf conf;
    struct starpu_sched_policy *policy;
    const char *name = r->scheduler ? r->scheduler : "strict";
    int err = sp_runtime_scheduler(name, &policy);

    *started = false;
    err = err ? err : sp_starpu_environment_set(&conf, r->host_limit);
    if (err)
        return err;
    choose_workers(r->place, &conf);
    conf.sched_policy = policy;
    conf.global_sched_ctx_min_priority = 0;
    conf.global_sched_ctx_max_priority = r->ops;
    sp_tasks_follow(sp_scheduler_follows(name), r->place->workers);
    sp_idle_aside(r->place->gpus && r->place->update_threads ? sp_update_worker(r->place) : -1);
    conf.catch_signals = 0; /* the program handles them */
    err = r->prepare ? r->prepare(r->arg) : 0;
    if (err)
        return err;
    err = sp_transport_start(&conf);
    if (err) {
        if (r->undo)
            r->undo(r->arg);
        return err;
    }
    *started = true;
    return check_workers(r->place);
}

void sp_runtime_version(char text[32])
{
    int major, minor, release;

    starpu_get_version(&major, &minor, &release);
    snprintf(text, 32, "%d.%d.%d", major, minor, release);
}

unsigned sp_runtime_node(void)
{
    return starpu_worker_get_memory_node(0);
}

int64_t sp_runtime_room(unsigned node)
{
    return (int64_t)starpu_memory_get_total(node);
}

int sp_runtime_look(struct sp_runtime_workers *w)
{
    struct starpu_conf conf;
    int err;

    *w = (struct sp_runtime_workers){.cpus = -1, .gpus = -1};
    setenv("STARPU_FXT_TRACE", "0", 1); /* nothing to trace */
    err = sp_starpu_environment_set(&conf, false);
    if (err)
        return err;
    err = starpu_init(&conf);
    sp_starpu_environment_started();
    if (!err) {
        w->cpus = (int)starpu_cpu_worker_get_count();
        w->gpus = (int)starpu_cuda_worker_get_count();
        w->n = (int)starpu_worker_get_count();
        w->name = calloc((size_t)w->n, sizeof *w->name);
        for (int i = 0; w->name && i < w->n; i++)
            starpu_worker_get_name(i, w->name[i], sizeof w->name[i]);
        starpu_shutdown();
    }
    sp_starpu_environment_restore();
    return err ? err : w->n && !w->name ? -ENOMEM : 0;
}
