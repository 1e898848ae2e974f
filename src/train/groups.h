/* The options that say how many processes each stage has: and what they make of a shape. */
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
    SP_OPTION("data-parallel", SP_OPT_INT, &(a).data_parallel, "D",                                \
              "pipelines side by side that share a step, each with --micro-batches of its own", 1, \
              SP_MAX_PIPELINES, 0, 0, SP_ROLE_PLACE),                                              \
        SP_OPTION("context-parallel", SP_OPT_INT, &(a).context_parallel, "C",                      \
                  "processes of each stage that share the tokens of every sequence", 1,            \
                  SP_MAX_SLICES, 0, 0, SP_ROLE_WAY),                                               \
        SP_OPTION("context-method", SP_OPT_CHOICE, &(a).context_method, 0,                         \
                  "what they do for attention: share its heads out, or pass keys and values "      \
                  "around",                                                                        \
                  0, 0, "ulysses|ring", 0, SP_ROLE_WAY),                                           \
        SP_OPTION("tensor-parallel", SP_OPT_INT, &(a).tensor_parallel, "T",                        \
                  "processes of each stage that share heads, MLP and vocabulary", 1,               \
                  SP_MAX_SLICES, 0, 0, SP_ROLE_WAY),                                               \
        SP_OPTION("sequence-parallel", SP_OPT_CHOICE, &(a).sequence_parallel, 0,                   \
                  "whether these share the tokens of all else too", 0, 0, "on|off", 0,             \
                  SP_ROLE_WAY),                                                                    \
        SP_OPTION("zero", SP_OPT_CHOICE, &(a).zero, 0,                                             \
                  "1: the pipelines side by side share out the optimizer's state and the update",  \
                  0, 0, "0|1", 0, SP_ROLE_WAY)

/* Pipelines that share a step: with samples of their own, tokens of the same, or parameters. */
static inline int sp_groups_pipelines(const struct sp_group_args *a)
{
    return a->data_parallel * a->context_parallel * a->tensor_parallel;
}

/* Refuses what has no effect; `command` begins the line. 0 or -EINVAL. */
int sp_groups_check(const char *command, const struct sp_group_args *a);

/* Of a shape as sp_shape_init leaves it, that of one process. */
void sp_groups_shape(const struct sp_group_args *a, struct sp_shape *sh);

#endif
