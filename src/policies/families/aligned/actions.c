/*
 * Aligned programs as actions, slot by slot: all stages of a slot go through the parts of their ops
 * together. Step i is for the i-th layer, l, of each chunk:
 *
 *   RECV x or dx of all, as in layerwise programs
 *   each i:  RUN, to attention
 *            owner to assisting stage, F: q(l,k)           B: q, do, o and lse(l,k)
 *                             kv(l,j) of each slice of keys j it gives that the assisting stage
 * lacks
 *            RUN, attention of both
 *            assisting stage to owner, F: o and lse(l,k)   B: dq(l,k)
 *                                                    dkv(l,j) of keys with which it does not go on
 *   RUN, the rest, and SEND x or dx of all
 */
#include "policies/families/aligned/assist.h"
#include "policies/families/aligned/aligned.h"
#include "policies/families/families.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/families/ownership.h"
#include "policies/lowering/lowering.h"
#include "policies/refuse.h"

static int slot_at(const struct sp_lowering *l, int i)
{
    return sp_slot_of(&l->plan->layout, l->order[i].stage, sp_lowering_op(l, i));
}

static double turn(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    return sp_slot_of(lay, stage, op);
}

static int unit(const struct sp_lowering *l, int i)
{
    int n = 1;

    while (i + n < l->n && slot_at(l, i + n) == slot_at(l, i))
        n++;
    return n;
}

/* ---- what is exchanged ---------------------------------------------------------------------- */

/* Takes a step with the tensors of an assist: with the inputs go slices of keys, with the results of
 * a backward their gradients, except slices `but`. */
static void exchange(struct sp_lowering *l, const struct sp_assist *assist,
                     const struct sp_key_range *but, enum sp_attention_tensors which,
                     sp_lower_fn step)
{
    const struct sp_key_range *keys = &assist->keys;
    bool back = which == SP_ATTENTION_RESULTS;
    int from = back ? assist->helper : assist->owner, to = back ? assist->owner : assist->helper;
    enum sp_tensor_kind kinds[SP_ATTENTION_KINDS], of_keys = back ? SP_TENSOR_DKV : SP_TENSOR_KV;
    int n = sp_attention_kinds((enum sp_pass)assist->op.pass, which, kinds);

    for (int k = 0; k < n; k++)
        step(l, from, to, sp_assist_tensor(assist, kinds[k], assist->op.slice));
    if (back && assist->op.pass == SP_F)
        return;
    for (int j = keys->first; j < keys->first + keys->n; j++)
        if (!sp_key_range_has(but, j))
            step(l, from, to, sp_assist_tensor(assist, of_keys, j));
}

/* ---- the slot ------------------------------------------------------------------------------- */

static int parts_of_op(const struct sp_lowering *l, int i)
{
    int first, count;

    sp_chunk_layers(l->plan, sp_aligned_layers(l->plan, l->shape), l->order[i].stage,
                    sp_lowering_op(l, i)->chunk, &first, &count);
    return sp_aligned_parts(count);
}

/* Runs one part of the ops at places i .. i+n-1; ops with fewer parts skip it. */
static void run_parts(struct sp_lowering *l, int i, int n, int op_part)
{
    for (int k = i; k < i + n; k++)
        if (op_part < parts_of_op(l, k))
            sp_lower_part(l, l->order[k].stage, l->order[k].index, op_part, parts_of_op(l, k));
}

/* All parts of a slot's ops, with the exchanges between them. */
static void run_shared(struct sp_lowering *l, int i, int n)
{
    int layers = sp_aligned_layers(l->plan, l->shape), slot = slot_at(l, i);
    int steps = sp_slot_steps(l->plan, layers, slot);

    run_parts(l, i, n, 0);
    for (int step = 0; step < steps; step++) {
        struct sp_assist assist[SP_SLOT_STAGES];
        int assists = sp_step_assist(l->plan, layers, slot, step, assist);

        for (int k = 0; k < assists; k++)
            exchange(l, &assist[k], &assist[k].had, SP_ATTENTION_INPUTS, sp_lower_pass);
        run_parts(l, i, n, 2 * step + 1);
        for (int k = 0; k < assists; k++) {
            exchange(l, &assist[k], &assist[k].goes_on, SP_ATTENTION_RESULTS, sp_lower_pass);
            exchange(l, &assist[k], &assist[k].goes_on, SP_ATTENTION_INPUTS, sp_lower_release);
        }
        run_parts(l, i, n, 2 * step + 2);
        for (int k = 0; k < assists; k++)
            exchange(l, &assist[k], &assist[k].goes_on, SP_ATTENTION_RESULTS, sp_lower_release);
    }
}

