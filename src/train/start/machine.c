#include "train/start/machine.h"
#include "policies/plan_create.h"
#include "sp_error.h"
#include "train/start/device.h"
#include "transport/transport.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file that calibrate writes by default, where runs look for it. False: there is none. */
static bool calibrated(char path[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;

    if (cache && *cache)
        n = snprintf(path, PATH_MAX, "%s/starpipe/machine.json", cache);
    else if (home && *home)
        n = snprintf(path, PATH_MAX, "%s/.cache/starpipe/machine.json", home);
    return n > 0 && n < PATH_MAX && !access(path, R_OK);
}

/* The number of stages. With --schedule csv:FILE the file decides, unless --stages is given; 0:
 * not known. */
static int count_stages(const struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->cfg.layout;
    struct sp_layout layout = sp_layout_of_args(l, 0);
    struct sp_plan plan;
    struct stat st;
    bool quiet;

    if (layout.stages)
        return layout.stages;
    if (stat(l->schedule + strlen("csv:"), &st) || !S_ISREG(st.st_mode))
        return 0; /* only a regular file can be read twice */
    quiet = sp_error_quiet(true);
    if (!sp_plan_create(l->schedule, &layout, &plan)) {
        layout.stages = plan.layout.stages;
        sp_plan_destroy(&plan);
    }
    sp_error_quiet(quiet);
    return layout.stages;
}

/* Threads that a stage will have, before there is a plan; 0: not known, because it is refused
 * later. */
static int threads_of_stages(const struct sp_trainer *t)
{
    int stages = count_stages(t);
    struct sp_placement pl;

    if (!stages || sp_train_pipeline_size(t) > stages ||
        sp_placement_init(&pl, &t->world, sp_train_pipelines(t), stages, t->cfg.threads))
        return 0;
    return pl.threads;
}

int sp_train_load_machine(const struct sp_trainer *t, struct sp_machine *machine)
{
    const char *name = t->cfg.hardware;
    char path[PATH_MAX];

    if (t->choice && t->choice->measured) {
        *machine = t->choice->machine;
        return 0;
    }
    if (!name)
        name = calibrated(path) ? path : sp_train_find_gpus(t) > 0 ? SP_MACHINE_DEFAULT : "laptop";
    return sp_machine_load(name, machine);
}

/* Loads rank 0's machine; rank 0 prints what is wrong with it. */
static int load(struct sp_trainer *t)
{
    char why[SP_THREADS_WHY] = "";
    int err = sp_train_load_machine(t, &t->machine);

    if (!err && sp_train_find_gpus(t) <= 0)
        sp_machine_take_threads(&t->machine, threads_of_stages(t), why);
    if (*why && !sp_train_machine_is_assumed(t))
        sp_warn("%s", why);
    if (!err && !sp_machine_is_cpu(&t->machine))
        sp_machine_check_dtype(&t->machine, (enum sp_dtype)t->cfg.dtype);
    return err;
}

int sp_train_find_machine(struct sp_trainer *t)
{
    int err = t->world.rank == 0 ? load(t) : 0;
    char *mine = t->world.rank == 0 && !err ? sp_machine_text(&t->machine) : NULL;
    char *root = sp_transport_root_text(mine ? mine : "");

    if (!err && t->world.rank > 0 && root && *root)
        err = sp_machine_parse("the machine of rank 0", root, &t->machine);
    free(mine);
    free(root);
    return err;
}

bool sp_train_machine_is_unknown(const struct sp_trainer *t)
{
    char path[PATH_MAX];

    return !t->cfg.hardware && !calibrated(path);
}

bool sp_train_machine_is_assumed(const struct sp_trainer *t)
{
    return sp_train_machine_is_unknown(t) && !(t->choice && t->choice->measured);
}

bool sp_train_predicts_workers(const struct sp_trainer *t)
{
    return sp_machine_is_cpu(&t->machine) || t->place.gpus;
}

int *sp_train_stage_workers(const struct sp_trainer *t)
{
    int stages = t->plan.layout.stages, *worker = calloc(2 * (size_t)stages, sizeof *worker);

    for (int s = 0; worker && s < stages; s++) {
        worker[s] = sp_stage_worker_number(&t->place, s);
        worker[stages + s] = sp_stage_rank(&t->place, s);
    }
    return worker;
}

static int predict(const struct sp_trainer *t, const double *measured,
                   struct sp_prediction *prediction)
{
    int *worker = sp_train_stage_workers(t), err;
    struct sp_predict_request request = {.plan = &t->plan,
                                         .shape = &t->shape,
                                         .measured = measured,
                                         .terms = {.machine = &t->machine,
                                                   .devices = 1,
                                                   .recompute = t->recompute,
                                                   .every = t->every},
                                         .exchanges = true};

    if (!worker)
        return -ENOMEM;
    request.tier = t->rates.write > 0 ? (struct sp_tier_rates){t->rates.write / t->place.n_local,
                                                               t->rates.read / t->place.n_local}
                                      : sp_offload_tier(&t->machine, 1);
    if (sp_train_predicts_workers(t)) {
        request.worker = worker;
        request.terms.process = worker + t->plan.layout.stages;
    }
    err = sp_predict(&request, prediction);
    free(worker);
    return err;
}

int sp_train_predict(const struct sp_trainer *t, struct sp_prediction *prediction)
{
    return predict(t, NULL, prediction);
}

int sp_train_predict_again(const struct sp_trainer *t, const struct sp_step_report *step,
                           struct sp_prediction *prediction)
{
    const struct sp_plan *plan = &t->plan;
    double *ms = calloc((size_t)plan->family->ids(&plan->layout) + 1, sizeof *ms);
    int err;

    if (!ms)
        return -ENOMEM;
    for (int s = 0; s < plan->layout.stages; s++)
        for (int i = 0; i < plan->programs[s].n; i++)
            ms[plan->family->id(&plan->layout, s, &plan->programs[s].ops[i])] =
                step->stages[s].ops[i].busy_us / 1e3;
    err = predict(t, ms, prediction);
    free(ms);
    return err;
}
