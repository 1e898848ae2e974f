#include "policies/families/multiplexed/shared_weights.h"
#include "policies/families/ownership.h"
#include <errno.h>
#include <stdlib.h>

/* A process's copy of the weights of a stage. */
struct copy {
    int helps; /* of its stages that have begun, or are about to */
    int ops;   /* of these that are still to come */
    bool here;
};

/* What a stage sums up of the gradients of another. */
struct sum {
    int helps;  /* of the stage that have begun */
    bool whole; /* has all of its own */
    bool ready; /* and what comes by as well: goes on */
};

struct lending {
    struct copy *copy; /* [processes][stages] */
    struct sum *sum;   /* [stages][stages] */
    int *last;         /* [stages] op that was lowered last, -1: none */
};

static int stages_of(const struct sp_lowering *l)
{
    return l->plan->layout.stages;
}

static struct copy *copy_of(const struct sp_lowering *l, int process, int global)
{
    return &((struct lending *)l->state)->copy[process * stages_of(l) + global];
}

static struct sum *sum_of(const struct sp_lowering *l, int stage, int global)
{
    return &((struct lending *)l->state)->sum[stage * stages_of(l) + global];
}

static int *last_of(const struct sp_lowering *l, int stage)
{
    return &((struct lending *)l->state)->last[stage];
}

int sp_shared_weights_begin(struct sp_lowering *l)
{
    size_t p = (size_t)stages_of(l), copies = (size_t)l->processes * p;
    struct lending *state;

    free(l->state);
    l->state = state = calloc(1, sizeof *state + copies * sizeof *state->copy +
                                     p * p * sizeof *state->sum + p * sizeof *state->last);
    if (!state)
        return -ENOMEM;
    state->copy = (struct copy *)(state + 1);
    state->sum = (struct sum *)(state->copy + copies);
    state->last = (int *)(state->sum + p * p);
    for (size_t s = 0; s < p; s++)
        state->last[s] = -1;
    return 0;
}

/* ---- blocks of a stage ------------------------------------------------------------------------ */

/* Tensors name the owner as their micro-batch, as two stages may hold a table. */
struct move {
    struct sp_lowering *l;
    int from, to, sender, reader; /* stages, and ops of theirs */
    enum sp_tensor_kind kind;
    void (*step)(const struct move *m, struct sp_tensor_id block);
    int owner;
};

static int step_block(void *arg, enum sp_block_kind kind, int layer)
{
    struct move *m = arg;

    m->step(m, (struct sp_tensor_id){.kind = (unsigned char)m->kind,
                                     .block = (unsigned char)kind,
                                     .mb = m->owner,
                                     .at = layer});
    return 0;
}

static void each_block(struct move *m)
{
    if (m->l->shape)
        sp_stage_each_block(m->l->plan, &m->l->shape->held, m->owner, step_block, m);
}

/* ---- weights ---------------------------------------------------------------------------------- */

/* The process before one on the way of a stage's weights, and the one after it; -1: it ends there. */
static int process_before(const struct sp_lowering *l, int process, int global)
{
    return process < sp_lowering_process(l, global) ? process + 1 : process - 1;
}

static int process_after(const struct sp_lowering *l, int process, int global)
{
    int after = process < sp_lowering_process(l, global) ? process - 1 : process + 1;

    return after < l->processes ? after : -1;
}

/* The stage of a process that receives and keeps the copy: the one next to the owner. */
static int owner_in(const struct sp_lowering *l, int process, int global)
{
    int stage = global;

    while (sp_lowering_process(l, stage) != process)
        stage += process < sp_lowering_process(l, global) ? -1 : 1;
    return stage;
}

static bool begins_help(const struct sp_program *prog, int k)
{
    return k == 0 || prog->ops[k - 1].chunk != prog->ops[k].chunk;
}

/* Ops of help number `help` of the stages of a process, and the first one of the copy's keeper. */
static int help_ops(const struct sp_lowering *l, int process, int global, int help, int *reader)
{
    int ops = 0, kept = owner_in(l, process, global);

    for (int s = 0; s < stages_of(l); s++) {
        const struct sp_program *prog = &l->plan->programs[s];
        int at = -1;

        for (int k = 0; sp_lowering_process(l, s) == process && k < prog->n && at <= help; k++) {
            if (prog->ops[k].chunk != global)
                continue;
            at += begins_help(prog, k);
            if (at == help && begins_help(prog, k) && s == kept)
                *reader = k;
            ops += at == help;
        }
    }
    return ops;
}

static void share(const struct move *m, struct sp_tensor_id block)
{
    sp_lower_send(m->l, m->from, m->to, block, m->sender);
    sp_lower_recv(m->l, m->from, m->to, block, m->reader);
}

static void release(const struct move *m, struct sp_tensor_id block)
{
    sp_lower_free(m->l, m->from, block);
}

