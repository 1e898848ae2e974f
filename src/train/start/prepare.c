/*
 * starpipe train: plan, verify, place, run. Everything that can be refused is refused before
 * StarPU starts; all ranks agree on it first, so that one line is printed and nothing hangs.
 */
#include "train/trainer.h"
#include "codelets/cuda.h"
#include "cli/commands.h"
#include "offload/host.h"
#include "config.h"
#include "plan/memory.h"
#include "plan/offload_pages.h"
#include "plan/slices.h"
#include "plan/solver.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include "policies/plan_create.h"
#include "graphs/create.h"
#include "cli/train/interrupt.h"
#include "train/run/watchdog.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_data(struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    const char *path = a->tokens ? a->tokens : a->data;
    int err;

    if (!path)
        return 0; /* dry run */
    err = sp_data_open(path, a->tokens ? a->token_bytes : 1, t->model.vocab, &t->data);
    if (err)
        return err;
    t->data.shuffled = a->order == 1;
    t->data.seed = a->seed;
    return 0;
}

/* What is odd but can be done. Said once nothing is refused. */
static void warn(const struct sp_trainer *t, const char *resume)
{
    const struct sp_train_args *a = &t->args;

    if (t->data.path && t->data.tokens <= (size_t)a->layout.seq)
        sp_warn("%s has %zu tokens, a sequence %d: it wraps around",
                a->tokens ? a->tokens : a->data, t->data.tokens, a->layout.seq);
    if (a->data && t->model.vocab > 256)
        sp_warn(
            "--data gives byte tokens 0..255, the vocabulary of %s is %d: most of it will never "
            "be seen; --tokens takes a tokenized file",
            t->model.name, t->model.vocab);
    if (a->eval && t->eval_data.tokens <= (size_t)sp_train_eval_tokens(t))
        sp_warn("%s has %zu tokens, an evaluation takes %.0f: it wraps around", a->eval,
                t->eval_data.tokens, (double)sp_train_eval_tokens(t));
    if (a->resume && t->first_step >= a->steps)
        sp_warn("%s has run %d steps already, --steps is %d", a->resume, t->first_step, a->steps);
    sp_train_warn_of_changes(t, resume);
    if (a->dtype == SP_BF16 && !t->place.gpus)
        sp_warn("--dtype bf16 on CPU workers rounds as a GPU does, and takes longer than f32");
}

/* --recompute, or what the schedule wants. */
static int choose_recompute(struct sp_trainer *t)
{
    struct sp_train_args *a = &t->args;
    struct sp_recompute_option option;
    int err;

    if (!a->layout.recompute)
        a->layout.recompute = t->plan.def->recompute ? t->plan.def->recompute : "none";
    err = sp_parse_recompute("train", a->layout.recompute, &option);
    if (err)
        return err;
    a->recompute = option.mode;
    a->every = option.every;
    return 0;
}

static int check_family(const struct sp_trainer *t)
{
    const struct sp_train_wish wish = {
        .recompute = t->args.recompute,
        .recompute_text = t->args.layout.recompute,
        .partition = t->args.partition,
        .post_validation = t->args.post_validation,
    };

    return sp_plan_refuse(&t->plan, &wish);
}

/* --partition-slices. */
static int cut_sequences(struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->args.layout;
    struct sp_shape shape;
    int err;

    sp_train_shape(t, &shape);
    if (l->partition_slices && t->plan.layout.slices == 1)
        return sp_error(EINVAL, "train: --partition-slices %s without --slices N",
                        l->partition_slices);
    err = t->plan.layout.slices > 1 ? sp_plan_cut(&t->plan, &shape, l->partition_slices) : 0;
    return err || t->world.size == 1 ? err : sp_memory_apart(&t->plan, &shape);
}

static int make_plan(struct sp_trainer *t)
{
    struct sp_layout_args *l = &t->args.layout;
    struct sp_layout layout;
    struct sp_cluster gpus;
    bool on_gpus = !l->slices && sp_train_expect_gpus(t, &gpus);
    int err = sp_slices_auto("train", l, &t->model, t->args.dtype, on_gpus ? &gpus : NULL);

    if (err)
        return err;
    layout = sp_layout_of_args(l, t->model.layers);

    if (l->seq > t->model.positions)
        return sp_error(EINVAL, "sequences of %d tokens, but %s has %d positions", l->seq,
                        t->model.name, t->model.positions);
    if (l->slices > l->seq || l->slices > SP_MAX_SLICES)
        return sp_error(EINVAL, "%d slices of a sequence of %d tokens: there are at most %d",
                        l->slices, l->seq, l->seq < SP_MAX_SLICES ? l->seq : SP_MAX_SLICES);
    err = sp_plan_create(l->schedule, &layout, &t->plan);
    err = err ? err : choose_recompute(t);
    err = err ? err : check_family(t);
    err = err ? err : cut_sequences(t);
    err = err ? err : sp_train_fit(t, &layout);
    if (err)
        return err;
    /* those of a file */
    l->stages = t->plan.layout.stages;
    l->micro_batches = t->plan.layout.micro_batches;
    t->plan.states_twice = t->args.post_validation && t->args.clip > 0;
    return 0;
}

