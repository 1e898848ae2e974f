#include "policies/orders/zero_bubble/vpattern.h"
#include "policies/refuse.h"
#include "policies/search/squeeze.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    enum sp_pass pass;
    int chunk;
} steps[SP_SLOTS] = {
    [SP_SLOT_F0] = {SP_F, 0},
    [SP_SLOT_F1] = {SP_F, 1},
    [SP_SLOT_B1] = {SP_B, 1},
    [SP_SLOT_B0] = {SP_B, 0},
};

int sp_vpattern_check(const struct sp_layout *lay, char *why, size_t n)
{
    struct sp_layout fit = *lay;

    fit.chunks = 2;
    fit.slices = 1;
    return sp_refuse_chunks(lay, &fit, why, n);
}

void sp_vpattern_add(struct sp_program *prog, int step, int mb)
{
    sp_program_add(prog, steps[step].pass, mb, steps[step].chunk);
}

/* Appends the W of the first B of the program, from *next on, that has none yet. */
static bool add_w(struct sp_program *prog, int *next)
{
    while (*next < prog->n && prog->ops[*next].pass != SP_B)
        (*next)++;
    if (*next == prog->n)
        return false;
    sp_program_add(prog, SP_W, prog->ops[*next].mb, prog->ops[*next].chunk);
    (*next)++;
    return true;
}

/* Appends the ops of one stage, slot by slot. W fill the free slots, first in, first out. */
static void cut(const struct sp_vpattern *pattern, const struct sp_layout *lay, int stage,
                struct sp_program *prog)
{
    int m = lay->micro_batches, left = SP_SLOTS * m, next = 0;
    int slot[SP_SLOTS];

    pattern->slots(lay->stages, stage, slot);
    for (int t = 0; left > 0; t++) {
        int k = 0;

        while (k < SP_SLOTS && (t < slot[k] || (t - slot[k]) % SP_VPATTERN_PERIOD ||
                                (t - slot[k]) / SP_VPATTERN_PERIOD >= m))
            k++;
        if (k < SP_SLOTS) {
            sp_vpattern_add(prog, k, (t - slot[k]) / SP_VPATTERN_PERIOD);
            left--;
        } else if (pattern->split) {
            add_w(prog, &next);
        }
    }
    while (pattern->split && add_w(prog, &next))
        ;
}

/* Squeezes both the pattern as cut and the pattern moved up, and takes the better. */
static int squeeze_both(const struct sp_vpattern *pattern, const struct sp_layout *lay,
                        struct sp_program *programs, const int *limit)
{
    struct sp_program *packed = calloc((size_t)lay->stages, sizeof *packed);
    int ret;

    if (!packed)
        return -ENOMEM;
    ret = sp_vpattern_pack(pattern, lay, limit[0], packed);
    if (!ret)
        ret = sp_squeeze(lay, programs, packed, true, limit);
    for (int s = 0; s < lay->stages; s++)
        sp_program_clear(&packed[s]);
    free(packed);
    return ret;
}

int sp_vpattern_emit(const struct sp_vpattern *pattern, const struct sp_layout *lay,
                     struct sp_program *programs, char *why, size_t n)
{
    int p = lay->stages, most = 0, ret;
    int *limit = calloc((size_t)p, sizeof *limit);

    if (!limit)
        return -ENOMEM;
    for (int s = 0; s < p; s++) {
        int peak;

        cut(pattern, lay, s, &programs[s]);
        peak = sp_squeeze_peak(&programs[s]);
        most = peak > most ? peak : most;
    }
    ret = 0;
    if (lay->memory > 0 && lay->memory < most / 2.0) {
        snprintf(why, n, "needs memory for the activations of %g micro-batches a stage, not %g",
                 most / 2.0, lay->memory);
        ret = -EINVAL;
    } else if (lay->memory > most / 2.0) { /* no stage can hold more than m of both chunks */
        most = lay->memory < lay->micro_batches ? (int)(2 * lay->memory) : 2 * lay->micro_batches;
    }
    for (int s = 0; s < p; s++)
        limit[s] = most;
    if (!ret && !pattern->split)
        ret = squeeze_both(pattern, lay, programs, limit);
    else if (!ret)
        ret = sp_squeeze(lay, programs, NULL, false, limit);
    free(limit);
    return ret;
}

double sp_vpattern_bound(const struct sp_layout *lay, double f, double b, double w)
{
    int p = lay->stages, m = lay->micro_batches;

    return fmax(m * (f + b + w) + (p - 1) * f / 2, p * (f + b) + w / 2);
}

double sp_vpattern_bound_whole(const struct sp_layout *lay, double f, double b, double w)
{
    int p = lay->stages, m = lay->micro_batches;
    double drain = (p - 1) * (b + w) / 2; /* its last backward goes up to stage 0 */

    return fmax(m * (f + b + w) + (p - 1) * f / 2 + drain, p * (f + b + w));
}
