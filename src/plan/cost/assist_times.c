#include "plan/cost/shared_attention.h"
#include "policies/families/aligned/assist.h"
#include <math.h>

struct slot {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_op_terms *terms;
    int number, step;
    enum sp_attention_pass pass;
    int n;
    struct sp_assist assist[SP_SLOT_STAGES];
};

static void tokens_of(const struct slot *s, int stage, struct sp_shape *slice)
{
    struct sp_op op;
    int first, len;

    sp_slot_op(&s->plan->layout, stage, s->number, &op);
    sp_plan_op_tokens(s->plan, s->sh->seq, &op, &first, &len);
    sp_shape_slice(s->sh, first, len, slice);
}

/* ---- computing ------------------------------------------------------------------------------ */

static double attention_s(const struct slot *s, double flops)
{
    return sp_shared_attention_s(s->terms, s->sh, s->pass, flops);
}

/* Tokens of keys. */
static int tokens_in(const struct slot *s, const struct sp_key_range *keys)
{
    int first, len, sum = 0;

    for (int j = keys->first; j < keys->first + keys->n; j++) {
        sp_plan_slice_tokens(s->plan, s->sh->seq, j, &first, &len);
        sum += len;
    }
    return sum;
}

static int tokens_given(const struct slot *s, const struct sp_assist *assist)
{
    return tokens_in(s, &assist->keys);
}

/* Elements of k and v per device that the assisting stage does not hold yet; with `back`, elements
 * of their gradients that the assisting stage returns because it does not go on with them. */
static double keys_sent(const struct slot *s, const struct sp_assist *assist, bool back)
{
    int tokens = tokens_given(s, assist) - tokens_in(s, back ? &assist->goes_on : &assist->had);

    return (double)s->sh->batch * tokens * s->sh->kv_width / sp_shape_spread(s->sh);
}

/* Attention of a stage's slice over the keys that it gives to no assisting stage. */
static double kept_s(const struct slot *s, int stage)
{
    struct sp_shape slice;
    int before;

    tokens_of(s, stage, &slice);
    before = slice.first;
    for (int k = 0; k < s->n; k++)
        if (s->assist[k].owner == stage)
            before -= tokens_given(s, &s->assist[k]);
    return attention_s(s, sp_queries_flops(&slice, before));
}

static double help_s(const struct slot *s, const struct sp_assist *assist)
{
    struct sp_shape slice;
    int tokens = tokens_given(s, assist);

    tokens_of(s, assist->owner, &slice);
    return attention_s(s, sp_queries_flops(&slice, tokens) - sp_queries_flops(&slice, 0)) +
           s->terms->machine->rates.launch_s;
}

/* The owner reads each partial result, and reads and writes the tensor it is merged into. */
static double merge_s(const struct slot *s, const struct sp_assist *assist)
{
    struct sp_shape slice;
    double width;

    tokens_of(s, assist->owner, &slice);
    width = 3.0 * slice.rows * slice.q_width;
    if (s->pass == SP_ATTENTION_BACKWARD)
        width += 3.0 * keys_sent(s, assist, true);
    return sp_merge_s(s->terms, s->sh, width);
}

/* ---- sending -------------------------------------------------------------------------------- */

static double link_s(const struct slot *s, const struct sp_assist *assist, double elements)
{
    return sp_exchange_s(s->terms, s->sh, assist->owner, assist->helper, elements);
}

/* The way there carries q, k and v, and in the backward also the output's gradient, o and its
 * statistics. The way back carries o with its statistics, or dq, dk and dv. */
static double way_s(const struct slot *s, const struct sp_assist *assist, bool back)
{
    bool backward = s->pass == SP_ATTENTION_BACKWARD;
    struct sp_shape slice;
    double q, kv, lse;

    tokens_of(s, assist->owner, &slice);
    q = (double)slice.rows * slice.q_width;
    kv = keys_sent(s, assist, back);
    lse = (double)sp_shape_f32(&slice, (uint64_t)slice.rows * (uint64_t)slice.model.heads);
    if (back)
        return link_s(s, assist, q + (backward ? kv : lse));
    return link_s(s, assist, kv + (backward ? 3 * q + lse : q));
}

/* ---- an op ---------------------------------------------------------------------------------- */

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

    for (int k = 0; k <= last; k++)
        if (s->assist[k].helper == stage)
            at = fmax(at, shared_at(s, k)) + help_s(s, &s->assist[k]);
    return at;
}

/* Seconds from the beginning of a layer's attention until the stage has merged all results. */
static double done_at(const struct slot *s, int stage)
{
    double at = helped_at(s, stage, s->n - 1), merges = 0;

    for (int k = 0; k < s->n; k++)
        if (s->assist[k].owner == stage) {
            at = fmax(at, helped_at(s, s->assist[k].helper, k) + way_s(s, &s->assist[k], true));
            merges += merge_s(s, &s->assist[k]);
        }
    return at + merges;
}

double sp_assist_time(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_op_terms *terms, int stage, const struct sp_op *op)
{
    int layers = sh->model.layers;
    struct slot s = {.plan = plan,
                     .sh = sh,
                     .terms = terms,
                     .number = sp_slot_of(&plan->layout, stage, op),
                     .pass = op->pass == SP_F ? SP_ATTENTION_FORWARD : SP_ATTENTION_BACKWARD};
    double more = 0;

    for (; s.step < sp_slot_steps(plan, layers, s.number); s.step++) {
        struct sp_shape slice;
        struct sp_op of;

        s.n = sp_step_assist(plan, layers, s.number, s.step, s.assist);
        if (!s.n || sp_step_layer(plan, layers, stage, s.number, s.step, &of) < 0)
            continue;
        tokens_of(&s, stage, &slice);
        more += done_at(&s, stage) - attention_s(&s, sp_queries_flops(&slice, slice.first));
    }
    return more;
}
