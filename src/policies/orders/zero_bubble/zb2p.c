/*
 * ZB2P: a stage runs enough forwards before its first backward to stay busy until that is ready, so
 * that no stage waits between its first op and its last (Qi, Wan, Huang, Lin 2023, "Zero Bubble
 * Pipeline Parallelism", ZB-H2, figure 3 bottom). Stage r runs 2(p-r)-1 forwards, then alternates B
 * and F. From the 2r-th B on it also runs a W each time, first in, first out; then the W that are
 * left. If the forwards run out earlier, as they do for m < 2p-1, the W start then.
 *
 * p = 4, m = 8, all ops of the same length; 0-7 are F, a-h the B, A-H the W of micro-batches 0-7:
 *
 *   stage 0  0123456aA7bBcCdDeEfFgGhH...
 *   stage 1  .01234a5b6cA7dBeCfDgEhFGH..
 *   stage 2  ..012a3b4c5d6eA7fBgChDEFGH.
 *   stage 3  ...0a1b2c3d4e5f6gA7hBCDEFGH
 *
 * p = 4, m = 4: where a forward would come between two B, there is a W instead:
 *
 *   stage 0  0123...aAbBcCdD
 *   stage 1  .0123.aAbBcCdD.
 *   stage 2  ..012a3bAcBdCD.
 *   stage 3  ...0a1b2c3dABCD
 *
 * If m >= 2p-1 and w is no longer than f and b, a stage spans m(f+b+w) + (p-1) max(0, f+b-2w), the
 * bubble of the paper, no bubble at f = b = w; the makespan is m(f+b+w) + (p-1) max(f, f+b-2w), as
 * the last stage starts p-1 forwards late: the next step must start without a barrier to profit.
 * A stage holds 2p-1 micro-batches at most.
 *
 * With m < 2p-1 stage 0 has too few forwards to stay busy until micro-batch 0 returns: it waits
 * (p-1)(f+b) less the m-1 other forwards, and its B are f+b apart. The makespan is the longer of
 * (m+p-1)(f+b) + w, for stage 0, and m(f+b+w) + (p-1)f, for the last stage; no order is below at
 * f = b = w. With a longer w, the W in between stretch the drain of B.
 *
 * Flag auto: the order is searched at the costs of the layout within 2p micro-batches, or the
 * memory of the layout, or limit=K micro-batches; the longest span comes first, the makespan
 * second. budget=T is the time to search in milliseconds, about (default 1000).
 */
#include "policies/check.h"
#include "policies/search/zbauto.h"
#include <math.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int ret = sp_check_whole(lay, why, n);

    return ret ? ret : sp_zb_check(lay, why, n);
}

void sp_zb2p_emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int m = lay->micro_batches, w = 0;
    int warm = 2 * (lay->stages - 1 - stage), first_w = m - warm - 1;

    if (warm > m)
        warm = m;
    if (first_w > 2 * stage)
        first_w = 2 * stage;
    for (int i = 0; i < warm; i++)
        sp_program_add(prog, SP_F, i, 0);
    for (int k = 0; k < m; k++) {
        if (k < m - warm)
            sp_program_add(prog, SP_F, warm + k, 0);
        sp_program_add(prog, SP_B, k, 0);
        if (k >= first_w)
            sp_program_add(prog, SP_W, w++, 0);
    }
    while (w < m)
        sp_program_add(prog, SP_W, w++, 0);
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    (void)why;
    (void)n;
    if (sp_layout_flag(lay, "auto"))
        return sp_zb_search(lay, 2 * lay->stages, true, programs);
    for (int s = 0; s < lay->stages; s++)
        sp_zb2p_emit(lay, s, &programs[s]);
    return 0;
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double m = lay->micro_batches, p = lay->stages;

    if (sp_layout_flag(lay, "auto") || w > fmin(f, b))
        return -1;
    return m * (f + b + w) + fmax((p - 1) * f, (p - 1) * (f + b) - (fmin(m, 2 * p - 1) - 1) * w);
}

const struct sp_schedule_def sp_schedule_zb2p = {
    .abi = SP_SCHEDULE_ABI,
    .name = "zb2p",
    .summary = "no bubble inside a stage's span, memory of 2p-1 micro-batches; auto: searched at "
               "the costs",
    .source = "Zero Bubble Pipeline Parallelism (Qi, Wan, Huang, Lin 2023) ZB-H2, fig. 3",
    .family = "layerwise",
    .options = "limit,budget",
    .flags = "auto",
    .default_chunks = 1,
    .check = check,
    .emit_all = emit_all,
    .makespan = makespan,
    .makespan_source = "m(f+b+w) + max((p-1)f, (p-1)(f+b) - (n-1)w), n = min(m, 2p-1); ZB-H2",
    .makespan_is = SP_EXACT,
};
