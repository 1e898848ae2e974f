#include "train/slices_auto.h"
#include "plan/search/search.h"
#include "policies/registry.h"
#include "sp_error.h"
#include <stdio.h>
#include <string.h>

static int check(const char *command, const struct sp_layout_args *l, const struct sp_model *model)
{
    char where[32];

    if (!sp_schedule_takes_slices(l->schedule))
        return sp_error(
            EINVAL,
            "%s: %s does not cut sequences into slices; sppo, seq1f1b, slimpipe, terapipe and "
            "helix do",
            command, l->schedule);
    snprintf(where, sizeof where, "%s: ", command);
    if (sp_model_check_seq(model, l->seq, where))
        return -EINVAL;
    if ((int64_t)l->micro_batch_size * l->seq > INT32_MAX)
        return sp_error(EINVAL,
                        "%s: %d sequences of %d tokens: a micro-batch has at most %d tokens",
                        command, l->micro_batch_size, l->seq, INT32_MAX);
    if (l->stages > model->layers)
        return sp_error(EINVAL, "%s: %d stages are more than the %d layers of %s", command,
                        l->stages, model->layers, model->name);
    return 0;
}

int sp_slices_auto(const char *command, struct sp_layout_args *l, const struct sp_model *model,
                   enum sp_dtype dtype, const struct sp_machine *machine, int64_t memory)
{
    const char *mode = sp_schedule_recompute(l->schedule, l->recompute);
    struct sp_recompute_option recompute = {SP_RECOMPUTE_NONE, 1};
    struct sp_search want = {.schedule = l->schedule,
                             .model = model,
                             .dtype = dtype,
                             .seq = l->seq,
                             .sequences = l->micro_batches * l->micro_batch_size,
                             .batch = l->micro_batch_size,
                             .stages = l->stages,
                             .devices = 1,
                             .vocabulary =
                                 l->vocabulary_parallel ? SP_SEARCH_WITH : SP_SEARCH_WITHOUT,
                             .cut = l->partition_slices,
                             .machine = machine,
                             .nodes = 1,
                             .memory = l->memory_limit ? (int64_t)l->memory_limit
                                       : memory        ? memory
                                                       : INT64_MAX};
    struct sp_found best;
    int n;

    if (l->slices)
        return 0;
    if (check(command, l, model) ||
        (!sp_recompute_is_auto(mode) && sp_parse_recompute(command, mode, &recompute)) ||
        sp_parse_offload(command, l, &want.offload))
        return -EINVAL;
    want.recompute = recompute.mode;
    want.every = recompute.every;
    n = sp_search(&want, &best, 1);
    if (n < 0)
        return n;
    if (n == 0)
        return sp_error(
            EINVAL,
            "%s: no slices of %d tokens can be shared out to these stages: multiplex wants at "
            "least a slice a stage but one, %d tokens of a slice a stage, and at most %d parts, "
            "which 16 stages have",
            command, l->seq, SP_TOKENS_OF_PART, SP_MAX_SLICES);
    l->slices = best.slices;
    return 0;
}
