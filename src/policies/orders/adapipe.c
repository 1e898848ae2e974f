/*
 * AdaPipe: 1F1B on stages of unequal size, whose layers recompute as much as the memory of their
 * stage asks for (Sun et al., ASPLOS 2024). Stage i stashes min(p - i, m) micro-batches, so the
 * first stages recompute most and take fewer layers, and all take about as long. The order is
 * 1F1B's; the sizes and what is recomputed come from src/plan/adapipe.c.
 *
 * p = 4, m = 8, 6 layers dealt out 1, 1, 2, 2: a forward takes 1 a layer, a backward 2, or 3 on
 * the first two stages, whose layers recompute all:
 *
 *   stage 0  0123.............0004..1115..2226..3337..444...555...666...777
 *   stage 1  .012..........0003..1114..2225..3336..4447..555...666...777...
 *   stage 2  ..0011....0000221111332222443333554444665555776666..7777......
 *   stage 3  ....000000111111222222333333444444555555666666777777..........
 *
 * No closed form of the makespan: stages differ. About t_0 + ... + t_(p-1) + (m-1) max t_i, where
 * t_i is a forward and a backward of stage i (62 above, and exact); with equal stages, 1F1B's.
 */
#include "policies/check.h"
#include "policies/orders/onef1b.h"
#include <errno.h>
#include <stdio.h>

/* Layers are distributed given that the head is on the last stage. */
static int check(const struct sp_layout *lay, char *why, size_t n)
{
    if (!lay->vocabulary_parallel)
        return sp_check_whole(lay, why, n);
    snprintf(why, n,
             "deals layers out for a head on the last stage; leave out --vocabulary-parallel, or "
             "use 1f1b");
    return -EINVAL;
}

const struct sp_schedule_def sp_schedule_adapipe = {
    .abi = SP_SCHEDULE_ABI,
    .name = "adapipe",
    .summary = "1F1B with layers dealt out and recomputed as each stage's memory allows",
    .source = "AdaPipe (Sun et al., ASPLOS 2024)",
    .family = "layerwise",
    .default_chunks = 1,
    .check = check,
    .emit = sp_1f1b_emit,
};
