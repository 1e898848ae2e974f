/*
 * Naive model parallelism: one micro-batch after another goes through every stage and back, so
 * that one stage works at a time. The baseline of GPipe (Huang et al. 2019), figure 2(b).
 *
 * p = 4, first 3 of m = 8, a backward twice as long as a forward:
 *
 *   stage 0  0.........001.........112.........22
 *   stage 1  .0......00...1......11...2......22..
 *   stage 2  ..0...00......1...11......2...22....
 *   stage 3  ...000.........111.........222......
 *
 * Makespan m p (f + b + w), bubble (p - 1)/p, and 1 micro-batch of activations on each stage.
 */
#include "policies/check.h"

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)stage;
    for (int i = 0; i < lay->micro_batches; i++) {
        sp_program_add(prog, SP_F, i, 0);
        sp_program_add(prog, SP_B, i, 0);
    }
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    return (double)lay->micro_batches * lay->stages * (f + b + w);
}

const struct sp_schedule_def sp_schedule_naive = {
    .abi = SP_SCHEDULE_ABI,
    .name = "naive",
    .summary = "one micro-batch after another through all stages and back; the baseline",
    .source = "GPipe (Huang et al. 2019), figure 2(b)",
    .family = "layerwise",
    .default_chunks = 1,
    .check = sp_check_whole,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "m p (f+b+w), one stage at work at a time",
};
