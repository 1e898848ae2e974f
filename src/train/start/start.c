/*
 * The life of a trainer, from top to bottom: the phases of its start, what undoes them, and what a change of layout makes
 * once more. A step is in train/run/step.c.
 */
#include "train/start/start.h"
#include "graphs/create.h"
#include "policies/load/guard.h"
#include "sinks/starpu/runtime.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include "train/checkpoint/resume.h"
#include "train/checkpoint/save.h"
#include "train/config.h"
#include "train/run/log.h"
#include "train/run/watchdog.h"
#include "train/start/agree.h"
#include "train/start/auto.h"
#include "train/start/device.h"
#include "train/start/machine.h"
#include "train/start/memory.h"
#include "train/start/phases.h"
#include "transport/transport.h"
#include <math.h>
#include <stdlib.h>

/* ---- small phases ------------------------------------------------------------------------------ */

static int take_settings(struct sp_trainer *t)
{
    t->settings = sp_train_settings(&t->cfg, true);
    t->seed = (uint64_t)t->cfg.seed;
    if (sp_train_config_check(&t->cfg) || sp_runtime_scheduler(t->cfg.scheduler, NULL))
        return -EINVAL;
    return sp_parse_offload("train", &t->cfg.layout, &t->offloads);
}

/* A dry run may stand for any number of processes: it is planned as if each pipeline had one. */
static int check_processes(struct sp_trainer *t)
{
    const struct {
        const char *name;
        int size;
    } given[] = {{"data-parallel", t->cfg.groups.data_parallel},
                 {"context-parallel", t->cfg.groups.context_parallel},
                 {"tensor-parallel", t->cfg.groups.tensor_parallel}};
    char names[128] = "";
    int pipelines = sp_train_pipelines(t), size = t->world.size, used = 0;

    if (t->cfg.dry_run && size == 1)
        t->world.size = pipelines;
    if (t->world.size % pipelines == 0)
        return t->cfg.inference && t->world.size > t->cfg.layout.stages
                   ? sp_error(
                         EINVAL,
                         "text is drawn by a process for each stage at most, and there are %d: "
                         "give --stages %d",
                         t->world.size, t->world.size)
                   : 0;
    for (int i = 0; i < 3; i++)
        if (given[i].size > 1)
            used += snprintf(names + used, sizeof names - (size_t)used, " --%s %d", given[i].name,
                             given[i].size);
    return sp_error(EINVAL,
                    "train:%s wants %d processes, or a multiple of that, and there %s %d: mpirun "
                    "-np %d",
                    names, pipelines, size == 1 ? "is" : "are", size,
                    (size / pipelines + 1) * pipelines);
}

static int place_stages(struct sp_trainer *t)
{
    return sp_placement_init(&t->place, &t->world, sp_train_pipelines(t), t->plan.layout.stages,
                             t->cfg.threads);
}

static int check_threads(struct sp_trainer *t)
{
    return t->cfg.dry_run ? 0 : sp_placement_check_threads(&t->place);
}

/* Rank 0 alone has something to say: all others differ from it, or agree. */
static int agree_on_orders(struct sp_trainer *t)
{
    if (sp_transport_same(sp_plan_digest(&t->plan)))
        return 0;
    return t->world.rank
               ? -EINVAL
               : sp_error(
                     EINVAL,
                     "the processes have different orders of schedule %s: give all of them the "
                     "same options and, on every node, the same plugins",
                     t->plan.def->name);
}

static int make_graph(struct sp_trainer *t)
{
    struct sp_graph_config cfg = sp_train_graph_config(t);
    int err;

    cfg.sink = sp_starpu_sink();
    cfg.in_stream = sp_scheduler_follows(t->cfg.scheduler) && sp_train_runs_ahead(t);
    err = sp_graph_create(&cfg, &t->place, &t->graph);
    t->has_graph = !err;
    return err;
}

