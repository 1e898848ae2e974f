/* --cost, --recompute, --slices auto and --hardware, for the commands that simulate a step. */
#ifndef SP_CLI_STEP_OPTIONS_H
#define SP_CLI_STEP_OPTIONS_H

#include "model/shape.h"
#include "plan/machine/machine.h"
#include "policies/plan.h"
#include "train/groups.h"
#include "train/options.h"

/* Reads --cost (NULL: none) and adds the time that --recompute adds to backwards; selective
 * recomputation adds next to nothing. 0; or -EINVAL after one line that begins with the command. */
int sp_step_costs(const char *command, const struct sp_layout_args *l, const char *cost,
                  const struct sp_plan *plan, struct sp_costs *costs);

/* The machine whose times are simulated. */
struct sp_hardware_args {
    const char *name; /* or a file; NULL: the default machine */
    int threads;      /* of a device; 0: as the machine says */
};

/* Entries of an option table; the first gets .topic and .help. */
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

/* Finds the machine, with devices of the given number of threads; warns if it has no figures for
 * that number. 0, or -errno after one line. */
int sp_step_machine(const struct sp_hardware_args *hardware, struct sp_machine *machine);

/* --schedule auto, on as many devices of the machine as --stages and groups ask for, or on those
 * of a node. Puts the choice into *l and *groups; if `says`, it prints the choice and its
 * reason. 0; or -errno after one line. */
struct sp_step_auto {
    const char *command;
    const struct sp_machine *machine; /* NULL: ops take the times of --cost */
    const struct sp_model *model;     /* NULL: none was given */
    enum sp_dtype dtype;
    bool says;
};

int sp_step_choose(const struct sp_step_auto *how, struct sp_layout_args *l,
                   struct sp_group_args *groups);

/* --slices auto, on the given machine (NULL: the default one). 0; or -EINVAL after one line. */
int sp_step_slices(const char *command, struct sp_layout_args *l, const struct sp_machine *machine,
                   const struct sp_model *model, enum sp_dtype dtype);

/* Refuses --hardware, or --threads of its devices, together with --cost or without --model:
 * -EINVAL after one line. */
int sp_step_check_hardware(const char *command, const struct sp_layout_args *l,
                           const struct sp_hardware_args *hardware, const char *cost);

#endif
