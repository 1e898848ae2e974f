/* The parts of `starpipe train`: its options, the run, the log, the checkpoints, the pictures. */
#ifndef SP_TRAIN_H
#define SP_TRAIN_H

#include "cli/options.h"
#include "cli/train/typical_step.h"
#include "graphs/checkpoint.h"
#include "graphs/step.h"
#include "offload/disk.h"
#include "plan/offload.h"
#include "train/run/lr_schedule.h"
#include "train/checkpoint/run_dir.h"
#include <stdio.h>

/* The command line. */
struct sp_train_args {
    struct sp_layout_args layout;
    const char *data, *tokens;
    int order, dtype, device, transport, scheduler; /* of their choices; dtype: enum sp_dtype */
    int token_bytes; /* of --tokens; 0: those of the file's header, or 2 */
    int steps, warmup, threads, window, mlp_chunk, logit_rows, sample;
    double lr, weight_decay, beta1, beta2, eps, clip, stall_timeout;
    struct sp_lr_schedule lr_schedule; /* complete once the options were checked */
    int lr_shape;
    uint64_t seed;
    int seed_arg;
    bool seed_given;
    const char *offload_dir;
    const char *log, *save, *resume, *dump_grads, *trace, *prompt, *partition;
    int save_every, keep;
    uint64_t shard_size; /* bytes of a file of weights, 0: any */
    bool shard_size_set;
    bool dry_run, post_validation, overwrite, save_async;
    char *settings; /* of all options: sp_settings_add; lives as long as the process */
    int progress;   /* enum sp_progress */
    const char *eval;
    int eval_every, eval_tokens;

    /* derived */
    enum sp_recompute recompute;
    int every;
    enum sp_offload_mode offload;
};

/* Parses and checks what needs no file. 0, 1 (help printed) or -EINVAL. */
int sp_train_parse(int argc, char **argv, struct sp_train_args *a);

/* What the options make of a step, counted from 0, whose gradient has this norm. */
struct sp_update sp_train_update(const struct sp_train_args *a, int step, double grad_norm);

/* What --save has done so far. */
struct sp_saver {
    struct sp_run_dir dir;  /* rank 0's */
    struct sp_writing *now; /* --save-async: what a thread is writing; NULL: nothing */
    long begun;             /* the step that was to be saved last, on every rank; -1: none yet */
    long saved;             /* the newest that is on the disk; -1: none yet */
    bool proven;            /* the loss after it was finite */
    int finite;             /* steps so far, the last of them with a finite loss */
};

struct sp_watchdog; /* train/watchdog.h */

/* A run: everything that lives from start to end. */
struct sp_trainer {
    struct sp_train_args args;
    struct sp_model model;
    struct sp_params params;
    struct sp_data data;
    struct sp_plan plan;
    struct sp_world world;
    struct sp_placement place;
    struct sp_graph graph;
    struct sp_step_report report;
    bool runs_ahead;  /* tasks on a GPU may end for StarPU once they are queued */
    int64_t gpu_room; /* bytes of a GPU for the tensors of its stages */
    int first_step;   /* 0, or where --resume goes on */
    int rollbacks;    /* of --post-validation */
    int asked;        /* by signals, of any process: bits of train/interrupt.h */
    struct sp_saver saver;
    struct sp_offload offload; /* of --offload, and where activations go */
    struct sp_disk *disk;
    unsigned tier;
    struct sp_tier_rates rates;
    int64_t resident_before;      /* bytes, before the model was there */
    struct sp_watchdog *watchdog; /* NULL: none */
    FILE *log;
    double started_us;
    struct sp_typical typical;                   /* of the steps so far; on rank 0 */
    struct sp_step_report kept[SP_TYPICAL_KEPT]; /* of those that it keeps */
    struct sp_data eval_data;
    int eval_steps;   /* that an evaluation takes */
    double eval_loss; /* the last one; NaN: none yet */
};

/* Searches the order again for as many micro-batches as --memory-limit leaves room for, where it
 * needs more and is one that can be searched. 0 or -errno. */
int sp_train_fit(struct sp_trainer *t, struct sp_layout *layout);

/* ---- devices -------------------------------------------------------------------------- */

struct sp_cluster;

