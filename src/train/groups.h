/* The options that say how many processes each stage has, and their effect on a shape. */
#ifndef SP_TRAIN_GROUPS_H
#define SP_TRAIN_GROUPS_H

#include "model/shape.h"
#include "policies/lowering/pipelines.h"
#include "policies/registry.h"
#include "train/options.h"

#define SP_GROUP_ARGS_DEFAULT                                                                      \
    {                                                                                              \
        .data_parallel = 1, .context_parallel = 1, .context_method = "ulysses",                    \
        .tensor_parallel = 1                                                                       \
    }

/* Entries of an option table for the struct sp_group_args `a`. */
#define SP_GROUP_OPTIONS(a)                                                                        \
    SP_OPTION(                                                                                     \
        "data-parallel", INT, (a).data_parallel, .topic = SP_TOPIC_DEVICES, .role = SP_ROLE_PLACE, \
        .arg = "D",                                                                                \
        .help = "pipelines side by side that share a step, each with --micro-batches of its own",  \
        .min = 1, .max = SP_MAX_PIPELINES),                                                        \
        SP_OPTION("context-parallel", INT, (a).context_parallel, .topic = SP_TOPIC_DEVICES,        \
                  .role = SP_ROLE_WAY, .arg = "C",                                                 \
                  .help = "processes of each stage that share the tokens of every sequence",       \
                  .min = 1, .max = SP_MAX_SLICES),                                                 \
        SP_OPTION("context-method", STRING, (a).context_method, .topic = SP_TOPIC_DEVICES,         \
                  .role = SP_ROLE_WAY, .choices = SP_CONTEXT_METHODS "|ulysses=U,ring",            \
                  .help =                                                                          \
                      "what they do for attention: share its heads out, pass keys and values "     \
                      "around, or both: U neighbours share heads (default: as many as can), and "  \
                      "such groups pass",                                                          \
                  .wants = "context-parallel"),                                                    \
        SP_OPTION("tensor-parallel", INT, (a).tensor_parallel, .topic = SP_TOPIC_DEVICES,          \
                  .role = SP_ROLE_WAY, .arg = "T",                                                 \
                  .help = "processes of each stage that share heads, MLP and vocabulary",          \
                  .min = 1, .max = SP_MAX_SLICES),                                                 \
        SP_OPTION("sequence-parallel", CHOICE, (a).sequence_parallel, .topic = SP_TOPIC_DEVICES,   \
                  .role = SP_ROLE_WAY, .choices = "on|off",                                        \
                  .help = "whether these share the tokens of all else too",                        \
                  .wants = "tensor-parallel"),                                                     \
        SP_OPTION(                                                                                 \
            "zero", CHOICE, (a).zero, .topic = SP_TOPIC_DEVICES, .role = SP_ROLE_WAY,              \
            .choices = "0|1|2|3",                                                                  \
            .help =                                                                                \
                "1: the pipelines side by side share out the optimizer's state and the update; "   \
                "2: also the gradients of layers; 3: also their weights",                          \
            .wants = "data-parallel|context-parallel")

/* Pipelines that share a step: each has its own samples, its own tokens of the same samples, or
 * its part of the parameters. */
static inline int sp_groups_pipelines(const struct sp_group_args *a)
{
    return a->data_parallel * a->context_parallel * a->tensor_parallel;
}

/* Changes a shape that sp_shape_init made into that of one process. sp_parse_context_method must
 * accept the method. */
static inline void sp_groups_shape(const struct sp_group_args *a, const struct sp_layout_args *l,
                                   struct sp_shape *sh)
{
    int ulysses = a->context_parallel;

    (void)sp_parse_context_method("", a, &ulysses);
    sp_shape_tensor(sh, a->tensor_parallel, a->sequence_parallel == SP_TRAIN_SEQUENCE_ON);
    sp_shape_context(sh, a->context_parallel, ulysses);
    sp_shape_join(sh, l->slices);
    if (sp_schedule_flag(l->schedule, "multiplex"))
        sp_shape_stripe(sh);
    sp_shape_share(sh, a->data_parallel * a->context_parallel, a->zero);
}

#endif