static int make_report(struct sp_trainer *t)
{
    int err = sp_step_report_create(&t->graph, &t->report);

    if (err)
        return err;
    t->meters = calloc((size_t)t->place.stages, sizeof *t->meters);
    if (t->plan.family->facts.stashes)
        t->updates = calloc((size_t)sp_updates(&t->plan.layout), sizeof *t->updates);
    return t->meters && (t->updates || !t->plan.family->facts.stashes)
               ? 0
               : sp_error(ENOMEM, "no memory for %d stages", t->place.stages);
}

/* An end that is asked for from here on comes after the first step. */
static int open_log(struct sp_trainer *t)
{
    int err = sp_train_log_open(t);

    if (!err)
        sp_transport_barrier(); /* nothing moves before all are ready */
    return err;
}

/* ---- the phases of a start --------------------------------------------------------------------- */

/* Who makes a phase: all ranks; rank 0; or rank 0, unless it is a dry run. */
enum makers { ALL, ROOT, ROOT_FOR_REAL };

struct phase {
    enum makers makers;
    int (*make)(struct sp_trainer *t);
    const char *what; /* for the watchdog */
};

/* Whatever can be refused is refused in these, before StarPU starts. Options, processes, and what the run reads: */
static const struct phase reading[] = {
    {ALL, take_settings, "reading the settings"},
    {ALL, sp_train_agree_settings, "comparing the settings of all processes"},
    {ALL, sp_train_choose_layout, "choosing a layout"},
    {ALL, sp_train_find_machine, "reading the description of the machine"},
    {ALL, check_processes, "counting processes"},
    {ROOT_FOR_REAL, sp_train_lock, "locking the directory of --save"},
    {ALL, sp_train_find_resume, "finding the step to resume"},
    {ALL, sp_train_load_model, "reading the model"},
    {ALL, sp_train_open_tokenizer, "reading the tokenizer"},
    {ALL, sp_train_read_prompt, "reading the prompt"},
    {ALL, sp_train_open_data, "opening the data"},
};

/* the plan, and where its stages are. A change of layout makes these once more. */
static const struct phase laying_out[] = {
    {ALL, sp_train_plan, "planning"},
    {ALL, place_stages, "placing the stages"},
    {ALL, sp_train_choose_device, "choosing devices"},
    {ALL, check_threads, "counting threads"},
    {ALL, sp_train_partition_early, "dealing out layers"},
    {ALL, sp_train_choose_recompute, "choosing what is computed again"},
    {ALL, sp_train_offload_early, "choosing what leaves memory"},
};

/* what depends on the plan: the place in the data, weights (mapped files count in a limit of memory), memory, */
static const struct phase opening[] = {
    {ALL, sp_train_find_place, "finding the place in the data"},
    {ALL, sp_train_open_eval, "opening the data of evaluations"},
    {ALL, sp_train_open_weights, "checking the weights"},
    {ALL, sp_train_check_memory, "counting memory"},
    {ALL, sp_train_check_gpus, "counting memory of GPUs"},
    {ALL, sp_train_check_resume, "checking the step to resume"},
    /* what the run writes, which is made last, */
    {ROOT, sp_train_check_files, "comparing the files to read and to write"},
    {ROOT_FOR_REAL, sp_train_open_companions, "opening the files of the model"},
    {ROOT_FOR_REAL, sp_train_check_output, "checking what is written"},
    {ROOT_FOR_REAL, sp_train_claim, "taking the directory of --save"},
    {ROOT_FOR_REAL, sp_train_make_dirs, "making directories"},
    {ROOT_FOR_REAL, sp_train_claim_log, "taking the log"},
    /* and that all processes see the same. */
    {ALL, sp_train_agree_inputs, "comparing the inputs of all processes"},
    {ALL, agree_on_orders, "comparing the orders of all processes"},
};

/* StarPU and the graph, from here on for real. A change of layout makes these once more. */
static const struct phase starting[] = {
    {ALL, sp_train_start_runtime, "starting StarPU"},
    {ALL, sp_train_partition_measured, "measuring a layer"},
    {ALL, sp_train_offload_measured, "measuring where activations go"},
    {ALL, make_graph, "making the model"},
    {ALL, sp_train_load, "filling the model"},
    {ALL, make_report, "making the report of a step"},
};

