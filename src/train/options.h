/*
 * Settings as tables: the name of each, its kind, its range, where its value is. A command parses its
 * arguments by such a table (cli/options.h); the trainer checks its configuration by one, compares it
 * between processes and writes it beside checkpoints.
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
    SP_OPT_STRING, /* const char ** */
    SP_OPT_INT,    /* int *, in min .. max */
    SP_OPT_SIZE,   /* uint64_t *, bytes, or with a suffix: KiB, MB, ... */
    SP_OPT_DOUBLE, /* double *, in min .. max */
    SP_OPT_CHOICE, /* int *, index in `choices` */
    SP_OPT_PLUGIN, /* const char **; the plugins are loaded when all options are parsed */
    SP_OPT_FLAG,   /* bool *, set by the bare name */
    SP_OPT_OPERAND /* const char **, a word without dashes; all are needed, in the table's order */
};

/*
 * What an option of train is to the processes of a run, to what is kept of it, and to a run that goes on from
 * that. A run that goes on takes over all options but those of SP_ROLE_START.
 */
enum sp_option_role {
    SP_ROLE_NONE,    /* of no run */
    SP_ROLE_NUMBERS, /* the numbers of a run depend on it: losses, gradients, parameters */
    SP_ROLE_PLACE,   /* so does which samples a step takes */
    SP_ROLE_WAY,     /* neither: how the same numbers come about, and what is told of them */
    SP_ROLE_READ, /* files that are there: their paths may differ between processes, what they hold counts */
    SP_ROLE_WRITTEN, /* files: a run that goes on where another ended goes on with them */
    SP_ROLE_START    /* of one start alone */
};

struct sp_option {
    const char *name; /* without the dashes; NULL ends the table */
    enum sp_option_kind kind;
    void *value;              /* holds the default, shown by --help; set when the option is given */
    const char *arg;          /* what the value is called in the help: "FILE" */
    const char *help;         /* one line */
    double min, max;          /* INT and DOUBLE; both 0: any */
    const char *choices;      /* CHOICE: "text|json"; INT: "N|auto", where auto is 0 */
    bool *given;              /* set when the option is given; may be NULL */
    enum sp_option_role role; /* train's */
};

/* Its value from a text, as it is given: a flag's is "on" or "off". Strings are not copied. 0, or -EINVAL after
 * one line that begins with the command. */
int sp_option_set(const struct sp_option *o, const char *command, const char *text);
/* Bytes of "512", "64KiB", "1.5GiB", "5GB"; 0 or -EINVAL. */
int sp_parse_size(const char *text, uint64_t *bytes);

/* The value of an option as it would be given: "0.001", "4096", "shuffled"; "" where there is none. */
void sp_option_text(const struct sp_option *o, char *text, size_t n);

/* Whether its value, however it was set, is one of its range: 0, or -EINVAL after one line that begins
 * with the command. */
int sp_option_check(const struct sp_option *o, const char *command);

/* The i-th word of "a|b|c" and its length; NULL past the end. */
const char *sp_choice(const char *choices, int i, int *length);
/* The number of the word that `text` is, -1: of none. */
int sp_choice_of(const char *choices, const char *text);

/* --recompute: every=K is full, kept every K layers. */
struct sp_recompute_option {
    enum sp_recompute mode;
    int every;
};

/* Whether it is left to train (plan/recompute.h): then the others read it as none. */
bool sp_recompute_is_auto(const char *text);

/* Reads it; one line beginning with the command and -EINVAL if it is none. */
int sp_parse_recompute(const char *command, const char *text, struct sp_recompute_option *option);
/* --offload, likewise; and whether --offload-keys goes with it. */
int sp_parse_offload(const char *command, const struct sp_layout_args *a,
                     enum sp_offload_mode *mode);

/* The layout of a model of `layers` layers, 0: unknown. With csv:FILE, sizes that were not given are
 * 0, so that the file has its way. layout.options is "". */
struct sp_layout sp_layout_of_args(const struct sp_layout_args *a, int layers);

#define SP_LAYOUT_ARGS_DEFAULT                                                                     \
    {                                                                                              \
        .schedule = "1f1b", .stages = 4, .micro_batches = 8, .micro_batch_size = 1, .seq = 128,    \
        .slices = 1, .offload = "none"                                                             \
    }

