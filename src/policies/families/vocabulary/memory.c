#include "kernels/backend.h"
#include "model/tensor_parts.h"
#include "policies/families/activations.h"
#include "policies/families/families.h"
#include "policies/families/vocabulary/vocabulary.h"

/* Ops of a stage that are between two others, at the most. */
struct between {
    int now, most;
};

static void begin(struct between *b)
{
    b->now++;
    b->most = b->now > b->most ? b->now : b->most;
}

struct counts {
    struct between inputs; /* from the last op before the head, or its forward, to its backward */
    struct between logits; /* from forward to backward of the head */
    struct between gradients; /* of the stage of the last op: from the head's backward to that */
};

static struct counts count(const struct sp_plan *plan, int stage)
{
    const struct sp_layout *lay = &plan->layout;
    bool root = stage == sp_vocabulary_root(lay);
    struct counts c = {{0, 0}, {0, 0}, {0, 0}};

    for (int k = 0; k < plan->programs[stage].n; k++) {
        const struct sp_op *op = &plan->programs[stage].ops[k];
        bool head = op->part == SP_HEAD, forward = op->pass == SP_F;
        bool last = sp_vocabulary_is_last(lay, stage, op);

        if (forward && (root ? last : head))
            begin(&c.inputs);
        if (head && forward)
            begin(&c.logits);
        if (head && !forward) {
            c.inputs.now--;
            c.logits.now--;
            begin(&c.gradients);
        }
        if (last && op->pass == SP_B)
            c.gradients.now--;
    }
    return c;
}

int64_t sp_vocabulary_elements(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                               int64_t x)
{
    const struct sp_layout *lay = &plan->layout;
    int64_t rows = x / sh->model.hidden, stages = lay->stages;
    int64_t held = (int64_t)sp_block_held(plan, &sh->held, SP_BLOCK_TOKENS);
    int64_t logits = sp_logits_ld(sp_vocabulary_rows(&sh->held, lay->stages));
    struct counts root = count(plan, sp_vocabulary_root(lay)), own = count(plan, stage);
    int64_t shares = sp_shape_shares(sh);
    bool kept = sh->head_rows >= rows;
    int64_t dn = root.gradients.most + 1, spare = 2; /* that the pool leaves idle */
    int64_t elements = (own.inputs.most + dn + spare) * x;

    /* of all shares of the tokens the inputs, and the gradients and those of others */
    if (sh->tensor > 1) {
        elements += ((own.logits.most + 1) * shares + 2 * shares) * x;
        elements += sp_in_f32(sh, shares * (sh->tensor + 1) * 2 * rows);
    }
    if (stage == sp_vocabulary_root(lay)) /* the parts of others; statistics of the norms */
        elements += (stages - 1) * x + sp_in_f32(sh, 2 * rows * lay->micro_batches * lay->slices);
    if (kept || lay->slices > 1) /* x may be that of slices of several lengths: some keep them */
        elements += (own.logits.most + 1) * shares * (kept ? rows : sh->head_rows) * logits;
    elements += kept ? 0 : sh->head_rows * logits;
    elements += sp_in_f32(sh, rows + (own.logits.most + 1 + spare) * stages * shares * 2 * rows);
    elements += sp_in_f32(sh, held); /* of the embedding's gradient, on its way here */
    if (stage == sp_vocabulary_first(lay))
        elements += stages * held + sp_in_f32(sh, stages * held);
    return elements;
}

int64_t sp_vocabulary_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                 int64_t x)
{
    return sp_boundary_buffers(plan, stage) * x + sp_vocabulary_elements(plan, sh, stage, x);
}
