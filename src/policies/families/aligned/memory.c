#include "policies/families/activations.h"
#include "policies/families/aligned/aid.h"
#include "policies/families/aligned/aligned.h"

/* Tensors of a slice that a stage has at a step beside its own. */
struct held {
    int q, lse, kv;
};

static struct held held_at(const struct sp_plan *plan, int layers, int slot, int step, int stage)
{
    struct sp_aid aid[SP_SLOT_STAGES];
    int n = sp_step_aid(plan, layers, slot, step, aid);
    struct held h = {0};
    struct sp_op op;

    for (int k = 0; k < n; k++) {
        bool forward = sp_slot_op(&plan->layout, aid[k].owner, slot, &op) && op.pass == SP_F;

        if (aid[k].helper == stage) { /* what is lent, and what it leaves */
            h.q += forward ? 2 : 4;
            h.lse++;
            h.kv += forward ? aid[k].n : 2 * aid[k].n;
        } else if (aid[k].owner == stage) {
            h.q++;
            h.lse += forward;
            h.kv += forward ? 0 : aid[k].n;
        }
    }
    return h;
}

/* In elements of a shape whose rows are those of the longest slice. */
int64_t sp_aligned_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                              int64_t x)
{
    enum { IDLE = 3 }; /* of a size, as the pool hands them out */

    int layers = sh->model.layers;
    int64_t rows = x / sh->model.hidden, most = 0;
    struct sp_op op;

    for (int slot = 0; slot < sp_slots(&plan->layout); slot++) {
        if (!sp_slot_op(&plan->layout, stage, slot, &op) || op.mb > 1)
            continue; /* what comes later has been before */
        for (int step = 0; step < sp_slot_steps(plan, layers, slot); step++) {
            struct held h = held_at(plan, layers, slot, step, stage);
            int64_t n = rows * h.q * sh->q_width + rows * h.kv * sh->kv_width +
                        sp_in_f32(sh, rows * h.lse * sh->model.heads);

            most = n > most ? n : most;
        }
    }
    if (most)
        most +=
            IDLE * (rows * (sh->q_width + sh->kv_width) + sp_in_f32(sh, rows * sh->model.heads));
    return most + sp_boundary_buffers(plan, stage) * x;
}
