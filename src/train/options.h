/*
 * Settings as tables: the name, kind and range of each, and the address of its value. A command
 * parses its arguments by such a table (cli/options.h); the trainer checks its configuration by
 * one, compares it between processes and saves it with checkpoints.
 */
#ifndef SP_TRAIN_OPTIONS_H
#define SP_TRAIN_OPTIONS_H

#include "model/stash.h"
#include "offload/eviction.h"
#include "starpipe/schedule.h"
#include "starpipe/trainer.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sp_option_kind {
    SP_OPT_STRING, /* const char **, not empty */
    SP_OPT_TEXT,   /* const char **, may be empty */
    SP_OPT_INT,    /* int *, in min .. max */
    SP_OPT_SIZE,   /* uint64_t *, bytes, or with a suffix: KiB, MB, M, ... */
    SP_OPT_DOUBLE, /* double *, in min .. max */
    SP_OPT_CHOICE, /* int *, index in `choices` */
    SP_OPT_PLUGIN, /* const char **; the plugins are loaded when all options are parsed */
    SP_OPT_FLAG,   /* bool *, set by the bare name */
    SP_OPT_OUTPUT, /* const char **; a file that the command writes, not one of its operands */
    /* const char **, a word without dashes; all are needed, in the table's order. With a max,
     * the last operand takes up to so many words: its value is an array of them that NULL ends. */
    SP_OPT_OPERAND
};

/*
 * The role of an option of train: for the processes of a run, for its checkpoints, and for a run
 * that continues from one. A continuing run takes over all options but those of SP_ROLE_START.
 */
enum sp_option_role {
    SP_ROLE_NONE,    /* belongs to no run */
    SP_ROLE_NUMBERS, /* the numbers of a run depend on it: losses, gradients, parameters */
    SP_ROLE_PLACE,   /* they depend on it, and so does which samples a step takes */
    SP_ROLE_WAY,     /* neither: how the same numbers are computed and reported */
    SP_ROLE_READ,    /* files to read: paths may differ between processes, only contents count */
    SP_ROLE_WRITTEN, /* files to write: a run that continues where another ended appends to them */
    SP_ROLE_START    /* only for one start */
};

/* The heading that --help lists an option under; the headings are in cli/help/help.c. */
enum sp_option_topic {
    SP_TOPIC_NONE, /* for a command with few options */
    SP_TOPIC_EVERYDAY,
    SP_TOPIC_MODEL,
    SP_TOPIC_SCHEDULE,
    SP_TOPIC_MEMORY,
    SP_TOPIC_DEVICES,
    SP_TOPIC_OPTIMIZER,
    SP_TOPIC_EVALUATION,
    SP_TOPIC_OUTPUT,
    SP_TOPIC_ADVANCED,
    SP_TOPICS
};

struct sp_option {
    const char *name; /* without the dashes; NULL ends the table */
    enum sp_option_kind kind;
    enum sp_option_topic topic;
    void *value;         /* holds the default, shown by --help; set when the option is given */
    const char *arg;     /* what the value is called in the help: "FILE" */
    const char *help;    /* one line */
    double min, max;     /* INT and DOUBLE; both 0: any */
    const char *choices; /* CHOICE, STRING: "text|json"; INT: "N|auto", auto being 0 or min < 0 */
    const char *also;    /* other names, "a|b", or for a choice, "json=json"; NULL: none */
    const char *wants;   /* has no effect unless one of these is on, "save", "a|b"; NULL: any */
    bool *given;         /* set when the option is given; may be NULL */
    enum sp_option_role role; /* train's */
};

/* An entry of a table: SP_OPTION("steps", INT, cfg.steps, .arg = "K", .help = "steps in all"). */
#define SP_OPTION(option, of_kind, variable, ...)                                                  \
    {                                                                                              \
        .name = (option), .kind = SP_OPT_##of_kind, .value = &(variable), __VA_ARGS__              \
    }

/* Sets the value from a text as it is given: "on" or "off" for a flag. Strings are not copied.
 * 0, or -EINVAL after one line that begins with the command. */
int sp_option_set(const struct sp_option *o, const char *command, const char *text);
/* Bytes of "512", "64KiB" or "64K", "1.5GiB", and, in powers of 1000, "5GB"; 0 or -EINVAL. */
int sp_parse_size(const char *text, uint64_t *bytes);

/* Copies the value of another option of the same kind, and whether it was given. */
void sp_option_copy(const struct sp_option *o, const struct sp_option *from);

/* The word that the value of an INT may be given as, such as "auto" of "N|auto"; NULL: it has no
 * word, or is a number. */
const char *sp_option_word(const struct sp_option *o);

