#include "policies/families/multiplexed/memory.h"
#include "policies/families/ownership.h"
#include "policies/families/multiplexed/multiplex.h"
#include "sp_error.h"
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
    struct blocks others = {.model = &sh->model}, own = {.model = &sh->model};
    int64_t elements;

    for (int s = 0; s < plan->layout.stages; s++)
        sp_stage_each_block(plan, &sh->model, s, add_block, s == stage ? &own : &others);
    elements = others.sum;
    if (sh->model.tied) /* two replicas of the table are summed like others */
        elements += (int64_t)sp_block_elements(&sh->model, SP_BLOCK_TOKENS);
    if (plan->copies)
        for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
            elements += 3 * own.largest[kind];
    return (int64_t)sp_shape_f32(sh, (size_t)elements) + (plan->copies ? others.sum : 0);
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

int sp_memory_apart(struct sp_plan *plan, const struct sp_shape *sh)
{
    size_t p = (size_t)plan->layout.stages;
    struct keys k = {.plan = plan, .sh = sh, .p = plan->layout.stages};
    struct sp_placed *order = NULL;
    int n, err = 0;

    free(plan->copies);
    k.most = plan->copies = calloc(p, sizeof *plan->copies);
    if (!plan->copies)
        return sp_error(ENOMEM, "no memory to plan %d stages", k.p);
    if (plan->family->kind != SP_MULTIPLEXED)
        return 0;
    k.begun = calloc(p * p, sizeof *k.begun);
    k.live = calloc(p, sizeof *k.live);
    order = sp_plan_order(plan, &n);
    if (k.begun && k.live && order)
        walk(&k, order, n);
    else
        err = -ENOMEM;
    free(order);
    free(k.live);
    free(k.begun);
    return err ? sp_error(ENOMEM, "no memory to plan what %d stages have of others", k.p) : 0;
}

int64_t sp_memory_help(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    if (plan->family->kind != SP_MULTIPLEXED)
        return 0;
    return block_elements(plan, sh, stage) + (plan->copies ? plan->copies[stage] : 0);
}
