/*
 * PipeDream-2BW (Narayanan et al. 2021, "Memory-efficient pipeline-parallel DNN training", section
 * 3.1): the order of 1F1B without a flush, over batches of micro-batches. On every stage the
 * gradient of a batch is taken at weights that lack one update, that of the batch before:
 *
 *   W(b+1) = W(b) - u(gradient of batch b at W(max(0, b-1)))
 *
 * A stage therefore has two versions of its weights, whatever the number of stages. Unlike
 * PipeDream's, the gradient belongs to one version of the whole model. This needs at least as many
 * micro-batches in a batch as there are stages: then batch b-2 has ended on a stage before the
 * first forward of batch b begins there.
 *
 * Here a step of several batches ends when all of them are done, and the next step begins with the
 * newest weights. Makespan and bubble are those of 1F1B over all micro-batches; choose many
 * batches.
 */
#include "policies/check.h"
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "policies/orders/onef1b.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdio.h>

/* Micro-batches of a batch: the option `batch`, or the fewest allowed. */
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

/* The last backward of a batch also runs the update. */
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
