#include "policies/families/aligned/aid.h"
#include "policies/families/ownership.h"
#include <stdlib.h>

/* A stage that has part in it, and the slices of keys before those of its queries. */
struct load {
    int stage, keys;
};

static int by_keys(const void *a, const void *b)
{
    const struct load *x = a, *y = b;

    return x->keys != y->keys ? y->keys - x->keys : x->stage - y->stage;
}

/* Whole slices of keys go from the stages with most of them to those with fewest, which takes fewest pairs. */
static int share_out(struct load *load, int n, struct sp_aid aid[SP_SLOT_STAGES])
{
    int sum = 0, count = 0, helper = n - 1, given = 0;

    for (int i = 0; i < n; i++)
        sum += load[i].keys;
    qsort(load, (size_t)n, sizeof *load, by_keys);
    for (int owner = 0; owner < n; owner++) {
        int surplus = load[owner].keys - sum / n - (owner < sum % n), first = 0;

        while (surplus > 0) {
            int wants = sum / n + (helper < sum % n) - load[helper].keys - given;
            int moves = wants < surplus ? wants : surplus;

            if (moves <= 0) { /* has what it gets */
                helper--;
                given = 0;
                continue;
            }
            aid[count++] = (struct sp_aid){load[owner].stage, load[helper].stage, first, moves};
            first += moves;
            surplus -= moves;
            given += moves;
        }
    }
    return count;
}

int sp_slot_aid(const struct sp_layout *lay, int slot, struct sp_aid aid[SP_SLOT_STAGES])
{
    struct load load[SP_SLOT_STAGES];
    struct sp_op op;
    int n = 0;

    for (int s = 0; s < lay->stages; s++)
        if (sp_slot_op(lay, s, slot, &op))
            load[n++] = (struct load){s, op.slice};
    return share_out(load, n, aid);
}

int sp_step_layer(const struct sp_plan *plan, int layers, int stage, int slot, int step,
                  struct sp_op *op)
{
    int first, count;

    if (!sp_slot_op(&plan->layout, stage, slot, op))
        return -1;
    sp_chunk_layers(plan, layers, stage, op->chunk, &first, &count);
    if (step >= count)
        return -1;
    return op->pass == SP_F ? first + step : first + count - 1 - step;
}

int sp_step_aid(const struct sp_plan *plan, int layers, int slot, int step,
                struct sp_aid aid[SP_SLOT_STAGES])
{
    struct load load[SP_SLOT_STAGES];
    struct sp_op op;
    int n = 0;

    for (int s = 0; s < plan->layout.stages; s++)
        if (sp_step_layer(plan, layers, s, slot, step, &op) >= 0)
            load[n++] = (struct load){s, op.slice};
    return share_out(load, n, aid);
}

bool sp_aid_goes_on(const struct sp_plan *plan, int layers, int slot, int step,
                    const struct sp_aid *aid, int j, int way)
{
    int beside = sp_slot_beside(&plan->layout, slot, way), n;
    struct sp_aid other[SP_SLOT_STAGES];
    struct sp_op op, then;

    if (beside < 0 || sp_step_layer(plan, layers, aid->owner, beside, step, &then) < 0)
        return false;
    sp_slot_op(&plan->layout, aid->owner, slot, &op);
    if (then.mb != op.mb || then.chunk != op.chunk)
        return false;
    n = sp_step_aid(plan, layers, beside, step, other);
    for (int k = 0; k < n; k++)
        if (other[k].owner == aid->owner && other[k].helper == aid->helper && j >= other[k].first &&
            j < other[k].first + other[k].n)
            return true;
    return false;
}

int sp_slot_steps(const struct sp_plan *plan, int layers, int slot)
{
    int most = 0;

    for (int s = 0; s < plan->layout.stages; s++) {
        struct sp_op op;
        int first, count;

        if (!sp_slot_op(&plan->layout, s, slot, &op))
            continue;
        sp_chunk_layers(plan, layers, s, op.chunk, &first, &count);
        most = count > most ? count : most;
    }
    return most;
}

int sp_aligned_layers(const struct sp_plan *plan, const struct sp_shape *shape)
{
    int known = shape ? shape->model.layers : plan->layout.layers;

    return known ? known : sp_globals(&plan->layout);
}