struct sp_memory sp_train_memory(const struct sp_trainer *t, const struct sp_shape *shape,
                                 int stage)
{
    if (sp_train_offloads(t))
        return t->offload.memory[stage];
    return sp_memory_of_stage(&t->plan, shape, t->args.recompute, t->args.every, stage);
}

/* A process without a limit still cannot have more than its machine has. */
static int check_machine(const struct sp_trainer *t, const struct sp_shape *shape)
{
    const double GiB = 1024.0 * 1024 * 1024;
    double states = 0, activations = 0, workspace = 0;
    double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    for (int k = 0; k < t->place.n_local; k++) {
        struct sp_memory m = sp_train_memory(t, shape, t->place.first_local + k);

        states += (double)m.states;
        activations += (double)m.activations;
        workspace = fmax(workspace, (double)m.workspace);
    }
    if (has <= 0 || states + activations + workspace <= has)
        return 0;
    return sp_error(EINVAL,
                    "stages %d to %d need %.1f GiB (parameters and optimizer %.1f, activations "
                    "%.1f, workspace %.1f), this machine has %.1f; try --recompute, shorter "
                    "sequences, or more machines",
                    t->place.first_local, t->place.first_local + t->place.n_local - 1,
                    (states + activations + workspace) / GiB, states / GiB, activations / GiB,
                    workspace / GiB, has / GiB);
}

static int check_memory(struct sp_trainer *t)
{
    const struct sp_train_args *a = &t->args;
    struct sp_shape shape;
    int err;

    sp_train_shape(t, &shape);
    /* with --offload the plan keeps to the limit */
    err = sp_memory_check(&t->plan, &shape, a->recompute, a->every,
                          sp_train_offloads(t) ? 0 : a->layout.memory_limit);
    if (err || a->dry_run)
        return err;
    return t->place.gpus ? sp_train_check_gpus(t, &shape) : check_machine(t, &shape);
}

/* Everything that can go wrong before the first task. `weights`: the file to read, opened. */
static int prepare(struct sp_trainer *t, struct sp_st_file *weights, char resume[SP_RUN_PATH])
{
    struct sp_train_args *a = &t->args;
    const char *model = a->layout.model;
    int err;

    err = sp_train_lock(t);
    if (err)
        return err;
    if (a->resume) {
        err = sp_train_find_resume(t, resume);
        if (err)
            return err;
        model = resume;
    }
    err = sp_model_load(model, &t->model);
    err = err ? err : sp_params_create(&t->model, &t->params);
    err = err ? err : sp_train_check_shards(t);
    err = err ? err : open_data(t);
    err = err ? err : make_plan(t);
    err = err ? err : sp_train_open_eval(t);
    err = err ? err : sp_placement_init(&t->place, &t->world, t->plan.layout.stages, a->threads);
    err = err ? err : sp_train_choose_device(t);
    err = err ? err : sp_train_partition_early(t);
    err = err ? err : sp_train_offload_early(t);
    err = err ? err : check_memory(t);
    err = err ? err : sp_train_open_weights(t, model, weights);
    if (!err && a->resume)
        err = sp_train_check_resume(t, resume);
    err = err ? err : sp_train_check_files(t, resume);
    err = err ? err : sp_train_check_output(t);
    return err ? err : sp_train_claim(t, resume);
}

/* Workers of one kind only: their numbers are those of the placement. */
static void choose_workers(const struct sp_placement *pl, struct starpu_conf *conf)
{
    conf->precedence_over_environment_variables = 1;
    conf->ncpus = pl->gpus ? 0 : pl->workers;
    conf->ncuda = pl->gpus;
    conf->nopencl = 0;
    conf->nhip = 0;
    conf->use_explicit_workers_cuda_gpuid = pl->gpus > 0;
    for (int i = 0; i < pl->gpus; i++)
        conf->workers_cuda_gpuid[i] = (unsigned)pl->gpu[i];
}

static int start_starpu(struct sp_trainer *t)
{
    struct starpu_conf conf;
    unsigned workers;

    setenv("STARPU_WORKERS_NOBIND", "1", 0);
    setenv("STARPU_SILENT", "1", 0);
    starpu_conf_init(&conf);
    choose_workers(&t->place, &conf);
    if (t->place.gpus)
        sp_train_prepare_gpus(t);
    if (sp_train_offloads(t)) {
        struct sp_shape shape;

        /* would bring back what has just left: inputs of any task that is ready */
        setenv("STARPU_PREFETCH", "0", 1);
        sp_train_shape(t, &shape);
        sp_host_start(t->place.gpus ? SIZE_MAX : (size_t)sp_offload_idle_bytes(&t->plan, &shape),
                      t->place.gpus > 0);
    }
    conf.sched_policy = t->args.scheduler == 1 ? &sp_order_ready : &sp_order_strict;
    if (sp_transport_start(&conf))
        return sp_error(ENODEV, "StarPU found no worker to start");
    workers = t->place.gpus ? starpu_cuda_worker_get_count() : starpu_cpu_worker_get_count();
    if ((int)workers < t->place.workers)
        return sp_error(ENODEV, "StarPU started %u %s workers, %d are needed", workers,
                        t->place.gpus ? "CUDA" : "CPU", t->place.workers);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    sp_interrupt_install(); /* StarPU takes SIGINT for its traces */
    sp_placement_bind(&t->place);
    return t->place.gpus ? sp_train_start_gpus(t) : 0;
}