/* Unless its stages want them still, or the next process has not come for them. */
static void release_copy(struct sp_lowering *l, int process, int global)
{
    struct copy *c = copy_of(l, process, global);
    int after = process_after(l, process, global);

    if (!c->here || c->ops > 0 || (after >= 0 && copy_of(l, after, global)->helps < c->helps))
        return;
    c->here = false;
    each_block(&(struct move){.l = l,
                              .from = owner_in(l, process, global),
                              .kind = SP_TENSOR_BLOCK,
                              .step = release,
                              .owner = global});
}

/* The weights of a stage are in a process for so many helps. */
static void take_shared(struct sp_lowering *l, int process, int global, int helps)
{
    int owner = sp_lowering_process(l, global), before, from, reader = -1;
    struct copy *c = copy_of(l, process, global);

    if (process == owner || c->helps >= helps)
        return;
    before = process_before(l, process, global);
    take_shared(l, before, global, helps);
    c->ops += help_ops(l, process, global, c->helps++, &reader);
    from = before == owner ? global : owner_in(l, before, global);
    if (!c->here)
        each_block(&(struct move){.l = l,
                                  .from = from,
                                  .to = owner_in(l, process, global),
                                  .sender = *last_of(l, from),
                                  .reader = reader,
                                  .kind = SP_TENSOR_BLOCK,
                                  .step = share,
                                  .owner = global});
    c->here = true;
    if (before != owner)
        release_copy(l, before, global);
}

/* ---- sums of gradients ------------------------------------------------------------------------ */

static void add(const struct move *m, struct sp_tensor_id block)
{
    sp_lower_send(m->l, m->from, m->to, block, m->sender);
    sp_lower_recv(m->l, m->from, m->to, block, -1);
    sp_lower_free(m->l, m->from, block);
    sp_lower_add(m->l, m->to, block);
    sp_lower_free(m->l, m->to, block);
}

/* A stage's sum, if it is ready, goes on to the stage `to`, if that has all of its own. */
static bool pass_sum(struct sp_lowering *l, int stage, int to, int global)
{
    struct sum *sum = sum_of(l, stage, global), *next = sum_of(l, to, global);

    if (!sum->ready || (to != global && !next->whole))
        return false;
    sum->ready = sum->whole = false;
    next->ready = to != global;
    each_block(&(struct move){.l = l,
                              .from = stage,
                              .to = to,
                              .sender = *last_of(l, stage),
                              .kind = SP_TENSOR_GRADIENT,
                              .step = add,
                              .owner = global});
    return true;
}

/* One sum that has come to a stage, an op: so nobody waits for one. */
static void take_sum(struct sp_lowering *l, int stage)
{
    for (int g = stages_of(l) - 1; g >= 0; g--)
        if ((stage > 0 && stage <= g && pass_sum(l, stage - 1, stage, g)) ||
            (stage < stages_of(l) - 1 && stage >= g && pass_sum(l, stage + 1, stage, g)))
            return;
}

/* All of a stage's. */
static void take_sums(struct sp_lowering *l, int global)
{
    for (int s = 0; s < global; s++)
        pass_sum(l, s, s + 1, global);
    for (int s = stages_of(l) - 1; s > global; s--)
        pass_sum(l, s, s - 1, global);
}

void sp_shared_weights_end(struct sp_lowering *l)
{
    for (int g = 0; g < stages_of(l); g++)
        take_sums(l, g);
}

/* ---- ops -------------------------------------------------------------------------------------- */

static bool is_backward_for(const struct sp_program *prog, int k, int global)
{
    return k < prog->n && prog->ops[k].pass == SP_B && prog->ops[k].chunk == global;
}

/* What op k of a stage's program wants is on its way. */
static void prepare(struct sp_lowering *l, int stage, int k)
{
    const struct sp_program *prog = &l->plan->programs[stage];
    int g = k < prog->n ? prog->ops[k].chunk : stage;

    if (g != stage)
        take_shared(l, sp_lowering_process(l, stage), g,
                    sum_of(l, stage, g)->helps + begins_help(prog, k));
}

void sp_shared_weights_before(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, k = l->order[i].index;
    const struct sp_program *prog = &l->plan->programs[stage];
    int g = prog->ops[k].chunk;

    prepare(l, stage, k);
    sum_of(l, stage, g)->helps += begins_help(prog, k);
    prepare(l, stage, k + 1);
    if (g != stage && sum_of(l, stage, g)->whole && is_backward_for(prog, k, g))
        take_sums(l, g); /* those of the micro-batch before */
}

void sp_shared_weights_after(struct sp_lowering *l, int i)
{
    int stage = l->order[i].stage, k = l->order[i].index, process = sp_lowering_process(l, stage);
    const struct sp_program *prog = &l->plan->programs[stage];
    int g = prog->ops[k].chunk;

    *last_of(l, stage) = k;
    if (g != stage && process != sp_lowering_process(l, g)) {
        copy_of(l, process, g)->ops--;
        release_copy(l, process, g);
    }
    take_sum(l, stage);
    if (g == stage || !is_backward_for(prog, k, g) || is_backward_for(prog, k + 1, g))
        return;
    sum_of(l, stage, g)->whole = true;
    sum_of(l, stage, g)->ready = stage == (stage < g ? 0 : stages_of(l) - 1);
}
