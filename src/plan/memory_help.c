#include "plan/memory_help.h"
#include "graphs/holders.h"
#include "policies/multiplex.h"
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
static int64_t block_floats(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct blocks others = {.model = &sh->model}, own = {.model = &sh->model};
    int64_t floats;

    for (int s = 0; s < plan->layout.stages; s++)
        sp_stage_each_block(plan, &sh->model, s, add_block, s == stage ? &own : &others);
    floats = others.sum;
    if (sh->model.tied) /* two replicas of the table are summed like others */
        floats += (int64_t)sp_block_elements(&sh->model, SP_BLOCK_TOKENS);
    if (!plan->apart)
        return floats;
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        floats += 3 * own.largest[kind];
    return floats + others.sum;
}

/* ---- keys and values -------------------------------------------------------------------------- */

struct keys {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    int stage;
    int *last;  /* [stages] the last part of each that the stage computes, -1: none */
    int *begun; /* [stages] micro-batches whose gradients it has begun to add up */
    int64_t live, most;
};

/* Of a part, in all layers of its stage. */
static int64_t floats_of(const struct keys *k, const struct sp_op *op)
{
    int first, count, from, len;

    sp_chunk_layers(k->plan, k->sh->model.layers, k->stage, op->chunk, &first, &count);
    sp_plan_op_tokens(k->plan, k->sh->seq, op, &from, &len);
    return (int64_t)count * len * k->sh->batch * k->sh->kv_width;
}

static void add(struct keys *k, int64_t floats)
{
    k->live += floats;
    k->most = k->live > k->most ? k->live : k->most;
}

/* The stage's own parts of another one. What their forward keeps is counted with activations. */
static void own_part(struct keys *k, const struct sp_op *op)
{
    struct sp_op part = *op;

    if (op->pass == SP_F)
        return;
    if (k->begun[op->chunk] == op->mb) {
        k->begun[op->chunk]++;
        for (int i = 0; i <= op->slice; i++) {
            part.slice = (unsigned short)i;
            add(k, floats_of(k, &part));
        }
    }
    add(k, -floats_of(k, op));
}

/* Received when it is computed, and given back with its gradients. */
static void part_elsewhere(struct keys *k, const struct sp_op *op)
{
    if (op->slice > k->last[op->chunk])
        return;
    add(k, op->pass == SP_F ? floats_of(k, op) : -2 * floats_of(k, op));
}

static void find_last(struct keys *k)
{
    const struct sp_layout *lay = &k->plan->layout;

    for (int g = 0; g < lay->stages; g++) {
        int part = sp_parts_of(lay, g) - 1;

        while (part >= 0 && sp_part_at(lay, g, part).stage != k->stage)
            part--;
        k->last[g] = part;
    }
}

static int64_t key_floats(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    size_t p = (size_t)plan->layout.stages;
    struct keys k = {.plan = plan, .sh = sh, .stage = stage};
    struct sp_placed *order;
    int n;

    k.last = calloc(p, sizeof *k.last);
    k.begun = calloc(p, sizeof *k.begun);
    order = sp_plan_order(plan, &n);
    if (k.last && k.begun && order) {
        find_last(&k);
        for (int i = 0; i < n; i++) {
            const struct sp_op *op = &plan->programs[order[i].stage].ops[order[i].index];

            if (order[i].stage != stage)
                part_elsewhere(&k, op);
            else if (op->chunk != stage)
                own_part(&k, op);
        }
    }
    free(order);
    free(k.begun);
    free(k.last);
    return k.most;
}

int64_t sp_memory_help(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    if (plan->family->kind != SP_MULTIPLEXED)
        return 0;
    return block_floats(plan, sh, stage) + (plan->apart ? key_floats(plan, sh, stage) : 0);
}
