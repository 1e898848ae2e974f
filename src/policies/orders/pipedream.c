/*
 * PipeDream (Narayanan et al. 2019, "PipeDream: generalized pipeline parallelism for DNN training",
 * section 3.2): the order of 1F1B, but asynchronous. After every backward, its stage updates its
 * weights with the gradient of that micro-batch alone, and forwards use the newest weights of their
 * stage. A backward must use the weights that its forward used, or its result would be the gradient
 * of no function; so the stage stashes versions of its weights.
 *
 * Stage s has made max(0, i - (p-1-s)) updates before its forward of micro-batch i: the last stage
 * is up to date, the first one p-1 updates behind. Stage s holds min(p - s, m) versions.
 *
 * 1F1B, also called PipeDream-Flush, succeeded it: one update from all micro-batches, no versions,
 * no staleness, at a bubble of p-1 a step. Here a step ends when its m micro-batches are done, so
 * makespan and bubble are those of 1F1B; choose a large m.
 */
#include "policies/check.h"
#include "policies/orders/onef1b.h"

const struct sp_schedule_def sp_schedule_pipedream = {
    .abi = SP_SCHEDULE_ABI,
    .name = "pipedream",
    .summary = "1F1B that updates the weights after every micro-batch, with stale gradients",
    .source = "PipeDream (Narayanan et al. 2019) section 3.2",
    .family = "weight-stashing",
    .default_chunks = 1,
    .check = sp_check_whole,
    .emit = sp_1f1b_emit,
    .makespan = sp_1f1b_closed_form,
    .makespan_source = "(m+p-1)(f+b+w), as 1F1B: a step ends with all its micro-batches done",
};
