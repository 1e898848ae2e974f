#include "train/trainer.h"
#include "cli/train/progress.h"
#include "sp_error.h"
#include "train/settings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* On a disk, as a rule, which /tmp need not be. */
static const char *default_offload_dir(void)
{
    const char *dir = getenv("TMPDIR");

    return dir && *dir ? dir : "/var/tmp";
}

#define DEVICES "auto|cpu|cuda"

/* What --device is where it is not given: for tests, which run the same commands on either. */
static int default_device(int *device)
{
    const char *wanted = getenv("SP_DEVICE");

    if (!wanted || !*wanted)
        return 0;
    *device = sp_choice_of(DEVICES, wanted);
    if (*device < 0)
        return sp_error(EINVAL, "train: SP_DEVICE=%s in the environment: say auto, cpu or cuda",
                        wanted);
    return 0;
}

static int check(struct sp_train_args *a)
{
    struct sp_recompute_option recompute;

    if (a->data && a->tokens)
        return sp_error(EINVAL, "train: give --data or --tokens, not both");
    if (!a->data && !a->tokens && !a->dry_run)
        return sp_error(EINVAL, "train: what to train on? give --data FILE (bytes) or "
                                "--tokens FILE.bin (uint16 or uint32)");
    if (a->token_bytes && !a->tokens)
        return sp_error(EINVAL, "train: --token-bytes without --tokens");
    if (!a->layout.model && !a->resume)
        return sp_error(EINVAL, "train: which model? give --model PRESET or --model DIR "
                                "(gpt-tiny is a preset)");
    if (!a->save && (a->save_every || a->overwrite || a->save_async || a->shard_size_set))
        return sp_error(EINVAL, "train: --%s without --save DIR",
                        a->save_every   ? "save-every"
                        : a->overwrite  ? "overwrite"
                        : a->save_async ? "save-async"
                                        : "shard-size");
    if ((a->eval_every || a->eval_tokens) && !a->eval)
        return sp_error(EINVAL, "train: --eval-%s without --eval FILE",
                        a->eval_every ? "every" : "tokens");
    if ((int64_t)a->layout.micro_batch_size * a->layout.seq > INT32_MAX / 8)
        return sp_error(EINVAL, "train: a micro-batch of %d x %d tokens is too large",
                        a->layout.micro_batch_size, a->layout.seq);
    if (a->layout.recompute && sp_parse_recompute("train", a->layout.recompute, &recompute))
        return -EINVAL;
    if (sp_parse_offload("train", a->layout.offload, &a->offload))
        return -EINVAL;
    a->lr_schedule.shape = (enum sp_lr_shape)a->lr_shape;
    a->lr_schedule.lr = a->lr;
    a->lr_schedule.warmup = a->warmup;
    a->lr_schedule.steps = a->steps;
    return sp_lr_check(&a->lr_schedule);
}

static char *settings_of(const struct sp_option *options)
{
    char *settings = NULL, name[64], text[4400];

    for (const struct sp_option *o = options; o->name; o++) {
        snprintf(name, sizeof name, "--%s", o->name);
        sp_option_text(o, text, sizeof text);
        settings = sp_settings_add(settings, name, "%s", text);
    }
    return settings;
}

