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
 * Under mpirun or srun every process does the same: it opens with the same settings, and makes the
 * same calls in the same order. A function that fails has printed one line on stderr. Once work has
 * begun, an error that one process alone cannot survive (a full disk, a lost peer) ends all
 * processes of a run under MPI with status 1; a run of one process returns it. One trainer may be
 * open at a time, and all calls come from one thread.
 */
#ifndef STARPIPE_TRAINER_H
#define STARPIPE_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* Values of the settings that follow. */
enum { SP_TRAIN_UINT16, SP_TRAIN_UINT32 };                               /* token_width */
enum { SP_TRAIN_KEYS_AUTO, SP_TRAIN_KEYS_STAY, SP_TRAIN_KEYS_LEAVE };    /* offload_keys */
enum { SP_TRAIN_UPDATE_AUTO, SP_TRAIN_UPDATE_GPU, SP_TRAIN_UPDATE_CPU }; /* optimizer_device */
enum { SP_TRAIN_SEQUENTIAL, SP_TRAIN_SHUFFLED };                         /* order */
enum { SP_TRAIN_SEQUENCE_ON, SP_TRAIN_SEQUENCE_OFF };                    /* sequence_parallel */
enum { SP_TRAIN_F32, SP_TRAIN_BF16, SP_TRAIN_FP8 };                      /* dtype */
enum { SP_TRAIN_DEVICE_AUTO, SP_TRAIN_CPU, SP_TRAIN_CUDA };              /* device */
enum { SP_TRAIN_TRANSPORT_AUTO, SP_TRAIN_MPI, SP_TRAIN_NCCL, SP_TRAIN_STARPU };   /* transport */
enum { SP_TRAIN_CONSTANT, SP_TRAIN_COSINE, SP_TRAIN_LINEAR, SP_TRAIN_WSD };       /* lr_shape */
enum { SP_TRAIN_TEXT, SP_TRAIN_JSON };                                            /* format */
enum { SP_TRAIN_PROGRESS_AUTO, SP_TRAIN_PROGRESS_LINE, SP_TRAIN_PROGRESS_PLAIN }; /* progress */

enum { SP_TRAIN_EOS = -1 }; /* separator */

/*
 * With schedule "auto": settings to keep although they have their default values. A setting with
 * another value is kept anyway.
 */
struct sp_layout_kept {
    bool micro_batch_size, slices, offload;
    bool data_parallel, context_parallel, tensor_parallel, zero;
};

/* How the model and a step are laid out: the options that the commands of starpipe share. */
struct sp_layout_args {
    const char *schedule; /* "NAME[:key=value,...]", "csv:FILE", or "auto": the fastest predicted */
    int stages;           /* p */
    int micro_batches;    /* m, of a step */
    int micro_batch_size; /* b, sequences */
    int seq;              /* s, tokens of a sequence */
    int chunks;           /* v, of a stage; 0: the schedule's default */
    int slices;           /* n, of a sequence; 0: chosen */
    const char *model; /* preset, or directory with config.json and weights in Hugging Face form */
    const char
        *recompute;      /* "none|full|selective|no-attention|LIST|every=K"; NULL: the schedule's */
    const char *offload; /* "none|full|adaptive" */
    int offload_keys;    /* SP_TRAIN_KEYS_AUTO, ...: are keys and values of slices evicted too? */
    bool offload_optimizer; /* is its state evicted too? */
    int optimizer_device;   /* SP_TRAIN_UPDATE_AUTO, ...: where evicted state of GPUs is updated */
    bool offload_peers;     /* do full stages keep activations on emptier ones? */
    const char *plugin;     /* files of schedules, separated by ','; NULL: none */
    const char *partition_slices; /* "length|flops|dp" or a list of tokens; NULL: the schedule's */
    bool vocabulary_parallel;     /* embedding and head are cut over all stages */
    uint64_t memory_limit;        /* bytes of a stage; 0: none */
    /* With csv:FILE: false, and the file gives the numbers. With auto: false lets it choose the
     * stages, and cut the sequences of a step into other micro-batches; all options together give
     * the number of sequences. */
    bool stages_set, micro_batches_set;
    struct sp_layout_kept kept;
};

