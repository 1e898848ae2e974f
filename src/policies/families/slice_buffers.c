#include "policies/families/slice_buffers.h"
#include "policies/families/activations.h"
#include <stdlib.h>

static int length_of(const struct sp_plan *plan, const struct sp_shape *sh, const struct sp_op *op)
{
    int first, len;

    sp_plan_op_tokens(plan, sh->seq, op, &first, &len);
    return len;
}

/* Asked for in every partition that is tried. */
static bool is_equal(const struct sp_plan *plan, const struct sp_shape *sh)
{
    return !plan->family->parts_of && !plan->first_token && sh->seq % plan->layout.slices == 0;
}

/* ---- lengths ------------------------------------------------------------------------------ */

static int add_length(int *len, int n, int more)
{
    for (int i = 0; i < n; i++)
        if (len[i] == more)
            return n;
    len[n] = more;
    return n + 1;
}

/* Of the parts that a stage computes. */
static int add_parts(const struct sp_plan *plan, const struct sp_shape *sh, int stage, int *len,
                     int n)
{
    const struct sp_program *prog = &plan->programs[stage];

    for (int i = 0; i < prog->n; i++)
        if (prog->ops[i].pass == SP_F && prog->ops[i].mb == 0)
            n = add_length(len, n, length_of(plan, sh, &prog->ops[i]));
    return n;
}

/* Lengths of what a stage computes, each once, into *len (to be freed); `received`: and of what reaches
 * its process. How many; 0: no memory. */
static int lengths_of(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                      bool received, int **len)
{
    int n = 0;

    *len = calloc((size_t)sh->seq + 1, sizeof **len);
    if (!*len)
        return 0;
    if (plan->family->parts_of) {
        for (int s = 0; s < plan->layout.stages; s++)
            if (s == stage || received)
                n = add_parts(plan, sh, s, *len, n);
        return n;
    }
    for (int k = 0; k < plan->layout.slices; k++) {
        struct sp_op op = {.slice = (unsigned short)k};

        n = add_length(*len, n, length_of(plan, sh, &op));
    }
    return n;
}

int64_t sp_memory_slice_rows(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                             bool received)
{
    int64_t tokens = 0;
    int *len, n;

    if (is_equal(plan, sh))
        return sh->rows / plan->layout.slices;
    n = lengths_of(plan, sh, stage, received, &len);
    for (int i = 0; i < n; i++)
        tokens += len[i];
    free(len);
    return n ? tokens * sh->batch / sp_shape_spread(sh) : sh->rows;
}

bool sp_slices_take_turns(const struct sp_plan *plan, const struct sp_shape *sh)
{
    const struct sp_family *family = plan->family;

    return !family->parts && !family->parts_of && !family->shares_attention && sh->tensor <= 1;
}

void sp_memory_longest_slice(const struct sp_plan *plan, const struct sp_shape *sh,
                             struct sp_shape *slice)
{
    int most = 0;

    for (int k = 0; k < plan->layout.slices; k++) {
        int first, len;

        sp_plan_slice_tokens(plan, sh->seq, k, &first, &len);
        most = len > most ? len : most;
    }
    sp_shape_slice(sh, 0, most, slice);
}

/* ---- the stash ---------------------------------------------------------------------------- */

/* The sum, over the lengths len[n], of what the slices of each hold at the highest. */
static int64_t sum_of_lengths(const struct sp_plan *plan, const struct sp_shape *sh,
                              const struct sp_class_stash *stash, int stage, const int *len, int n)
{
    const struct sp_program *prog = &plan->programs[stage];
    const int *of = sp_op_classes_of(&plan->classes, stage);
    int64_t sum = 0;

    for (int i = 0; i < n; i++) {
        int64_t live = 0, peak = 0;

        for (int k = 0; k < prog->n; k++) {
            const struct sp_class_stash *one = &stash[of[k] - plan->classes.first[stage]];

            if ((!one->taken && !one->freed) || length_of(plan, sh, &prog->ops[k]) != len[i])
                continue;
            live += one->taken;
            peak = live > peak ? live : peak;
            live -= one->freed;
        }
        sum += peak;
    }
    return sum;
}

int64_t sp_memory_unequal(const struct sp_plan *plan, const struct sp_shape *sh,
                          enum sp_recompute recompute, int every, int stage)
{
    struct sp_class_stash *stash;
    int64_t more = 0;
    int *len, n;

    if (is_equal(plan, sh))
        return 0;
    n = lengths_of(plan, sh, stage, false, &len);
    if (n) {
        stash = sp_stash_by_class(plan, sh, recompute, every, stage);
        more = sum_of_lengths(plan, sh, stash, stage, len, n) -
               sp_class_stash_peak(plan, stash, stage);
        free(stash);
    }
    free(len);
    return more;
}
