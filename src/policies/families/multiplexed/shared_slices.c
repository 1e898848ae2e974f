#include "policies/families/multiplexed/shared_slices.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/families/ownership.h"

static const struct sp_layout *layout(const struct sp_lowering *l)
{
    return &l->plan->layout;
}

static int seq_of(const struct sp_lowering *l)
{
    return sp_key_share_seq(layout(l), l->shape);
}

/* ---- shares of keys -------------------------------------------------------------------------- */

static bool has_share(const struct sp_lowering *l, int global, int part, int helper)
{
    int first, len;

    sp_key_share(l->plan, seq_of(l), global, part, helper, &first, &len);
    return len > 0;
}

/* The first (`pass` F) or last (B) op of a stage on a global stage's right slices, as a place in
 * its program. */
static int right_op(const struct sp_lowering *l, int stage, int global, int mb, enum sp_pass pass)
{
    int slice = layout(l)->slices - global;
    struct sp_op op = {.pass = (unsigned char)pass,
                       .mb = mb,
                       .chunk = global,
                       .slice = (unsigned short)(sp_first_part(layout(l), global, slice) + stage)};

    return l->order[sp_lowering_position(l, stage, &op)].index;
}

/* Sends each assisting stage its share of a part, whose keys the owner has after op number `index`
 * of its program. */
static void give_shares(struct sp_lowering *l, int global, int mb, int part, int index)
{
    for (int s = 0; s < global; s++) {
        struct sp_tensor_id t = sp_key_share_tensor(SP_TENSOR_KV, global, mb, part, s);

        if (!has_share(l, global, part, s))
            continue;
        sp_lower_send(l, global, s, t, index);
        sp_lower_recv(l, global, s, t, right_op(l, s, global, mb, SP_F));
        sp_lower_free(l, global, t);
    }
}

/* Number of left parts: the owner has the keys of all of them when its next slice begins. */
static int left_parts(const struct sp_layout *lay, int global)
{
    return sp_first_part(lay, global, lay->stages - 1 - global);
}

int sp_owner_op(const struct sp_lowering *l, const struct sp_op *op)
{
    const struct sp_layout *lay = layout(l);
    int g = op->chunk;
    struct sp_op next = *op;

    next.slice = (unsigned short)sp_part_of_stage(lay, g, lay->stages - 1 - g, g);
    return l->order[sp_lowering_position(l, g, &next)].index;
}

static void give_left_shares(struct sp_lowering *l, const struct sp_op *op)
{
    for (int r = 0; r < left_parts(layout(l), op->chunk); r++)
        give_shares(l, op->chunk, op->mb, r, sp_owner_op(l, op) - 1);
}

static void collect_shares(struct sp_lowering *l, int global, int mb, int part)
{
    for (int s = 0; s < global; s++) {
        struct sp_tensor_id t = sp_key_share_tensor(SP_TENSOR_DKV, global, mb, part, s);

        if (!has_share(l, global, part, s))
            continue;
        sp_lower_send(l, s, global, t, right_op(l, s, global, mb, SP_B));
        sp_lower_recv(l, s, global, t, -1);
        sp_lower_free(l, s, t);
        sp_lower_add(l, global, t);
        sp_lower_free(l, global, t);
    }
}

void sp_key_shares_before(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int g = op->chunk;

    if (op->pass == SP_B)
        collect_shares(l, g, op->mb, op->slice);
    else if (op->slice == left_parts(layout(l), g))
        give_left_shares(l, op);
}

void sp_key_shares_after(struct sp_lowering *l, int i)
{
    const struct sp_op *op = sp_lowering_op(l, i);

    if (op->pass == SP_F && op->slice >= left_parts(layout(l), op->chunk) &&
        op->slice < sp_parts_before_right(layout(l), op->chunk))
        give_shares(l, op->chunk, op->mb, op->slice, l->order[i].index);
}