#define SP_PLUGIN_HELP "schedule plugins; and those of STARPIPE_PLUGIN_PATH"

#define SP_OPTION(name, kind, value, arg, help, min, max, choices, given, role)                    \
    {                                                                                              \
        name, kind, value, arg, help, min, max, choices, given, role                               \
    }

/* Entries of an option table for the struct sp_layout_args `a`. */
#define SP_LAYOUT_OPTIONS(a)                                                                       \
    SP_OPTION("schedule", SP_OPT_STRING, &(a).schedule, "NAME[:key=value,...]",                    \
              "schedule; 'starpipe list' names them; csv:FILE", 0, 0, 0, 0, SP_ROLE_WAY),          \
        SP_OPTION("stages", SP_OPT_INT, &(a).stages, "P", "pipeline stages", 1, 65536, 0,          \
                  &(a).stages_set, SP_ROLE_WAY),                                                   \
        SP_OPTION("micro-batches", SP_OPT_INT, &(a).micro_batches, "M", "micro-batches of a step", \
                  1, 65536, 0, &(a).micro_batches_set, SP_ROLE_PLACE),                             \
        SP_OPTION("micro-batch-size", SP_OPT_INT, &(a).micro_batch_size, "B",                      \
                  "sequences of a micro-batch", 1, 65536, 0, 0, SP_ROLE_PLACE),                    \
        SP_OPTION("seq", SP_OPT_INT, &(a).seq, "S", "tokens of a sequence", 1, INT_MAX, 0, 0,      \
                  SP_ROLE_PLACE),                                                                  \
        SP_OPTION("chunks", SP_OPT_INT, &(a).chunks, "V",                                          \
                  "chunks of layers per stage (0: what the schedule wants)", 0, 65536, 0, 0,       \
                  SP_ROLE_WAY),                                                                    \
        SP_OPTION("slices", SP_OPT_INT, &(a).slices, "N",                                          \
                  "slices of a sequence; auto: as many as 'plan' would take", 1, 65536, "N|auto",  \
                  0, SP_ROLE_WAY),                                                                 \
        SP_OPTION(                                                                                 \
            "partition-slices", SP_OPT_STRING, &(a).partition_slices, "length|flops|dp|LIST",      \
            "tokens of each slice: equal, of equal times, by TeraPipe's program, or 96,64,48,48",  \
            0, 0, 0, 0, SP_ROLE_WAY),                                                              \
        SP_OPTION("model", SP_OPT_STRING, &(a).model, "PRESET|DIR", "model", 0, 0, 0, 0,           \
                  SP_ROLE_READ),                                                                   \
        SP_OPTION("recompute", SP_OPT_STRING, &(a).recompute,                                      \
                  "none|full|selective|no-attention|every=K|auto",                                 \
                  "activations computed again in the backward (default: none, or what train's "    \
                  "schedule wants); auto: train chooses, for --memory-limit",                      \
                  0, 0, 0, 0, SP_ROLE_WAY),                                                        \
        SP_OPTION("offload", SP_OPT_STRING, &(a).offload, "none|full|adaptive",                    \
                  "activations moved out of the device", 0, 0, 0, 0, SP_ROLE_WAY),                 \
        SP_OPTION("offload-keys", SP_OPT_CHOICE, &(a).offload_keys, 0,                             \
                  "keys and values of slices too; auto: with full, and where adaptive must", 0, 0, \
                  "auto|stay|leave", 0, SP_ROLE_WAY),                                              \
        SP_OPTION("vocabulary-parallel", SP_OPT_FLAG, &(a).vocabulary_parallel, 0,                 \
                  "cut embedding and head over the vocabulary, a share on every stage", 0, 0, 0,   \
                  0, SP_ROLE_WAY),                                                                 \
        SP_OPTION("memory-limit", SP_OPT_SIZE, &(a).memory_limit, "BYTES",                         \
                  "memory of a stage, KiB, MiB or GiB (0: no limit)", 0, 0, 0, 0, SP_ROLE_WAY),    \
        SP_OPTION("plugin", SP_OPT_PLUGIN, &(a).plugin, "FILE.so[,FILE.so...]", SP_PLUGIN_HELP, 0, \
                  0, 0, 0, SP_ROLE_READ)

#endif
