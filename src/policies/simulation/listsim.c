/*
 * List simulation: every stage runs its program in order, each op as early as its inputs allow. A
 * stage that cannot go on waits for one op, or for one of its messages to be taken.
 */
#include "policies/simulation/channels.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/index.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/player.h"
#include "policies/simulation/times.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim {
    const struct sp_plan *plan;
    const struct sp_costs *costs;
    enum sp_channel kind;
    struct sp_index ix;
    struct sp_channels ch; /* empty when unbounded */
    bool paired;           /* overlapped ops are one unit */
    int capacity;          /* messages not yet taken that a channel holds; 0: any number */
    struct sp_times t;
    struct sp_player player; /* lanes are stages, events are ops */
    int cross;               /* messages that the turn about to run takes */
    struct sp_placed
        *order; /* [n_order] the ops that have run, one after another; NULL: not kept */
    int n_order;
};

/* Returns true if a producer has run; *end is then the time at which its output leaves. */
static bool done(const struct sim *sim, const struct sp_dep *dep, double *end)
{
    int k = sp_index_place(&sim->ix, sim->plan, dep);

    if (k < 0 || k >= sim->player.next[dep->stage])
        return false;
    *end = sp_message_sent(dep, sim->t.start, sim->t.end, k);
    return true;
}

static int deps_of(const struct sim *sim, int stage, const struct sp_op *op, struct sp_dep *deps)
{
    if (sim->kind == SP_RUN)
        return sp_run_deps(sim->plan, stage, op, deps);
    return sim->plan->family->deps(&sim->plan->layout, stage, op, deps);
}

/* How many ops begin together at index k. */
static int unit(const struct sim *sim, int stage, int k)
{
    const struct sp_program *prog = &sim->plan->programs[stage];

    return sim->paired && k + 1 < prog->n && prog->ops[k].overlap ? 2 : 1;
}

/* A channel without room for the messages of the `ops` ops at index k; -1: none, and *start is at
 * least the time when the room was made. */
static int full(const struct sim *sim, int stage, int k, int ops, double *start)
{
    int c = -1;

    for (int i = 0; sim->capacity > 0 && i < ops && c < 0; i++) {
        const struct sp_op *op = &sim->plan->programs[stage].ops[k + i];

        c = sp_channels_full(&sim->ch, sim->plan->family->id(&sim->plan->layout, stage, op),
                             sim->capacity, start);
    }
    return c;
}

/* sp_player_rules.wait, for the next op of a stage or two that overlap. */
static int wait_for(struct sp_player *player, int stage, int k, double *start)
{
    struct sim *sim = player->arg;
    const struct sp_op *op = &sim->plan->programs[stage].ops[k];
    int ops = unit(sim, stage, k), n;
    struct sp_dep deps[2 * SP_MAX_DEPS];

    n = deps_of(sim, stage, op, deps);
    if (ops == 2)
        n += deps_of(sim, stage, op + 1, deps + n);
    sim->cross = 0;
    for (int i = 0; i < n; i++) {
        double end;

        if (!done(sim, &deps[i], &end)) {
            int id = sim->plan->family->id(&sim->plan->layout, deps[i].stage, &deps[i].op);

            return id >= 0 ? id : SP_PLAYER_BLOCKED;
        }
        if (deps[i].stage != stage) {
            end += sp_message_cost(sim->plan, sim->costs, &deps[i]);
            sim->cross++;
        }
        if (end > *start)
            *start = end;
    }
    if (sim->kind == SP_FIFO && sp_channels_out_of_turn(&sim->ch, stage, sim->cross) >= 0)
        return SP_PLAYER_BLOCKED; /* a message for a later op of this very stage was sent first */
    if (full(sim, stage, k, ops, start) >= 0)
        return SP_PLAYER_BLOCKED; /* tried again when the receiver takes a message */
    return SP_PLAYER_READY;
}

static int run(struct sp_player *player, int stage, int k, double start, double *end)
{
    struct sim *sim = player->arg;
    const struct sp_op *op = &sim->plan->programs[stage].ops[k];
    int ops = unit(sim, stage, k);

    *end = sp_times_of_unit(sim->plan, sim->costs, &sim->t, stage, k, ops, start);
    sim->t.messages += sim->cross;
    for (int i = 0; sim->ch.n > 0 && i < sim->cross; i++)
        sp_player_try(player, sp_channels_take(&sim->ch, stage, start));
    for (int i = 0; i < ops; i++) {
        if (sim->order)
            sim->order[sim->n_order++] = (struct sp_placed){.stage = stage, .index = k + i};
        sp_player_wake(player, sim->plan->family->id(&sim->plan->layout, stage, op + i));
    }
    return ops;
}