/* Called after the last backward of a right slice. */
static void release_shares(struct sp_lowering *l, int global, int mb)
{
    for (int s = 0; s < global; s++)
        for (int r = 0; r < sp_parts_before_right(layout(l), global); r++)
            if (has_share(l, global, r, s))
                sp_lower_free(l, s, sp_key_share_tensor(SP_TENSOR_KV, global, mb, r, s));
}

/* ---- the slice ------------------------------------------------------------------------------- */

/* The parts of a slice, from place i of the order on. has_keys[part * n + other] is true if the
 * stage of part `other` has keys for the queries of `part`. */
struct slice {
    struct sp_lowering *l;
    int i, n;
    const bool *has_keys;
};

/* The place of a part in the order: in a backward the last part comes first. */
static int place_of(const struct slice *s, int part)
{
    return sp_lowering_op(s->l, s->i)->pass == SP_F ? s->i + part : s->i + s->n - 1 - part;
}

static void find_keys(const struct slice *s, bool *has_keys)
{
    for (int part = 0; part < s->n; part++)
        for (int other = 0; other < s->n; other++) {
            const struct sp_op *op = sp_lowering_op(s->l, place_of(s, part));

            has_keys[part * s->n + other] =
                other != part && sp_keys_for(s->l->plan, seq_of(s->l), op->chunk, op->slice,
                                             s->l->order[place_of(s, other)].stage) > 0;
        }
}

/* Takes a step with the tensors of attention of all pairs of parts of which one's stage has keys for
 * the other's queries. For one part, by stages. */
static void exchange(const struct slice *s, enum sp_attention_tensors which, sp_lower_fn step)
{
    for (int part = 0; part < s->n; part++)
        for (int other = 0; other < s->n; other++) {
            const struct sp_op *op = sp_lowering_op(s->l, place_of(s, part)); /* on the queries */
            int owner = s->l->order[place_of(s, part)].stage;
            int helper = s->l->order[place_of(s, other)].stage;
            bool back = which == SP_ATTENTION_RESULTS;
            enum sp_tensor_kind kinds[SP_ATTENTION_KINDS];
            int n = sp_attention_kinds((enum sp_pass)op->pass, which, kinds);

            for (int k = 0; k < n && s->has_keys[part * s->n + other]; k++)
                step(s->l, back ? helper : owner, back ? owner : helper,
                     sp_tensor_of(kinds[k], op, op->chunk));
        }
}

static void run_parts(const struct slice *s, int op_part, int op_parts)
{
    for (int k = s->i; k < s->i + s->n; k++)
        sp_lower_part(s->l, s->l->order[k].stage, s->l->order[k].index, op_part, op_parts);
}

void sp_shared_slice_lower(struct sp_lowering *l, int i, int n)
{
    const struct sp_op *op = sp_lowering_op(l, i);
    int slice = sp_part_at(layout(l), op->chunk, op->slice).slice;
    int g = op->chunk, layers = l->shape ? l->shape->model.layers : layout(l)->stages;
    int first, count, op_parts;
    bool has_keys[n * n];
    struct slice s = {.l = l, .i = i, .n = n, .has_keys = has_keys};

    find_keys(&s, has_keys);
    sp_chunk_layers(l->plan, layers, g, g, &first, &count);
    op_parts = sp_shared_slice_parts(count);
    run_parts(&s, 0, op_parts);
    for (int step = 0; step < count; step++) {
        exchange(&s, SP_ATTENTION_INPUTS, sp_lower_pass);
        run_parts(&s, 2 * step + 1, op_parts);
        exchange(&s, SP_ATTENTION_RESULTS, sp_lower_pass);
        exchange(&s, SP_ATTENTION_INPUTS, sp_lower_release);
        run_parts(&s, 2 * step + 2, op_parts);
        exchange(&s, SP_ATTENTION_RESULTS, sp_lower_release);
    }
    if (op->pass == SP_B && slice == layout(l)->slices - g)
        release_shares(l, g, op->mb);
}
