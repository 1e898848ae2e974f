/*
 * DualPipe: micro-batches enter at both ends of the pipeline, whose stages hold two copies of the
 * model, and the forward of one direction runs as one unit with the backward of the other
 * (DeepSeek-V3 technical report, 2024, section 3.2.1 and figure 5; code: deepseek-ai/DualPipe).
 *
 * p = 4, m = 8, 0-7 forward, a-h backward of micro-batches 0-7, ~ a weight gradient. Micro-batches
 * 4-7 go up. A unit such as 3ff is drawn with its forward first:
 *
 *   stage 0  0124e~53ff.6aagg.7bbhhc~d~
 *   stage 1  .04152ee6aa3ff7bbggcc.hd~~
 *   stage 2  .40516aa2ee7bb3ffccgg.dh~~
 *   stage 3  4560a~17bb.2eecc.3ffddg~h~
 *
 * Makespan m(f + b + w) + (p/2 - 1)(F&B + B - 3W), F&B a unit and B a full backward: f + 2b - w if
 * a unit takes the sum of its parts. Each stage holds p + 1 micro-batches.
 */
#include "policies/orders/dual.h"
#include "policies/families/map.h"
#include "policies/refuse.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = 2;
    fit.slices = 1;
    if (fit.stages % 2)
        fit.stages = fit.stages > 1 ? fit.stages - 1 : 2;
    fit.micro_batches += fit.micro_batches % 2;
    if (fit.micro_batches < 2 * fit.stages)
        fit.micro_batches = 2 * fit.stages;
    if (lay->stages % 2)
        return sp_refuse(lay, &fit, why, n, "halves the stages, and %d is odd", lay->stages);
    if (lay->micro_batches < 2 * lay->stages)
        return sp_refuse(lay, &fit, why, n,
                         "needs 2 micro-batches per stage, %d for %d stages, not %d",
                         2 * lay->stages, lay->stages, lay->micro_batches);
    if (lay->micro_batches % 2)
        return sp_refuse(lay, &fit, why, n,
                         "sends half of the micro-batches each way, and %d is odd",
                         lay->micro_batches);
    return sp_refuse_chunks(lay, &fit, why, n);
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int half = lay->stages / 2, up = stage >= half;
    struct sp_dual dual = {.ranks = half,
                           .rank = up ? lay->stages - 1 - stage : stage,
                           .micro_batches = lay->micro_batches / 2,
                           .chunk = {up, !up}};

    dual.first[!up] = lay->micro_batches / 2;
    sp_dual_emit(&dual, prog);
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    return lay->micro_batches * (f + b + w) + (lay->stages / 2.0 - 1) * (f + 2 * b - w);
}

const struct sp_schedule_def sp_schedule_dualpipe = {
    .abi = SP_SCHEDULE_ABI,
    .name = "dualpipe",
    .summary = "from both ends, two copies of the model; forward and backward overlap",
    .source = "DeepSeek-V3 technical report (2024) section 3.2.1, figure 5; deepseek-ai/DualPipe",
    .family = "bidirectional",
    .default_chunks = 2,
    .check = check,
    .layerwise.global_stage = sp_place_both_ways,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "m(f+b+w) + (p/2-1)(F&B + B - 3W), DeepSeek-V3 table 2, with F&B = f+b+w",
    .makespan_is = SP_APPROXIMATE,
};
