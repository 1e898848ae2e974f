/*
 * DualPipeV: DualPipe cut in half and folded into a V, with one copy of the model (Sea AI Lab,
 * "DualPipe could be better without the Dual", 2025; code: deepseek-ai/DualPipe, dualpipev.py).
 *
 * p = 4, m = 8, 0-7 forward, a-h backward of micro-batches 0-7, ~ a weight gradient. A unit
 * such as 4aa is drawn with its forward first:
 *
 *   stage 0  01234560a~1b~2c~37dd...4aaee.5bbff.6ccgg.7ddhhe~f~g~h~
 *   stage 1  .01234051a~2b~36cc..4aa7dd5bbee.6ccff.7ddggee.hf~g~h~~
 *   stage 2  ..01203142a~35bb.4aa6cc5bb7dd6ccee.7ddffee.ggf.hg~h~~~
 *   stage 3  ...001122334aa4aa5bb5bb6cc6cc7dd7ddeeee.ffff.gg.hh~~~~
 *
 * Makespan m(f + b + w) + (p-1)(F&B + B - 3W) of half stages, F&B a unit and B a full backward:
 * (f + 2b - w)/2 if a unit takes the sum of its parts. Each stage holds 2p + 1 chunks.
 */
#include "policies/orders/dual.h"
#include "policies/families/map.h"
#include "policies/refuse.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = 2;
    fit.slices = 1;
    if (fit.micro_batches < 2 * fit.stages)
        fit.micro_batches = 2 * fit.stages;
    if (lay->micro_batches < 2 * lay->stages)
        return sp_refuse(lay, &fit, why, n,
                         "needs 2 micro-batches per stage, %d for %d stages, not %d",
                         2 * lay->stages, lay->stages, lay->micro_batches);
    return sp_refuse_chunks(lay, &fit, why, n);
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    struct sp_dual dual = {
        .ranks = lay->stages, .rank = stage, .micro_batches = lay->micro_batches, .chunk = {0, 1}};

    sp_dual_emit(&dual, prog);
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    return lay->micro_batches * (f + b + w) + (lay->stages - 1) * (f + 2 * b - w) / 2;
}

const struct sp_schedule_def sp_schedule_dualpipev = {
    .abi = SP_SCHEDULE_ABI,
    .name = "dualpipev",
    .summary = "DualPipe folded into a V: one copy of the model, forward and backward overlap",
    .source = "deepseek-ai/DualPipe, dualpipev.py (2025); DeepSeek-V3 (2024) figure 5, cut in half",
    .family = "layerwise",
    .default_chunks = 2,
    .check = check,
    .layerwise.global_stage = sp_place_wave,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "m(f+b+w) + (p-1)(F&B + B - 3W) of half stages, DualPipe's README, with "
                       "F&B = f+b+w",
    .makespan_is = SP_APPROXIMATE,
};
