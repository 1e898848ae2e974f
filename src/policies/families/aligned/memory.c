#include "policies/families/activations.h"
#include "policies/families/aligned/aid.h"
#include "policies/families/aligned/aligned.h"

/* Tensors of a slice that a stage has beside its own, in units of q, of kv and of statistics. */
struct held {
    int64_t q, lse, kv;
};

/* At a step, for as long as it takes. */
static struct held held_at(const struct sp_plan *plan, int layers, int slot, int step, int stage)
{
    struct sp_aid aid[SP_SLOT_STAGES];
    int n = sp_step_aid(plan, layers, slot, step, aid);
    struct held h = {0};
    struct sp_op op;

    for (int k = 0; k < n; k++) {
        bool forward = sp_slot_op(&plan->layout, aid[k].owner, slot, &op) && op.pass == SP_F;

        if (aid[k].helper == stage) { /* q, and do and o or what it leaves of them */
            h.q += forward ? 2 : 4;
            h.lse++;
        } else if (aid[k].owner == stage) {
            h.q++;
            h.lse += forward;
            h.kv += forward ? 0 : aid[k].keys.n;
        }
    }
    return h;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Slices of keys and values that a helper has of others, and in a backward as many of their gradients. */
struct keys {
    int64_t had, given, goes_on;
};

static struct keys keys_at(const struct sp_plan *plan, int layers, int slot, int step, int stage)
{
    struct sp_aid aid[SP_SLOT_STAGES];
    int n = sp_step_aid(plan, layers, slot, step, aid);
    struct keys keys = {0};
    struct sp_op op;

    for (int k = 0; k < n; k++)
        if (aid[k].helper == stage && sp_slot_op(&plan->layout, aid[k].owner, slot, &op)) {
            int each = op.pass == SP_F ? 1 : 2;

            keys.had += each * aid[k].had.n;
            keys.given += each * aid[k].keys.n;
            keys.goes_on += each * aid[k].goes_on.n;
        }
    return keys;
}

/* The most in a slot, and what is left of it: layer by layer what it had becomes what it goes on with, and in between all
 * that it is given is there. */
static int64_t most_keys(const struct sp_plan *plan, int layers, int slot, int stage, int64_t *left)
{
    int steps = sp_slot_steps(plan, layers, slot);
    int64_t had = 0, most = 0;

    *left = 0;
    for (int step = 0; step < steps; step++)
        had += keys_at(plan, layers, slot, step, stage).had;
    for (int step = 0; step < steps; step++) {
        struct keys keys = keys_at(plan, layers, slot, step, stage);

        had -= keys.had;
        most = larger(most, *left + keys.given + had);
        *left += keys.goes_on;
    }
    return most;
}

/* In elements of a shape whose rows are those of the longest slice. */
int64_t sp_aligned_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                              int64_t x)
{
    enum { IDLE = 3 }; /* of a size, as the pool hands them out */

    const struct sp_layout *lay = &plan->layout;
    int64_t rows = x / sh->model.hidden * sp_shape_shares(sh), most = 0;
    int64_t left[2] = {0, 0}; /* after the last slot of each pass */
    int layers = sh->model.layers;
    struct sp_shape joined; /* of a device's own heads */
    struct sp_op op;
    int64_t heads;

    sp_shape_joined(sh, &joined);
    heads = joined.q_width / sh->model.head_dim;
    for (int slot = 0; slot < sp_slots(lay); slot++) {
        int64_t at_once = 0, keys;

        if (!sp_slot_op(lay, stage, slot, &op) || op.mb > 1)
            continue; /* what comes later has been before */
        keys = most_keys(plan, layers, slot, stage, &left[op.pass == SP_B]);
        for (int step = 0; step < sp_slot_steps(plan, layers, slot); step++) {
            struct held h = held_at(plan, layers, slot, step, stage);

            at_once = larger(at_once, rows * (h.q * joined.q_width + h.kv * joined.kv_width) +
                                          sp_in_f32(sh, rows * h.lse * heads));
        }
        most = larger(most, at_once + rows * (keys + left[op.pass == SP_F]) * joined.kv_width);
    }
    if (most)
        most += IDLE * (rows * (joined.q_width + joined.kv_width) + sp_in_f32(sh, rows * heads));
    return most + sp_boundary_buffers(plan, stage) * x;
}
