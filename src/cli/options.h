/*
 * Long options from a table: "--name value", "--name=value", flags, --help, and the words that a
 * command wants beside them, its operands. Every command parses with this, so that help, defaults,
 * ranges and refusals look the same everywhere.
 */
#ifndef SP_OPTIONS_H
#define SP_OPTIONS_H

#include "codelets/shape.h"
#include "offload/eviction.h"
#include "starpipe/schedule.h"
#include <limits.h>
#include <stdbool.h>
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

struct sp_option {
    const char *name; /* without the dashes; NULL ends the table */
    enum sp_option_kind kind;
    void *value;         /* holds the default, shown by --help; set when the option is given */
    const char *arg;     /* what the value is called in the help: "FILE" */
    const char *help;    /* one line */
    double min, max;     /* INT and DOUBLE; both 0: any */
    const char *choices; /* CHOICE: "text|json"; INT: "N|auto", where auto is 0 */
    bool *given;         /* set when the option is given; may be NULL */
};

/*
 * Parses argv[1..]; argv[0] is the command, `summary` its line in the help. 0: go on; 1: the help
 * was printed on stdout, the command is done; -EINVAL: one line was printed on stderr.
 * Of an option given twice the last value counts.
 */
int sp_options_parse(const struct sp_option *options, const char *summary, int argc, char **argv);

/* The value of an option as it would be given: "0.001", "4096", "shuffled"; "" where there is none. */
void sp_option_text(const struct sp_option *o, char *text, size_t n);

/* Bytes of "512", "64KiB", "1.5GiB", "5GB"; 0 or -EINVAL. */
int sp_parse_size(const char *text, uint64_t *bytes);

/* The i-th word of "a|b|c" and its length; NULL past the end. */
const char *sp_choice(const char *choices, int i, int *length);
/* The number of the word that `text` is, -1: of none. */
int sp_choice_of(const char *choices, const char *text);

/* Exit status of a command for a return code of sp_options_parse other than 0. */
#define SP_OPTIONS_EXIT(ret) ((ret) > 0 ? 0 : 2)

/* --recompute: every=K is full, kept every K layers. */
struct sp_recompute_option {
    enum sp_recompute mode;
    int every;
};

/* Reads it; one line beginning with the command and -EINVAL if it is none. */
int sp_parse_recompute(const char *command, const char *text, struct sp_recompute_option *option);
/* --offload, likewise. */
int sp_parse_offload(const char *command, const char *text, enum sp_offload_mode *mode);

/* The layout options that train, show, plan and simulate have in common. */
struct sp_layout_args {
    const char *schedule;
    int stages, micro_batches, micro_batch_size, seq, chunks, slices;
    const char *model, *recompute, *offload, *plugin, *partition_slices;
    uint64_t memory_limit;
    bool stages_set, micro_batches_set;
};

/* The layout of a model of `layers` layers, 0: unknown. With csv:FILE, sizes that were not given are
 * 0, so that the file has its way. layout.options is "". */
struct sp_layout sp_layout_of_args(const struct sp_layout_args *a, int layers);

struct sp_model;
struct sp_cluster;

/* --slices auto: as many slices as `plan` would take with these stages on `on`, NULL: cores of this
 * machine, within --memory-limit. Left alone if it is a number. 0; or -EINVAL after one line that begins
 * with the command. */
int sp_slices_auto(const char *command, struct sp_layout_args *a, const struct sp_model *model,
                   enum sp_dtype dtype, const struct sp_cluster *on);

#define SP_LAYOUT_ARGS_DEFAULT                                                                     \
    {                                                                                              \
        .schedule = "1f1b", .stages = 4, .micro_batches = 8, .micro_batch_size = 1, .seq = 128,    \
        .slices = 1, .offload = "none"                                                             \
    }

#define SP_PLUGIN_HELP "schedule plugins; and those of STARPIPE_PLUGIN_PATH"

/* Entries of an option table for the struct sp_layout_args `a`. */
#define SP_LAYOUT_OPTIONS(a)                                                                       \
    {"schedule",                                                                                   \
     SP_OPT_STRING,                                                                                \
     &(a).schedule,                                                                                \
     "NAME[:key=value,...]",                                                                       \
     "schedule; 'starpipe list' names them; csv:FILE",                                             \
     0,                                                                                            \
     0,                                                                                            \
     0,                                                                                            \
     0},                                                                                           \
        {"stages", SP_OPT_INT, &(a).stages, "P", "pipeline stages", 1, 65536, 0, &(a).stages_set}, \
        {"micro-batches", SP_OPT_INT, &(a).micro_batches,    "M", "micro-batches of a step", 1,    \
         65536,           0,          &(a).micro_batches_set},                                     \
        {"micro-batch-size",                                                                       \
         SP_OPT_INT,                                                                               \
         &(a).micro_batch_size,                                                                    \
         "B",                                                                                      \
         "sequences of a micro-batch",                                                             \
         1,                                                                                        \
         65536,                                                                                    \
         0,                                                                                        \
         0},                                                                                       \
        {"seq", SP_OPT_INT, &(a).seq, "S", "tokens of a sequence", 1, INT_MAX, 0, 0},              \
        {"chunks",                                                                                 \
         SP_OPT_INT,                                                                               \
         &(a).chunks,                                                                              \
         "V",                                                                                      \
         "chunks of layers per stage (0: what the schedule wants)",                                \
         0,                                                                                        \
         65536,                                                                                    \
         0,                                                                                        \
         0},                                                                                       \
        {"slices",                                                                                 \
         SP_OPT_INT,                                                                               \
         &(a).slices,                                                                              \
         "N",                                                                                      \
         "slices of a sequence; auto: as many as 'plan' would take",                               \
         1,                                                                                        \
         65536,                                                                                    \
         "N|auto",                                                                                 \
         0},                                                                                       \
        {"partition-slices",                                                                       \
         SP_OPT_STRING,                                                                            \
         &(a).partition_slices,                                                                    \
         "length|flops|dp|LIST",                                                                   \
         "tokens of each slice: equal, of equal times, by TeraPipe's program, or 96,64,48,48",     \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         0},                                                                                       \
        {"model", SP_OPT_STRING, &(a).model, "PRESET|DIR", "model", 0, 0, 0, 0},                   \
        {"recompute",                                                                              \
         SP_OPT_STRING,                                                                            \
         &(a).recompute,                                                                           \
         "none|full|selective|no-attention|every=K",                                               \
         "activations computed again in the backward (default: none, or what train's schedule "    \
         "wants)",                                                                                 \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         0},                                                                                       \
        {"offload",                                                                                \
         SP_OPT_STRING,                                                                            \
         &(a).offload,                                                                             \
         "none|full|adaptive",                                                                     \
         "activations moved out of the device",                                                    \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         0},                                                                                       \
        {"memory-limit",                                                                           \
         SP_OPT_SIZE,                                                                              \
         &(a).memory_limit,                                                                        \
         "BYTES",                                                                                  \
         "memory of a stage, KiB, MiB or GiB (0: no limit)",                                       \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         0},                                                                                       \
    {                                                                                              \
        "plugin", SP_OPT_PLUGIN, &(a).plugin, "FILE.so[,FILE.so...]", SP_PLUGIN_HELP, 0, 0, 0, 0   \
    }

#endif
