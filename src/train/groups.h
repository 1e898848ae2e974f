/* The options that say how many processes each stage has, and their effect on a shape. */
#ifndef SP_TRAIN_GROUPS_H
#define SP_TRAIN_GROUPS_H

#include "model/shape.h"
#include "policies/lowering/pipelines.h"
#include "train/options.h"

#define SP_GROUP_ARGS_DEFAULT                                                                      \
    {                                                                                              \
        .data_parallel = 1, .context_parallel = 1, .tensor_parallel = 1                            \
    }

/* Entries of an option table for the struct sp_group_args `a`. */
#define SP_GROUP_OPTIONS(a)                                                                        \
    {.name = "data-parallel",                                                                      \
     .kind = SP_OPT_INT,                                                                           \
     .topic = SP_TOPIC_DEVICES,                                                                    \
     .value = &(a).data_parallel,                                                                  \
     .arg = "D",                                                                                   \
     .help = "pipelines side by side that share a step, each with --micro-batches of its own",     \
     .min = 1,                                                                                     \
     .max = SP_MAX_PIPELINES,                                                                      \
     .role = SP_ROLE_PLACE},                                                                       \
        {.name = "context-parallel",                                                               \
         .kind = SP_OPT_INT,                                                                       \
         .topic = SP_TOPIC_DEVICES,                                                                \
         .value = &(a).context_parallel,                                                           \
         .arg = "C",                                                                               \
         .help = "processes of each stage that share the tokens of every sequence",                \
         .min = 1,                                                                                 \
         .max = SP_MAX_SLICES,                                                                     \
         .role = SP_ROLE_WAY},                                                                     \
        {.name = "context-method",                                                                 \
         .kind = SP_OPT_CHOICE,                                                                    \
         .topic = SP_TOPIC_DEVICES,                                                                \
         .value = &(a).context_method,                                                             \
         .help = "what they do for attention: share its heads out, or pass keys and values "       \
                 "around",                                                                         \
         .choices = "ulysses|ring",                                                                \
         .wants = "context-parallel",                                                              \
         .role = SP_ROLE_WAY},                                                                     \
        {.name = "tensor-parallel",                                                                \
         .kind = SP_OPT_INT,                                                                       \
         .topic = SP_TOPIC_DEVICES,                                                                \
         .value = &(a).tensor_parallel,                                                            \
         .arg = "T",                                                                               \
         .help = "processes of each stage that share heads, MLP and vocabulary",                   \
         .min = 1,                                                                                 \
         .max = SP_MAX_SLICES,                                                                     \
         .role = SP_ROLE_WAY},                                                                     \
        {.name = "sequence-parallel",                                                              \
         .kind = SP_OPT_CHOICE,                                                                    \
         .topic = SP_TOPIC_DEVICES,                                                                \
         .value = &(a).sequence_parallel,                                                          \
         .help = "whether these share the tokens of all else too",                                 \
         .choices = "on|off",                                                                      \
         .wants = "tensor-parallel",                                                               \
         .role = SP_ROLE_WAY},                                                                     \
    {                                                                                              \
        .name = "zero", .kind = SP_OPT_CHOICE, .topic = SP_TOPIC_DEVICES, .value = &(a).zero,      \
        .help = "1: the pipelines side by side share out the optimizer's state and the update",    \
        .choices = "0|1", .wants = "data-parallel|context-parallel", .role = SP_ROLE_WAY           \
    }

/* Pipelines that share a step: each has its own samples, its own tokens of the same samples, or
 * its part of the parameters. */
static inline int sp_groups_pipelines(const struct sp_group_args *a)
{
    return a->data_parallel * a->context_parallel * a->tensor_parallel;
}

/* Changes a shape that sp_shape_init made into that of one process. */
void sp_groups_shape(const struct sp_group_args *a, struct sp_shape *sh);

#endif
