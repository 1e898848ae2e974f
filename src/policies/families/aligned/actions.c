/*
 * Aligned programs as actions, slot by slot: all stages of a slot go through their legs together. At step i, of its
 * i-th layer on, l:
 *
 *   RECV x or dx of all, as in layerwise programs
 *   each i:  RUN, to attention
 *            owner to helper, F: q(l,k)           B: q, do, o and lse(l,k)
 *                             kv(l,j) of each slice of keys j that it gives, unless the helper has them
 *            RUN, attention of both
 *            helper to owner, F: o and lse(l,k)   B: dq(l,k), and dkv(l,j) of the keys that it does not go on with
 *   RUN, the rest, and SEND x or dx of all
 */
#include "policies/families/aligned/aid.h"
#include "policies/families/aligned/aligned.h"
#include "policies/families/families.h"
#include "policies/families/ownership.h"

static int slot_at(const struct sp_lowering *l, int i)
{
    return sp_slot_of(&l->plan->layout, l->order[i].stage, sp_lowering_op(l, i));
}

double sp_aligned_turn(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    return sp_slot_of(lay, stage, op);
}

int sp_aligned_unit(const struct sp_lowering *l, int i)
{
    int n = 1;

    while (i + n < l->n && slot_at(l, i + n) == slot_at(l, i))
        n++;
    return n;
}

/* ---- what is exchanged ---------------------------------------------------------------------- */

/* An owner's attention at a step of a slot. */
struct shared {
    struct sp_lowering *l;
    struct sp_aid aid;
    struct sp_op op; /* the owner's */
    int layer;
};

static struct sp_tensor_id tensor(const struct shared *s, enum sp_tensor_kind kind, int slice)
{
    return (struct sp_tensor_id){.kind = (unsigned char)kind,
                                 .slice = (unsigned short)slice,
                                 .mb = s->op.mb,
                                 .at = s->layer};
}

/* What the helper reads: fn for each, of the owner's slice, and of those of keys but `but`. */
static void each_lent(const struct shared *s, const struct sp_key_range *but,
                      void (*fn)(const struct shared *s, struct sp_tensor_id t))
{
    static const enum sp_tensor_kind backward[] = {SP_TENSOR_DO, SP_TENSOR_O, SP_TENSOR_LSE};
    const struct sp_key_range *keys = &s->aid.keys;

    fn(s, tensor(s, SP_TENSOR_Q, s->op.slice));
    for (int k = 0; s->op.pass == SP_B && k < 3; k++)
        fn(s, tensor(s, backward[k], s->op.slice));
    for (int j = keys->first; j < keys->first + keys->n; j++)
        if (!sp_key_range_has(but, j))
            fn(s, tensor(s, SP_TENSOR_KV, j));
}

/* What it leaves for the owner. */
static void each_returned(const struct shared *s,
                          void (*fn)(const struct shared *s, struct sp_tensor_id t))
{
    const struct sp_key_range *keys = &s->aid.keys;
    bool forward = s->op.pass == SP_F;

    fn(s, tensor(s, forward ? SP_TENSOR_O : SP_TENSOR_DQ, s->op.slice));
    if (forward)
        fn(s, tensor(s, SP_TENSOR_LSE, s->op.slice));
    for (int j = keys->first; !forward && j < keys->first + keys->n; j++)
        if (!sp_key_range_has(&s->aid.goes_on, j))
            fn(s, tensor(s, SP_TENSOR_DKV, j));
}

static void lend(const struct shared *s, struct sp_tensor_id t)
{
    sp_lower_pass(s->l, s->aid.owner, s->aid.helper, t);
}

static void give_back(const struct shared *s, struct sp_tensor_id t)
{
    sp_lower_pass(s->l, s->aid.helper, s->aid.owner, t);
}

static void free_lent(const struct shared *s, struct sp_tensor_id t)
{
    sp_lower_free(s->l, s->aid.helper, t);
}

static void free_returned(const struct shared *s, struct sp_tensor_id t)
{
    sp_lower_free(s->l, s->aid.owner, t);
}

/* ---- the slot ------------------------------------------------------------------------------- */

static void each_aid(struct sp_lowering *l, int slot, int step, void (*fn)(const struct shared *s))
{
    int layers = sp_aligned_layers(l->plan, l->shape), n;
    struct sp_aid aid[SP_SLOT_STAGES];

    n = sp_step_aid(l->plan, layers, slot, step, aid);
    for (int k = 0; k < n; k++) {
        struct shared s = {.l = l, .aid = aid[k]};

        s.layer = sp_step_layer(l->plan, layers, aid[k].owner, slot, step, &s.op);
        fn(&s);
    }
}

static void before_attention(const struct shared *s)
{
    each_lent(s, &s->aid.had, lend);
}

static void after_attention(const struct shared *s)
{
    each_returned(s, give_back);
    each_lent(s, &s->aid.goes_on, free_lent);
}

static void after_layer(const struct shared *s)
{
    each_returned(s, free_returned);
}

/* Whether the stages of a slot have anything to share, at any step. */
static bool is_shared(const struct sp_lowering *l, int slot, int steps)
{
    int layers = sp_aligned_layers(l->plan, l->shape);
    struct sp_aid aid[SP_SLOT_STAGES];

    for (int step = 0; step < steps; step++)
        if (sp_step_aid(l->plan, layers, slot, step, aid))
            return true;
    return false;
}

static int legs_of(const struct sp_lowering *l, int i)
{
    int first, count;

    sp_chunk_layers(l->plan, sp_aligned_layers(l->plan, l->shape), l->order[i].stage,
                    sp_lowering_op(l, i)->chunk, &first, &count);
    return sp_aligned_legs(count);
}

void sp_aligned_lower(struct sp_lowering *l, int i)
{
    int n = sp_aligned_unit(l, i), slot = slot_at(l, i);
    int steps = sp_slot_steps(l->plan, sp_aligned_layers(l->plan, l->shape), slot);
    bool shared = is_shared(l, slot, steps);

    for (int k = i; k < i + n; k++)
        sp_layerwise_receive(l, l->order[k].stage, sp_lowering_op(l, k), l->order[k].index);
    for (int k = i; !shared && k < i + n; k++)
        sp_lower_run(l, l->order[k].stage, l->order[k].index);
    for (int leg = 0; shared && leg < sp_aligned_legs(steps); leg++) {
        for (int k = i; k < i + n; k++)
            if (leg < legs_of(l, k))
                sp_lower_leg(l, l->order[k].stage, l->order[k].index, leg, legs_of(l, k));
        if (leg % 2 == 0 && leg > 0)
            each_aid(l, slot, leg / 2 - 1, after_layer);
        if (leg < 2 * steps)
            each_aid(l, slot, leg / 2, leg % 2 ? after_attention : before_attention);
    }
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

int sp_aligned_run_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                        struct sp_dep out[SP_MAX_DEPS])
{
    int n = sp_family_aligned.deps(lay, stage, op, out), slot = sp_slot_of(lay, stage, op);
    struct sp_aid aid[SP_SLOT_STAGES];
    int aids = sp_slot_aid(lay, slot, aid);

    for (int k = 0; k < aids; k++) {
        int other = aid[k].owner == stage    ? aid[k].helper
                    : aid[k].helper == stage ? aid[k].owner
                                             : -1;

        if (other >= 0 && op_before(lay, other, slot, &out[n].op)) {
            out[n].beside = false;
            out[n++].stage = other;
        }
    }
    return n;
}
