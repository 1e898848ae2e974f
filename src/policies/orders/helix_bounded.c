/*
 * HelixPipe with bounded memory. First-in-last-out (helix.c) holds all micro-batches of a step.
 * Here each loop of p*fold micro-batches is first-in-last-out by itself, and its backwards run
 * beside the forwards of the next loop, which use the memory that they free. p = 4, m = 8, L = 4,
 * fold = 1, blocks and attentions of one length, a backward twice a forward; figures are blocks of
 * a micro-batch, letters its attentions:
 *
 *   stage 0  0123dcba...4567aah...bbccgfdde33.221100ee......ffgghh77665544
 *   stage 1  .a0123dcb...e4bb5.ccdd336227hg11f00aa..ff....gghh77665544ee..
 *   stage 2  ..ba0123dc..ccfdde334225116007aahbbg...gg..hh77665544eeff....
 *   stage 3  ...cba0123ddd33g22f11e400aa5bb6cc7h....hh77665544eeffgg......
 *
 * A list schedule over all stages gives the order. A stage runs its next forward or its next
 * backward, whichever is ready. If both are, one rule takes the forward as long as forwards are not
 * more than one loop ahead, the other always the backward; the order that ends earlier is used. A
 * forward waits if the stage would hold more than a loop and a quarter. The schedule always ends:
 * backwards need no memory, and once those of a loop are done, all forwards of the next one have
 * room. A lane of the general player (policies/simulation/player.h) has one list, not two.
 */
#include "policies/families/attention_parallel/attention_parallel.h"
#include "policies/families/families.h"
#include "policies/orders/helix.h"
#include "policies/simulation/costs.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum way { FORWARD, BACKWARD };

/* A stage. */
struct lane {
    struct sp_program
        list[2];             /* its forwards, and its backwards, of all loops one after the other */
    struct sp_program order; /* the ops that it has run */
    int next[2];             /* the next op in each list */
    int loop;                /* forwards of the first loop */
    int held, most;          /* parts kept for backwards; the most allowed */
    double idle, look;       /* when it became free; when it next looks for an op */
};

struct bounded {
    struct sp_plan plan; /* the layout and its family only */
    const struct sp_costs *costs;
    struct lane *lane; /* [stages] */
    int ids;
    double *end; /* [ids] of the ops that have run; HUGE_VAL: not yet */
};

/* Parts that an op keeps for its backward. The first block keeps none: it reads tokens. */
static int kept(const struct sp_op *op)
{
    return op->part == SP_ATTN || op->chunk > 0;
}

/* ---- the lists -------------------------------------------------------------------------------- */

static void list(const struct sp_layout *lay, int stage, int fold, sp_helix_loop_fn loop,
                 struct lane *lane)
{
    struct sp_program *forward = &lane->list[FORWARD];
    int m = lay->micro_batches, per = lay->stages * fold;

    for (int first = 0; first < m; first += per) {
        int begin = forward->n, held = 0;

        loop(lay, stage, first, forward);
        for (int i = forward->n - 1; i >= begin; i--) {
            struct sp_op op = forward->ops[i];

            held += kept(&op);
            op.pass = SP_B;
            sp_program_add_op(&lane->list[BACKWARD], op);
        }
        if (first == 0) { /* no other loop is longer */
            lane->loop = forward->n;
            lane->most = held + held / 4;
        }
    }
}

/* ---- the list schedule ------------------------------------------------------------------------ */

static double *end_of(const struct bounded *b, int stage, const struct sp_op *op)
{
    return &b->end[b->plan.family->id(&b->plan.layout, stage, op)];
}

/* The time at which all inputs of an op are there; HUGE_VAL: not known yet. */
static double ready(const struct bounded *b, int stage, const struct sp_op *op)
{
    struct sp_dep dep[SP_MAX_DEPS];
    int n = b->plan.family->deps(&b->plan.layout, stage, op, dep);
    double time = 0;

    for (int i = 0; i < n; i++)
        time = fmax(time, *end_of(b, dep[i].stage, &dep[i].op) +
                              (dep[i].stage == stage ? 0 : b->costs->comm));
    return time;
}

/* The next op of a list; NULL: none is left, or there is no memory for it. */
static const struct sp_op *next_of(const struct lane *lane, enum way way)
{
    const struct sp_program *list = &lane->list[way];
    const struct sp_op *op = lane->next[way] < list->n ? &list->ops[lane->next[way]] : NULL;

    return op && way == FORWARD && lane->held + kept(op) > lane->most ? NULL : op;
}

