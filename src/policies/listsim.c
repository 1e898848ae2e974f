/*
 * List simulation: every stage runs its program in order, as early as what its ops wait for
 * allows. A queue holds the stages that may be able to go on; a stage that cannot waits for one
 * op, or for one of its messages to be taken, and is woken by that event: O(ops + messages).
 */
#include "policies/channels.h"
#include "policies/index.h"
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
    struct sp_waiters waiters;
    struct sp_channels ch; /* empty when unbounded */
    struct sp_times t;
    int *pc;          /* [stages] next op */
    int *queue;       /* [stages] ring of stages to try */
    bool *queued;     /* [stages] */
    int head, length; /* of the ring */
};

static void enqueue(struct sim *sim, int stage)
{
    int p = sim->plan->layout.stages;

    if (sim->queued[stage])
        return;
    sim->queue[(sim->head + sim->length++) % p] = stage;
    sim->queued[stage] = true;
}

/* Whether a producer ran; its end and place are then set. */
static bool done(const struct sim *sim, const struct sp_dep *dep, double *end)
{
    int k = sp_index_place(&sim->ix, sim->plan, dep);

    if (k < 0 || k >= sim->pc[dep->stage])
        return false;
    *end = sim->t.end[dep->stage][k];
    return true;
}

/* How many ops begin together at index k. */
static int unit(const struct sim *sim, int stage, int k)
{
    const struct sp_program *prog = &sim->plan->programs[stage];

    return sim->kind == SP_PAIRED && k + 1 < prog->n && prog->ops[k].overlap ? 2 : 1;
}

/* Runs the `ops` ops from index k on, together. */
static void run_ops(struct sim *sim, int stage, int k, int ops, double start)
{
    double end = start;

    for (int i = 0; i < ops; i++)
        end += sp_op_cost(sim->plan, sim->costs, stage, &sim->plan->programs[stage].ops[k + i]);
    for (int i = 0; i < ops; i++) {
        sim->t.start[stage][k + i] = start;
        sim->t.end[stage][k + i] = end;
    }
    sim->pc[stage] += ops;
}