/* The exit status. */
static int run(struct sp_trainer *t, const struct sp_st_file *weights, const char *resume)
{
    const struct sp_train_args *a = &t->args;
    struct sp_graph_config cfg = {
        .params = &t->params,
        .plan = &t->plan,
        .batch = a->layout.micro_batch_size,
        .seq = a->layout.seq,
        .mlp_rows = a->mlp_chunk,
        .head_rows = a->logit_rows,
        .dtype = a->dtype,
        .recompute = a->recompute,
        .every = a->every,
        .ready = a->scheduler == 1,
        .window = a->window,
        .seed = a->seed,
    };
    int err = start_starpu(t);

    err = err ? err : sp_train_partition_measured(t);
    err = err ? err : sp_train_offload_measured(t);
    cfg.away = t->offload.away;
    cfg.tier = t->tier;
    cfg.disk = t->disk;
    cfg.in_stream = t->runs_ahead;
    err = err ? err : sp_graph_create(&cfg, &t->place, &t->graph);
    err = err ? err : sp_checkpoint_init(&t->graph, weights->n_shards ? weights : NULL);
    if (!err && a->resume)
        err = sp_train_load_resume(t, resume);
    err = err ? err : sp_step_report_create(&t->graph, &t->report);
    /* From here on other ranks may wait for this one: an error ends them all. */
    if (err)
        sp_transport_abort(1);
    sp_transport_barrier(); /* nothing moves before the last one is ready */
    if (a->stall_timeout > 0)
        t->watchdog = sp_watchdog_start(&t->graph, a->stall_timeout);
    err = sp_train_loop(t);
    sp_watchdog_stop(t->watchdog);
    if (err && err != -EDOM && err != -EINTR)
        sp_transport_abort(1);
    sp_step_report_destroy(&t->graph, &t->report);
    sp_graph_destroy(&t->graph);
    if (t->place.gpus)
        sp_cuda_stop();
    sp_transport_stop();
    if (sp_train_offloads(t))
        sp_host_stop();
    return err ? 1 : 0;
}

/* 0 where all ranks passed 0; otherwise the first of those that did not says why. */
static bool all_agree(const struct sp_trainer *t, int err)
{
    int first;

    if (!sp_transport_agree(err, &first))
        return false;
    sp_error_release(first == t->world.rank);
    return true;
}

int sp_cmd_train(int argc, char **argv)
{
    static struct sp_trainer trainer;
    struct sp_trainer *t = &trainer;
    struct sp_st_file weights = {0};
    char resume[SP_RUN_PATH] = "";
    int err, status = 0;
    bool failed;

    t->saver.dir.lock = -1;
    sp_interrupt_install_early();
    if (sp_transport_join(&argc, &argv, &t->world))
        return 2;
    sp_error_hold(t->world.rank);
    if (t->world.rank > 0 && !freopen("/dev/null", "w", stdout))
        sp_error(errno, "cannot silence standard output: %s", strerror(errno));
    err = sp_train_parse(argc, argv, &t->args);
    failed = all_agree(t, err);
    if (!failed)
        failed = all_agree(t, sp_train_agree_settings(t));
    if (!failed)
        failed = all_agree(t, prepare(t, &weights, resume));
    if (!failed)
        failed = all_agree(t, sp_train_agree_inputs(t, &weights));
    if (failed) {
        status = err > 0 ? 0 : 2;
        goto out;
    }
    sp_error_release(false);
    if (!sp_transport_same(sp_plan_digest(&t->plan))) {
        if (t->world.rank == 0)
            sp_error(
                EINVAL,
                "the processes have different orders of schedule %s: give all of them the same "
                "options and, on every node, the same plugins",
                t->plan.def->name);
        status = 2;
        goto out;
    }
    if (t->world.rank == 0)
        warn(t, resume);
    if (t->args.dry_run) {
        if (t->world.rank == 0)
            status = sp_train_dry_run(t) ? 1 : 0;
        goto out;
    }
    sp_interrupt_install();
    sp_train_announce_weights(t, &weights);
    status = run(t, &weights, resume);
    if (sp_interrupt_reader_gone() && !freopen("/dev/null", "w", stdout)) /* nobody misses it */
        status = 1;

out:
    if (weights.n_shards)
        sp_st_close(&weights);
    if (t->log)
        fclose(t->log);
    sp_run_dir_release(&t->saver.dir);
    sp_data_close(&t->data);
    sp_data_close(&t->eval_data);
    sp_disk_destroy(t->disk);
    sp_offload_destroy(&t->offload);
    if (t->plan.def)
        sp_plan_destroy(&t->plan);
    if (t->params.tensors)
        sp_params_destroy(&t->params);
    sp_transport_leave();
    return status;
}
