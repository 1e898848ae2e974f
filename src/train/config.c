/* The settings of the trainer: their table, their defaults, and which do not go together. */
#include "train/config.h"
#include "policies/load/plugin.h"
#include "sp_error.h"
#include "train/groups.h"
#include "train/layout_auto.h"
#include "train/settings.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only the addresses in it are used: the table's values are at the same offsets in every
 * configuration. */
static struct sp_train_config like;

static const struct sp_option table[] = {
    SP_LAYOUT_OPTIONS(like.layout),
    SP_GROUP_OPTIONS(like.groups),
    SP_OPTION("data", STRING, like.data, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_READ,
              .arg = "FILE[,FILE...]",
              .help = "text: tokens are those of --model DIR with a tokenizer.json, otherwise its "
                      "bytes; several files, and patterns ('part_*.txt'), in order"),
    SP_OPTION("steps", INT, like.steps, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_NUMBERS,
              .arg = "K", .help = "steps in all, resumed ones counted", .max = INT_MAX),
    SP_OPTION("lr", DOUBLE, like.lr, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_NUMBERS,
              .arg = "X", .help = "learning rate", .max = 1e6),
    SP_OPTION("save", STRING, like.save, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_WRITTEN,
              .arg = "DIR", .help = "directory for a checkpoint at the end, in Hugging Face form"),
    SP_OPTION("log", STRING, like.log, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_WRITTEN,
              .arg = "FILE.jsonl|-",
              .help = "a JSON line a step, in a file that begins anew; -: on standard output, all "
                      "else on standard error"),
    SP_OPTION(
        "resume", STRING, like.resume, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_READ,
        .arg = "DIR",
        .help =
            "go on from a checkpoint, with the options of its run: those given here count instead"),
    SP_OPTION("threads", INT, like.threads, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_WAY,
              .arg = "T", .help = "threads of a CPU stage (0: share the cores evenly)",
              .max = 4096),
    SP_OPTION("tokens", STRING, like.tokens, .topic = SP_TOPIC_MODEL, .role = SP_ROLE_READ,
              .arg = "FILE.bin[,FILE...]",
              .help = "little-endian tokens, as nanoGPT writes them or, with a header, llm.c and "
                      "NumPy (.npy)"),
    SP_OPTION("token-bytes", CHOICE, like.token_width, .topic = SP_TOPIC_MODEL,
              .role = SP_ROLE_NUMBERS, .choices = "2|4",
              .help = "bytes of a token in a file without a header: uint16 or uint32",
              .wants = "tokens", .given = &like.token_width_set),
    SP_OPTION("document-separator", INT, like.separator, .topic = SP_TOPIC_MODEL,
              .role = SP_ROLE_NUMBERS, .choices = "TOKEN|eos",
              .help = "ends a document: attention stops there, and positions begin anew; eos: the "
                      "model's, and documents of text end where it has eos as text",
              .min = SP_TRAIN_EOS, .max = INT_MAX, .given = &like.separator_set),
    SP_OPTION("order", CHOICE, like.order, .topic = SP_TOPIC_MODEL, .role = SP_ROLE_PLACE,
              .choices = "sequential|shuffled",
              .help = "order of the samples; shuffled: another one in each pass, from the seed"),
    SP_OPTION("lr-schedule", CHOICE, like.lr_shape, .topic = SP_TOPIC_OPTIMIZER,
              .role = SP_ROLE_NUMBERS, .choices = SP_LR_SHAPES,
              .help = "how the learning rate changes after the warm-up"),
    SP_OPTION("lr-min", DOUBLE, like.lr_min, .topic = SP_TOPIC_OPTIMIZER, .role = SP_ROLE_NUMBERS,
              .arg = "X", .help = "learning rate at the end of the fall", .max = 1e6,
              .wants = "lr-schedule"),
    SP_OPTION(
        "decay", INT, like.decay, .topic = SP_TOPIC_OPTIMIZER, .role = SP_ROLE_NUMBERS, .arg = "K",
        .help = "steps of the fall (0: cosine and linear from warm-up to end, wsd the last tenth)",
        .max = INT_MAX, .wants = "lr-schedule"),
    SP_OPTION("warmup", INT, like.warmup, .topic = SP_TOPIC_OPTIMIZER, .role = SP_ROLE_NUMBERS,
              .arg = "K", .help = "steps of linear warm-up", .max = INT_MAX),
    SP_OPTION("weight-decay", DOUBLE, like.weight_decay, .topic = SP_TOPIC_OPTIMIZER,
              .role = SP_ROLE_NUMBERS, .arg = "X",
              .help = "AdamW weight decay of matrices and tables", .max = 1e6),
    SP_OPTION("beta1", DOUBLE, like.beta1, .topic = SP_TOPIC_OPTIMIZER, .role = SP_ROLE_NUMBERS,
              .arg = "X", .help = "AdamW beta1", .max = 0.9999999),
    SP_OPTION("beta2", DOUBLE, like.beta2, .topic = SP_TOPIC_OPTIMIZER, .role = SP_ROLE_NUMBERS,
              .arg = "X", .help = "AdamW beta2", .max = 0.9999999),
    SP_OPTION("eps", DOUBLE, like.eps, .topic = SP_TOPIC_OPTIMIZER, .role = SP_ROLE_NUMBERS,
              .arg = "X", .help = "AdamW epsilon", .min = 1e-30, .max = 1),
    SP_OPTION("clip", DOUBLE, like.clip, .topic = SP_TOPIC_OPTIMIZER, .role = SP_ROLE_NUMBERS,
              .arg = "X", .help = "clip the gradient norm (0: do not)", .max = 1e30),
    SP_OPTION("seed", INT, like.seed, .topic = SP_TOPIC_MODEL, .role = SP_ROLE_NUMBERS, .arg = "N",
              .help = "seed of initial weights and of shuffling", .max = INT_MAX,
              .given = &like.seed_set),
    SP_OPTION("dtype", CHOICE, like.dtype, .topic = SP_TOPIC_MODEL, .role = SP_ROLE_NUMBERS,
              .choices = SP_DTYPES_CHOICES, .help = SP_DTYPE_HELP),
    SP_OPTION("device", CHOICE, like.device, .topic = SP_TOPIC_DEVICES, .role = SP_ROLE_WAY,
              .choices = SP_TRAIN_DEVICES, .help = "where to compute"),
    SP_OPTION("transport", CHOICE, like.transport, .topic = SP_TOPIC_DEVICES, .role = SP_ROLE_WAY,
              .choices = "auto|mpi|nccl|starpu",
              .help = "messages between processes: NCCL is for GPUs; starpu: StarPU-MPI's"),
    SP_OPTION("partition", STRING, like.partition, .topic = SP_TOPIC_SCHEDULE, .role = SP_ROLE_WAY,
              .arg = "even|balanced|LIST",
              .help = "layers of each stage and chunk: even, by measured times, or 3,2,2,1; 0 for "
                      "an end of the model alone"),
    SP_OPTION("auto-within", DOUBLE, like.auto_within, .topic = SP_TOPIC_SCHEDULE,
              .role = SP_ROLE_START, .arg = "SECONDS",
              .help = "with --schedule auto: time to measure this machine, if nothing describes "
                      "it, to choose, and to change layouts",
              .min = 0.1, .max = 1e6, .given = &like.auto_within_set),
    SP_OPTION("scheduler", STRING, like.scheduler, .topic = SP_TOPIC_SCHEDULE, .role = SP_ROLE_WAY,
              .arg = "strict|ready|POLICY",
              .help = "how workers follow their programs; POLICY: not, but StarPU's of that name, "
                      "or of the library STARPU_SCHED_LIB, orders tasks"),
    SP_OPTION("window", INT, like.window, .topic = SP_TOPIC_ADVANCED, .role = SP_ROLE_WAY,
              .arg = "N", .help = "unfinished ops submitted per stage (0: default, 6)",
              .max = 1000000),
    SP_OPTION("mlp-chunk", INT, like.mlp_chunk, .topic = SP_TOPIC_MEMORY, .role = SP_ROLE_WAY,
              .arg = "ROWS", .help = "rows of the MLP computed at a time (0: all)", .max = INT_MAX),
    SP_OPTION("logit-rows", INT, like.logit_rows, .topic = SP_TOPIC_MEMORY, .role = SP_ROLE_WAY,
              .arg = "ROWS",
              .help = "rows of logits alive at a time (0: 128 MiB of them; on a GPU 4096, at most "
                      "512 MiB in bf16)",
              .max = INT_MAX),
    SP_OPTION("offload-dir", STRING, like.offload_dir, .topic = SP_TOPIC_MEMORY,
              .role = SP_ROLE_READ, .arg = "DIR",
              .help = "where offloaded activations go: a directory on a fast disk",
              .wants = "offload|offload-optimizer"),
    SP_OPTION("save-every", INT, like.save_every, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_WAY,
              .arg = "K", .help = "save every K steps too", .max = INT_MAX, .wants = "save"),
    SP_OPTION("keep", INT, like.keep, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_WAY, .arg = "N",
              .help = "checkpoints to keep, the newest (0: all)", .max = INT_MAX, .wants = "save"),
    SP_OPTION("overwrite", FLAG, like.overwrite, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_START,
              .help = "replace what another run saved in --save DIR", .wants = "save"),
    SP_OPTION(
        "save-async", FLAG, like.save_async, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_WAY,
        .help =
            "write checkpoints while the next steps run (memory of rank 0: 12 bytes a parameter)",
        .wants = "save"),
    SP_OPTION("shard-size", SIZE, like.shard_size, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_WAY,
              .arg = "SIZE", .help = "weights above it are saved in several files (0: in one)",
              .wants = "save", .given = &like.shard_size_set),
    SP_OPTION(
        "eval", STRING, like.eval, .topic = SP_TOPIC_EVALUATION, .role = SP_ROLE_READ,
        .arg = "FILE",
        .help =
            "tokens held out: their loss at the end, with the pipeline and the memory of training"),
    SP_OPTION("eval-every", INT, like.eval_every, .topic = SP_TOPIC_EVALUATION, .role = SP_ROLE_WAY,
              .arg = "K",
              .help =
                  "evaluate every K steps too (that takes as long as training on as many tokens)",
              .max = INT_MAX, .wants = "eval"),
    SP_OPTION("eval-tokens", INT, like.eval_tokens, .topic = SP_TOPIC_EVALUATION,
              .role = SP_ROLE_WAY, .arg = "N",
              .help = "tokens of --eval to predict, from its beginning (0: all but the first)",
              .max = INT_MAX, .wants = "eval"),
    SP_OPTION(
        "progress", CHOICE, like.progress, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_WAY,
        .choices = "auto|line|plain",
        .help =
            "a line that is rewritten in place: on terminals (auto), always (line), never (plain)"),
    SP_OPTION("dump-grads", STRING, like.dump_grads, .topic = SP_TOPIC_OUTPUT,
              .role = SP_ROLE_START, .arg = "FILE.safetensors",
              .help = "write the gradients of the first step"),
    SP_OPTION("trace", STRING, like.trace, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_WRITTEN,
              .arg = "DIR",
              .help = "directory for the record of a typical step (trace.json, for 'report' and "
                      "Perfetto), that of its prediction, and pictures"),
    SP_OPTION("report", FLAG, like.report, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_START,
              .help = "print the tables of a typical step at the end"),
    SP_OPTION("sample", INT, like.sample, .topic = SP_TOPIC_EVALUATION, .role = SP_ROLE_WAY,
              .arg = "N", .help = "print N tokens of generated text at the end", .max = 1000000),
    SP_OPTION("prompt", TEXT, like.prompt, .topic = SP_TOPIC_EVALUATION, .role = SP_ROLE_WAY,
              .arg = "TEXT", .help = "start of the generated text, its last --seq tokens count",
              .wants = "sample"),
    SP_OPTION("stall-timeout", DOUBLE, like.stall_timeout, .topic = SP_TOPIC_ADVANCED,
              .role = SP_ROLE_WAY, .arg = "SECONDS",
              .help = "end the run when nothing moved for so long, pauses apart (0: never)",
              .max = 1e9),
    SP_OPTION("post-validation", FLAG, like.post_validation, .topic = SP_TOPIC_OPTIMIZER,
              .role = SP_ROLE_WAY,
              .help =
                  "begin the next step without a barrier, undo it where clipping proves needed"),
    SP_OPTION("hardware", STRING, like.hardware, .topic = SP_TOPIC_ADVANCED, .role = SP_ROLE_READ,
              .arg = "NAME|FILE|LIST",
              .help = "the machine whose times are predicted (default: what calibrate left of this "
                      "one in the cache, or laptop, or h100-ib for GPUs)"),
    SP_OPTION("dry-run", FLAG, like.dry_run, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_START,
              .help = "plan and verify, submit nothing"),
    SP_OPTION("format", CHOICE, like.format, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_START,
              .choices = "text|json", .help = "what --dry-run prints", .also = "json=json",
              .wants = "dry-run"),
    SP_OPTION("output", OUTPUT, like.output, .topic = SP_TOPIC_OUTPUT, .role = SP_ROLE_START,
              .arg = "FILE", .help = "file for what --dry-run prints (default: standard output)",
              .wants = "dry-run"),
    {0},
};
_Static_assert((int)SP_TRAIN_WSD == SP_LR_WSD && (int)SP_TRAIN_FP8 == SP_FP8, "numbers as inside");
_Static_assert(sizeof table / sizeof *table == SP_TRAIN_OPTIONS, "as config.h says");