int sp_train_parse(int argc, char **argv, struct sp_train_args *a)
{
    int err, width = 0; /* number of a choice */
    bool width_given = false;

    *a = (struct sp_train_args){
        .layout = SP_LAYOUT_ARGS_DEFAULT,
        .steps = 100,
        .lr = 1e-3,
        .weight_decay = 0.1,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .clip = 1.0,
        .stall_timeout = 300,
        .keep = 1,
        .shard_size = 5000000000, /* of transformers */
        .prompt = "\n",
        .partition = "even",
        .offload_dir = default_offload_dir(),
    };
    a->layout.stages = 1;
    if (default_device(&a->device))
        return -EINVAL;
    const struct sp_option options[] = {
        SP_LAYOUT_OPTIONS(a->layout),
        {"data", SP_OPT_STRING, &a->data, "FILE", "text: tokens are its bytes", 0, 0, 0, 0},
        {"tokens", SP_OPT_STRING, &a->tokens, "FILE.bin",
         "little-endian tokens, as nanoGPT writes them or, with a header, llm.c", 0, 0, 0, 0},
        {"token-bytes", SP_OPT_CHOICE, &width, 0,
         "bytes of a token in a file without a header: uint16 or uint32", 0, 0, "2|4",
         &width_given},
        {"order", SP_OPT_CHOICE, &a->order, 0, "order of the samples", 0, 0, "sequential|shuffled",
         0},
        {"steps", SP_OPT_INT, &a->steps, "K", "steps in all, resumed ones counted", 0, INT_MAX, 0,
         0},
        {"lr", SP_OPT_DOUBLE, &a->lr, "X", "learning rate", 0, 1e6, 0, 0},
        {"lr-schedule", SP_OPT_CHOICE, &a->lr_shape, 0,
         "how the learning rate changes after the warm-up", 0, 0, SP_LR_SHAPES, 0},
        {"lr-min", SP_OPT_DOUBLE, &a->lr_schedule.min, "X", "learning rate at the end of the fall",
         0, 1e6, 0, 0},
        {"decay", SP_OPT_INT, &a->lr_schedule.decay, "K",
         "steps of the fall (0: cosine and linear from warm-up to end, wsd the last tenth)", 0,
         INT_MAX, 0, 0},
        {"warmup", SP_OPT_INT, &a->warmup, "K", "steps of linear warm-up", 0, INT_MAX, 0, 0},
        {"weight-decay", SP_OPT_DOUBLE, &a->weight_decay, "X",
         "AdamW weight decay of matrices and tables", 0, 1e6, 0, 0},
        {"beta1", SP_OPT_DOUBLE, &a->beta1, "X", "AdamW beta1", 0, 0.9999999, 0, 0},
        {"beta2", SP_OPT_DOUBLE, &a->beta2, "X", "AdamW beta2", 0, 0.9999999, 0, 0},
        {"eps", SP_OPT_DOUBLE, &a->eps, "X", "AdamW epsilon", 1e-30, 1, 0, 0},
        {"clip", SP_OPT_DOUBLE, &a->clip, "X", "clip the gradient norm (0: do not)", 0, 1e30, 0, 0},
        {"seed", SP_OPT_INT, &a->seed_arg, "N", "seed of initial weights and of shuffling", 0,
         INT_MAX, 0, &a->seed_given},
        {"dtype", SP_OPT_CHOICE, &a->dtype, 0, "type of activations, and of weights in products", 0,
         0, "f32|bf16", 0},
        {"device", SP_OPT_CHOICE, &a->device, 0, "where to compute", 0, 0, DEVICES, 0},
        {"transport", SP_OPT_CHOICE, &a->transport, 0, "messages between processes on GPUs", 0, 0,
         "auto|mpi|nccl", 0},
        {"partition", SP_OPT_STRING, &a->partition, "even|balanced|LIST",
         "layers of each stage and chunk: even, by measured times, or 3,2,2,1", 0, 0, 0, 0},
        {"threads", SP_OPT_INT, &a->threads, "T",
         "threads of a CPU stage (0: share the cores evenly)", 0, 4096, 0, 0},
        {"scheduler", SP_OPT_CHOICE, &a->scheduler, 0, "how workers follow their programs", 0, 0,
         "strict|ready", 0},
        {"window", SP_OPT_INT, &a->window, "N",
         "unfinished ops submitted per stage (0: default, 6)", 0, 1000000, 0, 0},
        {"mlp-chunk", SP_OPT_INT, &a->mlp_chunk, "ROWS",
         "rows of the MLP computed at a time (0: all)", 0, INT_MAX, 0, 0},
        {"logit-rows", SP_OPT_INT, &a->logit_rows, "ROWS",
         "rows of logits alive at a time (0: 128 MiB of them)", 0, INT_MAX, 0, 0},
        {"offload-dir", SP_OPT_STRING, &a->offload_dir, "DIR",
         "where offloaded activations go: a directory on a fast disk", 0, 0, 0, 0},
        {"log", SP_OPT_STRING, &a->log, "FILE.jsonl", "a JSON line a step", 0, 0, 0, 0},
        {"save", SP_OPT_STRING, &a->save, "DIR",
         "directory for a checkpoint at the end, in Hugging Face form", 0, 0, 0, 0},
        {"save-every", SP_OPT_INT, &a->save_every, "K", "save every K steps too", 0, INT_MAX, 0, 0},
        {"keep", SP_OPT_INT, &a->keep, "N", "checkpoints to keep, the newest (0: all)", 0, INT_MAX,
         0, 0},
        {"overwrite", SP_OPT_FLAG, &a->overwrite, 0, "replace what another run saved in --save DIR",
         0, 0, 0, 0},
        {"save-async", SP_OPT_FLAG, &a->save_async, 0,
         "write checkpoints while the next steps run (memory of rank 0: 12 bytes a parameter)", 0,
         0, 0, 0},
        {"shard-size", SP_OPT_SIZE, &a->shard_size, "BYTES",
         "weights above it are saved in several files, KiB, MB, ... (0: in one)", 0, 0, 0,
         &a->shard_size_set},
        {"eval", SP_OPT_STRING, &a->eval, "FILE",
         "tokens held out: their loss at the end, with the pipeline and the memory of training", 0,
         0, 0, 0},
        {"eval-every", SP_OPT_INT, &a->eval_every, "K",
         "evaluate every K steps too (that takes as long as training on as many tokens)", 0,
         INT_MAX, 0, 0},
        {"eval-tokens", SP_OPT_INT, &a->eval_tokens, "N",
         "tokens of --eval to take, from its beginning, rounded up to whole steps (0: 10 steps', "
         "or all "
         "if there are fewer)",
         0, INT_MAX, 0, 0},
        {"progress", SP_OPT_CHOICE, &a->progress, 0,
         "a line that is rewritten in place: on terminals (auto), always (line), never (plain)", 0,
         0, SP_PROGRESS_CHOICES, 0},
        {"resume", SP_OPT_STRING, &a->resume, "DIR", "go on from a checkpoint", 0, 0, 0, 0},
        {"dump-grads", SP_OPT_STRING, &a->dump_grads, "FILE.safetensors",
         "write the gradients of the first step", 0, 0, 0, 0},
        {"trace", SP_OPT_STRING, &a->trace, "DIR",
         "directory for pictures of a typical step, as it ran and as expected", 0, 0, 0, 0},
        {"sample", SP_OPT_INT, &a->sample, "N", "print N generated bytes at the end", 0, 1000000, 0,
         0},
        {"prompt", SP_OPT_STRING, &a->prompt, "TEXT",
         "start of the generated text, its last --seq bytes count", 0, 0, 0, 0},
        {"stall-timeout", SP_OPT_DOUBLE, &a->stall_timeout, "SECONDS",
         "end the run when no task ended for so long, pauses apart (0: never)", 0, 1e9, 0, 0},
        {"post-validation", SP_OPT_FLAG, &a->post_validation, 0,
         "begin the next step without a barrier, undo it where clipping proves needed", 0, 0, 0, 0},
        {"dry-run", SP_OPT_FLAG, &a->dry_run, 0, "plan and verify, submit nothing", 0, 0, 0, 0},
        {0},
    };

    err = sp_options_parse(options, "Trains a model, pipelined over stages.", argc, argv);
    if (err)
        return err;
    a->seed = (uint64_t)a->seed_arg;
    if (width_given)
        a->token_bytes = width ? 4 : 2;
    a->settings = settings_of(options);
    return check(a);
}

struct sp_update sp_train_update(const struct sp_train_args *a, int step, double grad_norm)
{
    return (struct sp_update){
        .lr = (float)sp_lr_at(&a->lr_schedule, step),
        .beta1 = (float)a->beta1,
        .beta2 = (float)a->beta2,
        .eps = (float)a->eps,
        .weight_decay = (float)a->weight_decay,
        .bias1 = (float)(1 - pow(a->beta1, step + 1)),
        .bias2 = (float)(1 - pow(a->beta2, step + 1)),
        .factor = (float)(a->clip > 0 && grad_norm > a->clip ? a->clip / (grad_norm + 1e-6) : 1),
    };
}
