/*
 * 1F1B: after a warm-up of p-1-i forwards, stage i alternates one forward and one backward
 * (Megatron-LM, Narayanan et al. 2021, figure 4 top; DAPPLE, Fan et al. 2021; HelixPipe 2.3.1,
 * figure 2a).
 *
 * p = 4, m = 8, a backward twice as long as a forward:
 *
 *   stage 0  0123......00411522633744.55.66.77
 *   stage 1  .012....00311422533644755.66.77..
 *   stage 2  ..01..00211322433544655766.77....
 *   stage 3  ...000111222333444555666777......
 *
 * Makespan (m + p - 1)(f + b + w): the bubble is p-1 forwards and backwards (HelixPipe equation 1).
 * Stage i holds the activations of min(p - i, m) micro-batches (equation 2).
 */
#include "policies/orders/onef1b.h"
#include "policies/check.h"

void sp_1f1b_emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int m = lay->micro_batches;
    int warm = lay->stages - 1 - stage;

    if (warm > m)
        warm = m;
    for (int i = 0; i < warm; i++)
        sp_program_add(prog, SP_F, i, 0);
    for (int k = 0; k < m - warm; k++) {
        sp_program_add(prog, SP_F, warm + k, 0);
        sp_program_add(prog, SP_B, k, 0);
    }
    for (int i = m - warm; i < m; i++)
        sp_program_add(prog, SP_B, i, 0);
}

double sp_1f1b_closed_form(const struct sp_layout *lay, double f, double b, double w)
{
    return (lay->micro_batches + (lay->stages - 1.0) / (lay->slices * lay->chunks)) * (f + b + w);
}

const struct sp_schedule_def sp_schedule_1f1b = {
    .abi = SP_SCHEDULE_ABI,
    .name = "1f1b",
    .summary = "one forward, one backward after a warm-up; stage i holds p-i micro-batches",
    .source =
        "Megatron-LM (Narayanan et al. 2021) fig. 4, DAPPLE (Fan et al. 2021); HelixPipe fig. 2a",
    .family = "layerwise",
    .default_chunks = 1,
    .check = sp_check_whole,
    .emit = sp_1f1b_emit,
    .makespan = sp_1f1b_closed_form,
    .makespan_source = "(m+p-1)(f+b+w), bubble of HelixPipe equation 1",
};