/* Runs the next op of a stage if it can; otherwise the stage waits for what will wake it. */
static bool step(struct sim *sim, int stage)
{
    const struct sp_family *family = sim->plan->family;
    const struct sp_layout *lay = &sim->plan->layout;
    const struct sp_program *prog = &sim->plan->programs[stage];
    int k = sim->pc[stage], ops = unit(sim, stage, k), id, cross = 0, next;
    struct sp_dep deps[2 * SP_MAX_DEPS];
    double start = k > 0 ? sim->t.end[stage][k - 1] : 0;
    int n;

    if (k == prog->n)
        return false;
    n = family->deps(lay, stage, &prog->ops[k], deps);
    if (ops == 2)
        n += family->deps(lay, stage, &prog->ops[k + 1], deps + n);
    for (int i = 0; i < n; i++) {
        double end;

        if (!done(sim, &deps[i], &end)) {
            id = family->id(lay, deps[i].stage, &deps[i].op);
            if (id >= 0)
                sp_waiters_add(&sim->waiters, id, stage);
            return false;
        }
        if (deps[i].stage != stage) {
            end += sim->costs->comm;
            cross++;
        }
        if (end > start)
            start = end;
    }
    id = family->id(lay, stage, &prog->ops[k]);
    if (sim->kind == SP_FIFO && sp_channels_out_of_turn(&sim->ch, stage, cross) >= 0)
        return false; /* what was sent first is for a later op of this very stage: nothing wakes it */
    if (sim->kind == SP_RENDEZVOUS && sp_channels_full(&sim->ch, id, &start) >= 0)
        return false; /* woken when the receiver takes the message before */

    run_ops(sim, stage, k, ops, start);
    sim->t.messages += cross;
    if (sim->kind == SP_FIFO || sim->kind == SP_RENDEZVOUS) {
        for (int i = 0; i < cross; i++)
            enqueue(sim, sp_channels_take(&sim->ch, stage, start));
    }
    for (int i = 0; i < ops; i++) {
        id = family->id(lay, stage, &prog->ops[k + i]);
        while ((next = sp_waiters_take(&sim->waiters, id)) >= 0)
            enqueue(sim, next);
    }
    return true;
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

/* What the next op of a blocked stage waits for. */
static void explain(const struct sim *sim, int stage, char *why, size_t n)
{
    const struct sp_plan *plan = sim->plan;
    const struct sp_op *op = &plan->programs[stage].ops[sim->pc[stage]];
    int sliced = plan->layout.slices > 1, c = -1, cross = 0;
    char text[SP_OP_TEXT], other[SP_OP_TEXT];
    struct sp_dep deps[2 * SP_MAX_DEPS];
    double end, at = 0;
    int n_deps = plan->family->deps(&plan->layout, stage, op, deps);

    if (unit(sim, stage, sim->pc[stage]) == 2)
        n_deps += plan->family->deps(&plan->layout, stage, op + 1, deps + n_deps);

    append(why, n, "stage %d at %s waits for ", stage, sp_op_print(op, sliced, text));
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
    else if (sim->kind == SP_RENDEZVOUS)
        c = sp_channels_full(&sim->ch, plan->family->id(&plan->layout, stage, op), &at);
    if (c >= 0) {
        const struct sp_channel_state *ch = &sim->ch.channels[c];
        int k = sp_channels_next(&sim->ch, c);

        append(why, n, "the message of %s from stage %d to stage %d to be taken first",
               k >= 0 ? sp_op_print(&plan->programs[ch->src].ops[k], sliced, other) : "?", ch->src,
               ch->dst);
    }
}

static int deadlock(const struct sim *sim, char *why, size_t n)
{
    static const char *const kinds[] = {[SP_UNBOUNDED] = "unbounded",
                                        [SP_FIFO] = "first-in-first-out",
                                        [SP_RENDEZVOUS] = "rendezvous",
                                        [SP_PAIRED] = "unbounded"};
    int p = sim->plan->layout.stages, said = 0;

    if (n == 0)
        return -EDEADLK;
    snprintf(why, n, "deadlock with %s channels: ", kinds[sim->kind]);
    for (int s = 0; s < p && strlen(why) < n - 1; s++) {
        if (sim->pc[s] == sim->plan->programs[s].n)
            continue;
        if (said++)
            append(why, n, "; ");
        explain(sim, s, why, n);
    }
    return -EDEADLK;
}

/* The largest number of activations alive at once on a stage. */
static int peak_live(const struct sp_plan *plan, int stage)
{
    const struct sp_program *prog = &plan->programs[stage];
    int live = 0, peak = 0;

    for (int k = 0; k < prog->n; k++) {
        int id = plan->deferred ? plan->family->id(&plan->layout, stage, &prog->ops[k]) : -1;

        switch (prog->ops[k].pass) {
        case SP_F:
            live++;
            break;
        case SP_B:
            live -= !(id >= 0 && plan->deferred[id]);
            break;
        case SP_W:
            live--;
            break;
        }
        if (live > peak)
            peak = live;
    }
    return peak;
}

static void summarize(struct sim *sim)
{
    int p = sim->plan->layout.stages;
    struct sp_times *t = &sim->t;
    double idle = 0;

    for (int s = 0; s < p; s++) {
        int n = sim->plan->programs[s].n;

        for (int k = 0; k < n; k++)
            t->busy[s] += sp_op_cost(sim->plan, sim->costs, s, &sim->plan->programs[s].ops[k]);
        if (n > 0) {
            t->span[s] = t->end[s][n - 1] - t->start[s][0];
            if (t->end[s][n - 1] > t->makespan)
                t->makespan = t->end[s][n - 1];
        }
        t->peak_live[s] = peak_live(sim->plan, s);
    }
    for (int s = 0; s < p; s++) {
        t->idle[s] = t->makespan - t->busy[s];
        idle += t->idle[s];
    }
    t->bubble_ratio = t->makespan > 0 ? idle / (t->makespan * p) : 0;
}

static int create_times(const struct sp_plan *plan, struct sp_times *t)
{
    size_t p = (size_t)plan->layout.stages, ops = (size_t)sp_plan_ops(plan), at = 0;
    double *block = calloc(2 * ops + 3 * p, sizeof *block);

    *t = (struct sp_times){.start = calloc(2 * p, sizeof *t->start),
                           .peak_live = calloc(p, sizeof *t->peak_live)};
    if (!block || !t->start || !t->peak_live) {
        free(block);
        free(t->start);
        free(t->peak_live);
        return -ENOMEM;
    }
    /* one block: starts, ends, then the figures of the stages */
    t->end = t->start + p;
    for (size_t s = 0; s < p; s++) {
        t->start[s] = block + at;
        t->end[s] = block + ops + at;
        at += (size_t)plan->programs[s].n;
    }
    t->span = block + 2 * ops;
    t->idle = t->span + p;
    t->busy = t->idle + p;
    return 0;
}

void sp_times_destroy(struct sp_times *t)
{
    if (t->start)
        free(t->start[0]);
    free(t->start);
    free(t->peak_live);
    *t = (struct sp_times){0};
}

static int run(struct sim *sim, char *why, size_t n)
{
    int p = sim->plan->layout.stages;

    for (int s = 0; s < p; s++)
        enqueue(sim, s);
    while (sim->length > 0) {
        int stage = sim->queue[sim->head];

        sim->head = (sim->head + 1) % p;
        sim->length--;
        sim->queued[stage] = false;
        while (step(sim, stage))
            ;
    }
    for (int s = 0; s < p; s++) {
        if (sim->pc[s] < sim->plan->programs[s].n)
            return deadlock(sim, why, n);
    }
    return 0;
}

int sp_listsim(const struct sp_plan *plan, const struct sp_costs *costs, enum sp_channel channel,
               struct sp_times *times, char *why, size_t n)
{
    struct sim sim = {.plan = plan, .costs = costs, .kind = channel};
    size_t p = (size_t)plan->layout.stages;
    int stage = 0, index = 0, ret;
    char text[SP_OP_TEXT];

    ret = sp_index_create(plan, &sim.ix, &stage, &index);
    if (ret == -EINVAL)
        snprintf(why, n, "stage %d: %s is not an op of the family", stage,
                 sp_op_print(&plan->programs[stage].ops[index], plan->layout.slices > 1, text));
    if (ret)
        return ret;
    ret = sp_waiters_create(sim.ix.ids, plan->layout.stages, &sim.waiters);
    if (ret)
        goto err_index;
    ret = create_times(plan, &sim.t);
    if (ret)
        goto err_waiters;
    ret = channel == SP_UNBOUNDED || channel == SP_PAIRED ? 0 : sp_channels_create(plan, sim.ix.ids, &sim.ch);
    if (ret)
        goto err_times;
    sim.pc = calloc(p, sizeof *sim.pc);
    sim.queue = calloc(p, sizeof *sim.queue);
    sim.queued = calloc(p, sizeof *sim.queued);
    ret = sim.pc && sim.queue && sim.queued ? run(&sim, why, n) : -ENOMEM;
    free(sim.pc);
    free(sim.queue);
    free(sim.queued);
    sp_channels_destroy(&sim.ch);
err_times:
    if (ret) {
        sp_times_destroy(&sim.t);
    } else {
        summarize(&sim);
        *times = sim.t;
    }
err_waiters:
    sp_waiters_destroy(&sim.waiters);
err_index:
    sp_index_destroy(&sim.ix);
    return ret;
}
