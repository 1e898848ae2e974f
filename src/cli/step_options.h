/* What the commands that simulate a step make of --cost, --recompute, --slices auto and --hardware. */
#ifndef SP_CLI_STEP_OPTIONS_H
#define SP_CLI_STEP_OPTIONS_H

#include "model/shape.h"
#include "plan/machine/machine.h"
#include "policies/plan.h"
#include "train/groups.h"
#include "train/options.h"

/* --cost (NULL: none), with what --recompute adds to backwards: selective recomputation costs next to nothing.
 * 0; or -EINVAL after one line that begins with the command. */
int sp_step_costs(const char *command, const struct sp_layout_args *l, const char *cost,
                  const struct sp_plan *plan, struct sp_costs *costs);

/* Whose times are simulated. */
struct sp_hardware_args {
    const char *name; /* or a file; NULL: the default machine */
    int threads;      /* of a device; 0: as the machine has them */
};

/* Entries of an option table: .topic and .help of the first. */
#define SP_HARDWARE_OPTIONS(h, its_topic, its_help)                                                \
    {.name = "hardware",                                                                           \
     .kind = SP_OPT_STRING,                                                                        \
     .topic = its_topic,                                                                           \
     .value = &(h).name,                                                                           \
     .arg = "NAME|FILE|LIST",                                                                      \
     .help = its_help},                                                                            \
    {                                                                                              \
        .name = "threads", .kind = SP_OPT_INT, .topic = SP_TOPIC_DEVICES, .value = &(h).threads,   \
        .arg = "T", .help = "threads of a device, on a machine of cores (0: as the machine says)", \
        .max = 4096                                                                                \
    }

/* More such entries, whose help differs from command to command. */
#define SP_LAYERS_OPTION(layers, its_help)                                                         \
    {                                                                                              \
        .name = "layers", .kind = SP_OPT_INT, .topic = SP_TOPIC_MODEL, .value = &(layers),         \
        .arg = "L", .help = its_help, .max = 1000000                                               \
    }
#define SP_COST_OPTION(cost, its_help)                                                             \
    {                                                                                              \
        .name = "cost", .kind = SP_OPT_STRING, .topic = SP_TOPIC_MODEL, .value = &(cost),          \
        .arg = "f=..,b=..,w=..,comm=..,wire=..,head=..", .help = its_help                          \
    }
#define SP_DTYPE_OPTION(dtype, is_given)                                                           \
    {                                                                                              \
        .name = "dtype", .kind = SP_OPT_CHOICE, .topic = SP_TOPIC_MODEL, .value = &(dtype),        \
        .help = SP_DTYPE_HELP, .choices = "f32|bf16", .given = is_given                            \
    }

/* The machine, with devices of so many threads. 0, or -errno after one line; a warning where it has no figures of so
 * many. */
int sp_step_machine(const struct sp_hardware_args *hardware, struct sp_machine *machine);

/* --schedule auto, on as many devices of that machine as --stages and groups say, or on those of a node: takes the choice
 * over in *l and *groups, and says it and its reason on standard output where `says`. 0; or -errno after one line. */
struct sp_step_auto {
    const char *command;
    const struct sp_machine *machine; /* NULL: --cost says what ops take */
    const struct sp_model *model;     /* NULL: none was given */
    enum sp_dtype dtype;
    bool says;
};

int sp_step_choose(const struct sp_step_auto *how, struct sp_layout_args *l,
                   struct sp_group_args *groups);

/* --slices auto, on that machine (NULL: the default one). 0; or -EINVAL after one line. */
int sp_step_slices(const char *command, struct sp_layout_args *l, const struct sp_machine *machine,
                   const struct sp_model *model, enum sp_dtype dtype);

/* --hardware, or --threads of its devices, beside --cost or without --model: -EINVAL after one line. */
int sp_step_check_hardware(const char *command, const struct sp_layout_args *l,
                           const struct sp_hardware_args *hardware, const char *cost);

#endif
