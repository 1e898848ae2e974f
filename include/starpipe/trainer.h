/*
 * The trainer, for programs that train with a loop of their own:
 *
 *   struct sp_train_config cfg;
 *   struct sp_trainer *t;
 *   struct sp_meters m;
 *
 *   sp_train_config_init(&cfg);
 *   cfg.layout.model = "gpt-tiny";
 *   cfg.layout.stages = 2;
 *   cfg.data = "book.txt";
 *   if (sp_trainer_open(&cfg, &t))
 *       return 2;
 *   for (int k = 0; k < cfg.steps; k++)
 *       if (sp_trainer_step(t, true, &m))
 *           break;
 *   sp_trainer_close(t);
 *
 * Under mpirun or srun every process does the same: opens with the same settings, and makes the same
 * calls in the same order. A function that fails has printed one line on stderr. What one process alone
 * cannot survive, once work has begun (a full disk, a peer that is gone), ends all processes of a run
 * under MPI with status 1; in a run of one process it is returned. One trainer may be open at a time, and
 * all calls come from one thread.
 */
#ifndef STARPIPE_TRAINER_H
#define STARPIPE_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* Numbers of what can be chosen. */
enum { SP_TRAIN_UINT16, SP_TRAIN_UINT32 };                                  /* token_width */
enum { SP_TRAIN_KEYS_AUTO, SP_TRAIN_KEYS_STAY, SP_TRAIN_KEYS_LEAVE };       /* offload_keys */
enum { SP_TRAIN_SEQUENTIAL, SP_TRAIN_SHUFFLED };                            /* order */
enum { SP_TRAIN_ULYSSES, SP_TRAIN_RING };                                   /* context_method */
enum { SP_TRAIN_SEQUENCE_ON, SP_TRAIN_SEQUENCE_OFF };                       /* sequence_parallel */
enum { SP_TRAIN_F32, SP_TRAIN_BF16 };                                       /* dtype */
enum { SP_TRAIN_DEVICE_AUTO, SP_TRAIN_CPU, SP_TRAIN_CUDA };                 /* device */
enum { SP_TRAIN_TRANSPORT_AUTO, SP_TRAIN_MPI, SP_TRAIN_NCCL };              /* transport */
enum { SP_TRAIN_STRICT, SP_TRAIN_READY };                                   /* scheduler */
enum { SP_TRAIN_CONSTANT, SP_TRAIN_COSINE, SP_TRAIN_LINEAR, SP_TRAIN_WSD }; /* lr_shape */
enum { SP_TRAIN_TEXT, SP_TRAIN_JSON };                                      /* format */
enum { SP_TRAIN_PROGRESS_AUTO, SP_TRAIN_PROGRESS_LINE, SP_TRAIN_PROGRESS_PLAIN }; /* progress */

enum { SP_TRAIN_EOS = -1 }; /* separator */

/*
 * With schedule "auto": what is not chosen though it has the value that it has by default. What has another value is not
 * chosen either.
 */
struct sp_layout_kept {
    bool micro_batch_size, slices, offload;
    bool data_parallel, context_parallel, tensor_parallel, zero;
};

/* How the model and a step are laid out; the options that the commands of starpipe have in common. */
struct sp_layout_args {
    const char *schedule; /* "NAME[:key=value,...]", "csv:FILE", or "auto": the fastest predicted */
    int stages;           /* p */
    int micro_batches;    /* m, of a step */
    int micro_batch_size; /* b, sequences */
    int seq;              /* s, tokens of a sequence */
    int chunks;           /* v, of a stage; 0: what the schedule wants */
    int slices;           /* n, of a sequence; 0: chosen */
    const char *model; /* preset, or directory with config.json and weights in Hugging Face form */
    const char *recompute; /* "none|full|selective|no-attention|every=K"; NULL: the schedule's */
    const char *offload;   /* "none|full|adaptive" */
    int offload_keys;   /* SP_TRAIN_KEYS_AUTO, ...: whether keys and values of slices leave too */
    const char *plugin; /* files of schedules, separated by ','; NULL: none */
    const char *partition_slices; /* "length|flops|dp" or a list of tokens; NULL: the schedule's */
    bool vocabulary_parallel;     /* embedding and head are cut over all stages */
    uint64_t memory_limit;        /* bytes of a stage; 0: none */
    /* With csv:FILE: false, and the file says how many. With auto, stages are chosen unless they are set, and
     * micro-batches as the sequences of a step are cut: there are as many as all options come to. */
    bool stages_set, micro_batches_set;
    struct sp_layout_kept kept;
};