/* If the stages of a slot have nothing to share at their first layer, they have nothing to share
 * later: then each op runs at once. */
static void lower(struct sp_lowering *l, int i)
{
    int n = unit(l, i);
    struct sp_assist assist[SP_SLOT_STAGES];
    bool shared = sp_slot_assist(&l->plan->layout, slot_at(l, i), assist) > 0;

    for (int k = i; k < i + n; k++)
        sp_layerwise_receive(l, l->order[k].stage, sp_lowering_op(l, k), l->order[k].index);
    for (int k = i; !shared && k < i + n; k++)
        sp_lower_run(l, l->order[k].stage, l->order[k].index);
    if (shared)
        run_shared(l, i, n);
    for (int k = i; k < i + n; k++)
        sp_layerwise_send(l, l->order[k].stage, sp_lowering_op(l, k), l->order[k].index);
    for (int k = i; k < i + n; k++)
        sp_layerwise_release(l, l->order[k].stage, sp_lowering_op(l, k));
}

/* ---- what an op waits for ------------------------------------------------------------------- */

/* The op of a stage before a slot; false: it has none. */
static bool op_before(const struct sp_layout *lay, int stage, int slot, struct sp_op *op)
{
    while (--slot >= 0)
        if (sp_slot_op(lay, stage, slot, op))
            return true;
    return false;
}

/* The producers of a layerwise op, and the last ops before the slot of the stages with which it
 * shares attention. */
static int run_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                    struct sp_dep out[SP_MAX_DEPS])
{
    int n = sp_layerwise_deps(lay, stage, op, out), slot = sp_slot_of(lay, stage, op);
    struct sp_assist assist[SP_SLOT_STAGES];
    int assists = sp_slot_assist(lay, slot, assist);

    for (int k = 0; k < assists; k++) {
        int other = assist[k].owner == stage    ? assist[k].helper
                    : assist[k].helper == stage ? assist[k].owner
                                                : -1;

        if (other >= 0 && op_before(lay, other, slot, &out[n].op)) {
            out[n].beside = false;
            out[n++].stage = other;
        }
    }
    return n;
}

/* ---- the family --------------------------------------------------------------------------------- */

/* Slots need the loop placement (families/aligned/slots.h). */
static int place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                 struct sp_map **map, char *why, size_t n)
{
    (void)def;
    return sp_map_create(lay, 1, NULL, NULL, map, why, n);
}

static const struct sp_family *exchanging(const struct sp_layout *lay)
{
    return sp_option_is(lay, "exchange", "off") ? &sp_family_subsequence : &sp_family_aligned;
}

/* The stages that assist an op, and those that it assists, depend on its slot: on the micro-batches
 * that the other stages can have in that slot. */
static int kind_of_slot(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    int reach = sp_slots_reach(lay), before = op->mb, after = lay->micro_batches - 1 - op->mb;

    (void)stage;
    return (before < reach ? before : reach) * (reach + 1) + (after < reach ? after : reach);
}

static const struct sp_lowerer lowers = {
    .run_deps = run_deps, .turn = turn, .unit = unit, .lower = lower, .end = sp_replicas_lower};

const struct sp_family sp_family_aligned = {.name = "aligned",
                                            .facts.layers = SP_LAYERS_CHOSEN,
                                            .facts.slices = true,
                                            .facts.shares_attention = true,
                                            .variant = exchanging,
                                            .check = sp_slots_check,
                                            .place = place,
                                            .emit = sp_slots_emit,
                                            .facts.groups = SP_GROUP_PARAMETERS,
                                            .kind = kind_of_slot,
                                            .lowers = &lowers,
                                            SP_LAYERWISE_OPS};
