#include "plan/cost/shared_attention.h"
#include "policies/families/aligned/assist.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/families/ownership.h"
#include <math.h>

/* Attention that several stages share. */
struct sharing {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_op_terms *terms;
    enum sp_attention_pass pass;
};

static struct sharing sharing_of(const struct sp_plan *plan, const struct sp_shape *sh,
                                 const struct sp_op_terms *terms, const struct sp_op *op)
{
    return (struct sharing){.plan = plan,
                            .sh = sh,
                            .terms = terms,
                            .pass =
                                op->pass == SP_F ? SP_ATTENTION_FORWARD : SP_ATTENTION_BACKWARD};
}

/* The shape of an op's tokens. */
static void tokens_of(const struct sharing *x, const struct sp_op *op, struct sp_shape *slice)
{
    int first, len;

    sp_plan_op_tokens(x->plan, x->sh->seq, op, &first, &len);
    sp_shape_slice(x->sh, first, len, slice);
}

/* Attention of a slice's queries over their own keys and `before` tokens before them. */
static double own_s(const struct sharing *x, const struct sp_shape *slice, int before)
{
    return sp_stage_attention_s(x->terms->machine, x->terms->devices, x->sh, x->pass,
                                sp_queries_flops(slice, before));
}

/* Attention of a slice's queries over `tokens` keys before them, on a stage that assists. */
static double help_s(const struct sharing *x, const struct sp_shape *slice, int tokens)
{
    return sp_stage_attention_s(x->terms->machine, x->terms->devices, x->sh, x->pass,
                                sp_queries_flops(slice, tokens) - sp_queries_flops(slice, 0));
}

/* The owner of a slice reads each partial result, and reads and writes the tensor it is merged
 * into; `keys`: elements of gradients of keys that it merges too. */
static double merge_s(const struct sharing *x, const struct sp_shape *slice, double keys)
{
    const struct sp_machine *m = x->terms->machine;
    double elements = 3.0 * slice->rows * slice->q_width + 3.0 * keys;

    return sp_memory_s(m, x->sh->dtype,
                       (double)sp_shape_elem(x->sh) * elements / x->terms->devices) +
           m->rates.launch_s;
}

/* One stage sends so many elements to another: each device of a member sends its part, and members
 * send at the same time. */
static double link_s(const struct sharing *x, int from, int to, double elements)
{
    const struct sp_op_terms *terms = x->terms;
    const struct sp_machine *m = terms->machine;
    int64_t each = (int64_t)terms->devices * x->sh->pipelines * x->sh->tensor; /* of a stage */
    bool inside = from * each / m->devices_per_node == to * each / m->devices_per_node;
    double bytes = (double)sp_shape_elem(x->sh) * elements / terms->devices;

    if (terms->process && terms->process[from] == terms->process[to])
        return 0;
    return sp_link_s(inside ? &m->node : &m->network, bytes);
}

/* Elements of a message, `keys` of them of keys and values. The way there carries q, k and v, and
 * in the backward also the output's gradient, o and its statistics. The way back carries o with its
 * statistics, or dq, dk and dv. */
static double elements_of(const struct sharing *x, const struct sp_shape *slice, double keys,
                          bool back)
{
    bool backward = x->pass == SP_ATTENTION_BACKWARD;
    double q = (double)slice->rows * slice->q_width;
    double lse = (double)sp_shape_f32(slice, (uint64_t)slice->rows * (uint64_t)slice->model.heads);

    if (back)
        return q + (backward ? keys : lse);
    return keys + (backward ? 3 * q + lse : q);
}

/* ---- stages of a slot that assist each other ------------------------------------------------- */

struct slot {
    struct sharing x;
    int number, step, n;
    struct sp_assist assist[SP_SLOT_STAGES];
};

static void slice_of(const struct slot *s, int stage, struct sp_shape *slice)
{
    struct sp_op op;

    sp_slot_op(&s->x.plan->layout, stage, s->number, &op);
    tokens_of(&s->x, &op, slice);
}

/* Tokens of keys. */
static int tokens_in(const struct slot *s, const struct sp_key_range *keys)
{
    int first, len, sum = 0;

    for (int j = keys->first; j < keys->first + keys->n; j++) {
        sp_plan_slice_tokens(s->x.plan, s->x.sh->seq, j, &first, &len);
        sum += len;
    }
    return sum;
}

/* Elements of k and v per device that the assisting stage does not hold yet; with `back`, elements
 * of their gradients that the assisting stage returns because it does not go on with them. */
static double keys_sent(const struct slot *s, const struct sp_assist *assist, bool back)
{
    const struct sp_shape *sh = s->x.sh;
    int tokens = tokens_in(s, &assist->keys) - tokens_in(s, back ? &assist->goes_on : &assist->had);

    return (double)sh->batch * tokens * sh->kv_width / sp_shape_spread(sh);
}

/* Attention of a stage's slice over the keys that it gives to no assisting stage. */
static double kept_s(const struct slot *s, int stage)
{
    struct sp_shape slice;
    int before;

    slice_of(s, stage, &slice);
    before = slice.first;
    for (int k = 0; k < s->n; k++)
        if (s->assist[k].owner == stage)
            before -= tokens_in(s, &s->assist[k].keys);
    return own_s(&s->x, &slice, before);
}