/* The address in `cfg` that corresponds to `at` in `like`. */
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

void sp_train_drop_unused(struct sp_train_config *cfg)
{
    struct sp_option options[SP_TRAIN_OPTIONS], defaults[SP_TRAIN_OPTIONS];
    struct sp_train_config none;
    bool quiet = sp_error_quiet(true);

    sp_train_config_init(&none);
    sp_train_options(cfg, options);
    sp_train_options(&none, defaults);
    for (int i = 0; options[i].name; i++) {
        if (!options[i].wants || !sp_option_check_wants(options, &options[i], "", ""))
            continue;
        sp_option_copy(&options[i], &defaults[i]);
    }
    sp_error_quiet(quiet);
}

enum sp_option_role sp_train_role(const char *name)
{
    const struct sp_option *o = table;

    while (o->name && strcmp(o->name, name))
        o++;
    return o->name ? o->role : SP_ROLE_NONE;
}

/* The value as it was given, of any length; "" if it was not given. The seed is an exception: 0
 * stands for one not given. */
static const char *value_text(const struct sp_option *o, char text[64])
{
    if (o->given && !*o->given && strcmp(o->name, "seed"))
        return "";
    if (sp_option_string(o))
        return sp_option_string(o);
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

/* A directory that usually is on a disk, as /tmp need not be. */
static const char *default_offload_dir(void)
{
    const char *dir = getenv("TMPDIR");

    return dir && *dir ? dir : "/var/tmp";
}

/* The default of --device from SP_DEVICE, for tests, which run the same commands on either
 * device. */
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
        .shard_size = 5000000000, /* as in transformers */
        .prompt = "\n",
        .partition = "even",
        .scheduler = "strict",
        .offload_dir = default_offload_dir(),
        .auto_within = SP_AUTO_WITHIN,
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

/* With --schedule auto: refuses settings that go only with some schedules or numbers of stages. */
static int check_auto(const struct sp_train_config *a)
{
    if (!sp_layout_is_auto(&a->layout))
        return a->auto_within_set
                   ? sp_error(EINVAL,
                              "train: --auto-within %g has no effect without --schedule "
                              "auto",
                              a->auto_within)
                   : 0;
    if (strcmp(a->partition, "even"))
        return sp_error(EINVAL,
                        "train: --partition %s: --schedule auto chooses among even layers; give "
                        "--schedule NAME, or leave --partition out",
                        a->partition);
    if (a->post_validation)
        return sp_error(EINVAL, "train: --post-validation goes with some schedules only: give "
                                "--schedule NAME instead of auto");
    return 0;
}

/* Refuses settings that do not go together, or a choice of several of which none was given. */
static int check(const struct sp_train_config *a)
{
    if (a->data && a->tokens)
        return sp_error(EINVAL, "train: give --data or --tokens, not both");
    if (!a->data && !a->tokens && !a->dry_run && !a->inference)
        return sp_error(EINVAL, "train: what to train on? give --data FILE (text) or "
                                "--tokens FILE.bin (uint16 or uint32)");
    if (!a->layout.model && !a->resume)
        return sp_error(EINVAL, "train: which model? give --model PRESET or --model DIR "
                                "(gpt-tiny is a preset)");
    if ((int64_t)a->layout.micro_batch_size * a->layout.seq > INT32_MAX / 8)
        return sp_error(EINVAL, "train: a micro-batch of %d x %d tokens is too large",
                        a->layout.micro_batch_size, a->layout.seq);
    return 0;
}

/* Refuses settings that are not the defaults if the setting that would use them is not set. */
static int check_wants(const struct sp_option *options)
{
    struct sp_train_config none;
    struct sp_option defaults[SP_TRAIN_OPTIONS];
    int err = sp_train_config_init(&none);
    char is[64], was[64];

    sp_train_options(&none, defaults);
    for (int i = 0; options[i].name && !err; i++)
        if (options[i].wants && strcmp(value_text(&options[i], is), value_text(&defaults[i], was)))
            err = sp_option_check_wants(options, &options[i], "train", options[i].name);
    return err;
}

int sp_train_config_check(const struct sp_train_config *cfg)
{
    struct sp_train_config copy = *cfg;
    struct sp_option options[SP_TRAIN_OPTIONS];
    struct sp_lr_schedule lr = sp_train_lr(cfg);
    struct sp_recompute_option recompute;
    enum sp_offload_mode offload;
    int err = 0, ulysses;

    sp_train_options(&copy, options);
    for (const struct sp_option *o = options; o->name && !err; o++)
        err = sp_option_check(o, "train");
    if (!err && !(cfg->layout.schedule && cfg->layout.offload && cfg->groups.context_method &&
                  cfg->partition && cfg->offload_dir && cfg->scheduler))
        err =
            sp_error(EINVAL, "train: schedule, offload, context_method, partition, offload_dir and "
                             "scheduler want a text: call sp_train_config_init first");
    err = err ? err : check_wants(options);
    err = err ? err : check(cfg);
    err = err ? err : check_auto(cfg);
    if (!err && cfg->layout.recompute && !sp_recompute_is_auto(cfg->layout.recompute))
        err = sp_parse_recompute("train", cfg->layout.recompute, &recompute);
    err = err ? err : sp_parse_offload("train", &cfg->layout, &offload);
    err = err ? err : sp_parse_context_method("train", &cfg->groups, &ulysses);
    err = err ? err : sp_lr_check(&lr);
    return err ? err : sp_plugins_load(cfg->layout.plugin);
}