/* The lower it is, the sooner a stage that could run its next op has its turn in the order. */
static double turn_of(const struct sp_player *player, int stage)
{
    const struct sp_plan *plan = ((const struct sim *)player->arg)->plan;
    const struct sp_op *op = &plan->programs[stage].ops[player->next[stage]];

    return plan->family->lowers->turn ? plan->family->lowers->turn(&plan->layout, stage, op)
                                      : player->start[stage];
}

/* sp_player_rules.before. */
static bool is_before(const void *player, int a, int b)
{
    double turn_a = turn_of(player, a), turn_b = turn_of(player, b);

    return turn_a != turn_b ? turn_a < turn_b : a < b;
}

static void append(char *why, size_t n, const char *fmt, ...)
{
    size_t used = strnlen(why, n);
    va_list ap;

    va_start(ap, fmt);
    if (used < n)
        vsnprintf(why + used, n - used, fmt, ap);
    va_end(ap);
}

/* Appends to why[n] the op or message that the next op of a blocked stage waits for. */
static void explain(const struct sim *sim, int stage, char *why, size_t n)
{
    const struct sp_plan *plan = sim->plan;
    const struct sp_op *op = &plan->programs[stage].ops[sim->player.next[stage]];
    int sliced = plan->layout.slices > 1, c = -1, cross = 0, k = sim->player.next[stage];
    int ops = unit(sim, stage, k);
    char text[SP_OP_TEXT], other[SP_OP_TEXT];
    struct sp_dep deps[2 * SP_MAX_DEPS];
    double end, at = 0;
    int n_deps = deps_of(sim, stage, op, deps);

    append(why, n, "stage %d at %s", stage, sp_op_print(op, sliced, text));
    if (ops == 2) {
        n_deps += deps_of(sim, stage, op + 1, deps + n_deps);
        append(why, n, "&%s", sp_op_print(op + 1, sliced, text));
    }
    append(why, n, " waits for ");
    for (int i = 0; i < n_deps; i++) {
        if (!done(sim, &deps[i], &end)) {
            append(why, n, "%s of stage %d", sp_op_print(&deps[i].op, sliced, other),
                   deps[i].stage);
            return;
        }
        cross += deps[i].stage != stage;
    }
    if (sim->kind == SP_FIFO)
        c = sp_channels_out_of_turn(&sim->ch, stage, cross);
    else
        c = full(sim, stage, k, ops, &at);
    if (c >= 0) {
        const struct sp_channel_state *ch = &sim->ch.channels[c];
        int next = sp_channels_next(&sim->ch, c);

        append(why, n, "the message of %s from stage %d to stage %d to be taken first",
               next >= 0 ? sp_op_print(&plan->programs[ch->src].ops[next], sliced, other) : "?",
               ch->src, ch->dst);
    }
}

static int deadlock(const struct sim *sim, char *why, size_t n)
{
    static const char *const kinds[] = {[SP_UNBOUNDED] = "with unbounded channels",
                                        [SP_FIFO] = "with first-in-first-out channels",
                                        [SP_RENDEZVOUS] = "with rendezvous channels",
                                        [SP_PAIRED] = "of overlapped pairs",
                                        [SP_RUN] = "of a run"};
    int p = sim->plan->layout.stages, said = 0;

    if (n == 0)
        return -EDEADLK;
    snprintf(why, n, "deadlock %s: ", kinds[sim->kind]);
    for (int s = 0; s < p && strlen(why) < n - 1; s++) {
        if (sim->player.next[s] == sim->plan->programs[s].n)
            continue;
        if (said++)
            append(why, n, "; ");
        explain(sim, s, why, n);
    }
    return -EDEADLK;
}

static void destroy(struct sim *sim)
{
    sp_player_destroy(&sim->player);
    sp_channels_destroy(&sim->ch);
    sp_times_destroy(&sim->t);
    sp_index_destroy(&sim->ix);
}

