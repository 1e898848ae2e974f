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
    if (sp_model_check_step(
            model, &(struct sp_step_size){l->seq, l->micro_batch_size, l->micro_batches}, where))
        return -EINVAL;
    if ((int64_t)l->micro_batch_size * l->micro_batches > INT32_MAX)
        return sp_error(EINVAL,
                        "%s: %d micro-batches of %d sequences: a step has at most %d sequences",
                        command, l->micro_batches, l->micro_batch_size, INT32_MAX);
    if (l->stages > model->layers)
        return sp_error(EINVAL, "%s: %d stages are more than the %d layers of %s", command,
                        l->stages, model->layers, model->name);
    return 0;
}

/* True if the option leaves multiplexing of slices to this program. */
static bool chooses_multiplex(const struct sp_layout_args *l)
{
    return !strcmp(l->schedule, "sppo:multiplex=auto");
}

bool sp_slices_are_auto(const struct sp_layout_args *l)
{
    return !l->slices || chooses_multiplex(l);
}

/* Finds the fastest schedule that fits, of those named (NULL ends the list); 0: none does. */
static int search(struct sp_search *want, const char *const *schedule, struct sp_found *best)
{
    int found = 0;

    for (; *schedule; schedule++) {
        struct sp_found f;
        int n;

        want->schedule = *schedule;
        n = sp_search(want, &f, 1, 1);
        if (n < 0)
            return n;
        if (n && (!found || (f.fits && (!best->fits || f.step_ms < best->step_ms))))
            *best = f;
        found |= n;
    }
    return found;
}

int sp_slices_auto(const char *command, struct sp_layout_args *l, const struct sp_model *model,
                   enum sp_dtype dtype, const struct sp_machine *machine, int64_t memory)
{
    static const char *const either[] = {"sppo", "sppo:multiplex", NULL};
    const char *given[] = {l->schedule, NULL};
    const char *const *schedules = chooses_multiplex(l) ? either : given;
    const char *mode;
    struct sp_recompute_option recompute = {SP_RECOMPUTE_NONE, 1};
    struct sp_search want = {.simulated = true,
                             .model = model,
                             .dtype = dtype,
                             .seq = l->seq,
                             .sequences = (int)((int64_t)l->micro_batches * l->micro_batch_size),
                             .batch = l->micro_batch_size,
                             .stages = l->stages,
                             .devices = 1,
                             .vocabulary =
                                 l->vocabulary_parallel ? SP_SEARCH_WITH : SP_SEARCH_WITHOUT,
                             .slices = l->slices,
                             .cut = l->partition_slices,
                             .machine = machine,
                             .nodes = 1,
                             .memory = l->memory_limit ? (int64_t)l->memory_limit
                                       : memory        ? memory
                                                       : INT64_MAX};
    struct sp_found best;
    int n;

    if (!sp_slices_are_auto(l))
        return 0;
    if (schedules == either)
        l->schedule = either[0];
    mode = sp_schedule_recompute(l->schedule, l->recompute);
    if (check(command, l, model) ||
        (!sp_recompute_is_auto(mode) && sp_parse_recompute(command, mode, &recompute)) ||
        sp_parse_offload(command, l, &want.offload))
        return -EINVAL;
    want.recompute = recompute.mode;
    want.every = recompute.every;
    n = search(&want, schedules, &best);
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
    if (schedules == either)
        l->schedule = strchr(best.schedule, ':') ? either[1] : either[0];
    return 0;
}
