/* The settings of the trainer: their table, their defaults, what does not go together. */
#include "train/config.h"
#include "policies/load/plugin.h"
#include "sp_error.h"
#include "train/groups.h"
#include "train/settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only its addresses are used: the table's values are at the same places of any configuration. */
static struct sp_train_config like;

#define TEXT(name, field, arg, help, role)                                                         \
    SP_OPTION(name, SP_OPT_STRING, &like.field, arg, help, 0, 0, 0, 0, SP_ROLE_##role)
#define COUNT(name, field, arg, help, max, role)                                                   \
    SP_OPTION(name, SP_OPT_INT, &like.field, arg, help, 0, max, 0, 0, SP_ROLE_##role)
#define REAL(name, field, arg, help, min, max, role)                                               \
    SP_OPTION(name, SP_OPT_DOUBLE, &like.field, arg, help, min, max, 0, 0, SP_ROLE_##role)
#define CHOICE(name, field, help, choices, role)                                                   \
    SP_OPTION(name, SP_OPT_CHOICE, &like.field, 0, help, 0, 0, choices, 0, SP_ROLE_##role)
#define FLAG(name, field, help, role)                                                              \
    SP_OPTION(name, SP_OPT_FLAG, &like.field, 0, help, 0, 0, 0, 0, SP_ROLE_##role)

static const struct sp_option table[] = {
    SP_LAYOUT_OPTIONS(like.layout),
    SP_GROUP_OPTIONS(like.groups),
    TEXT("data", data, "FILE[,FILE...]",
         "text: tokens are its bytes; several files, and patterns ('part_*.txt'), in order", READ),
    TEXT("tokens", tokens, "FILE.bin[,FILE...]",
         "little-endian tokens, as nanoGPT writes them or, with a header, llm.c and NumPy (.npy)",
         READ),
    SP_OPTION("token-bytes", SP_OPT_CHOICE, &like.token_width, 0,
              "bytes of a token in a file without a header: uint16 or uint32", 0, 0, "2|4",
              &like.token_width_set, SP_ROLE_NUMBERS),
    SP_OPTION("document-separator", SP_OPT_INT, &like.separator, "TOKEN",
              "ends a document: attention stops there, and positions begin anew", 0, INT_MAX, 0,
              &like.separator_set, SP_ROLE_NUMBERS),
    CHOICE("order", order,
           "order of the samples; shuffled: another one in each pass, from the seed",
           "sequential|shuffled", PLACE),
    COUNT("steps", steps, "K", "steps in all, resumed ones counted", INT_MAX, NUMBERS),
    REAL("lr", lr, "X", "learning rate", 0, 1e6, NUMBERS),
    CHOICE("lr-schedule", lr_shape, "how the learning rate changes after the warm-up", SP_LR_SHAPES,
           NUMBERS),
    REAL("lr-min", lr_min, "X", "learning rate at the end of the fall", 0, 1e6, NUMBERS),
    COUNT("decay", decay, "K",
          "steps of the fall (0: cosine and linear from warm-up to end, wsd the last tenth)",
          INT_MAX, NUMBERS),
    COUNT("warmup", warmup, "K", "steps of linear warm-up", INT_MAX, NUMBERS),
    REAL("weight-decay", weight_decay, "X", "AdamW weight decay of matrices and tables", 0, 1e6,
         NUMBERS),
    REAL("beta1", beta1, "X", "AdamW beta1", 0, 0.9999999, NUMBERS),
    REAL("beta2", beta2, "X", "AdamW beta2", 0, 0.9999999, NUMBERS),
    REAL("eps", eps, "X", "AdamW epsilon", 1e-30, 1, NUMBERS),
    REAL("clip", clip, "X", "clip the gradient norm (0: do not)", 0, 1e30, NUMBERS),
    SP_OPTION("seed", SP_OPT_INT, &like.seed, "N", "seed of initial weights and of shuffling", 0,
              INT_MAX, 0, &like.seed_set, SP_ROLE_NUMBERS),
    CHOICE("dtype", dtype, "type of activations, and of weights in products", "f32|bf16", NUMBERS),
    CHOICE("device", device, "where to compute", SP_TRAIN_DEVICES, WAY),
    CHOICE("transport", transport, "messages between processes on GPUs", "auto|mpi|nccl", WAY),
    TEXT("partition", partition, "even|balanced|LIST",
         "layers of each stage and chunk: even, by measured times, or 3,2,2,1; 0 for an end of the "
         "model alone",
         WAY),
    COUNT("threads", threads, "T", "threads of a CPU stage (0: share the cores evenly)", 4096, WAY),
    CHOICE("scheduler", scheduler, "how workers follow their programs", "strict|ready", WAY),
    COUNT("window", window, "N", "unfinished ops submitted per stage (0: default, 6)", 1000000,
          WAY),
    COUNT("mlp-chunk", mlp_chunk, "ROWS", "rows of the MLP computed at a time (0: all)", INT_MAX,
          WAY),
    COUNT("logit-rows", logit_rows, "ROWS",
          "rows of logits alive at a time (0: 128 MiB of them; on a GPU 4096, at most 512 MiB in "
          "bf16)",
          INT_MAX, WAY),
    TEXT("offload-dir", offload_dir, "DIR",
         "where offloaded activations go: a directory on a fast disk", READ),
    TEXT("log", log, "FILE.jsonl|-",
         "a JSON line a step; -: on standard output, what is else printed on standard error",
         WRITTEN),
    TEXT("save", save, "DIR", "directory for a checkpoint at the end, in Hugging Face form",
         WRITTEN),
    COUNT("save-every", save_every, "K", "save every K steps too", INT_MAX, WAY),
    COUNT("keep", keep, "N", "checkpoints to keep, the newest (0: all)", INT_MAX, WAY),
    FLAG("overwrite", overwrite, "replace what another run saved in --save DIR", START),
    FLAG("save-async", save_async,
         "write checkpoints while the next steps run (memory of rank 0: 12 bytes a parameter)",
         WAY),
    SP_OPTION("shard-size", SP_OPT_SIZE, &like.shard_size, "BYTES",
              "weights above it are saved in several files, KiB, MB, ... (0: in one)", 0, 0, 0,
              &like.shard_size_set, SP_ROLE_WAY),
    TEXT("eval", eval, "FILE",
         "tokens held out: their loss at the end, with the pipeline and the memory of training",
         READ),
    COUNT("eval-every", eval_every, "K",
          "evaluate every K steps too (that takes as long as training on as many tokens)", INT_MAX,
          WAY),
    COUNT("eval-tokens", eval_tokens, "N",
          "tokens of --eval to predict, from its beginning (0: all but the first)", INT_MAX, WAY),
    CHOICE("progress", progress,
           "a line that is rewritten in place: on terminals (auto), always (line), never (plain)",
           "auto|line|plain", WAY),
    TEXT("resume", resume, "DIR",
         "go on from a checkpoint, with the options of its run: those given here count instead",
         READ),
    TEXT("dump-grads", dump_grads, "FILE.safetensors", "write the gradients of the first step",
         START),
    TEXT("trace", trace, "DIR",
         "directory for the record of a typical step (trace.json, for 'report' and Perfetto), that "
         "of its prediction, and pictures",
         WRITTEN),
    COUNT("sample", sample, "N", "print N generated bytes at the end", 1000000, WAY),
    TEXT("prompt", prompt, "TEXT", "start of the generated text, its last --seq bytes count", WAY),
    REAL("stall-timeout", stall_timeout, "SECONDS",
         "end the run when nothing moved for so long, pauses apart (0: never)", 0, 1e9, WAY),
    FLAG("post-validation", post_validation,
         "begin the next step without a barrier, undo it where clipping proves needed", WAY),
    TEXT("hardware", hardware, "NAME|FILE.json",
         "the machine whose times are predicted (default: what calibrate left of this one in the "
         "cache, or laptop, or h100-ib for GPUs)",
         READ),
    FLAG("dry-run", dry_run, "plan and verify, submit nothing", START),
    FLAG("json", json, "with --dry-run: one JSON object", START),
    {0},
};
_Static_assert((int)SP_TRAIN_WSD == SP_LR_WSD && (int)SP_TRAIN_BF16 == SP_BF16,
               "numbers as inside");
_Static_assert(sizeof table / sizeof *table == SP_TRAIN_OPTIONS, "as config.h says");

/* What of `like` is pointed to, in `cfg`. */
static void *shift(struct sp_train_config *cfg, const void *at)
{
    return at ? (char *)cfg + ((const char *)at - (const char *)&like) : NULL;
}

void sp_train_options(struct sp_train_config *cfg, struct sp_option options[SP_TRAIN_OPTIONS])
{
    memcpy(options, table, sizeof table);
    for (struct sp_option *o = options; o->name; o++) {
        o->value = shift(cfg, o->value);
        o->given = shift(cfg, o->given);
    }
}

enum sp_option_role sp_train_role(const char *name)
{
    const struct sp_option *o = table;

    while (o->name && strcmp(o->name, name))
        o++;
    return o->name ? o->role : SP_ROLE_NONE;
}

/* As it was given, of whatever length; "" where it was not, and no value stands for that, as 0 does for a seed. */
static const char *value_text(const struct sp_option *o, char text[64])
{
    if (o->given && !*o->given && strcmp(o->name, "seed"))
        return "";
    if (o->kind == SP_OPT_STRING || o->kind == SP_OPT_PLUGIN)
        return *(const char **)o->value ? *(const char **)o->value : "";
    sp_option_text(o, text, 64);
    return text;
}

char *sp_train_settings(const struct sp_train_config *cfg, bool paths)
{
    struct sp_train_config copy = *cfg;
    struct sp_option options[SP_TRAIN_OPTIONS];
    char *settings = NULL, name[64], text[64];

    sp_train_options(&copy, options);
    for (const struct sp_option *o = options; o->name; o++) {
        const char *value = value_text(o, text);

        snprintf(name, sizeof name, "--%s", o->name);
        if (!paths && o->role == SP_ROLE_READ && *value)
            value = "given";
        else if (!paths && !strncmp(value, "csv:", 4))
            value = "csv:FILE";
        settings = sp_settings_add(settings, name, "%s", value);
    }
    return settings;
}

/* On a disk, as a rule, which /tmp need not be. */
static const char *default_offload_dir(void)
{
    const char *dir = getenv("TMPDIR");

    return dir && *dir ? dir : "/var/tmp";
}

/* What the device is where it is not given: for tests, which run the same commands on either. */
static int default_device(int *device)
{
    const char *wanted = getenv("SP_DEVICE");

    if (!wanted || !*wanted)
        return 0;
    *device = sp_choice_of(SP_TRAIN_DEVICES, wanted);
    if (*device < 0)
        return sp_error(EINVAL, "train: SP_DEVICE=%s in the environment: say auto, cpu or cuda",
                        wanted);
    return 0;
}

int sp_train_config_init(struct sp_train_config *cfg)
{
    *cfg = (struct sp_train_config){
        .layout = SP_LAYOUT_ARGS_DEFAULT,
        .groups = SP_GROUP_ARGS_DEFAULT,
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
    cfg->layout.stages = 1;
    return default_device(&cfg->device);
}

struct sp_lr_schedule sp_train_lr(const struct sp_train_config *cfg)
{
    return (struct sp_lr_schedule){.shape = (enum sp_lr_shape)cfg->lr_shape,
                                   .lr = cfg->lr,
                                   .min = cfg->lr_min,
                                   .warmup = cfg->warmup,
                                   .decay = cfg->decay,
                                   .steps = cfg->steps};
}

/* Settings that do not go together, or of which one has to be given. */
static int check(const struct sp_train_config *a)
{
    if (a->data && a->tokens)
        return sp_error(EINVAL, "train: give --data or --tokens, not both");
    if (a->json && !a->dry_run)
        return sp_error(EINVAL, "train: --json prints what --dry-run plans; a run has --log FILE");
    if (!a->data && !a->tokens && !a->dry_run)
        return sp_error(EINVAL, "train: what to train on? give --data FILE (bytes) or "
                                "--tokens FILE.bin (uint16 or uint32)");
    if (a->token_width_set && !a->tokens)
        return sp_error(EINVAL, "train: --token-bytes without --tokens");
    if (!a->layout.model && !a->resume)
        return sp_error(EINVAL, "train: which model? give --model PRESET or --model DIR "
                                "(gpt-tiny is a preset)");
    if (a->mlp_chunk && a->groups.tensor_parallel > 1)
        return sp_error(EINVAL,
                        "train: --mlp-chunk: with --tensor-parallel each share of the tokens "
                        "is a chunk; leave it out");
    if (sp_groups_check("train", &a->groups))
        return -EINVAL;
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
    return 0;
}

int sp_train_config_check(const struct sp_train_config *cfg)
{
    struct sp_train_config copy = *cfg;
    struct sp_option options[SP_TRAIN_OPTIONS];
    struct sp_lr_schedule lr = sp_train_lr(cfg);
    struct sp_recompute_option recompute;
    enum sp_offload_mode offload;
    int err = 0;

    sp_train_options(&copy, options);
    for (const struct sp_option *o = options; o->name && !err; o++)
        err = sp_option_check(o, "train");
    if (!err &&
        !(cfg->layout.schedule && cfg->layout.offload && cfg->partition && cfg->offload_dir))
        err = sp_error(EINVAL, "train: schedule, offload, partition and offload_dir want a text: "
                               "call sp_train_config_init first");
    err = err ? err : check(cfg);
    if (!err && cfg->layout.recompute && !sp_recompute_is_auto(cfg->layout.recompute))
        err = sp_parse_recompute("train", cfg->layout.recompute, &recompute);
    err = err ? err : sp_parse_offload("train", &cfg->layout, &offload);
    err = err ? err : sp_lr_check(&lr);
    return err ? err : sp_plugins_load(cfg->layout.plugin);
}
