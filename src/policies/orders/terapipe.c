/*
 * TeraPipe: GPipe over slices of sequences, since attention only looks back: a stage takes up slice
 * k+1 while the next one works on slice k (Li et al. 2021, section 3.2). All forwards, then all
 * backwards in reverse, so that a stage is a stack. The slices count as equal here; when
 * the model is known their lengths are chosen by dynamic programming (src/plan/slices.h).
 *
 * p = 4, m = 8, n = 2, 0-7 forward, a-h backward of micro-batches 0-7:
 *
 *   stage 0  0011223344556677.........hhhhggggffffeeeeddddccccbbbbaaaa
 *   stage 1  .0011223344556677......hhhhggggffffeeeeddddccccbbbbaaaa..
 *   stage 2  ..0011223344556677...hhhhggggffffeeeeddddccccbbbbaaaa....
 *   stage 3  ...0011223344556677hhhhggggffffeeeeddddccccbbbbaaaa......
 *
 * Makespan (m + (p-1)/n)(f + b + w). Each stage holds all m micro-batches.
 */
#include "policies/check.h"
#include "policies/orders/onef1b.h"

static void add(struct sp_program *prog, enum sp_pass pass, int mb, int slice)
{
    sp_program_add_op(
        prog,
        (struct sp_op){.pass = (unsigned char)pass, .mb = mb, .slice = (unsigned short)slice});
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)stage;
    for (int i = 0; i < lay->micro_batches; i++) {
        for (int k = 0; k < lay->slices; k++)
            add(prog, SP_F, i, k);
    }
    for (int i = lay->micro_batches - 1; i >= 0; i--) {
        for (int k = lay->slices - 1; k >= 0; k--)
            add(prog, SP_B, i, k);
    }
}

const struct sp_schedule_def sp_schedule_terapipe = {
    .abi = SP_SCHEDULE_ABI,
    .name = "terapipe",
    .summary =
        "GPipe over slices of sequences: all forwards, then all backwards, last in first out",
    .source = "TeraPipe (Li et al. 2021), section 3.2",
    .family = "subsequence",
    .default_chunks = 1,
    .slicing = "dp",
    .check = sp_check_sliced,
    .emit = emit,
    .makespan = sp_1f1b_closed_form,
    .makespan_source = "(m + (p-1)/n)(f+b+w), sum of t + (p-1) max t of section 3.3, equal slices",
    .makespan_is = SP_EXACT,
};
