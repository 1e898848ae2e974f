/*
 * Seq1F1B: 1F1B over slices of sequences (Sun et al. 2024; code: seq1f1b.py of
 * sail-sg/zero-bubble-pipeline-parallelism). Backwards take the slices of a micro-batch last to
 * first, so the warm-up is n-1 slices longer than that of 1F1B. Slices count as equal here; the
 * graph chooses lengths that make their times so.
 *
 * p = 4, m = 8, n = 2, 0-7 forward, a-h backward of micro-batches 0-7:
 *
 *   stage 0  00112......aa2aa3bb3bb4cc4cc5dd5dd6ee6ee7ff7ff.gg.gg.hhhh
 *   stage 1  .0011....aa2aa2bb3bb3cc4cc4dd5dd5ee6ee6ff7ff7gg.gg.hhhh..
 *   stage 2  ..001..aa1aa2bb2bb3cc3cc4dd4dd5ee5ee6ff6ff7gg7gg.hhhh....
 *   stage 3  ...00aa1aa1bb2bb2cc3cc3dd4dd4ee5ee5ff6ff6gg7gg7hhhh......
 *
 * Makespan (m + (p-1)/n)(f + b + w). Stage i holds min(p - i + n-1, mn) slices.
 */
#include "policies/check.h"
#include "policies/orders/onef1b.h"

static void forward(const struct sp_layout *lay, int k, struct sp_program *prog)
{
    sp_program_add_op(prog, (struct sp_op){.pass = SP_F,
                                           .mb = k / lay->slices,
                                           .slice = (unsigned short)(k % lay->slices)});
}

static void backward(const struct sp_layout *lay, int k, struct sp_program *prog)
{
    int slice = lay->slices - 1 - k % lay->slices;

    sp_program_add_op(
        prog, (struct sp_op){.pass = SP_B, .mb = k / lay->slices, .slice = (unsigned short)slice});
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int total = lay->micro_batches * lay->slices;
    int warm = lay->stages - 1 - stage + lay->slices - 1;

    if (warm > total)
        warm = total;
    for (int k = 0; k < warm; k++)
        forward(lay, k, prog);
    for (int k = 0; k < total - warm; k++) {
        forward(lay, warm + k, prog);
        backward(lay, k, prog);
    }
    for (int k = total - warm; k < total; k++)
        backward(lay, k, prog);
}

const struct sp_schedule_def sp_schedule_seq1f1b = {
    .abi = SP_SCHEDULE_ABI,
    .name = "seq1f1b",
    .summary = "1F1B over slices of sequences: a bubble of slices, less memory",
    .source = "Seq1F1B (Sun et al. 2024); code: sail-sg/zero-bubble-pipeline-parallelism",
    .family = "subsequence",
    .default_chunks = 1,
    .check = sp_check_sliced,
    .emit = emit,
    .makespan = sp_1f1b_closed_form,
    .makespan_source = "(m + (p-1)/n)(f+b+w), 1F1B's with m n micro-batches of 1/n",
    .makespan_is = SP_EXACT,
};