#define PHASES(list) list, (int)(sizeof(list) / sizeof *(list))

static int make_phase(struct sp_trainer *t, const struct phase *phase)
{
    bool here = phase->makers == ALL || t->world.rank == 0;

    return here && !(phase->makers == ROOT_FOR_REAL && t->cfg.dry_run) ? phase->make(t) : 0;
}

/* All ranks make each phase, and go on to the next one if none of them refuses: one line is printed, and nobody waits. */
static bool is_refused(struct sp_trainer *t, const struct phase *phase, int n)
{
    bool refused = false;

    for (int i = 0; i < n && !refused; i++) {
        sp_watchdog_begin(SP_PHASE_PREPARE, "%s", phase[i].what);
        refused = sp_train_disagree(t->world.rank, make_phase(t, &phase[i]));
        sp_watchdog_end();
    }
    return refused;
}

static struct sp_trainer *new_trainer(const struct sp_train_config *cfg,
                                      const struct sp_world *world)
{
    struct sp_trainer *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->cfg = *cfg;
    t->world = *world;
    t->saver.dir = SP_RUN_DIR_NONE;
    t->resumed_dir = t->companions = SP_DIR_CLOSED;
    t->log_file.fd = -1;
    t->saver.saved = t->saver.begun = -1;
    t->eval_loss = NAN;
    return t;
}

static void forget_plan(struct sp_trainer *t)
{
    sp_disk_destroy(t->disk);
    sp_offload_destroy(&t->offload);
    if (t->plan.def)
        sp_plan_destroy(&t->plan);
    t->disk = NULL;
    t->offload = (struct sp_offload){0};
    t->plan = (struct sp_plan){0};
    t->rates = (struct sp_tier_rates){0};
}

/* Undoes what was prepared. */
static void release(struct sp_trainer *t)
{
    if (t->weights.n_shards)
        sp_st_close(&t->weights);
    sp_dir_close(&t->resumed_dir);
    sp_dir_close(&t->companions);
    sp_run_state_free(&t->resumed);
    sp_log_release(t->cfg.log, &t->log_file);
    sp_dir_made_end(&t->made, !t->started);
    sp_run_dir_release(&t->saver.dir);
    sp_data_close(&t->data);
    sp_data_close(&t->eval_data);
    sp_tokenizer_close(t->tokenizer);
    forget_plan(t);
    if (t->params.tensors)
        sp_params_destroy(&t->params);
    free(t->settings);
    sp_train_forget_choice(t);
    sp_train_leave();
    if (t->own_watchdog)
        sp_watchdog_stop();
    free(t);
}

int sp_train_prepare(const struct sp_train_config *cfg, struct sp_trainer **out)
{
    bool own_watchdog = !sp_watchdog_runs(), refused;
    struct sp_trainer *t = NULL;
    struct sp_world world;
    int err;

    if (own_watchdog)
        sp_watchdog_start(cfg->stall_timeout);
    err = sp_train_join(NULL, NULL, &world);
    if (!err) {
        t = new_trainer(cfg, &world);
        err = t ? 0 : sp_error(ENOMEM, "no memory for a trainer");
    }
    if (err) {
        if (own_watchdog)
            sp_watchdog_stop();
        return err;
    }
    t->own_watchdog = own_watchdog;
    sp_error_hold(t->world.rank);
    refused = is_refused(t, PHASES(reading)) || is_refused(t, PHASES(laying_out)) ||
              is_refused(t, PHASES(opening));
    sp_error_release(false);
    if (refused) {
        release(t);
        return -EINVAL;
    }
    sp_train_tell_choice(t);
    t->done = t->first_step;
    *out = t;
    return 0;
}

