/*
 * Hanayo: the layers run down the stages and up again in waves, v/2 of them, without a second copy
 * of the model (Liu et al. 2023, "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced
 * Large Model Training Efficiency"). A wave turns within a stage, so the turn needs no message.
 *
 * p = 4, m = 8, a backward twice as long as a forward;
 * digits are forwards of both chunks, letters backwards (a: micro-batch 0):
 *
 *   stage 0  01234560aa1bb2cc3dd7.....aa.4ee.bb5ff6ggcc7hhdd..eeff.gg..hh
 *   stage 1  .01234051.aa2bb3cc6dd7.aa..4..bb5ee6ccff7ggddhheeff.gg..hh..
 *   stage 2  ..01203142..aa3bb5cc6aa7dd4.bb5cc6.eedd7ffeeggffhhgg..hh....
 *   stage 3  ...00112233...aa4aa5bb4cc6bb5cc6dddd77eeeeffffgggghhhh......
 *
 * List scheduling finds the order. It starts from groups of p micro-batches, all forwards and then
 * all backwards of a group, and squeezes them (policies/search/squeeze.h) within the memory of p
 * micro-batches, as much as 1F1B holds on its first stage. Messages between two stages stay first
 * in, first out.
 *
 * No makespan is below (m + (p-1)/v)(f+b+w), as the last stage begins p-1 forwards of a chunk late
 * and ends p-1 backwards of one early.
 */
#include "policies/families/map.h"
#include "policies/refuse.h"
#include "policies/search/squeeze.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.slices = 1;
    if (lay->chunks % 2) {
        fit.chunks = lay->chunks > 1 ? lay->chunks - 1 : 2;
        return sp_refuse(lay, &fit, why, n, "has two chunks per wave, not %d in all", lay->chunks);
    }
    return sp_refuse_chunks(lay, &fit, why, n);
}

/* Appends groups of micro-batches, all forwards and then all backwards of each group: chunk by
 * chunk, or micro-batch by micro-batch. */
static void groups(const struct sp_layout *lay, int group, bool by_chunk, struct sp_program *prog)
{
    int m = lay->micro_batches, v = lay->chunks;

    for (int first = 0; first < m; first += group) {
        int n = first + group < m ? group : m - first;

        for (int k = 0; k < n * v; k++)
            sp_program_add(prog, SP_F, first + (by_chunk ? k % n : k / v),
                           by_chunk ? k / n : k % v);
        for (int k = 0; k < n * v; k++)
            sp_program_add(prog, SP_B, first + (by_chunk ? k % n : k / v),
                           v - 1 - (by_chunk ? k / n : k % v));
    }
}

static int emit_all(const struct sp_layout *lay, struct sp_program *programs, char *why, size_t n)
{
    int p = lay->stages, ret = -ENOMEM;
    double held = lay->memory > 0 ? lay->memory : p; /* micro-batches */
    struct sp_program *other = calloc((size_t)p, sizeof *other);
    int *limit = calloc((size_t)p, sizeof *limit);

    if (held < 1) {
        snprintf(why, n, "needs memory for the activations of 1 micro-batch a stage, not %g", held);
        ret = -EINVAL;
    } else if (other && limit) {
        if (held > lay->micro_batches)
            held = lay->micro_batches;
        for (int s = 0; s < p; s++) {
            groups(lay, (int)held, true, &programs[s]);
            groups(lay, (int)held, false, &other[s]);
            limit[s] = (int)(held * lay->chunks);
        }
        ret = sp_squeeze(lay, programs, other, false, limit);
    }
    for (int s = 0; other && s < p; s++)
        sp_program_clear(&other[s]);
    free(other);
    free(limit);
    return ret;
}

static double makespan(const struct sp_layout *lay, double f, double b, double w)
{
    int p = lay->stages, m = lay->micro_batches;
    double all = (m + (p - 1.0) / lay->chunks) * (f + b + w), alone = p * (f + b + w);

    return all > alone ? all : alone;
}

const struct sp_schedule_def sp_schedule_hanayo = {
    .abi = SP_SCHEDULE_ABI,
    .name = "hanayo",
    .summary = "waves of two chunks down and up the stages, one copy of the model",
    .source = "Hanayo (Liu et al. 2023); order by list scheduling",
    .family = "layerwise",
    .default_chunks = 2,
    .check = check,
    .layerwise.global_stage = sp_place_wave,
    .emit_all = emit_all,
    .makespan = makespan,
    .makespan_source = "(m + (p-1)/v)(f+b+w), or one micro-batch alone: no order is below",
    .makespan_is = SP_LOWER_BOUND,
};