/* The value of an option as it would be given: "0.001", "4096", "shuffled"; "" if there is none. */
void sp_option_text(const struct sp_option *o, char *text, size_t n);

/* The value of an option that is text (STRING, TEXT, PLUGIN, OUTPUT, OPERAND), which may be NULL; NULL for other kinds. */
const char *sp_option_string(const struct sp_option *o);

/* Checks that the value, however it was set, is in its range: 0, or -EINVAL after one line that
 * begins with the command. */
int sp_option_check(const struct sp_option *o, const char *command);

/* Checks that one of the options that `o` wants is on, or that it wants none: 0, or -EINVAL
 * after one line that begins with the command and shows `typed`, a name of `o`. */
int sp_option_check_wants(const struct sp_option *options, const struct sp_option *o,
                          const char *command, const char *typed);

/* The i-th word of "a|b|c" and its length; NULL past the end. */
const char *sp_choice(const char *choices, int i, int *length);
/* The number of the word that `text` is; -1: it is none of them. */
int sp_choice_of(const char *choices, const char *text);

/* --recompute; every=K is full, but keeps the input of only every K-th layer. */
struct sp_recompute_option {
    enum sp_recompute mode;
    int every;
};

/* True if train or show chooses (plan/recompute.h); the other commands refuse it. */
bool sp_recompute_is_auto(const char *text);

/* Reads it; -EINVAL after one line beginning with the command if it is no such value. */
int sp_parse_recompute(const char *command, const char *text, struct sp_recompute_option *option);
/* Reads --offload in the same way; also checks that --offload-keys goes with it. */
int sp_parse_offload(const char *command, const struct sp_layout_args *a,
                     enum sp_offload_mode *mode);

/* Reads --context-method in the same way: how many of the members divide the heads, 0: as many as
 * can. */
int sp_parse_context_method(const char *command, const struct sp_group_args *a, int *ulysses);

/* The layout of a model of `layers` layers, 0: unknown. With csv:FILE, sizes that were not given
 * are 0, so that the file decides. layout.options is "". */
struct sp_layout sp_layout_of_args(const struct sp_layout_args *a, int layers);

#define SP_LAYOUT_ARGS_DEFAULT                                                                     \
    {                                                                                              \
        .schedule = "1f1b", .stages = 4, .micro_batches = 8, .micro_batch_size = 1, .seq = 128,    \
        .slices = 1, .offload = "none"                                                             \
    }

#define SP_PLUGIN_ARG "FILE.so[,FILE.so...]"
#define SP_PLUGIN_HELP "schedule plugins; and those of STARPIPE_PLUGIN_PATH"
#define SP_OFFLOAD_MODES "none|full|adaptive" /* as in enum sp_offload_mode */
#define SP_OPTIMIZER_DEVICES "auto|gpu|cpu"   /* as in enum sp_update_device */
#define SP_OPTIMIZER_DEVICE_HELP                                                                   \
    "what updates state that left a GPU: it, where blocks come, or cores, where they are"
#define SP_CONTEXT_METHODS "ulysses|ring|ulysses,ring" /* also ulysses=U,ring */
/* Help texts that all commands share, because the defaults differ between them. */
#define SP_STAGES_HELP                                                                             \
    "pipeline stages: train begins with 1, show and simulate with 4, plan tries all"
#define SP_SEQ_HELP "tokens of a sequence: 128 in all commands but plan, which is for 65536"
#define SP_DTYPES_CHOICES "f32|bf16|fp8"
#define SP_DTYPE_HELP                                                                              \
    "activations, and weights in products: f32 in all commands but plan, which begins with bf16; " \
    "fp8 is bf16 with the products of layers in fp8"

