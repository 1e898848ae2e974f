/*
 * Everything that can be refused is refused before StarPU starts. All ranks agree on it first, so
 * that one line is printed and nothing hangs.
 */
#include "train/start/prepare.h"
#include "model/files/checksums.h"
#include "model/files/weights_dir.h"
#include "offload/host_memory.h"
#include "plan/memory.h"
#include "sp_error.h"
#include "train/checkpoint/resume.h"
#include "train/checkpoint/save.h"
#include "train/config.h"
#include "train/run/sample.h"
#include "train/run/watchdog.h"
#include "train/start/agree.h"
#include "train/start/auto.h"
#include "train/start/device.h"
#include "train/start/files.h"
#include "train/start/machine.h"
#include "train/start/memory.h"
#include "train/start/offload.h"
#include "train/start/partition.h"
#include "train/start/plan.h"
#include "train/start/recompute.h"
#include "train/start/text.h"
#include "transport/transport.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

/* Takes and checks the settings that need no file. */
static int take_settings(struct sp_trainer *t)
{
    t->settings = sp_train_settings(&t->cfg, true);
    t->seed = (uint64_t)t->cfg.seed;
    if (sp_train_config_check(&t->cfg))
        return -EINVAL;
    return sp_parse_offload("train", &t->cfg.layout, &t->offloads);
}

/* Opens the tokenizer if text is read or written. */
static int open_tokenizer(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    bool reads = a->data || (a->eval && !a->tokens), writes = a->sample || a->inference;
    bool eos = a->separator_set && a->separator == SP_TRAIN_EOS;
    int err = reads || writes || eos ? sp_train_open_tokenizer(t) : 0;

    return err ? err : sp_train_find_separator(t);
}

/* For sampling: sizes one sequence for the prompt and the text after it, as far as there are
 * positions. */
static int size_inference(struct sp_trainer *t)
{
    struct sp_train_config *a = &t->cfg;
    struct sp_ids prompt = {0};
    int err;

    if (!a->inference)
        return 0;
    err = sp_train_encode_prompt(t, a->prompt, false, &prompt);
    if (!err)
        a->layout.seq = prompt.n + (size_t)a->sample < (size_t)t->model.positions
                            ? (int)prompt.n + a->sample
                            : t->model.positions;
    sp_ids_free(&prompt);
    return err;
}

static int open_data(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    const char *path = a->tokens ? a->tokens : a->data;
    int err;

    if (!path)
        return 0; /* dry run */
    err = sp_train_open_text(t, path, &t->data);
    if (err)
        return err;
    t->data.shuffled = a->order == SP_TRAIN_SHUFFLED;
    t->data.seed = t->seed;
    return 0;
}

/* Each token that is asked for is predicted once, so the last step may be shorter. */
static int open_eval(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int64_t step = sp_train_step_samples(t), samples;
    size_t asked = (size_t)a->eval_tokens;
    int err;

    if (!a->eval)
        return 0;
    err = sp_train_open_text(t, a->eval, &t->eval_data);
    if (err)
        return err;
    if (t->eval_data.tokens < 2)
        return sp_error(EINVAL, "--eval %s has one token: there is none to predict from it",
                        a->eval);
    if (asked && t->eval_data.tokens > asked + 1)
        t->eval_data.tokens = asked + 1;
    t->eval_data.once = true;
    samples = ((int64_t)t->eval_data.tokens - 2) / a->layout.seq + 1;
    if ((samples - 1) / step >= INT_MAX)
        return sp_error(EINVAL, "--eval %s takes more than %d steps: give --eval-tokens", a->eval,
                        INT_MAX);
    t->eval_steps = (int)((samples - 1) / step + 1);
    return 0;
}

/* For a model that a run saved: checks that its files are as they were written. In the directory
 * of a run, config.json is a link into the newest step, which has the checksums. */
static int verify_model(const struct sp_trainer *t)
{
    const char *model = t->cfg.layout.model;
    char config[PATH_MAX], *real = NULL;
    struct sp_dir dir;
    struct stat st;
    int err;

    if (!sp_dir_open(model, &dir) && !sp_dir_has(&dir, SP_CHECKSUMS_FILE, &st)) {
        sp_dir_close(&dir);
        snprintf(config, sizeof config, "%s/config.json", model);
        real = realpath(config, NULL);
        if (real)
            *strrchr(real, '/') = '\0';
        if (!real || sp_dir_open(real, &dir))
            dir = SP_DIR_CLOSED;
    }
    free(real);
    if (dir.fd < 0)
        return 0; /* an error is printed when it is read */
    err = sp_checksums_verify_model(&dir, t->world.rank, t->world.size);
    sp_dir_close(&dir);
    return err == -ENOENT ? 0 : err;
}

