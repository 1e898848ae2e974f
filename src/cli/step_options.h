/* --cost, --recompute, --slices auto and --hardware, for the commands that simulate a step. */
#ifndef SP_CLI_STEP_OPTIONS_H
#define SP_CLI_STEP_OPTIONS_H

#include "cli/options.h"
#include "model/shape.h"
#include "plan/machine/machine.h"
#include "policies/plan.h"
#include "train/groups.h"

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
    SP_OPTION("hardware", STRING, (h).name, .help = its_help, .topic = its_topic,                  \
              .arg = "NAME|FILE|LIST"),                                                            \
        SP_OPTION("threads", INT, (h).threads,                                                     \
                  .help = "threads of a device, on a machine of cores (0: as the machine says)",   \
                  .topic = SP_TOPIC_DEVICES, .arg = "T", .max = 4096)

/* More such entries, whose help differs from command to command. */
#define SP_LAYERS_OPTION(layers, its_help)                                                         \
    SP_OPTION("layers", INT, layers, .help = its_help, .topic = SP_TOPIC_MODEL, .arg = "L",        \
              .max = 1000000)
#define SP_COST_OPTION(cost, its_help)                                                             \
    SP_OPTION("cost", STRING, cost, .help = its_help, .topic = SP_TOPIC_MODEL,                     \
              .arg = "f=..,b=..,w=..,comm=..,wire=..,head=..")
#define SP_DTYPE_OPTION(dtype, is_given)                                                           \
    SP_OPTION("dtype", CHOICE, dtype, .help = SP_DTYPE_HELP, .topic = SP_TOPIC_MODEL,              \
              .choices = SP_DTYPES_CHOICES, .given = is_given)

/* Finds the machine, with devices of the given number of threads; warns if it has no figures for
 * that number or for products in dtype. 0, or -errno after one line. */
int sp_step_machine(const struct sp_hardware_args *hardware, enum sp_dtype dtype,
                    struct sp_machine *machine);

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
