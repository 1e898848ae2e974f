/*
 * SPPO's pipeline of subsequences (Chen et al. 2025, sections 3.1 and 4): a micro-batch, one long
 * sequence, goes slice by slice through the stages, then back from the last slice to the first, and
 * only then the next one follows, so that no more than one is held. Slices of equal times are shorter
 * the later they are, for they see more keys: the first one is the longest (the paper's section 5.2 has
 * s_0 <= s_1 <= ..., against its own figure 5).
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

/* The part that a stage has of each slice of a phase of stage g, if it has any. */
static void multiplex(const struct sp_layout *lay, int stage, int mb, int g, enum sp_phase phase,
                      struct sp_program *prog)
{
    for (int k = 0; k < lay->slices; k++) {
        int first, last;

        sp_slice_stages(lay, g, k, &first, &last);
        if (sp_slice_phase(lay, g, k) == phase && stage >= first && stage <= last)
            sp_program_add_op(prog,
                              (struct sp_op){.pass = SP_F,
                                             .mb = mb,
                                             .chunk = g,
                                             .slice = (unsigned short)(sp_first_part(lay, g, k) +
                                                                       stage - first)});
    }
}

/* Left slices of the stages before it and its own, its steady ones, right slices of its own and of the
 * stages after it; then the same back again. */
static void emit_multiplexed(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    for (int i = 0; i < lay->micro_batches; i++) {
        int begin = prog->n, end;

        for (int g = 0; g <= stage; g++)
            multiplex(lay, stage, i, g, SP_LEFT, prog);
        multiplex(lay, stage, i, stage, SP_STEADY, prog);
        for (int g = stage; g < lay->stages; g++)
            multiplex(lay, stage, i, g, SP_RIGHT, prog);
        end = prog->n;
        for (int k = end - 1; k >= begin; k--) {
            struct sp_op op = prog->ops[k];

            op.pass = SP_B;
            sp_program_add_op(prog, op);
        }
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

extern const struct sp_schedule_def sp_schedule_sppo;
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
