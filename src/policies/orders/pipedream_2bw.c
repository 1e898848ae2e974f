/*
 * PipeDream-2BW (Narayanan et al. 2021, "Memory-efficient pipeline-parallel DNN training", section 3.1): the order of
 * 1F1B without a flush, over batches of micro-batches. The gradient of a batch is the sum of its micro-batches' at
 * weights that lack one update, that of the batch before, on every stage:
 *
 *   W(b+1) = W(b) - u(gradient of batch b at W(max(0, b-1)))
 *
 * so that a stage has two versions of its weights, whatever the number of stages, and the gradient is one of weights of
 * one moment, other than PipeDream's. That holds where a batch has as many micro-batches as there are stages: until the
 * first forward of batch b on a stage, batch b-2 has ended there.
 *
 * Here a step of several batches ends with all of them done, and the next one begins with the newest weights: makespan
 * and bubble are those of 1F1B over all micro-batches; take many batches.
 */
#include "policies/check.h"
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "policies/orders/onef1b.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdio.h>

/* Micro-batches of a batch: as `batch=` says, or the fewest that there may be. */
static int batch_of(const struct sp_layout *lay)
{
    int ok = 1, batch = lay->stages < lay->micro_batches ? lay->stages : lay->micro_batches;

    while (lay->micro_batches % batch)
        batch++;
    batch = sp_layout_option_int(lay, "batch", batch, &ok);
    return ok ? batch : 0;
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int batch = batch_of(lay), m = lay->micro_batches;

    if (sp_check_whole(lay, why, n))
        return -EINVAL;
    if (batch > 0 && m % batch == 0 && (batch >= lay->stages || batch == m))
        return 0;
    snprintf(
        why, n,
        "has batches of as many micro-batches as there are stages or more, which divide the %d "
        "of a step; leave batch= out",
        m);
    return -EINVAL;
}

static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    int err = sp_layerwise_place(lay, def, map, why, n);

    if (!err) {
        (*map)->batch = batch_of(lay);
        (*map)->late = 1;
    }
    return err;
}

/* The last backward of a batch has the update besides. */
static int kind(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    (void)stage;
    return sp_op_updates(lay, op);
}

const struct sp_family sp_family_double_buffered = {.name = "double-buffered",
                                                    .place = place,
                                                    .facts.stashes = true,
                                                    .refuse = sp_refuse_stashing,
                                                    .kind = kind,
                                                    SP_LAYERWISE};

extern const struct sp_schedule_def sp_schedule_pipedream_2bw;
const struct sp_schedule_def sp_schedule_pipedream_2bw = {
    .abi = SP_SCHEDULE_ABI,
    .name = "pipedream-2bw",
    .summary = "1F1B over batches whose gradients are one update late: two versions of weights",
    .source = "PipeDream-2BW (Narayanan et al. 2021) section 3.1",
    .family = "double-buffered",
    .options = "batch",
    .default_chunks = 1,
    .check = check,
    .emit = sp_1f1b_emit,
    .makespan = sp_1f1b_closed_form,
    .makespan_source = "(m+p-1)(f+b+w), as 1F1B: a step ends with all its micro-batches done",
};