/* Training may begin with random weights; an inference run refuses a model without weights. */
static int refuse_no_weights(const struct sp_trainer *t)
{
    return t->cfg.inference ? sp_error(ENOENT,
                                       "%s has no weights: text can be drawn from a directory with "
                                       "config.json and " SP_WEIGHTS_FILE,
                                       t->cfg.layout.model)
                            : 0;
}

/* Opens the weights of the model, or of the step to resume, which must have some; otherwise
 * t->weights may stay zero. */
static int open_weights(struct sp_trainer *t)
{
    const char *model = t->cfg.layout.model;
    int err;

    if (!t->cfg.resume && sp_model_is_preset(model))
        return refuse_no_weights(t);
    err = t->cfg.resume ? sp_weights_open_in(&t->resumed_dir, &t->weights)
                        : sp_weights_open(model, &t->weights);
    if (err)
        return err;
    if (!t->weights.n_shards)
        return t->cfg.resume ? sp_error(ENOENT, "cannot resume: %s has no " SP_WEIGHTS_FILE,
                                        t->resumed_dir.path)
                             : refuse_no_weights(t);
    err = sp_weights_check(&t->weights, &t->params);
    if (err || t->cfg.dry_run)
        return err;
    err = t->cfg.resume ? 0 : verify_model(t); /* sp_train_check_resume checks a step */
    if (err)
        return err;
    return sp_weights_check_values(&t->weights, &t->params, t->world.rank, t->world.size);
}

/* Checks that shard_size makes no more files than a reader takes. */
static int check_shards(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int n = a->save ? sp_weights_shards(&t->params, a->shard_size) : 1;

    if (n <= SP_ST_MAX_SHARDS)
        return 0;
    return sp_error(EINVAL, "train: --shard-size %llu makes %d files, at most %d are possible",
                    (unsigned long long)a->shard_size, n, SP_ST_MAX_SHARDS);
}

/* Address space needed besides tensors: the stacks of workers, their teams and the threads of
 * StarPU, MPI and the program; and what the runtime maps. */
static int64_t runtime_bytes(const struct sp_trainer *t)
{
    enum { OTHER_THREADS = 6, STACK_BYTES = 8 << 20, RUNTIME_BYTES = 96 << 20 };
    int64_t stack = STACK_BYTES;
    struct rlimit limit;

    if (!getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur < (rlim_t)1 << 30)
        stack = (int64_t)limit.rlim_cur;
    return RUNTIME_BYTES + stack * (OTHER_THREADS + t->place.workers * t->place.threads);
}

/* Sums the bytes that the stages of a process, or of all processes of a node, hold: states and
 * activations of each, workspace of those that work at once. 0 or -EINVAL. */
static int sum_memory(const struct sp_trainer *t, int first, int count, struct sp_memory *sum)
{
    struct sp_memory *all = sp_train_memory(t);

    *sum = (struct sp_memory){0};
    if (!all)
        return -EINVAL;
    for (const struct sp_memory *m = all + first; m < all + first + count; m++) {
        sum->states += m->states;
        sum->activations += m->activations;
        sum->workspace = m->workspace > sum->workspace ? m->workspace : sum->workspace;
    }
    free(all);
    return 0;
}

/* The unit of the sizes in one line. */
struct unit {
    double bytes;
    const char *name;
};

static struct unit unit_for(int64_t bytes)
{
    const int64_t GiB = 1 << 30;

    return bytes < GiB ? (struct unit){1 << 20, "MiB"} : (struct unit){1 << 30, "GiB"};
}

/* Bytes of copies of the whole model's parameters and moments, on rank 0. */
static int64_t copied_bytes(const struct sp_trainer *t)
{
    return t->cfg.save_async ? 12 * (int64_t)sp_model_parameters(&t->model) : 0;
}

/* The part of a line that names the copies; empty: there are none. */
static const char *show_copies(int64_t copies, struct unit unit, char text[64])
{
    text[0] = '\0';
    if (copies)
        snprintf(text, 64, ", copies for --save-async %.1f", (double)copies / unit.bytes);
    return text;
}

