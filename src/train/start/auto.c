#include "train/start/auto.h"
#include "offload/host_memory.h"
#include "sp_error.h"
#include "train/calibrate/calibrate.h"
#include "train/config.h"
#include "train/run/watchdog.h"
#include "train/start/agree.h"
#include "train/start/device.h"
#include "train/start/machine.h"
#include "transport/transport.h"
#include "sinks/starpu/sink.h"
#include <stdlib.h>
#include <string.h>

/* ---- the machine ----------------------------------------------------------------------------- */

/* The part of the time for the choice that measuring may take. Rounds that do not get steady
 * take ROUNDS times as long. */
static const double measuring_part = 0.2;
enum { ROUNDS = 4 };
/* With less time for a round over all figures of a device, nothing is measured. */
static const double least_round_s = 0.1;

/* Threads of each stage, if the options fix them; then only those are measured. 0: several
 * numbers are tried. */
static int threads_of_stages(const struct sp_trainer *t)
{
    struct sp_placement pl;

    if (t->cfg.threads || !t->cfg.layout.stages_set || t->world.size > 1 ||
        sp_placement_init(&pl, &t->world, 1, t->cfg.layout.stages, 0))
        return t->cfg.threads;
    return pl.threads;
}

/* All processes measure together, because in a step all their devices work at once. The line of
 * an error is not printed: without figures of its own, the run is predicted with those of a
 * named machine. 0 or -errno on all. */
static int measure(struct sp_trainer *t)
{
    static struct sp_calibrated devices;
    struct sp_calibration how = {
        .device = t->cfg.device, .threads = threads_of_stages(t), .quick = true, .rough = true};
    struct sp_disk *disk;
    bool quiet = sp_error_quiet(true);
    int err = sp_calibrate_prepare(&how, &t->world, &devices, &disk), first;

    how.seconds = measuring_part * t->choice->within_s / (ROUNDS * devices.n);
    if (sp_transport_agree(err || how.seconds < least_round_s, &first)) {
        sp_error_quiet(quiet);
        return -EINVAL;
    }
    err = sp_calibrate(&how, &devices, disk, &t->choice->machine);
    if (err && err != -EBUSY && err != -ERANGE && t->world.size > 1)
        sp_transport_abort(1); /* others may wait for this one */
    err = sp_transport_agree(err, &first) ? -EBUSY : 0;
    sp_error_quiet(quiet);
    return err;
}

static void measure_machine(struct sp_trainer *t)
{
    double begun_us = sp_now_us();
    int err;

    sp_watchdog_begin(SP_PHASE_SETUP, "measuring this machine");
    err = measure(t);
    sp_watchdog_end();
    t->choice->measured = !err;
    if (t->world.rank == 0 && !err)
        snprintf(t->choice->machine.name, sizeof t->choice->machine.name, "this machine");
    if (!err)
        sp_train_say(t,
                     "auto: this machine was measured in %.1f s; 'starpipe calibrate --output "
                     "~/.cache/starpipe/machine.json' measures it better, and once for all runs",
                     1e-6 * (sp_now_us() - begun_us));
    else
        sp_train_say(t,
                     "auto: this machine could not be measured within --auto-within %g; its "
                     "times are assumed",
                     t->choice->within_s);
}

