#include "plan/cost/shared_attention.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/families/ownership.h"
#include <math.h>

struct slice {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    const struct sp_op_terms *terms;
    enum sp_attention_pass pass;
    int global, first_part, first_stage, n;
    struct sp_shape part[SP_MULTIPLEX_STAGES];
    double at[SP_MULTIPLEX_STAGES];   /* the stage has finished its attention calls */
    double done[SP_MULTIPLEX_STAGES]; /* and has merged all results of others */
};

static struct slice slice_of(const struct sp_plan *plan, const struct sp_shape *sh,
                             const struct sp_op_terms *terms, const struct sp_op *op)
{
    struct sp_slice_part own = sp_part_at(&plan->layout, op->chunk, op->slice);
    struct slice s = {.plan = plan,
                      .sh = sh,
                      .terms = terms,
                      .pass = op->pass == SP_F ? SP_ATTENTION_FORWARD : SP_ATTENTION_BACKWARD,
                      .global = op->chunk,
                      .first_part = op->slice - own.part,
                      .first_stage = own.stage - own.part,
                      .n = own.of};

    for (int i = 0; i < s.n; i++) {
        struct sp_op part = *op;
        int first, len;

        part.slice = (unsigned short)(s.first_part + i);
        sp_plan_op_tokens(plan, sh->seq, &part, &first, &len);
        sp_shape_slice(sh, first, len, &s.part[i]);
    }
    return s;
}

static int keys_for(const struct slice *s, int part, int helper)
{
    return sp_keys_for(s->plan, s->sh->seq, s->global, s->first_part + part,
                       s->first_stage + helper);
}

static double attention_s(const struct slice *s, double flops)
{
    return sp_shared_attention_s(s->terms, s->sh, s->pass, flops);
}

static double queries_s(const struct slice *s, int part, int before)
{
    return attention_s(s, sp_queries_flops(&s->part[part], before));
}

/* Elements of one message. A forward sends q; a backward sends q, o, do and their statistics. The
 * result comes back with `back`: o and its statistics, or dq. */
static double way_s(const struct slice *s, int part, int helper, bool back)
{
    const struct sp_shape *q = &s->part[part];
    bool forward = s->pass == SP_ATTENTION_FORWARD;
    double rows = (double)q->rows * q->q_width;
    double lse = (double)sp_shape_f32(q, (uint64_t)q->rows * (uint64_t)q->model.heads);
    int from = s->first_stage + part, to = s->first_stage + helper;

    return sp_exchange_s(s->terms, s->sh, back ? to : from, back ? from : to,
                         back      ? rows + (forward ? lse : 0)
                         : forward ? rows
                                   : 3 * rows + lse);
}

/* Sends a part's queries to one stage after the other. Each attends to them when it has finished
 * with those that came before. */
static void share_out(struct slice *s, int part)
{
    double sent = 0;

    for (int j = 0; j < s->n; j++) {
        int keys = j == part ? 0 : keys_for(s, part, j);
        double help;

        if (!keys)
            continue;
        sent += way_s(s, part, j, false);
        help = attention_s(s, sp_queries_flops(&s->part[part], keys) -
                                  sp_queries_flops(&s->part[part], 0));
        s->at[j] = fmax(s->at[j], sent) + help + s->terms->machine->rates.launch_s;
        s->done[part] =
            fmax(s->done[part], s->at[j] + way_s(s, part, j, true)) +
            sp_merge_s(s->terms, s->sh, 3.0 * s->part[part].rows * s->part[part].q_width);
    }
}

double sp_shared_slice_time(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_op_terms *terms, const struct sp_op *op)
{
    struct slice s = slice_of(plan, sh, terms, op);
    int own = op->slice - s.first_part, first, count;

    for (int i = 0; i < s.n; i++)
        s.at[i] = queries_s(&s, i, keys_for(&s, i, i));
    for (int i = 0; i < s.n; i++)
        share_out(&s, i);
    sp_chunk_layers(plan, sh->model.layers, s.first_stage + own, op->chunk, &first, &count);
    return count * (fmax(s.done[own], s.at[own]) - queries_s(&s, own, s.part[own].first));
}