static double way_s(const struct slot *s, const struct sp_assist *assist, bool back)
{
    struct sp_shape slice;

    slice_of(s, assist->owner, &slice);
    return link_s(&s->x, assist->owner, assist->helper,
                  elements_of(&s->x, &slice, keys_sent(s, assist, back), back));
}

/* When an assisting stage has received its inputs: owners send to one assisting stage after the
 * other. */
static double shared_at(const struct slot *s, int k)
{
    double at = 0;

    for (int i = 0; i <= k; i++)
        if (s->assist[i].owner == s->assist[k].owner)
            at += way_s(s, &s->assist[i], false);
    return at;
}

/* When a stage has finished its own attention and its assistance up to number `last`. */
static double helped_at(const struct slot *s, int stage, int last)
{
    double at = kept_s(s, stage);

    for (int k = 0; k <= last; k++) {
        const struct sp_assist *assist = &s->assist[k];
        struct sp_shape slice;

        if (assist->helper != stage)
            continue;
        slice_of(s, assist->owner, &slice);
        at = fmax(at, shared_at(s, k)) + (help_s(&s->x, &slice, tokens_in(s, &assist->keys)) +
                                          s->x.terms->machine->rates.launch_s);
    }
    return at;
}

/* Seconds from the beginning of a layer's attention until the stage has merged all results. */
static double done_at(const struct slot *s, int stage)
{
    double at = helped_at(s, stage, s->n - 1), merges = 0;
    bool backward = s->x.pass == SP_ATTENTION_BACKWARD;
    struct sp_shape slice;

    slice_of(s, stage, &slice);
    for (int k = 0; k < s->n; k++)
        if (s->assist[k].owner == stage) {
            at = fmax(at, helped_at(s, s->assist[k].helper, k) + way_s(s, &s->assist[k], true));
            merges += merge_s(&s->x, &slice, backward ? keys_sent(s, &s->assist[k], true) : 0);
        }
    return at + merges;
}

double sp_assist_time(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms, int stage, const struct sp_op *op)
{
    int layers = sh->model.layers;
    struct slot s = {.x = sharing_of(plan, sh, terms, op),
                     .number = sp_slot_of(&plan->layout, stage, op)};
    double more = 0;

    for (; s.step < sp_slot_steps(plan, layers, s.number); s.step++) {
        struct sp_shape slice;
        struct sp_op of;

        s.n = sp_step_assist(plan, layers, s.number, s.step, s.assist);
        if (!s.n || sp_step_layer(plan, layers, stage, s.number, s.step, &of) < 0)
            continue;
        slice_of(&s, stage, &slice);
        more += done_at(&s, stage) - own_s(&s.x, &slice, slice.first);
    }
    return more;
}

/* ---- stages that compute a slice together ---------------------------------------------------- */

struct slice {
    struct sharing x;
    int global, first_part, first_stage, n;
    struct sp_shape part[SP_MULTIPLEX_STAGES];
    double at[SP_MULTIPLEX_STAGES];   /* the stage has finished its attention calls */
    double done[SP_MULTIPLEX_STAGES]; /* and has merged all results of others */
};

static int keys_for(const struct slice *s, int part, int helper)
{
    return sp_keys_for(s->x.plan, s->x.sh->seq, s->global, s->first_part + part,
                       s->first_stage + helper);
}

static double part_way_s(const struct slice *s, int part, int helper, bool back)
{
    return link_s(&s->x, s->first_stage + part, s->first_stage + helper,
                  elements_of(&s->x, &s->part[part], 0, back));
}

/* Sends a part's queries to one stage after the other. Each attends to them when it has finished
 * with those that came before. */
static void share_out(struct slice *s, int part)
{
    double sent = 0;

    for (int j = 0; j < s->n; j++) {
        int keys = j == part ? 0 : keys_for(s, part, j);

        if (!keys)
            continue;
        sent += part_way_s(s, part, j, false);
        s->at[j] = fmax(s->at[j], sent) + help_s(&s->x, &s->part[part], keys) +
                   s->x.terms->machine->rates.launch_s;
        s->done[part] = fmax(s->done[part], s->at[j] + part_way_s(s, part, j, true)) +
                        merge_s(&s->x, &s->part[part], 0);
    }
}

double sp_shared_slice_time(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_op_terms *terms, const struct sp_op *op)
{
    struct sp_slice_part own = sp_part_at(&plan->layout, op->chunk, op->slice);
    struct slice s = {.x = sharing_of(plan, sh, terms, op),
                      .global = op->chunk,
                      .first_part = op->slice - own.part,
                      .first_stage = own.stage - own.part,
                      .n = own.of};
    int me = own.part, first, count;

    for (int i = 0; i < s.n; i++) {
        struct sp_op part = *op;

        part.slice = (unsigned short)(s.first_part + i);
        tokens_of(&s.x, &part, &s.part[i]);
        s.at[i] = own_s(&s.x, &s.part[i], keys_for(&s, i, i));
    }
    for (int i = 0; i < s.n; i++)
        share_out(&s, i);
    sp_chunk_layers(plan, sh->model.layers, own.stage, op->chunk, &first, &count);
    return count * (fmax(s.done[me], s.at[me]) - own_s(&s.x, &s.part[me], s.part[me].first));
}
