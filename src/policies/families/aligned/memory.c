#include "policies/families/activations.h"
#include "policies/families/aligned/aid.h"
#include "policies/families/aligned/aligned.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tensors of a slice that a stage has at a step beside its own, as many as there are of q, of statistics and of kv. */
struct held {
    int64_t q, lse, kv;
};

/* Slices of keys and values that a helper has of others, and in a backward as many of their gradients. */
struct keys {
    int64_t had, given, goes_on;
};

struct step {
    struct held held;
    struct keys keys;
};

/* `wide`: parts are summed up in f32, which has twice the room. */
static struct step step_of(const struct sp_plan *plan, int layers, int slot, int step, int stage,
                           bool wide)
{
    struct sp_aid aid[SP_SLOT_STAGES];
    int n = sp_step_aid(plan, layers, slot, step, aid);
    struct step s = {{0, 0, 0}, {0, 0, 0}};

    for (int k = 0; k < n; k++) {
        bool forward = aid[k].op.pass == SP_F;
        int each = forward ? 1 : 2;

        if (aid[k].helper == stage) { /* q, and what it leaves; backward o and do besides */
            s.held.q += forward ? 2 : 4;
            s.held.lse++;
            s.keys.had += each * aid[k].had.n;
            s.keys.given += each * aid[k].keys.n;
            s.keys.goes_on += each * aid[k].goes_on.n;
        } else if (aid[k].owner ==
                   stage) { /* what comes back; and once the sum, and scratch for its first part */
            s.held.q += 1 + (wide && aid[k].keys.first == 0 ? 3 : 0);
            s.held.lse += forward + (wide && aid[k].keys.first == 0);
            s.held.kv += forward ? 0 : aid[k].keys.n;
        }
    }
    return s;
}

/*
 * The most of each in a slot, and what is left of keys after it: layer by layer what a helper had becomes what it
 * goes on with, and in between all that it is given is there.
 */
static struct held most_of(const struct sp_plan *plan, int layers, int slot, int stage, bool wide,
                           int64_t *left)
{
    int steps = sp_slot_steps(plan, layers, slot);
    struct step at[steps];
    struct held most = {0, 0, 0};
    int64_t had = 0;

    for (int i = 0; i < steps; i++) {
        at[i] = step_of(plan, layers, slot, i, stage, wide);
        had += at[i].keys.had;
    }
    *left = 0;
    for (int i = 0; i < steps; i++) {
        had -= at[i].keys.had;
        most.q = larger(most.q, at[i].held.q);
        most.lse = larger(most.lse, at[i].held.lse);
        most.kv = larger(most.kv, at[i].held.kv + *left + at[i].keys.given + had);
        *left += at[i].keys.goes_on;
    }
    return most;
}

/* In elements of a shape whose rows are those of the longest slice. Buffers of each size are as many as there ever
 * were. */
int64_t sp_aligned_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                              int64_t x)
{
    enum { IDLE = 3 }; /* of a size, as the pool hands them out */

    const struct sp_layout *lay = &plan->layout;
    int each = lay->slices * lay->chunks, layers = sh->model.layers;
    int last = 1 + (2 * (lay->stages - 1) + each - 1) / each; /* forwards are so far ahead */
    int64_t rows = x / sh->model.hidden * sp_shape_shares(sh);
    int64_t left[2] = {0, 0}; /* after the last slot of each pass */
    struct sp_shape joined;   /* of a device's own heads */
    struct held most = {0, 0, 0};
    struct sp_op op;

    sp_shape_joined(sh, &joined);
    for (int slot = 0; slot < sp_slots(lay); slot++) {
        struct held now;

        if (!sp_slot_op(lay, stage, slot, &op) || op.mb > last)
            continue; /* what comes later has been before */
        now = most_of(plan, layers, slot, stage, sh->dtype != SP_F32, &left[op.pass == SP_B]);
        most.q = larger(most.q, now.q);
        most.lse = larger(most.lse, now.lse);
        most.kv = larger(most.kv, now.kv + left[op.pass == SP_F]);
    }
    if (most.q) {
        most.q += IDLE;
        most.lse += IDLE;
        most.kv += IDLE;
    }
    return rows * (most.q * joined.q_width + most.kv * joined.kv_width) +
           sp_in_f32(sh, rows * most.lse * (joined.q_width / sh->model.head_dim)) +
           sp_boundary_buffers(plan, stage) * x;
}