/* How many processes each stage has. */
struct sp_group_args {
    int data_parallel;          /* replicas that share a step, each with micro-batches of its own */
    int context_parallel;       /* processes that share the tokens of each sequence */
    const char *context_method; /* "ulysses|ring|ulysses,ring|ulysses=U,ring" */
    int tensor_parallel;        /* processes that share heads, MLP and vocabulary */
    int sequence_parallel; /* SP_TRAIN_SEQUENCE_ON: they also share the tokens of all other work */
    int zero; /* all processes of a stage split 1: the optimizer's state and the update; 2: also the
               * gradients of layers; 3: also their weights */
};

/*
 * The settings of a run, which are those of `starpipe train`. `starpipe train --help` describes
 * each under its name with dashes. Strings are not copied, and must live as long as the trainer.
 * NULL: the option is not given.
 */
struct sp_train_config {
    struct sp_layout_args layout;

    struct sp_group_args groups;
    const char *
        data; /* file of text, or several: "a,b", "part_*". The tokenizer.json of layout.model makes
                       * the tokens; without one they are bytes. Or: */
    const char *tokens; /* files of little-endian tokens */
    int token_width;    /* of `tokens`, if there is no header to tell it */
    bool token_width_set;
    /* Token that ends a document: attention stops there and positions restart. SP_TRAIN_EOS: the
     * model's own. */
    int separator;
    bool separator_set;
    int order;
    int steps; /* of the whole run; the learning rate decays over them */
    double lr, lr_min;
    int lr_shape, decay, warmup;
    double weight_decay, beta1, beta2, eps;
    double clip; /* largest norm of a gradient; 0: any */
    int seed;
    bool seed_set; /* false: a resumed run keeps its own seed */
    int dtype, device, transport;
    const char *scheduler;     /* "strict", "ready", or a scheduling policy of StarPU */
    const char *partition;     /* "even|balanced" or layers of each stage and chunk, "3,2,2,1" */
    int threads;               /* of a CPU stage; 0: the cores, shared evenly */
    int window;                /* unfinished ops of a stage; 0: 6 */
    int mlp_chunk, logit_rows; /* rows at a time; 0: all rows; 128 MiB of them, on a GPU 4096 */
    const char *offload_dir;
    const char *log;  /* file that gets a JSON line a step, -: standard output; NULL: no log */
    const char *save; /* directory that sp_trainer_save writes to */
    int keep;         /* number of newest checkpoints that stay; 0: all */
    bool overwrite, save_async;
    uint64_t shard_size; /* bytes of a file of weights; 0: any */
    bool shard_size_set;
    const char *eval;       /* file that sp_trainer_evaluate takes its tokens from */
    int eval_tokens;        /* 0: all that the file has */
    const char *resume;     /* directory of a checkpoint to go on from; it gives the model too */
    const char *dump_grads; /* file for the gradients of the first step */
    /* Seconds without progress inside a call after which the process ends; 0: never. A watchdog
     * thread runs while a trainer is open, even with 0. */
    double stall_timeout;
    bool post_validation;
    double auto_within; /* seconds that schedule "auto" may take to measure and to choose */
    bool auto_within_set;
    const char *hardware; /* machine to predict for, by name or file; NULL: the one at hand */
    bool dry_run;         /* open checks everything, and starts nothing: there are no steps */
    /* Sampling only, from the weights of a directory, without data, gradients or moments: up to
     * `sample` tokens follow `prompt`, as far as the model has positions. The stages divide the
     * layers evenly. */
    bool inference;

    /* The trainer only checks these: the command acts on them, and other programs do so
     * themselves. */
    int save_every, eval_every, progress, sample;
    const char *trace, *prompt;
    int format;         /* SP_TRAIN_TEXT, SP_TRAIN_JSON: what dry_run prints */
    const char *output; /* file for that; NULL: standard output */
    bool report;        /* prints the tables of a recorded step at the end */

    /* Callbacks, which all get `arg`. NULL: none. */
    void *arg;
    void (*say)(void *arg, const char *line); /* gets the trainer's choices, on rank 0 */
    int (*asks)(void *arg); /* called after each step: returns bits to send to all processes */
};

/* Sets the defaults of the command. 0; or -EINVAL: SP_DEVICE in the environment names no device. */
int sp_train_config_init(struct sp_train_config *cfg);

/* Measurements of a stage in a step; times in milliseconds. */
struct sp_stage_meters {
    double busy_ms, idle_ms; /* between the first op of any stage and the last op of any stage */
    double comm_wait_ms;     /* part of idle_ms: waiting for a message on its way */
    double bubble;           /* idle / (busy + idle) */
    double peak_bytes;       /* most bytes of activations kept for a backward at once */
    double bytes_sent;       /* to other processes */
};