/* Even without a limit, a process cannot have more memory than the machine. */
static int check_machine(const struct sp_trainer *t)
{
    int64_t copies = t->world.rank ? 0 : copied_bytes(t), needs;
    struct sp_memory_limit has;
    struct sp_host_memory host;
    struct sp_memory m;
    struct unit unit;
    char copied[64];

    if (sum_memory(t, t->place.first_local, t->place.n_local, &m))
        return -EINVAL;
    needs = sp_memory_sum(&m) + copies;
    unit = unit_for(needs);
    sp_host_memory_read("", &host);
    if (host.process.bytes < INT64_MAX) {
        host.process.bytes -= runtime_bytes(t);
        host.process.bytes = host.process.bytes > 0 ? host.process.bytes : 0;
    }
    has = sp_host_memory_share(&host, 1);
    if (needs <= has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "stages %d to %d need %.1f %s (parameters and optimizer %.1f, activations "
                    "%.1f, workspace %.1f%s), %s has room for %.1f; try %s--recompute, shorter "
                    "sequences, fewer micro-batches, or more machines",
                    t->place.first_local, t->place.first_local + t->place.n_local - 1,
                    (double)needs / unit.bytes, unit.name, (double)m.states / unit.bytes,
                    (double)m.activations / unit.bytes, (double)m.workspace / unit.bytes,
                    show_copies(copies, unit, copied), has.origin, (double)has.bytes / unit.bytes,
                    copies ? "no --save-async, " : "");
}

/* The processes of a machine together cannot have more either; checked if all of the run's are
 * on it. */
static int check_node(const struct sp_trainer *t)
{
    double pipelines = sp_train_pipelines(t), needs;
    int64_t copies = copied_bytes(t);
    struct sp_memory_limit has;
    struct sp_host_memory host;
    struct sp_memory m;
    struct unit unit;
    char copied[64];

    if (t->world.size == 1 || t->world.node_size < t->world.size)
        return 0;
    if (sum_memory(t, 0, t->plan.layout.stages, &m))
        return -EINVAL;
    needs = pipelines * (double)sp_memory_sum(&m) + (double)copies;
    unit = unit_for((int64_t)needs);
    sp_host_memory_read("", &host);
    host.process.bytes = INT64_MAX;
    has = sp_host_memory_share(&host, 1);
    if (needs <= (double)has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "the %d processes of this machine need %.1f %s%s, %s has room for %.1f; try "
                    "%s--recompute, shorter sequences, fewer micro-batches, or more machines",
                    t->world.size, needs / unit.bytes, unit.name, show_copies(copies, unit, copied),
                    has.origin, (double)has.bytes / unit.bytes, copies ? "no --save-async, " : "");
}

static int check_memory(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int err;

    /* with --offload the plan itself keeps to the limit */
    err = sp_memory_check(&t->plan, &t->shape, t->recompute, t->every,
                          sp_train_offloads(t) ? 0 : a->layout.memory_limit);
    if (err || a->dry_run)
        return err;
    if (t->place.gpus)
        return sp_train_check_gpus(t);
    err = check_machine(t);
    return err ? err : check_node(t);
}

/* A dry run may stand for any number of processes: it is planned as if each pipeline had one. */
static int check_pipelines(struct sp_trainer *t)
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
        return 0;
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

/* Places the stages of the plan and decides their partition, recomputation and evictions. With
 * the plan itself, this is all that a change of layout changes. */
static int place_stages(struct sp_trainer *t)
{
    int err = sp_placement_init(&t->place, &t->world, sp_train_pipelines(t), t->plan.layout.stages,
                                t->cfg.threads);

    err = err ? err : sp_train_choose_device(t);
    err = err || t->cfg.dry_run ? err : sp_placement_check_threads(&t->place);
    err = err ? err : sp_train_partition_early(t);
    err = err ? err : sp_train_choose_recompute(t);
    return err ? err : sp_train_offload_early(t);
}