/* Entries of an option table for the struct sp_layout_args `a`. */
#define SP_LAYOUT_OPTIONS(a)                                                                       \
    SP_OPTION("model", STRING, (a).model, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_READ,        \
              .arg = "PRESET|DIR",                                                                 \
              .help = "a model by its name, or a directory in Hugging Face form"),                 \
        SP_OPTION("schedule", STRING, (a).schedule, .topic = SP_TOPIC_EVERYDAY,                    \
                  .role = SP_ROLE_WAY, .arg = "NAME[:key=value,...]",                              \
                  .help = "schedule; 'starpipe list' names them; csv:FILE; auto: the fastest "     \
                          "that is predicted"),                                                    \
        SP_OPTION("stages", INT, (a).stages, .topic = SP_TOPIC_EVERYDAY, .role = SP_ROLE_WAY,      \
                  .arg = "P", .help = SP_STAGES_HELP, .min = 1, .max = 65536,                      \
                  .given = &(a).stages_set),                                                       \
        SP_OPTION("micro-batches", INT, (a).micro_batches, .topic = SP_TOPIC_MODEL,                \
                  .role = SP_ROLE_PLACE, .arg = "M", .help = "micro-batches of a step", .min = 1,  \
                  .max = 65536, .given = &(a).micro_batches_set),                                  \
        SP_OPTION("micro-batch-size", INT, (a).micro_batch_size, .topic = SP_TOPIC_MODEL,          \
                  .role = SP_ROLE_PLACE, .arg = "B", .help = "sequences of a micro-batch",         \
                  .min = 1, .max = 65536),                                                         \
        SP_OPTION("seq", INT, (a).seq, .topic = SP_TOPIC_MODEL, .role = SP_ROLE_PLACE, .arg = "S", \
                  .help = SP_SEQ_HELP, .min = 1, .max = INT_MAX),                                  \
        SP_OPTION("chunks", INT, (a).chunks, .topic = SP_TOPIC_SCHEDULE, .role = SP_ROLE_WAY,      \
                  .arg = "V", .help = "chunks of layers per stage (0: what the schedule wants)",   \
                  .max = 65536),                                                                   \
        SP_OPTION("slices", INT, (a).slices, .topic = SP_TOPIC_SCHEDULE, .role = SP_ROLE_WAY,      \
                  .choices = "N|auto",                                                             \
                  .help = "slices of a sequence; auto: as many as 'plan' would take", .min = 1,    \
                  .max = 65536),                                                                   \
        SP_OPTION("partition-slices", STRING, (a).partition_slices, .topic = SP_TOPIC_SCHEDULE,    \
                  .role = SP_ROLE_WAY, .arg = "length|flops|dp|LIST",                              \
                  .help = "tokens of each slice: equal, of equal times, by TeraPipe's program, "   \
                          "or 96,64,48,48"),                                                       \
        SP_OPTION("recompute", STRING, (a).recompute, .topic = SP_TOPIC_MEMORY,                    \
                  .role = SP_ROLE_WAY,                                                             \
                  .arg = "none|full|selective|no-attention|LIST|every=K|auto",                     \
                  .help = "activations computed again in the backward (default: none, or what "    \
                          "train's schedule wants); LIST: norms,activation is selective, "         \
                          "norms,activation,qkv,mlp no-attention; auto: train and show choose, "   \
                          "for --memory-limit"),                                                   \
        SP_OPTION("offload", STRING, (a).offload, .topic = SP_TOPIC_MEMORY, .role = SP_ROLE_WAY,   \
                  .arg = SP_OFFLOAD_MODES, .help = "activations moved out of the device"),         \
        SP_OPTION("offload-keys", CHOICE, (a).offload_keys, .topic = SP_TOPIC_MEMORY,              \
                  .role = SP_ROLE_WAY, .choices = "auto|stay|leave",                               \
                  .help =                                                                          \
                      "keys and values of slices too; auto: with full, and where adaptive must",   \
                  .wants = "offload"),                                                             \
        SP_OPTION("offload-peers", FLAG, (a).offload_peers, .topic = SP_TOPIC_MEMORY,              \
                  .role = SP_ROLE_WAY,                                                             \
                  .help = "activations of full stages wait for their backward on emptier ones; "   \
                          "with --offload, tensor by tensor"),                                     \
        SP_OPTION("offload-optimizer", FLAG, (a).offload_optimizer, .topic = SP_TOPIC_MEMORY,      \
                  .role = SP_ROLE_WAY,                                                             \
                  .help = "the optimizer's state moved out too; blocks come for their update"),    \
        SP_OPTION("optimizer-device", CHOICE, (a).optimizer_device, .topic = SP_TOPIC_MEMORY,      \
                  .role = SP_ROLE_WAY, .choices = SP_OPTIMIZER_DEVICES,                            \
                  .help = SP_OPTIMIZER_DEVICE_HELP, .wants = "offload-optimizer"),                 \
        SP_OPTION("vocabulary-parallel", FLAG, (a).vocabulary_parallel,                            \
                  .topic = SP_TOPIC_SCHEDULE, .role = SP_ROLE_WAY,                                 \
                  .help = "cut embedding and head over the vocabulary, a share on every stage"),   \
        SP_OPTION("memory-limit", SIZE, (a).memory_limit, .topic = SP_TOPIC_MEMORY,                \
                  .role = SP_ROLE_WAY, .arg = "SIZE", .help = "memory of a stage (0: no limit)"),  \
        SP_OPTION("plugin", PLUGIN, (a).plugin, .topic = SP_TOPIC_SCHEDULE, .role = SP_ROLE_READ,  \
                  .arg = SP_PLUGIN_ARG, .help = SP_PLUGIN_HELP)

#endif