/* The state before the first op. On failure nothing is left to free. */
static int create(struct sim *sim, char *why, size_t n)
{
    static const struct sp_player_rules at_once = {.wait = wait_for, .run = run};
    static const struct sp_player_rules in_order = {
        .wait = wait_for, .run = run, .before = is_before};
    const struct sp_plan *plan = sim->plan;
    int stage = 0, index = 0, ret;
    char text[SP_OP_TEXT];

    ret = sp_index_create(plan, &sim->ix, &stage, &index);
    if (ret == -EINVAL)
        snprintf(why, n, "stage %d: %s is not an op of the family", stage,
                 sp_op_print(&plan->programs[stage].ops[index], plan->layout.slices > 1, text));
    if (!ret)
        ret = sp_player_create(sim->order ? &in_order : &at_once, sim, plan->layout.stages,
                               sim->ix.ids, &sim->player);
    for (int s = 0; !ret && s < plan->layout.stages; s++)
        sim->player.ops[s] = plan->programs[s].n;
    if (!ret)
        ret = sp_times_create(plan, &sim->t);
    if (!ret && (sim->kind == SP_FIFO || sim->capacity > 0))
        ret = sp_channels_create(plan, sim->ix.ids, &sim->ch);
    if (ret)
        destroy(sim);
    return ret;
}

int sp_listsim(const struct sp_plan *plan, const struct sp_costs *costs, enum sp_channel channel,
               struct sp_times *times, char *why, size_t n)
{
    struct sim sim = {.plan = plan,
                      .costs = costs,
                      .kind = channel,
                      .paired = channel == SP_PAIRED || channel == SP_RUN,
                      .capacity = channel == SP_RENDEZVOUS};
    int ret = create(&sim, why, n), c;
    bool finished;

    if (ret)
        return ret;
    finished = sp_player_play(&sim.player);
    c = sp_channels_left(&sim.ch);
    if (!finished) {
        ret = deadlock(&sim, why, n);
    } else if (c >= 0) {
        const struct sp_channel_state *left = &sim.ch.channels[c];

        snprintf(why, n, "stage %d sends %d messages to stage %d, which takes %d", left->src,
                 left->sent, left->dst, left->taken);
        ret = -EINVAL;
    } else {
        sp_times_summarize(plan, costs, &sim.t);
        *times = sim.t;
        sim.t = (struct sp_times){0};
    }
    destroy(&sim);
    return ret;
}

int sp_listsim_buffers(const struct sp_plan *plan, int *buffers)
{
    struct sim sim = {.plan = plan,
                      .costs = &sp_costs_unit,
                      .kind = SP_RENDEZVOUS,
                      .paired = plan->paired,
                      .capacity = 1};
    char why[128];
    int ret = create(&sim, why, sizeof why), most;
    bool finished;

    if (ret)
        return ret;
    /* A prefix that ran with less room can run with more. So when all stages are stuck, one message
     * more is tried for the ops that are left; the last number is the smallest for the whole
     * plan. */
    most = sp_channels_most(&sim.ch);
    finished = sp_player_play(&sim.player);
    while (!finished && sim.capacity < most) {
        sim.capacity++;
        finished = sp_player_play(&sim.player);
    }
    if (finished)
        *buffers = sim.capacity > 1 ? sim.capacity : 0;
    else
        ret = -EDEADLK;
    destroy(&sim);
    return ret;
}

struct sp_placed *sp_order_at_costs(const struct sp_plan *plan, const struct sp_costs *costs,
                                    int *n)
{
    int ops = sp_plan_ops(plan);
    struct sim sim = {.plan = plan,
                      .costs = costs,
                      .kind = SP_PAIRED,
                      .paired = true,
                      .order = malloc(((size_t)ops + 1) * sizeof *sim.order)};
    char why[64];
    bool finished;

    if (!sim.order || create(&sim, why, sizeof why)) {
        free(sim.order);
        return NULL;
    }
    finished = sp_player_play(&sim.player);
    destroy(&sim);
    if (!finished) {
        free(sim.order);
        return NULL;
    }
    *n = ops;
    return sim.order;
}

struct sp_placed *sp_plan_order(const struct sp_plan *plan, int *n)
{
    struct sp_placed *order;

    if (!plan->order)
        return sp_order_at_costs(plan, &sp_costs_unit, n);
    *n = sp_plan_ops(plan);
    order = malloc(((size_t)*n + 1) * sizeof *order);
    if (order)
        memcpy(order, plan->order, (size_t)*n * sizeof *order);
    return order;
}