/* Opens and checks everything that needs files, and makes the plan. */
static int take_inputs(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int err = check_pipelines(t);

    if (!err && a->inference && t->world.size > 1)
        err = sp_error(EINVAL, "text is drawn by one process, and there are %d", t->world.size);
    err = err ? err : sp_train_lock(t);
    if (!err && a->resume)
        err = sp_train_find_resume(t);
    if (!err)
        err = a->resume ? sp_model_load_in(&t->resumed_dir, &t->model)
                        : sp_model_load(a->layout.model, &t->model);
    err = err ? err : sp_params_create(&t->model, &t->params);
    err = err ? err : check_shards(t);
    err = err ? err : open_tokenizer(t);
    if (!err && t->cfg.sample)
        err = sp_train_check_prompt(t, t->cfg.prompt);
    err = err ? err : size_inference(t);
    err = err ? err : open_data(t);
    err = err ? err : sp_train_plan(t);
    if (!err && a->resume)
        sp_train_find_place(t);
    err = err ? err : open_eval(t);
    err = err ? err : place_stages(t);
    err = err ? err : open_weights(t); /* mapped, so a limit on address space counts them */
    err = err ? err : check_memory(t);
    if (!err && a->resume)
        err = sp_train_check_resume(t);
    err = err ? err : sp_train_check_files(t);
    err = err ? err : sp_train_open_companions(t);
    err = err ? err : sp_train_check_output(t);
    err = err ? err : sp_train_claim(t);
    err = err ? err : sp_train_make_dirs(t);
    return err ? err : sp_train_claim_log(t);
}

static bool same_orders(const struct sp_trainer *t)
{
    if (sp_transport_same(sp_plan_digest(&t->plan)))
        return true;
    if (t->world.rank == 0)
        sp_error(EINVAL,
                 "the processes have different orders of schedule %s: give all of them the same "
                 "options and, on every node, the same plugins",
                 t->plan.def->name);
    return false;
}

/* Makes everything that depends on the layout, without reading or writing files. */
static int lay_out(struct sp_trainer *t)
{
    int err = sp_train_plan(t);

    err = err ? err : place_stages(t);
    return err ? err : check_memory(t);
}

int sp_train_lay_out_again(struct sp_trainer *t)
{
    int rank = t->world.rank;

    sp_disk_destroy(t->disk);
    sp_offload_destroy(&t->offload);
    if (t->plan.def)
        sp_plan_destroy(&t->plan);
    t->disk = NULL;
    t->offload = (struct sp_offload){0};
    t->plan = (struct sp_plan){0};
    t->rates = (struct sp_tier_rates){0};
    return sp_train_disagree(rank, sp_train_find_machine(t)) ||
                   sp_train_disagree(rank, lay_out(t)) || !same_orders(t)
               ? -EINVAL
               : 0;
}

int sp_train_prepare(const struct sp_train_config *cfg, struct sp_trainer **out)
{
    struct sp_trainer *t = calloc(1, sizeof *t);
    int err = t ? 0 : sp_error(ENOMEM, "no memory for a trainer");
    bool failed, own = !sp_watchdog_runs();
    int rank;

    if (own)
        sp_watchdog_start(cfg->stall_timeout);
    err = err ? err : sp_train_join(NULL, NULL, &t->world);
    if (err) {
        if (own)
            sp_watchdog_stop();
        free(t);
        return err;
    }
    sp_watchdog_begin(SP_PHASE_PREPARE, "preparing");
    t->own_watchdog = own;
    t->cfg = *cfg;
    t->saver.dir = SP_RUN_DIR_NONE;
    t->resumed_dir = t->companions = SP_DIR_CLOSED;
    t->log_file.fd = -1;
    t->saver.saved = t->saver.begun = -1;
    t->eval_loss = NAN;
    rank = t->world.rank;
    sp_error_hold(rank);
    failed = sp_train_disagree(rank, take_settings(t)) ||
             sp_train_disagree(rank, sp_train_agree_settings(t)) ||
             sp_train_disagree(rank, sp_train_choose_layout(t)) ||
             sp_train_disagree(rank, sp_train_find_machine(t)) ||
             sp_train_disagree(rank, take_inputs(t)) ||
             sp_train_disagree(rank, sp_train_agree_inputs(t));
    sp_error_release(false);
    failed = failed || !same_orders(t);
    sp_watchdog_end();
    if (failed) {
        sp_train_release(t);
        return -EINVAL;
    }
    sp_train_tell_choice(t);
    t->done = t->first_step;
    *out = t;
    return 0;
}

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

void sp_train_release(struct sp_trainer *t)
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
    sp_disk_destroy(t->disk);
    sp_offload_destroy(&t->offload);
    if (t->plan.def)
        sp_plan_destroy(&t->plan);
    if (t->params.tensors)
        sp_params_destroy(&t->params);
    free(t->settings);
    sp_train_forget_choice(t);
    sp_train_leave();
    if (t->own_watchdog)
        sp_watchdog_stop();
    free(t);
}