/* Every process has the same files, except for caches of its own, so rank 0's answer counts. */
static bool is_unknown(const struct sp_trainer *t)
{
    char *root = sp_transport_root_text(sp_train_machine_is_unknown(t) ? "unknown" : "");
    bool unknown = root && *root;

    free(root);
    return unknown;
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* Loads the model, or that of the step that the run continues from. */
static int load_model(const struct sp_trainer *t, struct sp_model *model)
{
    struct sp_dir dir;
    int err;

    if (!t->cfg.resume)
        return sp_model_load(t->cfg.layout.model, model);
    err = sp_step_open(t->cfg.resume, &dir);
    if (err)
        return err;
    err = sp_model_load_in(&dir, model);
    sp_dir_close(&dir);
    return err;
}

/* A dry run may stand for any number of processes: as many as the given groups need. */
static int count_processes(const struct sp_trainer *t)
{
    int groups = sp_groups_pipelines(&t->choice->groups);

    return t->cfg.dry_run && t->world.size == 1 ? groups : t->world.size;
}

/* True if a dry run is planned for described GPUs that this machine does not have; it uses those
 * of a node then. */
static bool plans_elsewhere(const struct sp_trainer *t, const struct sp_machine *machine)
{
    return t->cfg.dry_run && t->world.size == 1 && !sp_machine_is_cpu(machine) &&
           sp_train_find_gpus(t) <= 0;
}

static int find_devices(const struct sp_trainer *t, const struct sp_machine *machine,
                        const struct sp_model *model, struct sp_auto_devices *d)
{
    int gpus = sp_train_find_gpus(t), most = model->layers, err;
    struct sp_placement pl;

    *d = (struct sp_auto_devices){.processes = count_processes(t),
                                  .node_processes = t->world.node_size,
                                  .threads = t->cfg.threads};
    if (plans_elsewhere(t, machine)) {
        *d = sp_auto_devices_of(machine, &t->choice->layout, &t->choice->groups);
        return 0;
    }
    if (d->processes > t->world.size) /* a dry run's: not started */
        d->node_processes = d->processes;
    if (d->processes % d->node_processes)
        return sp_error(EINVAL, "train: --schedule auto: nodes have different numbers of "
                                "processes; give a schedule");
    err = sp_placement_init(&pl, &t->world, 1, t->world.size, t->cfg.threads);
    if (err)
        return err;
    if (gpus > 0) {
        d->workers = gpus / t->world.node_size;
    } else {
        d->cores = pl.cores;
        d->workers = pl.cores / (t->cfg.threads > 0 ? t->cfg.threads : 1);
    }
    d->workers = d->workers < most ? d->workers : most;
    d->workers = d->workers > 1 ? d->workers : 1;
    return 0;
}

/* Memory of a node, or of a GPU; 0: the described machine's, for a dry run that is planned on
 * one. */
static int64_t find_bytes(const struct sp_trainer *t)
{
    int64_t bytes;

    if (t->cfg.dry_run && t->cfg.hardware)
        return 0;
    if (sp_train_find_gpus(t) > 0)
        return sp_train_gpu_has(t);
    bytes = sp_host_memory_has(1).bytes;
    return bytes < INT64_MAX ? bytes : 0;
}

/* Refuses, on rank 0, all that can be refused before anything is measured. */
static int check(const struct sp_trainer *t)
{
    struct sp_model model;
    int err = load_model(t, &model);

    return err ? err
               : sp_layout_auto_check("train", &t->choice->layout, &t->choice->groups, &model);
}

int sp_train_choose_on(const struct sp_trainer *t, const struct sp_machine *machine,
                       double within_s, struct sp_auto_choice *choice,
                       struct sp_auto_contenders *contenders)
{
    struct sp_model model;
    struct sp_auto_request request = {.command = "train",
                                      .layout = &t->choice->layout,
                                      .groups = &t->choice->groups,
                                      .model = &model,
                                      .dtype = (enum sp_dtype)t->cfg.dtype,
                                      .machine = machine,
                                      .node_bytes = find_bytes(t),
                                      .within_s = within_s};
    int err = load_model(t, &model);

    err = err ? err : find_devices(t, machine, &model, &request.devices);
    return err ? err : sp_layout_auto(&request, choice, contenders);
}

int sp_train_take_choice(struct sp_trainer *t, const struct sp_auto_choice *choice)
{
    struct sp_train_config *a = &t->cfg;
    int err;

    t->choice->chosen = *choice;
    a->layout = t->choice->layout;
    a->groups = t->choice->groups;
    sp_layout_auto_take(choice, &a->layout, &a->groups, &t->choice->texts);
    a->auto_within_set = false;
    err = sp_train_keep_layout(t);
    return err ? err : sp_parse_offload("train", &a->layout, &t->offloads);
}

int sp_train_keep_layout(struct sp_trainer *t)
{
    free(t->settings);
    t->settings = sp_train_settings(&t->cfg, true);
    return t->settings ? 0 : sp_error(ENOMEM, "out of memory for settings");
}

/* Chooses on rank 0, in the time that measuring left. Gives the choice as text, or an empty
 * text. */
static int choose(const struct sp_trainer *t, double begun_us, char text[SP_AUTO_TEXT])
{
    static struct sp_machine machine;
    double left_s = t->choice->within_s - 1e-6 * (sp_now_us() - begun_us);
    int err = sp_train_load_machine(t, &machine);

    err = err ? err
              : sp_train_choose_on(t, &machine, left_s > 0.1 ? left_s : 0.1, &t->choice->chosen,
                                   &t->choice->contenders);
    if (!err)
        sp_auto_choice_pack(&t->choice->chosen, text);
    return err;
}

/* Brings rank 0's choice to all ranks. */
static int share(struct sp_trainer *t, const char *text)
{
    char *root = sp_transport_root_text(text);
    struct sp_auto_choice choice;
    int err = root ? sp_auto_choice_unpack(root, &choice) : -ENOMEM;

    free(root);
    return err ? err : sp_train_take_choice(t, t->world.rank ? &choice : &t->choice->chosen);
}

int sp_train_choose_layout(struct sp_trainer *t)
{
    char text[SP_AUTO_TEXT] = "";
    double begun_us = sp_now_us();
    int err = 0;

    if (!sp_layout_is_auto(&t->cfg.layout))
        return 0;
    t->choice = calloc(1, sizeof *t->choice);
    if (sp_train_disagree(t->world.rank,
                          t->choice ? 0 : sp_error(ENOMEM, "no memory to choose a layout")))
        return -ENOMEM;
    t->choice->layout = t->cfg.layout;
    t->choice->groups = t->cfg.groups;
    t->choice->within_s = t->cfg.auto_within;
    if (sp_train_disagree(t->world.rank, t->world.rank ? 0 : check(t)))
        return -EINVAL;
    if (count_processes(t) % sp_groups_pipelines(&t->cfg.groups))
        return 0; /* refused later, with the number of processes that is needed */
    if (is_unknown(t))
        measure_machine(t);
    sp_watchdog_begin(SP_PHASE_PREPARE, "choosing a layout");
    if (t->world.rank == 0)
        err = choose(t, begun_us, text);
    sp_watchdog_end();
    if (sp_train_disagree(t->world.rank, err))
        return -EINVAL;
    return share(t, text);
}

/* ---- words ----------------------------------------------------------------------------------- */

void sp_train_tell_choice(struct sp_trainer *t)
{
    char name[SP_AUTO_TEXT], reason[SP_AUTO_TEXT];
    struct sp_prediction p;

    if (!t->choice || t->world.rank || sp_train_predict(t, &p))
        return;
    t->choice->step_ms = p.step_ms;
    sp_prediction_destroy(&p);
    sp_auto_choice_name(&t->choice->chosen, name);
    sp_auto_choice_reason(&t->choice->chosen, t->choice->step_ms, reason);
    sp_train_say(t, "auto: %s: %.4g ms a step predicted", name, t->choice->step_ms);
    sp_train_say(t, "auto: %s", reason);
}

void sp_train_forget_choice(struct sp_trainer *t)
{
    if (t->choice)
        free(t->choice->look);
    free(t->choice);
    t->choice = NULL;
}
