#include "policies/families/aligned/assist.h"
#include "policies/families/ownership.h"

/* A stage that has part in it: before the keys of its op's slice are as many slices of them. */
struct load {
    int stage, layer;
    struct sp_op op;
};

static bool has_more(const struct load *a, const struct load *b)
{
    return a->op.slice != b->op.slice ? a->op.slice > b->op.slice : a->stage < b->stage;
}

/* Those with most keys first: of few stages, slot by slot. */
static void sort(struct load *load, int n)
{
    for (int i = 1; i < n; i++) {
        struct load one = load[i];
        int at = i;

        for (; at > 0 && has_more(&one, &load[at - 1]); at--)
            load[at] = load[at - 1];
        load[at] = one;
    }
}

/* Whole slices of keys go from the stages with most of them to those with fewest, which takes fewest pairs. */
static int share_out(struct load *load, int n, struct sp_assist assist[SP_SLOT_STAGES])
{
    int sum = 0, count = 0, helper = n - 1, given = 0;

    for (int i = 0; i < n; i++)
        sum += load[i].op.slice;
    sort(load, n);
    for (int owner = 0; owner < n; owner++) {
        int surplus = load[owner].op.slice - sum / n - (owner < sum % n), first = 0;

        while (surplus > 0) {
            int wants = sum / n + (helper < sum % n) - load[helper].op.slice - given;
            int moves = wants < surplus ? wants : surplus;

            if (moves <= 0) { /* has what it gets */
                helper--;
                given = 0;
                continue;
            }
            assist[count++] = (struct sp_assist){.owner = load[owner].stage,
                                                 .helper = load[helper].stage,
                                                 .op = load[owner].op,
                                                 .layer = load[owner].layer,
                                                 .keys = {first, moves}};
            first += moves;
            surplus -= moves;
            given += moves;
        }
    }
    return count;
}

int sp_slot_assist(const struct sp_layout *lay, int slot, struct sp_assist assist[SP_SLOT_STAGES])
{
    struct load load[SP_SLOT_STAGES];
    struct sp_op op;
    int n = 0;

    for (int s = 0; s < lay->stages; s++)
        if (sp_slot_op(lay, s, slot, &op))
            load[n++] = (struct load){s, -1, op};
    return share_out(load, n, assist);
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

/* Without what was and will be. */
static int assist_of_step(const struct sp_plan *plan, int layers, int slot, int step,
                          struct sp_assist assist[SP_SLOT_STAGES])
{
    struct load load[SP_SLOT_STAGES];
    int n = 0;

    for (int s = 0; s < plan->layout.stages; s++) {
        struct load at = {.stage = s};

        at.layer = sp_step_layer(plan, layers, s, slot, step, &at.op);
        if (at.layer >= 0)
            load[n++] = at;
    }
    return share_out(load, n, assist);
}

static struct sp_key_range both(const struct sp_key_range *a, const struct sp_key_range *b)
{
    int first = a->first > b->first ? a->first : b->first;
    int end = a->first + a->n < b->first + b->n ? a->first + a->n : b->first + b->n;

    return (struct sp_key_range){first, end > first ? end - first : 0};
}

/* The keys of an aid that the helper has in another slot too, which has the aids other[n]. Those of another micro-batch
 * it cannot be: that begins or ends with a slice whose stage gives none. */
static struct sp_key_range there_too(const struct sp_assist *assist, const struct sp_assist *other,
                                     int n)
{
    for (int k = 0; k < n; k++)
        if (other[k].owner == assist->owner && other[k].helper == assist->helper &&
            other[k].op.chunk == assist->op.chunk)
            return both(&assist->keys, &other[k].keys);
    return (struct sp_key_range){0, 0};
}

int sp_step_assist(const struct sp_plan *plan, int layers, int slot, int step,
                   struct sp_assist assist[SP_SLOT_STAGES])
{
    int n = assist_of_step(plan, layers, slot, step, assist);

    for (int way = -1; n && way <= 1; way += 2) {
        int beside = sp_slot_beside(&plan->layout, slot, way), others;
        struct sp_assist other[SP_SLOT_STAGES];

        others = beside < 0 ? 0 : assist_of_step(plan, layers, beside, step, other);
        for (int k = 0; k < n; k++)
            *(way < 0 ? &assist[k].had : &assist[k].goes_on) = there_too(&assist[k], other, others);
    }
    return n;
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
