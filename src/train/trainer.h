/* A trainer from the inside: what lives as long as it does. The functions are in the headers of files. */
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

/* What was saved so far. */
struct sp_saver {
    struct sp_run_dir dir;  /* rank 0's */
    struct sp_writing *now; /* save_async: what a thread is writing; NULL: nothing */
    long begun;             /* the step that was to be saved last, on every rank; -1: none yet */
    long saved;             /* the newest that is on the disk; -1: none yet */
    bool proven;            /* the loss after it was finite */
    int finite;             /* steps so far, the last of them with a finite loss */
};

struct sp_auto_look; /* train/run/replan.h */

/* What a run that chose its layout remembers of that. */
struct sp_auto {
    struct sp_layout_args layout; /* as they were given */
    struct sp_group_args groups;
    double within_s;
    bool measured;             /* the machine, by this run */
    struct sp_machine machine; /* of rank 0, where it was measured */
    struct sp_auto_choice chosen;
    struct sp_auto_texts texts;           /* that the configuration points into */
    double step_ms;                       /* predicted, of the run's own devices */
    struct sp_auto_contenders contenders; /* on rank 0: layouts that are tried beside it */
    struct sp_auto_look
        *look; /* what steps take, until one layout is settled on; NULL: nothing yet */
    bool settled;
    char carried
        [PATH_MAX]; /* where weights and moments are while the layout changes; empty: in the graph */
};

struct sp_trainer {
    struct sp_train_config cfg; /* the plan completes its layout: stages, slices, recompute */
    char *settings;             /* as they were given: sp_train_settings */
    enum sp_recompute recompute;
    int every;
    enum sp_offload_mode offloads;
    uint64_t seed;
    struct sp_model model;
    struct sp_tokenizer
        *tokenizer; /* of the model, where text is read or written; NULL: tokens are bytes */
    struct sp_token_ids eos; /* those that end a text */
    struct sp_params params;
    struct sp_data data;
    struct sp_st_file weights; /* to begin with; no shards: random ones */
    struct sp_plan plan;
    struct sp_shape shape;     /* the sizes of the run */
    struct sp_machine machine; /* what times are predicted with */
    struct sp_world world;
    struct sp_placement place;
    struct sp_graph graph;
    struct sp_step_report report;
    struct sp_stage_meters *meters; /* [stages] */
    struct sp_update *updates;      /* [micro_batches] where each has one; NULL: a step has */
    bool has_starpu, has_graph, started, diverged;
    const char *limited[2];      /* in the environment, until it is stopped: sp_train_limit */
    int64_t gpu_room;            /* bytes of a GPU for the tensors of its stages */
    bool gpu_pools;              /* buffers on GPUs come from pools of ours */
    struct sp_dir resumed_dir;   /* the step that cfg.resume found, with its files */
    struct sp_run_state resumed; /* what that step says of its run */
    struct sp_dir companions;    /* goes with the model where rank 0 saves, with config.json */
    int first_step;              /* 0, or where that step goes on */
    int done;                    /* steps, those before first_step counted */
    bool begun;                  /* the one after them, ahead of the end of the last */
    int rollbacks;               /* of post_validation */
    struct sp_saver saver;
    struct sp_offload offload; /* what leaves memory, and where it goes */
    struct sp_disk *disk;
    unsigned tier;
    struct sp_tier_rates rates;
    int64_t resident_before;     /* bytes, before the model was there */
    struct sp_made_dirs made;    /* for what it writes */
    struct sp_auto *choice;      /* of the layout; NULL: it was given */
    bool own_watchdog;           /* started for this trainer, not by the program */
    struct sp_log_file log_file; /* until it is opened */
    FILE *log;
    struct sp_data eval_data;  /* no more than an evaluation takes */
    int eval_steps;            /* that it takes, the last as a rule a part of one */
    double eval_loss, eval_ms; /* the last one; NaN: none yet */
};

static inline bool sp_train_offloads(const struct sp_trainer *t)
{
    return t->offloads != SP_OFFLOAD_NONE;
}

/* Bytes of a token; 0: what the file says. */
static inline int sp_train_token_bytes(const struct sp_train_config *cfg)
{
    int given = cfg->token_width == SP_TRAIN_UINT32 ? 4 : 2;

    return !cfg->tokens ? 1 : cfg->token_width_set ? given : 0;
}

/* Pipelines that share a step: with samples of their own, or tokens of the same. */
static inline int sp_train_pipelines(const struct sp_trainer *t)
{
    return sp_groups_pipelines(&t->cfg.groups);
}

/* Processes of one of them. */
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

/* Samples that the run has taken after so many steps, those of the runs that it goes on from counted, whatever
 * the sizes of their steps. */
static inline uint64_t sp_train_samples(const struct sp_trainer *t, int steps)
{
    return t->data.origin + (uint64_t)steps * (uint64_t)sp_train_step_samples(t);
}

/* Tells cfg.say a line, on rank 0. */
void sp_train_say(const struct sp_trainer *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Tells StarPU in the environment, where the user does not: a memory of the device, or (1) of the host. */
void sp_train_limit(struct sp_trainer *t, int which, const char *name, int64_t bytes);

/* Whether a public function may do its work now, `between` steps only: 0, -EINVAL or -EBUSY after one
 * line. */
int sp_train_refuse_call(const struct sp_trainer *t, const char *what, bool between);

/* What the public function returns where one process met an error and the others wait for it. */
int sp_train_fail(const struct sp_trainer *t, int err);

#endif