/* How many processes each stage has. */
struct sp_group_args {
    int data_parallel;    /* pipelines that share a step, each with micro-batches of its own */
    int context_parallel; /* processes that share the tokens of each sequence */
    int context_method;   /* SP_TRAIN_ULYSSES, SP_TRAIN_RING */
    int tensor_parallel;  /* processes that share heads, MLP and vocabulary */
    int sequence_parallel; /* SP_TRAIN_SEQUENCE_ON: and the tokens of all else; SP_TRAIN_SEQUENCE_OFF */
    int zero;              /* 1: all of these share out the optimizer's state and the update */
};

/*
 * The settings of a run. They are those of `starpipe train`: `starpipe train --help` says what each
 * does, under its name with dashes. Strings are not copied, and must live as long as the trainer; NULL
 * where an option would not be given.
 */
struct sp_train_config {
    struct sp_layout_args layout;

    struct sp_group_args groups;
    const char *
        data; /* file of text, or several: "a,b", "part_*"; its tokens are those of the tokenizer.json
                       * of layout.model, bytes where it has none; or */
    const char *tokens; /* files of little-endian tokens */
    int token_width;    /* of `tokens`, if there is no header to tell it */
    bool token_width_set;
    /* Token that ends a document: attention stops there, positions begin anew. SP_TRAIN_EOS: the model's. */
    int separator;
    bool separator_set;
    int order;
    int steps; /* of the whole run: what the learning rate falls over */
    double lr, lr_min;
    int lr_shape, decay, warmup;
    double weight_decay, beta1, beta2, eps;
    double clip; /* most norm of a gradient; 0: any */
    int seed;
    bool seed_set; /* false: a run that is resumed keeps its own */
    int dtype, device, transport, scheduler;
    const char *partition;     /* "even|balanced" or layers of each stage and chunk, "3,2,2,1" */
    int threads;               /* of a CPU stage; 0: the cores, shared evenly */
    int window;                /* unfinished ops of a stage; 0: 6 */
    int mlp_chunk, logit_rows; /* rows at a time; 0: all; 128 MiB of them, on a GPU 4096 */
    const char *offload_dir;
    const char *log;  /* file that gets a JSON line a step, -: standard output; NULL: no log */
    const char *save; /* directory that sp_trainer_save writes to */
    int keep;         /* checkpoints, the newest; 0: all */
    bool overwrite, save_async;
    uint64_t shard_size; /* bytes of a file of weights; 0: any */
    bool shard_size_set;
    const char *eval;       /* file that sp_trainer_evaluate takes its tokens from */
    int eval_tokens;        /* 0: all that the file has */
    const char *resume;     /* directory of a checkpoint to go on from; the model is its own then */
    const char *dump_grads; /* file for the gradients of the first step */
    /* Seconds without progress inside a call that end the process; 0: never. A watchdog thread runs while a trainer is
     * open, whatever it is. */
    double stall_timeout;
    bool post_validation;
    double auto_within; /* seconds that schedule "auto" may take to measure and to choose */
    bool auto_within_set;
    const char
        *hardware; /* a machine by name or file, for what is predicted; NULL: the one at hand */
    bool dry_run;  /* open checks everything, and starts nothing: there are no steps */
    /* Neither data nor gradients nor moments: all that can be done is to sample, in one process, from the weights of a
     * directory, `sample` tokens to follow `prompt`, or as many altogether. */
    bool inference;

    /* What the command does with a trainer, and other programs by themselves: checked, not used. */
    int save_every, eval_every, progress, sample;
    const char *trace, *prompt;
    int format;         /* SP_TRAIN_TEXT, SP_TRAIN_JSON: what dry_run prints */
    const char *output; /* file for that; NULL: standard output */
    bool report;        /* prints the tables of a recorded step at the end */

    /* What the trainer does besides if it is asked to; all get `arg`. NULL: it does not. */
    void *arg;
    void (*say)(void *arg, const char *line); /* what it chose, a line at a time, on rank 0 */
    int (*asks)(void *arg); /* at the end of each step: bits that this process asks all of them */
};

/* Sets the defaults of the command. 0; or -EINVAL: SP_DEVICE in the environment names no device. */
int sp_train_config_init(struct sp_train_config *cfg);