/* Measurements of a step. */
struct sp_meters {
    int step;         /* its number: 1 is the first; a resumed run counts on */
    double loss;      /* mean cross-entropy of its tokens, nats; like grad_norm, on every rank */
    double grad_norm; /* before clipping */
    double lr;
    int64_t tokens; /* of all its micro-batches */
    double step_ms; /* wall-clock time */
    double bubble;  /* mean of the stages; rank 0's */
    int asked;      /* the bits that any process asked for, on every rank */
    int stages;
    const struct sp_stage_meters *stage; /* [stages], valid until the next call; rank 0 has all
                                          * stages, other ranks have those of their process */
};

struct sp_trainer;

/*
 * Checks all that can be checked, on all processes, then starts StarPU and lays out the model.
 * Joins the MPI that the program has initialised (with MPI_THREAD_SERIALIZED at least;
 * MPI_THREAD_MULTIPLE for --transport nccl and starpu). If a launcher started the process and MPI
 * is not initialised, the trainer initialises it, and finalises it when it is closed. 0; or -EINVAL
 * on all processes, or another -errno, if something is refused or fails; no trainer is left behind
 * then.
 */
int sp_trainer_open(const struct sp_train_config *cfg, struct sp_trainer **t);

/* The number of steps done, including those before `resume`; and the rank of this process. Rank 0
 * prints. */
int sp_trainer_done(const struct sp_trainer *t);
int sp_trainer_rank(const struct sp_trainer *t);

/*
 * One step: forwards and backwards of all micro-batches, clipping, AdamW. `m` may be NULL. `more`
 * says that the next call is another step; with post_validation that step begins at once, otherwise
 * `more` makes no difference. 0; -EDOM on all processes if the loss or the norm is not finite: the
 * run has diverged, and the trainer can only be closed; -errno of a log or a checkpoint that cannot
 * be written.
 */
int sp_trainer_step(struct sp_trainer *t, bool more, struct sp_meters *m);

/*
 * With post_validation, the last step before these calls must have had `more` false; otherwise:
 * -EBUSY.
 */

/* Computes the mean loss on `eval`, in nats, on every rank. The model does not change. 0, -EINVAL
 * without `eval`, -EDOM if the loss is not finite. */
int sp_trainer_evaluate(struct sp_trainer *t, double *loss);

/* Writes a checkpoint of the steps done to `save`/step-N, unless it exists already. 0, -EINVAL
 * without `save`, or -errno; with save_async, -errno may be that of an earlier checkpoint. */
int sp_trainer_save(struct sp_trainer *t);

/* How text is drawn: from softmax(logits / temperature). */
struct sp_sampling {
    int tokens;          /* the most tokens that follow the prompt */
    double temperature;  /* 0: always the likeliest token */
    int top_k;           /* draws from this many likeliest tokens; 0: from all */
    double top_p;        /* draws from the fewest tokens that have this probability; 1: from all */
    int seed;            /* equal seeds draw equal tokens */
    bool special_tokens; /* "<|endoftext|>" in the prompt is that token, not text */
    int slices; /* forwards that the prompt is cut into, so that stages work on it at once; 0: one, or
                 * with several stages four for each, of 64 tokens or more */
};

#define SP_SAMPLING_DEFAULT ((struct sp_sampling){.tokens = 256, .temperature = 0.8, .top_p = 1})

/*
 * Draws tokens that continue `prompt`, until the model's eos or how->tokens. Only the last `seq`
 * tokens of the prompt count. An empty prompt is bos, or a newline if the model has no bos. Tokens
 * are those of the model's tokenizer, or bytes. On rank 0 `text` gets the bytes that each token
 * adds, which need not be whole characters; a result other than 0 stops the drawing. 0, -EINVAL if
 * `how` or `prompt` is refused, or -ENOMEM.
 */
int sp_trainer_sample(struct sp_trainer *t, const char *prompt, const struct sp_sampling *how,
                      int (*text)(void *arg, const char *text, size_t n), void *arg);

/* Waits for the checkpoint that save_async is writing, stops StarPU and frees everything. `t` may
 * be NULL. 0, or -errno of that checkpoint. Another trainer may be opened then; under MPI only in a
 * program that initialised MPI itself. */
int sp_trainer_close(struct sp_trainer *t);

#pragma GCC visibility pop

#endif
