#include "train/start/machine.h"
#include "sp_error.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What calibrate is told to write where runs look for it. */
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

int sp_train_find_machine(struct sp_trainer *t)
{
    char path[PATH_MAX];
    const char *name = t->cfg.hardware;

    if (!name)
        name = calibrated(path) ? path : t->place.gpus ? SP_MACHINE_DEFAULT : "laptop";
    return sp_machine_load(name, &t->machine);
}

int sp_train_predict(const struct sp_trainer *t, struct sp_prediction *prediction)
{
    int stages = t->plan.layout.stages, err;
    int *worker = calloc(2 * (size_t)stages, sizeof *worker), *process;
    struct sp_predict_request request = {
        .plan = &t->plan,
        .shape = &t->shape,
        .terms = {
            .machine = &t->machine, .devices = 1, .recompute = t->recompute, .every = t->every}};

    if (!worker)
        return -ENOMEM;
    process = worker + stages;
    for (int s = 0; s < stages; s++) {
        worker[s] = sp_stage_lane(&t->place, s);
        process[s] = sp_stage_rank(&t->place, s);
    }
    if (sp_machine_is_cpu(&t->machine) || t->place.gpus) {
        request.worker = worker;
        request.process = process;
    }
    err = sp_predict(&request, prediction);
    free(worker);
    return err;
}