/* What a stage did in a step; times in milliseconds. */
struct sp_stage_meters {
    double busy_ms, idle_ms; /* at work, and not, from the first op of all stages to their last */
    double comm_wait_ms;     /* of idle_ms: for a message that was on its way */
    double bubble;           /* idle / (busy + idle) */
    double peak_bytes;       /* of activations kept for a backward, the most at once */
    double bytes_sent;       /* to other processes */
};

/* What a step did. */
struct sp_meters {
    int step;         /* its number: 1 is the first; a run that is resumed counts on */
    double loss;      /* mean cross-entropy of its tokens, nats; as grad_norm, on every rank */
    double grad_norm; /* before clipping */
    double lr;
    int64_t tokens; /* of all its micro-batches */
    double step_ms; /* of the clock */
    double bubble;  /* mean of the stages; rank 0's */
    int asked;      /* the bits that any process asked for, on every rank */
    int stages;
    const struct sp_stage_meters *stage; /* [stages], until the next call; on rank 0 of all stages,
                                          * elsewhere of those of its own process */
};

struct sp_trainer;

/*
 * Checks all that can be checked, on all processes, then starts StarPU and lays out the model. Joins the
 * MPI that the program has initialised (with MPI_THREAD_SERIALIZED at least), or initialises it when a
 * launcher started the process; the trainer that did finalises it when it is closed. 0; -EINVAL on all
 * processes, or another -errno, if something is refused or amiss, with no trainer left behind.
 */
int sp_trainer_open(const struct sp_train_config *cfg, struct sp_trainer **t);

/* Steps done, those counted that `resume` goes on from; and the number of this process, 0 being the one
 * that prints. */
int sp_trainer_done(const struct sp_trainer *t);
int sp_trainer_rank(const struct sp_trainer *t);

/*
 * One step: forwards and backwards of all micro-batches, clipping, AdamW. `m` may be NULL. `more`:
 * nothing but another step follows, which with post_validation begins at once; elsewhere it makes no
 * difference. 0; -EDOM on all processes if the loss or the norm is not finite: the run has diverged, and
 * the trainer can only be closed; -errno of a log or a checkpoint that cannot be written.
 */
int sp_trainer_step(struct sp_trainer *t, bool more, struct sp_meters *m);

/*
 * These want the step before them made with `more` false if the run has post_validation: -EBUSY.
 */

/* The mean loss on `eval`, in nats, on every rank; nothing of the model changes. 0, -EINVAL without
 * `eval`, -EDOM if it is not finite. */
int sp_trainer_evaluate(struct sp_trainer *t, double *loss);

/* Writes a checkpoint of the steps done to `save`/step-N, unless that was done. 0, -EINVAL without
 * `save`, or -errno; with save_async of an earlier one. */
int sp_trainer_save(struct sp_trainer *t);

/* How text is drawn: from softmax(logits / temperature). */
struct sp_sampling {
    int tokens;          /* most that follow the prompt */
    double temperature;  /* 0: always the likeliest token */
    int top_k;           /* over so many likeliest tokens; 0: over all */
    double top_p;        /* over the fewest that have this share of the whole; 1: over all */
    int seed;            /* the same draws the same */
    bool special_tokens; /* "<|endoftext|>" in the prompt is that token, and not text */
};

#define SP_SAMPLING_DEFAULT ((struct sp_sampling){.tokens = 256, .temperature = 0.8, .top_p = 1})

/*
 * Draws text to follow `prompt`, of which the last `seq` tokens count ("": bos, or a line's end where the model has
 * none), until the model's eos or how->tokens. The tokens are those of the model's tokenizer, or bytes. On rank 0
 * `text` gets what each adds, bytes that need be no whole character, and ends it with a result other than 0. 0, -EINVAL
 * for what cannot be drawn, or -ENOMEM.
 */
int sp_trainer_sample(struct sp_trainer *t, const char *prompt, const struct sp_sampling *how,
                      int (*text)(void *arg, const char *text, size_t n), void *arg);

/* Waits for what save_async is writing, stops StarPU and frees everything. NULL is none. 0, or -errno of
 * that last checkpoint. Another trainer may be opened then; under MPI only in a program that
 * initialised MPI itself. */
int sp_trainer_close(struct sp_trainer *t);

#pragma GCC visibility pop

#endif
