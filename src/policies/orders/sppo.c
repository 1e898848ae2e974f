/*
 * SPPO's pipeline of subsequences (Chen et al. 2025, sections 3.1 and 4): a micro-batch, one long
 * sequence, goes slice by slice through the stages, then back from the last slice to the first.
 * Only then the next one follows, so that a stage holds at most one. Later slices see more keys, so
 * slices of equal times get shorter: the first one is the longest (the paper's section 5.2 has s_0
 * <= s_1 <= ..., against its own figure 5).
 *
 * p = 4, m = 2, n = 4, slices as figures (forward) and letters (backward, a is slice 0):
 *
 *   stage 0  0123......ddccbbaa
 *   stage 1  .0123....ddccbbaa.
 *   stage 2  ..0123..ddccbbaa..
 *   stage 3  ...0123ddccbbaa...
 *
 * A stage idles for p-1 slices of a micro-batch's n: the paper's bubble (p-1)/n.
 */
#include "policies/check.h"
#include "policies/families/multiplexed/multiplex.h"

/* Appends forwards of the slices that the stage has a part of, then their backwards in reverse. */
static void emit_multiplexed(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    const struct sp_multiplex_turns *t = &sp_multiplex_cut_of(lay)->turns;
    int n = t->n[stage], stride = sp_part_stride(lay);

    for (int i = 0; i < lay->micro_batches; i++)
        for (int k = 0; k < 2 * n; k++) {
            int at = stage * stride + (k < n ? k : 2 * n - 1 - k), g = t->global[at];

            sp_program_add_op(prog, (struct sp_op){.pass = k < n ? SP_F : SP_B,
                                                   .mb = i,
                                                   .chunk = g,
                                                   .slice = (unsigned short)sp_part_of_stage(
                                                       lay, g, t->slice[at], stage)});
        }
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    if (sp_is_multiplexed(lay)) {
        emit_multiplexed(lay, stage, prog);
        return;
    }
    for (int i = 0; i < lay->micro_batches; i++) {
        for (int k = 0; k < lay->slices; k++)
            sp_program_add_op(prog,
                              (struct sp_op){.pass = SP_F, .mb = i, .slice = (unsigned short)k});
        for (int k = lay->slices - 1; k >= 0; k--)
            sp_program_add_op(prog,
                              (struct sp_op){.pass = SP_B, .mb = i, .slice = (unsigned short)k});
    }
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    if (sp_is_multiplexed(lay))
        return -1;
    return lay->micro_batches * (1 + (lay->stages - 1.0) / lay->slices) * (f + b + w);
}

const struct sp_schedule_def sp_schedule_sppo = {
    .abi = SP_SCHEDULE_ABI,
    .name = "sppo",
    .summary =
        "subsequences of one sequence at a time, forward, then back from the last to the first",
    .source = "SPPO (Chen et al. 2025), sections 3.1 and 4",
    .family = "subsequence",
    .flags = "multiplex",
    .variants = "multiplex",
    .default_chunks = 1,
    .slicing = "flops",
    .check = sp_check_sliced,
    .emit = emit,
    .makespan = makespan,
    .makespan_source =
        "m (1 + (p-1)/n)(f+b+w), bubble (p-1)/n of the work (section 3.3), equal slices",
};
