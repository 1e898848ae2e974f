/*
 * ZB1P: 1F1B with the backward split into B, the gradient of the input, which the stage before
 * waits for, and W, the gradient of the weights, which can wait (Qi, Wan, Huang, Lin 2023, "Zero
 * Bubble Pipeline Parallelism", ZB-H1, figure 3 top). Stage r defers r W and fills the bubble at
 * the end with them. With v > 1 chunks per stage the order of F and B is that of interleaved 1F1B
 * with groups of N micro-batches, as torch.distributed.pipelining has it
 * (ScheduleInterleavedZeroBubble): warm-up w = (p-1-r) + (v-1)N forwards, then F, B, and from the
 * r-th B on a W, first in, first out; then the W that are left.
 *
 * p = 4, m = 8, all ops of the same length; 0-7 are F, a-h the B, A-H the W of micro-batches 0-7:
 *
 *   stage 0  0123...aA4bB5cC6dD7eEfFgGhH
 *   stage 1  .012..a3bA4cB5dC6eD7fEgFhGH
 *   stage 2  ..01.a2b3cA4dB5eC6fD7gEhFGH
 *   stage 3  ...0a1b2c3dA4eB5fC6gD7hEFGH
 *
 * Makespan, at any f, b, w: m(f+b+w) + (p-1) max(f+b-w, f, b)/v, if m >= p and the last group has
 * p micro-batches or more (v = 1: if m >= p). While w is no longer than f and b that is the bubble
 * (p-1)(f+b-w) of the paper and, with f+b-w = (pre + 3 attn + post) L/p, of HelixPipe equation 3.
 * For longer w the equation promises too much: it would end before the last stage can, which starts
 * (p-1) f late and has m(f+b+w) to do; one W more than there is room for delays what comes after.
 * With m < p there are not enough W to fill with; v = 1 and w <= f, b: (m+p-1)(f+b) + w.
 * Every stage holds p micro-batches (HelixPipe equation 4) of v = 1; v > 1: p + (v-1)N chunks
 * (m >= p).
 *
 * Flag auto: the order is searched at the costs of the layout within the same memory, or that of
 * the layout or of limit=K micro-batches; the makespan comes first, the longest span second.
 * budget=T is the time to search in milliseconds, about (default 1000).
 */
#include "policies/check.h"
#include "policies/orders/interleave.h"
#include "policies/search/zbauto.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int ok = 1, group = sp_interleave_group(lay, &ok);
    int least = lay->stages < lay->micro_batches ? lay->stages : lay->micro_batches;
    char text[32];

    if (lay->slices != 1) {
        snprintf(why, n, "runs whole sequences, not %d slices; use --slices 1", lay->slices);
        return -EINVAL;
    }
    if (!ok || group < 1) {
        snprintf(why, n, "takes for group a number of micro-batches, 1 or more");
        return -EINVAL;
    }
    if (sp_layout_flag(lay, "auto") && sp_layout_option(lay, "group", text, sizeof text)) {
        snprintf(why, n,
                 "takes group only when its order is not searched: leave auto or group out");
        return -EINVAL;
    }
    if (lay->chunks > 1 && group < least) {
        snprintf(why, n,
                 "with %d chunks per stage blocks with groups of %d micro-batches on %d stages; "
                 "use group=%d or more",
                 lay->chunks, group, lay->stages, least);
        return -EINVAL;
    }
    return sp_zb_check(lay, why, n);
}

static void add(struct sp_program *prog, enum sp_pass pass, struct sp_slot slot)
{
    sp_program_add(prog, pass, slot.mb, slot.chunk);
}

void sp_zb1p_emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int m = lay->micro_batches, n = m * lay->chunks;
    int ok = 1, group = sp_interleave_group(lay, &ok);
    long long most = lay->stages - 1 - stage + (lay->chunks - 1) * (long long)group;
    int warm = most < n ? (int)most : n, w = 0;

    for (int k = 0; k < warm; k++)
        add(prog, SP_F, sp_interleave_forward(lay, group, k));
    for (int k = 0; k < n; k++) {
        if (k < n - warm)
            add(prog, SP_F, sp_interleave_forward(lay, group, warm + k));
        add(prog, SP_B, sp_interleave_backward(lay, group, k));
        if (k >= stage)
            add(prog, SP_W, sp_interleave_backward(lay, group, w++));
    }
    while (w < n)
        add(prog, SP_W, sp_interleave_backward(lay, group, w++));
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    (void)why;
    (void)n;
    if (sp_layout_flag(lay, "auto"))
        return sp_zb_search(lay, lay->stages, false, programs);
    for (int s = 0; s < lay->stages; s++)
        sp_zb1p_emit(lay, s, &programs[s]);
    return 0;
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double m = lay->micro_batches, p = lay->stages;
    int ok = 1, group = sp_interleave_group(lay, &ok), last = lay->micro_batches % group;

    if (sp_layout_flag(lay, "auto"))
        return -1;
    if (lay->micro_batches >= lay->stages &&
        (lay->chunks == 1 || (lay->micro_batches >= group && (last == 0 || last >= lay->stages))))
        return m * (f + b + w) + (p - 1) * fmax(f + b - w, fmax(f, b)) / lay->chunks;
    if (lay->chunks == 1 && w <= fmin(f, b))
        return (m + p - 1) * (f + b) + w;
    return -1;
}

const struct sp_schedule_def sp_schedule_zb1p = {
    .abi = SP_SCHEDULE_ABI,
    .name = "zb1p",
    .summary = "1F1B with W set apart to fill the bubble, memory of 1F1B; auto: searched at the "
               "costs",
    .source = "Zero Bubble Pipeline Parallelism (Qi, Wan, Huang, Lin 2023) ZB-H1, fig. 3; "
              "torch.distributed.pipelining ScheduleInterleavedZeroBubble",
    .family = "layerwise",
    .options = "group,limit,budget",
    .flags = "auto",
    .default_chunks = 1,
    .check = check,
    .emit_all = emit_all,
    .makespan = makespan,
    .makespan_source = "m(f+b+w) + (p-1)(f+b-w)/v, HelixPipe eq. 3; max(f+b-w, f, b) if w is long",
    .makespan_is = SP_EXACT,
};