/* The op that a stage runs at `time`; NULL: none, and `look` is set to when one will be ready. */
static const struct sp_op *choose(const struct bounded *b, int stage, bool in_turn, double time)
{
    struct lane *lane = &b->lane[stage];
    bool ahead = lane->next[FORWARD] >= lane->loop + lane->next[BACKWARD];
    const enum way order[2] = {in_turn && !ahead ? FORWARD : BACKWARD,
                               in_turn && !ahead ? BACKWARD : FORWARD};

    lane->look = HUGE_VAL;
    for (int k = 0; k < 2; k++) {
        const struct sp_op *op = next_of(lane, order[k]);
        double at = op ? ready(b, stage, op) : HUGE_VAL;

        if (at <= time) {
            lane->next[order[k]]++;
            return op;
        }
        lane->look = fmin(lane->look, at);
    }
    return NULL;
}

/* The stage of the op that waits for this one, which may be the same stage. */
static int reader_of(const struct sp_layout *lay, int stage, const struct sp_op *op)
{
    bool forward = op->pass == SP_F;

    if (op->part == SP_ATTN)
        return sp_block_stage(lay, op->chunk + forward);
    if (op->chunk == (forward ? lay->layers : 0))
        return stage;
    return sp_attention_stage(lay, op->mb, op->chunk - !forward);
}

static void run(struct bounded *b, int stage, const struct sp_op *op, double time)
{
    struct lane *lane = &b->lane[stage], *reader;
    double end = time + sp_op_cost(&b->plan, b->costs, stage, op);

    sp_program_add_op(&lane->order, *op);
    lane->held += op->pass == SP_F ? kept(op) : -kept(op);
    lane->idle = lane->look = *end_of(b, stage, op) = end;
    reader = &b->lane[reader_of(&b->plan.layout, stage, op)];
    if (reader != lane)
        reader->look = fmin(reader->look, fmax(reader->idle, end + b->costs->comm));
}

/* Runs everything; returns when the last op ends. */
static double play(struct bounded *b, bool in_turn)
{
    int stages = b->plan.layout.stages, first = 0;
    double makespan = 0;

    for (int i = 0; i < b->ids; i++)
        b->end[i] = HUGE_VAL;
    for (int s = 0; s < stages; s++) {
        struct lane *lane = &b->lane[s];

        lane->next[FORWARD] = lane->next[BACKWARD] = lane->order.n = lane->held = 0;
        lane->idle = lane->look = 0;
    }
    while (b->lane[first].look < HUGE_VAL) {
        double time = b->lane[first].look;
        const struct sp_op *op = choose(b, first, in_turn, time);

        if (op)
            run(b, first, op, time);
        makespan = fmax(makespan, b->lane[first].idle);
        for (int s = 0; s < stages; s++)
            if (b->lane[s].look < b->lane[first].look)
                first = s;
    }
    return makespan;
}

int sp_helix_bounded(const struct sp_layout *lay, int fold, sp_helix_loop_fn loop,
                     struct sp_program *programs)
{
    bool told = lay->costs && (lay->costs->by_op || lay->costs->parts.post > 0);
    struct bounded b = {.plan = {.layout = *lay, .family = &sp_family_attention_parallel},
                        .costs = told ? lay->costs : &sp_costs_unit,
                        .lane = calloc((size_t)lay->stages, sizeof *b.lane)};
    int err = -ENOMEM;
    double in_turn;

    b.ids = b.plan.family->ids(lay);
    b.end = malloc((size_t)b.ids * sizeof *b.end);
    if (b.lane && b.end) {
        for (int s = 0; s < lay->stages; s++)
            list(lay, s, fold, loop, &b.lane[s]);
        in_turn = play(&b, true);
        if (play(&b, false) >= in_turn)
            play(&b, true);
        for (int s = 0; s < lay->stages; s++)
            programs[s] = b.lane[s].order;
        err = 0;
    }
    for (int s = 0; b.lane && s < lay->stages; s++) {
        sp_program_clear(&b.lane[s].list[FORWARD]);
        sp_program_clear(&b.lane[s].list[BACKWARD]);
    }
    free(b.lane);
    free(b.end);
    return err;
}