/* Before stages are placed: whether they will be on GPUs, and what one has for a stage. */
bool sp_train_expect_gpus(const struct sp_trainer *t, struct sp_cluster *gpus);
/* --device: the placement on GPUs, where they are wanted and there. 0, or -errno after one line. */
int sp_train_choose_device(struct sp_trainer *t);
/* Whether the stages of this process fit the memory that its GPUs have free. 0 or -errno. */
int sp_train_check_gpus(const struct sp_trainer *t, const struct sp_shape *shape);
/* Before StarPU starts: its ways with GPUs. */
void sp_train_prepare_gpus(struct sp_trainer *t);
/* What this process plans to take on its GPUs: sp_train_planned_bytes, and the kernels' workspaces. */
int64_t sp_train_gpu_bytes(const struct sp_trainer *t);
/* After it started: the kernels, and --transport. 0 or -errno after one line. */
int sp_train_start_gpus(const struct sp_trainer *t);

/* ---- offload -------------------------------------------------------------------------- */

bool sp_train_offloads(const struct sp_trainer *t);
/* Before the start: what leaves, whether it fits, and room on disk. 0 or -errno. */
int sp_train_offload_early(struct sp_trainer *t);
/* After StarPU started, before the graph: the tier, and what leaves at its rates. All ranks call it. 0
 * or -errno. */
int sp_train_offload_measured(struct sp_trainer *t);
/* The plan, and what the last step did of it. */
void sp_train_print_offload(const struct sp_trainer *t);
void sp_train_offload_summary(const struct sp_trainer *t);
/* What a stage holds: by that plan, or as if nothing left. */
struct sp_memory sp_train_memory(const struct sp_trainer *t, const struct sp_shape *shape,
                                 int stage);
/* Planned for this process, bytes. */
int64_t sp_train_planned_bytes(const struct sp_trainer *t);

/* ---- partition ------------------------------------------------------------------------ */

/*
 * --partition, after the plan was made: a list of layers, or the one that estimated times balance,
 * so that the checks of memory before the start have something to go by. 0 or -errno.
 */
int sp_train_partition_early(struct sp_trainer *t);
/*
 * --partition balanced, after StarPU started and before the graph: measures a layer on rank 0 and
 * applies the partition that the times balance, the same on every rank; says it in one line. All
 * ranks call it. 0 or -errno.
 */
int sp_train_partition_measured(struct sp_trainer *t);

/* The same for schedule adapipe, which chooses recomputation too; called by the two above. */
bool sp_train_is_adapipe(const struct sp_trainer *t);
int sp_train_adapipe_early(struct sp_trainer *t);
int sp_train_adapipe_measured(struct sp_trainer *t);

/* The sizes of the run; whether measuring fits this machine; measured times, on rank 0. */
struct sp_layer_costs;
void sp_train_shape(const struct sp_trainer *t, struct sp_shape *shape);
int sp_train_check_profile(const struct sp_trainer *t);
int sp_train_measure(struct sp_trainer *t, struct sp_layer_costs *costs);

/* All steps and what follows them. 0 or -errno: -EDOM when the run diverged. */
int sp_train_loop(struct sp_trainer *t);

/* ---- searched orders ------------------------------------------------------------------ */

/* Whether the order is searched again, at the costs measured, when a step has ended. */
bool sp_train_reorders_after(const struct sp_trainer *t, int step);
/* Rank 0 searches, all take the order over. 0 or -errno. */
int sp_train_reorder(struct sp_trainer *t, int step);

/* ---- log ------------------------------------------------------------------------------ */

/* The first line of the log: plan and versions. 0 or -errno. */
int sp_train_log_plan(struct sp_trainer *t);
/* A step's line in the log, and the progress on the terminal. */
int sp_train_log_step(struct sp_trainer *t, int step, double lr);
/* The line of an evaluation after a step; no "step" in it, which would make it one. */
int sp_train_log_eval(struct sp_trainer *t, int step, double ms);
/* Of t->report: idle / (idle + busy), the mean of the stages. */
double sp_train_bubble(const struct sp_trainer *t);

/* From t->report, that of a typical step: bubble measured beside bubble expected and what makes the
 * difference, memory. */
void sp_train_summary(struct sp_trainer *t);

/* Remembers the report of a step, if it may prove to be that of a typical one. 0 or -ENOMEM. */
int sp_train_note_step(struct sp_trainer *t, int step);
/* Begins anew: steps are different from here on. */
void sp_train_forget_steps(struct sp_trainer *t);
/* After the last step: t->report is that of the typical one. */
void sp_train_take_typical(struct sp_trainer *t);

/* ---- evaluation ----------------------------------------------------------------------- */

/* Before the start, after the plan was made: opens --eval. 0 or -errno. */
int sp_train_open_eval(struct sp_trainer *t);
/* Tokens that an evaluation takes. */
int64_t sp_train_eval_tokens(const struct sp_trainer *t);
bool sp_train_evaluates_after(const struct sp_trainer *t, int step);
/* 0 or -errno, -EDOM where the loss is not finite. All ranks call it. */
int sp_train_evaluate(struct sp_trainer *t, int step);

