#include "train/slices_auto.h"
#include "policies/registry.h"
#include "sp_error.h"
#include <stdio.h>
#include <string.h>

int sp_slices_request(const char *command, const struct sp_layout_args *l,
                      const struct sp_model *model, struct sp_solver_request *want)
{
    const struct sp_schedule_def *def = sp_schedule_find(l->schedule);
    struct sp_recompute_option recompute = {SP_RECOMPUTE_NONE, 1};
    char where[32];

    if (!def || strcmp(def->family, "subsequence"))
        return sp_error(EINVAL,
                        "%s: %s does not cut sequences into slices; sppo, seq1f1b and terapipe do",
                        command, l->schedule);
    snprintf(where, sizeof where, "%s: ", command);
    if (sp_model_check_seq(model, l->seq, where))
        return -EINVAL;
    if (l->slices > l->seq || l->slices > SP_MAX_SLICES)
        return sp_error(EINVAL, "%s: %d slices of a sequence of %d tokens: there are at most %d",
                        command, l->slices, l->seq,
                        l->seq < SP_MAX_SLICES ? l->seq : SP_MAX_SLICES);
    if ((int64_t)l->micro_batch_size * l->seq > INT32_MAX)
        return sp_error(EINVAL,
                        "%s: %d sequences of %d tokens: a micro-batch has at most %d tokens",
                        command, l->micro_batch_size, l->seq, INT32_MAX);
    if (l->recompute && sp_parse_recompute(command, l->recompute, &recompute))
        return -EINVAL;
    *want = (struct sp_solver_request){
        .schedule = l->schedule,
        .model = model,
        .seq = l->seq,
        .batch = l->micro_batch_size,
        .micro_batches = l->micro_batches,
        .recompute = recompute.mode,
        .every = recompute.every,
        .cut = l->partition_slices,
        .stages = l->stages_set ? l->stages : 0,
        .slices = l->slices,
    };
    return sp_parse_offload(command, l->offload, &want->offload);
}

int sp_slices_refuse_parts(const char *command, const struct sp_solver_request *want)
{
    return sp_error(
        EINVAL,
        "%s: no slices of %d tokens can be shared out to these stages: multiplex wants at "
        "least a slice a stage but one, %d tokens of a slice a stage, and at most %d parts, "
        "which 16 stages have",
        command, want->seq, SP_TOKENS_OF_PART, SP_MAX_SLICES);
}

int sp_slices_auto(const char *command, struct sp_layout_args *l, const struct sp_model *model,
                   enum sp_dtype dtype, const struct sp_cluster *on)
{
    /* What counts here is how much a task of the runtime takes of a slice. */
    const struct sp_cluster cores = {.flops = 2e11, .link = 1e10, .network = 1e10, .task_s = 2e-5};
    struct sp_solver_request want;
    struct sp_solution best;
    int n;

    if (l->slices)
        return 0;
    if (sp_slices_request(command, l, model, &want))
        return -EINVAL;
    want.cluster = on ? *on : cores;
    want.cluster.nodes = 1;
    want.cluster.per_node = want.stages = l->stages;
    if (l->memory_limit)
        want.cluster.memory = (int64_t)l->memory_limit;
    want.dtype = dtype;
    n = sp_solve(&want, &best, 1);
    if (n < 0)
        return n;
    if (n == 0 && l->stages > model->layers)
        return sp_error(EINVAL, "%s: %d stages are more than the %d layers of %s", command,
                        l->stages, model->layers, model->name);
    if (n == 0)
        return sp_slices_refuse_parts(command, &want);
    l->slices = best.n;
    return 0;
}
