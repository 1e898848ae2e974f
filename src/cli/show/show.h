/* The parts of `show`, which prints a plan and its list-simulated times. */
#ifndef SP_SHOW_H
#define SP_SHOW_H

#include "cli/options.h"
#include "plan/memory.h"
#include "plan/predict.h"
#include <jansson.h>
#include <stdio.h>

struct sp_lowering;
struct sp_layout_args;
struct sp_offload;

struct sp_show {
    const char *schedule; /* as typed */
    const char *model;    /* "": none */
    const struct sp_plan *plan;
    const struct sp_machine *machine; /* whose times are shown; NULL: times come from costs */
    struct sp_costs costs;
    bool plain;       /* messages are not printed */
    int buffers;      /* sp_listsim_buffers */
    const char *vary; /* as typed; NULL: times are as planned */
    const struct sp_execution
        *execution;         /* NULL: stages keep to their programs, at times as planned */
    double strict_makespan; /* if ops overtake: the makespan of the order in which none does */
    const struct sp_prediction *prediction;
    const struct sp_shape *shape; /* of --model; NULL: sizes are unknown */
    struct sp_recompute_option recompute;
    struct sp_lowering *lowering;     /* of --actions and --model; NULL: neither was given */
    const struct sp_offload *offload; /* of --offload; NULL: nothing leaves memory */
    int columns;                      /* of the text form */
    bool color, actions;
};

/* Simulates another plan as this one is simulated. 0, or -ENOMEM with nothing to destroy. */
int sp_show_simulate(const struct sp_show *show, const struct sp_plan *plan,
                     struct sp_prediction *p);

/* Chooses what each layer computes again, for the plan and show->recompute: --recompute auto, and
 * schedule adapipe with --memory-limit on a machine. 0, or -errno after one line. */
int sp_show_choose_recompute(struct sp_show *show, const struct sp_layout_args *l,
                             struct sp_plan *plan);
/* Prints that: a letter for each layer, in groups as chunks of stages have them. */
void sp_show_recompute_text(const struct sp_plan *plan, FILE *out);

/*
 * Chooses what leaves memory by --offload and --memory-limit, and writes it into *offload, which
 * the caller destroys, and into the plan. 0; -EINVAL after one line: options do not go together, or
 * the limit cannot be kept; -ENOMEM.
 */
int sp_show_plan_memory(struct sp_show *show, const struct sp_layout_args *l, struct sp_plan *plan,
                        struct sp_offload *offload);
void sp_show_offload_text(const struct sp_show *show, FILE *out);
json_t *sp_show_offload_json(const struct sp_show *show);

/* The bytes of activations on each tier between forwards and backwards; those on other stages. */
json_t *sp_show_tiers_json(const struct sp_show *show);
void sp_show_parked_text(const struct sp_show *show, FILE *out);

/* Sets m[stages] to the memory that each stage needs. 0, or -errno after one line. */
int sp_show_memory(const struct sp_show *show, struct sp_memory *m);

/* The published closed form of the makespan, at the costs of the list simulation. */
struct sp_show_formula {
    double makespan;
    const char *source;
    const char *claim; /* how it relates to the simulated one: "exact", "lower bound", ... */
    char verdict[64];  /* "simulated the same" */
};

/* False if there is none for this layout. */
bool sp_show_formula(const struct sp_show *show, struct sp_show_formula *f);

/* At unit costs, if an order that is not built in leaves half of the time idle: one line about the
 * longest wait. */
void sp_show_idle_hint(const struct sp_show *show, FILE *out);

/* The costs in words. */
void sp_show_costs(const struct sp_show *show, char *text, size_t n);

/* The sharing of slices among stages, if there is any: who computes which, and the gain. */
void sp_show_multiplex_text(const struct sp_show *show, FILE *out);
json_t *sp_show_multiplex_json(const struct sp_show *show);

/*
 * Print the lowered program of one process a stage (policies/lowering): for each action of a stage
 * a line, or an entry [kind, op or tensor, peer or group or null, bytes or null]. 0, or -errno
 * after one line on stderr.
 */
int sp_show_lower(struct sp_show *show, struct sp_lowering *lowering); /* call it first */
int sp_show_actions_text(const struct sp_show *show, FILE *out);
int sp_show_actions_json(const struct sp_show *show, json_t *root);

/* Bytes of a step from stage to stage, if the model is known: text, or "bytes_sent" by stage and
 * "bytes_by_link" with entries [from, to, bytes]. An entry with from = to counts what a stage's
 * own devices or pipelines send each other. */
int sp_show_links_text(const struct sp_show *show, FILE *out);
int sp_show_links_json(const struct sp_show *show, json_t *root);
int sp_show_memory_json(const struct sp_show *show, json_t *root); /* "memory_bytes" */

enum sp_show_format {
    SP_SHOW_TEXT,
    SP_SHOW_JSON,
    SP_SHOW_CSV,
    SP_SHOW_SVG,
    SP_SHOW_HTML,
    SP_SHOW_PICTURE,
    SP_SHOW_PERFETTO
};

/* Refuses an --output that is also an input of the layout. */
int sp_show_check_output(const char *output, const struct sp_layout_args *layout);
/* Prints into the file of --output, or to standard output if it is NULL (cli/result.h). */
int sp_show_write(const struct sp_show *show, enum sp_show_format format, const char *output);

/* Each returns 0, or -errno after one line on stderr; write errors are left in ferror(out). */
int sp_show_text(const struct sp_show *show, FILE *out);
int sp_show_json(const struct sp_show *show, FILE *out);

#endif
