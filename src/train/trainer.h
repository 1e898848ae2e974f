/* A trainer from the inside: everything that lives as long as it does. Each file's header has
 * its functions. */
#ifndef SP_TRAINER_H
#define SP_TRAINER_H

#include "train/groups.h"
#include "graphs/step.h"
#include "model/files/weights.h"
#include "model/tokenizer/tokenizer.h"
#include "offload/disk.h"
#include "plan/machine/machine.h"
#include "plan/offload/offload.h"
#include "starpipe/trainer.h"
#include "train/checkpoint/run_dir.h"
#include "train/checkpoint/run_state.h"
#include "train/layout_auto.h"
#include "train/run/log_file.h"
#include <limits.h>
#include <stdio.h>

/* The state of saving. */
struct sp_saver {
    struct sp_run_dir dir;  /* rank 0's */
    struct sp_writing *now; /* save_async: what a thread is writing; NULL: nothing */
    long begun;             /* the step of the last save that began, on every rank; -1: none yet */
    long saved;             /* the newest step that is on the disk; -1: none yet */
    bool proven;            /* the loss after it was finite */
    int finite;             /* steps up to the last one with a finite loss */
};

struct sp_auto_look; /* train/run/replan.h */

/* The state of a run that chose its layout. */
struct sp_auto {
    struct sp_layout_args layout; /* as the options were given */
    struct sp_group_args groups;
    double within_s;
    bool measured;             /* this run measured the machine */
    struct sp_machine machine; /* rank 0's, if it was measured */
    struct sp_auto_choice chosen;
    struct sp_auto_texts texts;           /* the configuration points into them */
    double step_ms;                       /* predicted for the run's own devices */
    struct sp_auto_contenders contenders; /* on rank 0: layouts that are tried as well */
    struct sp_auto_look
        *look; /* times of steps, until one layout is settled on; NULL: nothing yet */
    bool settled;
    char carried
        [PATH_MAX]; /* has weights and moments while the layout changes; empty: the graph has */
};

struct sp_trainer {
    struct sp_train_config cfg; /* the plan completes its layout: stages, slices, recompute */
    char *settings;             /* as given: lines of sp_train_settings */
    enum sp_recompute recompute;
    int every;
    enum sp_offload_mode offloads;
    uint64_t seed;
    struct sp_model model;
    struct sp_tokenizer
        *tokenizer;          /* the model's, if text is read or written; NULL: tokens are bytes */
    struct sp_token_ids eos; /* the tokens that end a text */
    struct sp_params params;
    struct sp_data data;
    struct sp_st_file weights; /* the initial ones; no shards: random weights */
    struct sp_plan plan;
    struct sp_shape shape;     /* the sizes of the run */
    struct sp_machine machine; /* its times are predicted with it */
    struct sp_world world;
    struct sp_placement place;
    struct sp_graph graph;
    struct sp_step_report report;
    struct sp_stage_meters *meters; /* [stages] */
    struct sp_update *updates;      /* [micro_batches] if each has its own; NULL: one a step */
    bool has_starpu, has_graph, started, diverged;
    const char *limited[2];      /* variables set until it is stopped: sp_train_limit */
    int64_t gpu_room;            /* bytes of a GPU for the tensors of its stages */
    bool gpu_pools;              /* buffers on GPUs come from our own pools */
    struct sp_dir resumed_dir;   /* the step that cfg.resume found, with its files */
    struct sp_run_state resumed; /* what that step says of its run */
    struct sp_dir companions;    /* files that rank 0 saves with the model, as config.json is */
    int first_step;              /* 0, or the step that a resumed run begins with */
    int done;                    /* steps, including those before first_step */
    bool begun;                  /* the step after them began before the last one ended */
    int rollbacks;               /* by post_validation */
    struct sp_saver saver;
    struct sp_offload offload; /* the planned evictions, and their tier */
    struct sp_disk *disk;
    unsigned tier;
    struct sp_tier_rates rates;
    int64_t resident_before;     /* bytes, before the model was there */
    struct sp_made_dirs made;    /* directories made for outputs */
    struct sp_auto *choice;      /* the layout chosen by --schedule auto; NULL: it was given */
    bool own_watchdog;           /* started for this trainer, not by the program */
    struct sp_log_file log_file; /* until it is opened as `log` */
    FILE *log;
    struct sp_data eval_data;  /* only as much as an evaluation takes */
    int eval_steps;            /* steps of an evaluation, the last usually a shorter one */
    double eval_loss, eval_ms; /* the last one; NaN: none yet */
};

static inline bool sp_train_offloads(const struct sp_trainer *t)
{
    return t->offloads != SP_OFFLOAD_NONE;
}

/* Activations, or the optimizer's state, are evicted to a slower tier. */
static inline bool sp_train_evicts(const struct sp_trainer *t)
{
    return sp_train_offloads(t) || t->cfg.layout.offload_optimizer;
}

/* Bytes of a token; 0: as the file says. */
static inline int sp_train_token_bytes(const struct sp_train_config *cfg)
{
    int given = cfg->token_width == SP_TRAIN_UINT32 ? 4 : 2;

    return !cfg->tokens ? 1 : cfg->token_width_set ? given : 0;
}

/* Pipelines that share a step: each has its own samples, or its own tokens of the same samples. */
static inline int sp_train_pipelines(const struct sp_trainer *t)
{
    return sp_groups_pipelines(&t->cfg.groups);
}

/* Processes of one pipeline. */
static inline int sp_train_pipeline_size(const struct sp_trainer *t)
{
    return t->world.size / sp_train_pipelines(t);
}

/* Samples of a step: sequences of all pipelines. */
static inline int64_t sp_train_step_samples(const struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->cfg.layout;

    return (int64_t)t->cfg.groups.data_parallel * l->micro_batches * l->micro_batch_size;
}

/* Tokens of a step. */
static inline int64_t sp_train_step_tokens(const struct sp_trainer *t)
{
    return sp_train_step_samples(t) * t->cfg.layout.seq;
}

/* Samples that the run has taken after `steps` steps, including those of the runs that it
 * continues, whatever the sizes of their steps were. */
static inline uint64_t sp_train_samples(const struct sp_trainer *t, int steps)
{
    return t->data.origin + (uint64_t)steps * (uint64_t)sp_train_step_samples(t);
}

/* Passes a line to cfg.say, on rank 0. */
void sp_train_say(const struct sp_trainer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets a StarPU memory limit in the environment, unless the user has: `which` 0 for the device,
 * 1 for the host. */
void sp_train_limit(struct sp_trainer *t, int which, const char *name, int64_t bytes);

/* Checks that a public function may do its work now, or with `between` only between steps: 0, or
 * -EINVAL or -EBUSY after one line. */
int sp_train_refuse_call(const struct sp_trainer *t, const char *what, bool between);

/* The return value of a public function after one process met an error while the others wait for
 * it. */
int sp_train_fail(const struct sp_trainer *t, int err);

#endif