int sp_train_start_graph(struct sp_trainer *t)
{
    int err = 0;

    for (size_t i = 0; !err && i < sizeof starting / sizeof *starting; i++) {
        /* without GPUs StarPU's start is as short as MPI's, and waits for the others */
        bool launches = starting[i].make == sp_train_start_runtime && !t->place.gpus;

        sp_watchdog_begin(launches ? SP_PHASE_LAUNCH : SP_PHASE_SETUP, "%s", starting[i].what);
        err = starting[i].make(t);
        sp_watchdog_end();
    }
    return err;
}

int sp_train_start(struct sp_trainer *t)
{
    int err;

    sp_guard_work_begins();
    err = sp_train_start_graph(t);
    if (!err) {
        sp_watchdog_begin(SP_PHASE_EVALUATE, "opening the log");
        err = open_log(t);
        sp_watchdog_end();
    }
    if (err)
        return sp_train_fail(t, err);
    sp_watchdog_know_graph(&t->graph);
    t->started = true;
    return 0;
}

int sp_trainer_open(const struct sp_train_config *cfg, struct sp_trainer **t)
{
    int err = sp_train_prepare(cfg, t);

    if (err || cfg->dry_run)
        return err;
    err = sp_train_start(*t);
    if (err)
        sp_trainer_close(*t);
    return err;
}

/* ---- another layout ---------------------------------------------------------------------------- */

int sp_train_lay_out_again(struct sp_trainer *t)
{
    static const struct phase before[] = {
        {ALL, sp_train_find_machine, "reading the description of the machine"}};
    static const struct phase after[] = {
        {ALL, sp_train_check_memory, "counting memory"},
        {ALL, sp_train_check_gpus, "counting memory of GPUs"},
        {ALL, agree_on_orders, "comparing the orders of all processes"}};

    forget_plan(t);
    return is_refused(t, PHASES(before)) || is_refused(t, PHASES(laying_out)) ||
                   is_refused(t, PHASES(after))
               ? -EINVAL
               : 0;
}

/* ---- the end ----------------------------------------------------------------------------------- */

void sp_train_stop_graph(struct sp_trainer *t)
{
    sp_watchdog_know_graph(NULL);
    free(t->meters);
    free(t->updates);
    if (t->report.stages)
        sp_step_report_destroy(&t->graph, &t->report);
    if (t->has_graph)
        sp_graph_destroy(&t->graph);
    sp_train_stop_runtime(t);
    t->meters = NULL;
    t->updates = NULL;
    t->report = (struct sp_step_report){0};
    t->has_graph = false;
}

/* Undoes as much of the start as was done, and waits for what save_async has begun. 0 or -errno of that. */
static int stop(struct sp_trainer *t)
{
    int err = 0;

    if (t->begun) {
        sp_watchdog_begin(SP_PHASE_STEP, "ending the step that was begun");
        sp_step_rest(&t->graph, NULL, false);
        sp_transport_wait_all();
        sp_watchdog_end();
    }
    if (t->started && !t->diverged)
        err = sp_train_saved_all(t);
    sp_watchdog_know_graph(NULL);
    sp_watchdog_begin(SP_PHASE_SETUP, "ending the run");
    if (t->log)
        fclose(t->log);
    sp_train_stop_graph(t);
    sp_watchdog_end();
    return err;
}

int sp_trainer_close(struct sp_trainer *t)
{
    int err = t ? stop(t) : 0;

    if (t)
        release(t);
    return err;
}

/* ---- processes --------------------------------------------------------------------------------- */

int sp_train_join(int *argc, char ***argv, struct sp_world *world)
{
    int err;

    sp_watchdog_begin(SP_PHASE_LAUNCH, "joining the other processes (MPI_Init)");
    err = sp_transport_join(argc, argv, world);
    sp_watchdog_end();
    if (!err)
        sp_watchdog_know_rank(world->size > 1 ? world->rank : -1);
    return err;
}

void sp_train_leave(void)
{
    sp_watchdog_begin(SP_PHASE_LAUNCH, "leaving the other processes (MPI_Finalize)");
    sp_transport_leave();
    sp_watchdog_end();
}
