/*
 * A V whose order is found by list scheduling: chunk 0 of stage s is global stage s, chunk 1 is
 * global stage 2p-1-s. The search is given the placement, the costs and the memory; no pattern.
 * `held=N`: a stage holds at most N activations of a chunk, by default 2p, as in 1F1B and ZBV.
 *
 * Makespan: none is below m(f+b+w) + (p-1)f/2, when the last stage begins.
 */
#include <starpipe/schedule.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int held(const struct sp_layout *lay, int *ok)
{
    int most =
        lay->memory > 0 && lay->memory < lay->stages ? (int)(2 * lay->memory) : 2 * lay->stages;

    return sp_layout_option_int(lay, "held", most, ok);
}

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    int ok = 1, most = held(lay, &ok);

    if (ok && most >= 2 && lay->chunks == 2 && lay->slices == 1)
        return 0;
    snprintf(why, n, "wants --chunks 2, --slices 1, and held=N with N of at least 2");
    return -EINVAL;
}

static int global_stage(const struct sp_layout *lay, int stage, int chunk)
{
    return chunk ? 2 * lay->stages - 1 - stage : stage;
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    int ok = 1, ret, *limit = malloc((size_t)lay->stages * sizeof *limit);

    if (!limit)
        return -ENOMEM;
    for (int s = 0; s < lay->stages; s++)
        limit[s] = held(lay, &ok);
    ret = sp_list_order(lay, limit, 1, programs, why, n);
    free(limit);
    return ret;
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    return lay->micro_batches * (f + b + w) + (lay->stages - 1) * f / 2;
}

static const struct sp_schedule_def list_v = {
    .abi = SP_SCHEDULE_ABI,
    .name = "list-v",
    .summary = "in a V, W apart, found by list scheduling (held=N activations of a chunk)",
    .source = "placement of Qi et al. 2024, Pipeline Parallelism with Controllable Memory",
    .family = "layerwise",
    .options = "held",
    .default_chunks = 2,
    .check = check,
    .layerwise.global_stage = global_stage,
    .emit_all = emit_all,
    .makespan = makespan,
    .makespan_source = "m(f+b+w) + (p-1)f/2: no bubble once the last stage has begun",
    .makespan_is = SP_LOWER_BOUND,
};

SP_PLUGIN(&list_v);
