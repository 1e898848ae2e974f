/*
 * Interleaved 1F1B: each stage holds v chunks, each a v-th of its layers, and runs them in turns of
 * a group of N micro-batches, which makes the bubble v times smaller (Megatron-LM, Narayanan et al.
 * 2021, section 2.2 and figure 4 bottom). policies/orders/interleave.h has the table of the turns.
 *
 * p = 4, m = 8, v = 2, N = 4, 0-7 forward, a-h backward of micro-batches 0-7:
 *
 *   stage 0  01230123456...aa7bb.4cc5dd6aa7bbcc.dd.ee.ff.gg.hheeffgghh
 *   stage 1  .012301234..aa5bb6cc7dd4aa5bb6cc7dd.ee.ff.gg.hheeffgghh..
 *   stage 2  ..0123012.aa3bb4cc5dd6aa7bb4cc5dd6ee7ff.gg.hheeffgghh....
 *   stage 3  ...01230aa1bb2cc3dd4aa5bb6cc7dd4ee5ff6gg7hheeffgghh......
 *
 * Makespan (m + (p-1)/v)(f + b + w). Stage i holds min(2(p-1-i) + (v-1)N + 1, mv) chunks.
 */
#include "policies/orders/interleave.h"
#include "policies/refuse.h"
#include <errno.h>
#include <stdio.h>

/*
 * Returns 1 if the order of a group size does not deadlock. Before backward k on the last stage,
 * that stage has begun w + k forwards, w = (v-1)N. Unless backward k is of the last chunk, it waits
 * for backward k-s on the first stage, s being the size of its group, and so for the forwards up to
 * w + 2(p-1) + k-s there. Each of those, except in the first chunk, waits for the forward one group
 * size earlier on the last stage. If that is beyond w + k, the two stages wait for each other. With
 * whole groups the order runs from N = p-1 on.
 */
static int runs(const struct sp_layout *lay, int group)
{
    int total = lay->micro_batches * lay->chunks, warm = (lay->chunks - 1) * group;
    int j = 0, furthest = 0;

    for (int k = 0; k < total; k++) {
        struct sp_slot slot = sp_interleave_forward(lay, group, k), early;

        if (slot.chunk == 0)
            continue;
        for (; j < total && j <= warm + 2 * (lay->stages - 1) + k - slot.size; j++) {
            early = sp_interleave_forward(lay, group, j);
            if (early.chunk > 0 && j - early.size > furthest)
                furthest = j - early.size;
        }
        if (furthest > warm + k)
            return 0;
    }
    return 1;
}

/* The nearest group size that runs; one group of all micro-batches always runs. */
static int nearest_group(const struct sp_layout *lay, int group)
{
    int m = lay->micro_batches;

    group = group < 1 ? 1 : group > m ? m : group;
    for (int d = 0; d < m; d++) {
        if (group + d <= m && runs(lay, group + d))
            return group + d;
        if (group - d >= 1 && runs(lay, group - d))
            return group - d;
    }
    return m;
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;
    int ok = 1, group = sp_interleave_group(lay, &ok), nearest;

    if (!ok) {
        snprintf(why, n, "wants a number of micro-batches in group=; use group=%d", group);
        return -EINVAL;
    }
    fit.slices = 1;
    nearest = nearest_group(lay, group);
    if (group < 1 || group > lay->micro_batches) {
        snprintf(why, n, "has groups of 1 .. %d micro-batches, not group=%d; use group=%d",
                 lay->micro_batches, group, nearest);
        return -EINVAL;
    }
    if (group != nearest) {
        snprintf(why, n,
                 "with group=%d would deadlock on %d stages with %d micro-batches and %d chunks; "
                 "use group=%d",
                 group, lay->stages, lay->micro_batches, lay->chunks, nearest);
        return -EINVAL;
    }
    return sp_refuse_chunks(lay, &fit, why, n);
}

static void add(struct sp_program *prog, enum sp_pass pass, struct sp_slot slot)
{
    sp_program_add(prog, pass, slot.mb, slot.chunk);
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    int ok = 1, group = sp_interleave_group(lay, &ok);
    int total = lay->micro_batches * lay->chunks;
    int warm = 2 * (lay->stages - 1 - stage) + (lay->chunks - 1) * group;

    if (warm > total)
        warm = total;
    for (int k = 0; k < warm; k++)
        add(prog, SP_F, sp_interleave_forward(lay, group, k));
    for (int k = 0; k < total; k++) {
        if (warm + k < total)
            add(prog, SP_F, sp_interleave_forward(lay, group, warm + k));
        add(prog, SP_B, sp_interleave_backward(lay, group, k));
    }
}

/* The formula was published for m a multiple of p. It holds if no group is shorter than p. With m <
 * p it holds for one group: a stage waits p - m chunks before each of its chunks but the first. */
static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    double p = lay->stages, m = lay->micro_batches, v = lay->chunks;
    int ok = 1, group = sp_interleave_group(lay, &ok), rest = lay->micro_batches % group;

    if (lay->chunks > 1 &&
        (m < p ? group != lay->micro_batches : group < p || (rest > 0 && rest < p)))
        return -1;
    return ((v - 1) * (m > p ? m : p) + m + p - 1) / v * (f + b + w);
}

const struct sp_schedule_def sp_schedule_interleaved = {
    .abi = SP_SCHEDULE_ABI,
    .name = "interleaved",
    .summary = "1F1B with v chunks per stage, in turns of a group of micro-batches (group=N)",
    .source = "Megatron-LM (Narayanan et al. 2021) section 2.2, figure 4",
    .family = "layerwise",
    .options = "group",
    .default_chunks = 2,
    .check = check,
    .emit = emit,
    .makespan = makespan,
    .makespan_source = "(m + (p-1)/v)(f+b+w), from the bubble (p-1)/(mv) of section 2.2; for "
                       "m < p with v-1 waits of p-m chunks more",
    .makespan_is = SP_EXACT,
};
