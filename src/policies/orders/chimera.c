/*
 * Chimera: two pipelines over the same stages in opposite directions, each with its copy of the
 * model and half of the micro-batches; one's bubbles are where the other works (Li and Hoefler
 * 2021, figures 2 and 3; units joined by direct concatenation; their code:
 * chimera_pipeline_rank.py).
 *
 * p = 4, m = 8, a backward twice as long as a forward;
 * 3- and 7_ are forwards, 3.0= and 7.1% backwards of micro-batches 3, down, and 7, up:
 *
 *   stage 0  0-1-..4_4.1%5_5.1%..0.0=2-..1.0=3-6_6.1%7_7.1%..2.0=....3.0=
 *   stage 1  ..0-4_1-5_..4.1%0.0=5.1%1.0=2-6_..3-7_..6.1%2.0=7.1%3.0=....
 *   stage 2  ..4_0-5_1-..0.0=4.1%1.0=5.1%6_2-..7_3-..2.0=6.1%3.0=7.1%....
 *   stage 3  4_5_..0-0.0=1-1.0=..4.1%6_..5.1%7_2-2.0=3-3.0=..6.1%....7.1%
 *
 * A unit of p micro-batches, p/2 each way, is merged on a grid where a forward and a backward take
 * one slot each: 1F1B down has F of its k-th micro-batch on stage i at slot i + 2k and B at
 * 2p-1-i + 2k, 1F1B up the same from the other end. With p even the two never share a slot. The
 * next unit begins 2p slots later, its forwards between the last backwards. The last unit may be
 * incomplete, so any m will do; the odd micro-batch goes down.
 *
 * Makespan of K = m/p whole units, b + w >= f: p f + (2p-2)(b+w) for the first, as in the paper's
 * performance model, and 2f + (2p-2)(b+w) for each of the others. A stage holds between p/2 + 1 and
 * p micro-batches.
 */
#include "policies/families/map.h"
#include "policies/refuse.h"

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = 2;
    fit.slices = 1;
    if (lay->stages % 2) {
        fit.stages = lay->stages > 1 ? lay->stages - 1 : 2;
        return sp_refuse(lay, &fit, why, n,
                         "has two pipelines that meet between stages, which needs an even number, "
                         "not %d",
                         lay->stages);
    }
    return sp_refuse_chunks(lay, &fit, why, n);
}

/* The k-th micro-batch of a pipe enters in unit k / (p/2). */
static int entry(int p, int k)
{
    return 2 * p * (k / (p / 2)) + 2 * (k % (p / 2));
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int p = lay->stages, m = lay->micro_batches;
    int end[2] = {(m + 1) / 2, m}; /* one past the last micro-batch of each pipe */
    int f[2] = {0, end[0]}, b[2] = {0, end[0]}, first[2] = {0, end[0]};
    int at[2] = {stage, p - 1 - stage}; /* the global stage of each pipe here */

    for (int left = 2 * m, t = 0; left > 0; t++) {
        for (int c = 0; c < 2; c++) {
            if (f[c] < end[c] && t == entry(p, f[c] - first[c]) + at[c]) {
                sp_program_add(prog, SP_F, f[c]++, c);
                left--;
            }
            if (b[c] < end[c] && t == entry(p, b[c] - first[c]) + 2 * p - 1 - at[c]) {
                sp_program_add(prog, SP_B, b[c]++, c);
                left--;
            }
        }
    }
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    int p = lay->stages, units = lay->micro_batches / p;

    if (lay->micro_batches % p || b + w < f)
        return -1;
    return (p + 2 * (units - 1)) * f + units * (2 * p - 2) * (b + w);
}

const struct sp_schedule_def sp_schedule_chimera = {
    .abi = SP_SCHEDULE_ABI,
    .name = "chimera",
    .summary = "two pipelines in opposite directions, two copies of the model",
    .source = "Chimera (Li and Hoefler 2021), figures 2 and 3, direct concatenation",
    .family = "bidirectional",
    .default_chunks = 2,
    .check = check,
    .layerwise.global_stage = sp_place_both_ways,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "(p + 2(K-1))f + K(2p-2)(b+w) for K = m/p units, b + w >= f",
    .makespan_is = SP_EXACT,
};