/* --dry-run: what would run, in words. 0 or -errno. */
int sp_train_dry_run(struct sp_trainer *t);

/* ---- weights -------------------------------------------------------------------------- */

/*
 * Opens and checks the weights of --model or of the step to resume. Presets and directories with a
 * configuration only have none: *weights stays zero. A step must have them. 0 or -errno.
 */
int sp_train_open_weights(const struct sp_trainer *t, const char *model,
                          struct sp_st_file *weights);
/* Says on stdout what they are: nobody should train from random ones without knowing it. */
void sp_train_announce_weights(const struct sp_trainer *t, const struct sp_st_file *weights);
/* Whether --shard-size makes no more files than a reader takes. 0 or -errno. */
int sp_train_check_shards(const struct sp_trainer *t);

/* ---- checkpoints ---------------------------------------------------------------------- */

/* Before work starts: can the outputs be written? 0 or -errno. */
int sp_train_check_output(const struct sp_trainer *t);
/* Before anything is read: nobody else writes --save DIR from here on. 0 or -errno. */
int sp_train_lock(struct sp_trainer *t);
/* When all else was checked: --save DIR is this run's from here on, see train/run_dir.h; `resumed`: the step that
 * --resume goes on from. 0 or -errno. */
int sp_train_claim(struct sp_trainer *t, const char *resumed);

/*
 * DIR/step-N/: config.json, model.safetensors or, above --shard-size, shards, the optimizer's moments, state.json, checksums.json.
 * All ranks call it, after the update of step N-1. 0 or -errno on rank 0. Killed at any moment, it
 * leaves a whole checkpoint that --resume finds. Older steps stay until sp_train_proven.
 */
int sp_train_save(struct sp_trainer *t, int steps_done);
/* Step `step` had a finite loss: what was saved before it proves good, and older checkpoints may go.
 * 0, or -errno of a save that a thread made. */
int sp_train_proven(struct sp_trainer *t, int step);
/* After the last save: all is on the disk, older checkpoints are gone. All ranks call it. 0 or -errno. */
int sp_train_saved_all(struct sp_trainer *t);
/* It had not: the last save goes aside, if there is an older one. */
void sp_train_step_back(struct sp_trainer *t);
/* --dump-grads. All ranks call it. 0 or -errno on rank 0. */
int sp_train_dump_grads(struct sp_trainer *t);

/* Finds the newest step of --resume, its path in dir: sets first_step, and args.seed where none was
 * given. 0 or -errno. */
int sp_train_find_resume(struct sp_trainer *t, char dir[SP_RUN_PATH]);
/* Is that step undamaged, and of this model? All ranks call it, each checks a share. Needs t->params.
 * 0 or -errno. */
int sp_train_check_resume(struct sp_trainer *t, const char *dir);
/* Reads its moments. 0 or -errno. */
int sp_train_load_resume(struct sp_trainer *t, const char *dir);
/* Says in one line what this run was told otherwise than the one that saved it. */
void sp_train_warn_of_changes(const struct sp_trainer *t, const char *dir);

/* ---- processes that disagree ---------------------------------------------------------- */

/* Whether all ranks were given the same options; and read the same model, data and weights. All call
 * them. 0, or -EINVAL on ranks that differ from rank 0. */
int sp_train_agree_settings(const struct sp_trainer *t);
int sp_train_agree_inputs(const struct sp_trainer *t, const struct sp_st_file *weights);

/* Before work starts, on rank 0: does an output destroy an input or another output, or a file that is no
 * log? `resume`: the directory of the step that --resume found. 0 or -errno. */
int sp_train_check_files(const struct sp_trainer *t, const char *resume);

/* ---- pictures ------------------------------------------------------------------------- */

/* DIR/measured.svg from t->report, DIR/expected.svg as the schedule would have it, and both in
 * DIR/trace.html. */
int sp_train_trace(struct sp_trainer *t);
/* Their names, up to a NULL. */
extern const char *const sp_train_pictures[];
/* Before work starts: makes DIR; can they be written there? 0 or -errno. */
int sp_train_try_pictures(const char *dir);
/* The ops of t->report as they ran. 0 or -ENOMEM. */
struct sp_gantt;
int sp_train_gantt(const struct sp_trainer *t, struct sp_gantt *g);

/* Text of `n` bytes generated after `prompt` by rank 0's copy of the weights. */
int sp_train_sample(struct sp_trainer *t, const char *prompt, int n);

#endif
