/*
 * PipeDream (Narayanan et al. 2019, "PipeDream: generalized pipeline parallelism for DNN training", section 3.2): the
 * order of 1F1B, but asynchronous. Every backward is followed by the update of its stage with the gradient of that
 * micro-batch alone, and forwards take the newest weights of their stage. So that the gradient is one of some weights,
 * a backward uses those that its forward used: they are stashed.
 *
 * With k updates of a stage before the forward of micro-batch i there, k = max(0, i - (p-1-s)) on stage s: the last
 * stage is up to date, the first one p-1 updates behind. Of versions stage s has min(p - s, m).
 *
 * 1F1B, PipeDream-Flush, is what became of it: one update of all micro-batches, no versions, no staleness, at a bubble
 * of p-1 a step. Here a step of m micro-batches ends with all of them done, so makespan and bubble are those of 1F1B;
 * take m large.
 */
#include "policies/check.h"
#include "policies/orders/onef1b.h"

extern const struct sp_schedule_def sp_schedule_pipedream;
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
