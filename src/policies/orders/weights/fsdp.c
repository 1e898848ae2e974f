/*
 * Fully sharded data parallelism (ZeRO-3, Rajbhandari et al. 2020; FSDP, Zhao et al. 2023), the baseline
 * that moves weights by collectives: a worker takes a micro-batch forward and backward through all units
 * of the model, then its next one. See src/policies/families/sharded/sharded.c for what is gathered when.
 *
 * p = 4, m = 8, four units, a backward twice as long as a forward; forwards as figures, backwards as
 * letters (a is micro-batch 0):
 *
 *   worker 0  0000aaaaaaaa4444eeeeeeee
 *   worker 1  1111bbbbbbbb5555ffffffff
 *   worker 2  2222cccccccc6666gggggggg
 *   worker 3  3333dddddddd7777hhhhhhhh
 *
 * Makespan m(f + b + w), without a bubble where the gather of the next unit hides under this one; every
 * worker keeps the activations of a whole micro-batch.
 *
 * order=breadth (Lamy-Poirier 2023, section 4) takes all its micro-batches through a unit before the next
 * one: a step gathers each unit twice and scatters its gradient once, however many micro-batches there
 * are, whose activations are all kept.
 */
#include "policies/refuse.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    return sp_refuse_word(lay, "order", "depth", "breadth", why, n);
}

static void emit_breadth(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    for (int c = 0; c < lay->chunks; c++)
        for (int i = stage; i < lay->micro_batches; i += lay->stages)
            sp_program_add(prog, SP_F, i, c);
    for (int c = lay->chunks - 1; c >= 0; c--)
        for (int i = stage; i < lay->micro_batches; i += lay->stages)
            sp_program_add(prog, SP_B, i, c);
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    if (sp_option_is(lay, "order", "breadth")) {
        emit_breadth(lay, stage, prog);
        return;
    }
    for (int i = stage; i < lay->micro_batches; i += lay->stages) {
        for (int c = 0; c < lay->chunks; c++)
            sp_program_add(prog, SP_F, i, c);
        for (int c = lay->chunks - 1; c >= 0; c--)
            sp_program_add(prog, SP_B, i, c);
    }
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    return lay->micro_batches * (f + b + w);
}

const struct sp_schedule_def sp_schedule_fsdp = {
    .abi = SP_SCHEDULE_ABI,
    .name = "fsdp",
    .summary =
        "fully sharded data parallelism: weights are gathered a layer ahead, gradients scattered",
    .source = "ZeRO-3 (Rajbhandari et al. 2020), FSDP (Zhao et al. 2023); WeiPipe section 6",
    .family = "sharded",
    .options = "order",
    .check = check,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "m(f+b+w): no bubble while gathers hide under the unit before",
};
