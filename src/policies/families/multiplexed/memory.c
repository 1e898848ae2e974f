#include "policies/families/multiplexed/memory.h"
#include "policies/families/activations.h"
#include "policies/families/multiplexed/multiplex.h"
#include "policies/families/slice_buffers.h"
#include "policies/simulation/merge.h"
#include <errno.h>
#include <stdlib.h>

/* ---- blocks --------------------------------------------------------------------------------- */

struct blocks {
    const struct sp_model *model;
    int64_t sum, largest[SP_BLOCK_KINDS];
};

static int add_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct blocks *b = arg;
    int64_t n = (int64_t)sp_block_elements(b->model, kind);

    (void)layer;
    b->sum += n;
    b->largest[kind] = n;
    return 0;
}

/* Sums and copies; those on their way to the owner, three of a size as the pool hands them out. */
static int64_t block_elements(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct blocks others = {.model = &sh->held}, own = {.model = &sh->held};
    bool apart = sp_multiplex_cut_of(&plan->layout)->copies;
    int64_t elements;

    for (int s = 0; s < plan->layout.stages; s++)
        sp_stage_each_block(plan, &sh->held, s, add_block, s == stage ? &own : &others);
    elements = others.sum;
    if (sh->model.tied) /* two replicas of the table are summed like others */
        elements += (int64_t)sp_block_elements(&sh->held, SP_BLOCK_TOKENS);
    if (apart)
        for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
            elements += 3 * own.largest[kind];
    return sp_in_f32(sh, elements) + (apart ? others.sum : 0);
}

/* ---- keys and values -------------------------------------------------------------------------- */

/* Of all stages at once, in the order of submission. */
struct keys {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    int p;
    int *begun; /* [stages][of stage] micro-batches whose gradients it has begun to add up */
    int64_t *live, *most; /* [stages] */
};

/* Of a part, in all layers of its stage. */
static int64_t elements_of(const struct keys *k, const struct sp_op *op)
{
    int first, count, from, len;

    sp_chunk_layers(k->plan, k->sh->model.layers, op->chunk, op->chunk, &first, &count);
    sp_plan_op_tokens(k->plan, k->sh->seq, op, &from, &len);
    return (int64_t)count * len * k->sh->batch * k->sh->kv_width;
}

static void add(struct keys *k, int stage, int64_t elements)
{
    k->live[stage] += elements;
    if (k->live[stage] > k->most[stage])
        k->most[stage] = k->live[stage];
}

/* A part of another stage. What its forward keeps is counted with activations. */
static void computed_here(struct keys *k, int stage, const struct sp_op *op, int64_t elements)
{
    struct sp_op part = *op;

    if (op->chunk == stage || op->pass == SP_F)
        return;
    if (k->begun[stage * k->p + op->chunk] == op->mb) {
        k->begun[stage * k->p + op->chunk]++;
        for (int i = 0; i <= op->slice; i++) {
            part.slice = (unsigned short)i;
            add(k, stage, elements_of(k, &part));
        }
    }
    add(k, stage, -elements);
}

/* Received when it is computed, and given back with its gradients. */
static void computed_elsewhere(struct keys *k, int stage, const struct sp_op *op, int64_t elements)
{
    if (op->slice <= sp_last_part(&k->plan->layout, op->chunk, stage))
        add(k, stage, op->pass == SP_F ? elements : -2 * elements);
}

static void walk(struct keys *k, const struct sp_placed *order, int n)
{
    for (int i = 0; i < n; i++) {
        const struct sp_op *op = &k->plan->programs[order[i].stage].ops[order[i].index];
        int64_t elements = elements_of(k, op);

        for (int s = 0; s < k->p; s++)
            if (s == order[i].stage)
                computed_here(k, s, op, elements);
            else
                computed_elsewhere(k, s, op, elements);
    }
}

int sp_multiplexed_apart(struct sp_plan *plan, const struct sp_shape *sh)
{
    size_t p = (size_t)plan->layout.stages;
    struct keys k = {.plan = plan, .sh = sh, .p = plan->layout.stages};
    struct sp_placed *order = NULL;
    int n, err = 0;

    free(sp_multiplex_cut_of(&plan->layout)->copies);
    k.most = sp_multiplex_cut_of(&plan->layout)->copies = calloc(p, sizeof *k.most);
    k.begun = calloc(p * p, sizeof *k.begun);
    k.live = calloc(p, sizeof *k.live);
    order = sp_plan_order(plan, &n);
    if (k.most && k.begun && k.live && order)
        walk(&k, order, n);
    else
        err = -ENOMEM;
    free(order);
    free(k.live);
    free(k.begun);
    return err;
}

int64_t sp_multiplexed_travelling(const struct sp_plan *plan, const struct sp_shape *sh, int stage,
                                  int64_t x)
{
    int64_t elements = sp_boundary_buffers(plan, stage) * x;

    if (sp_multiplex_cut_of(&plan->layout)->copies) /* one, and the slack of the pool */
        elements += 3 * sp_memory_slice_rows(plan, sh, stage, true) * sh->model.hidden;
    return elements;
}

int64_t sp_multiplexed_for_others(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    const int64_t *copies = sp_multiplex_cut_of(&plan->layout)->copies;

    return block_elements(plan, sh, stage) + (copies ? copies[stage] : 0);
}
