#include "plan/simulation/ready.h"
#include "policies/families/activations.h"
#include "policies/plan.h"
#include "policies/simulation/index.h"
#include "policies/simulation/overtaking.h"
#include "policies/simulation/times.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int sp_ready_check(const struct sp_plan *plan, char *why, size_t n)
{
    if (plan->family->run_deps)
        snprintf(why, n, "stages of %s keep in step with each other", plan->def->name);
    else if (plan->evictions)
        snprintf(why, n, "what leaves memory is planned for the strict order");
    else
        return 0;
    return -EINVAL;
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* Parts of a micro-batch become whole numbers. */
static const double PARTS = 1 << 20;

static void set_memory(struct sp_ready *r, const struct sp_ready_rule *rule, int stage, int k)
{
    const struct sp_op *op = &r->plan->programs[stage].ops[k];
    int at = r->messages->first_op[stage] + k;

    if (rule->shape) {
        if (op->pass == SP_F)
            r->acquire[at] =
                sp_stash_of_op(r->plan, rule->shape, rule->recompute, rule->every, stage, op);
        r->release[at] =
            sp_stash_freed_by_op(r->plan, rule->shape, rule->recompute, rule->every, stage, op);
    } else {
        int64_t size = llround(PARTS * sp_activation_of_op(r->plan, stage, op));

        r->acquire[at] = size > 0 ? size : 0;
        r->release[at] = size < 0 ? -size : 0;
    }
}

/* The bound is what the strict order reaches. */
static void bound_memory(struct sp_ready *r, const struct sp_ready_rule *rule)
{
    for (int s = 0; s < r->plan->layout.stages; s++) {
        struct sp_overtaking strict = sp_overtaking_begin(0, 0);

        for (int k = 0; k < r->plan->programs[s].n; k++) {
            int at = r->messages->first_op[s] + k;

            set_memory(r, rule, s, k);
            sp_overtaking_pass(&strict, r->acquire[at], r->release[at]);
        }
        r->bound[s] = strict.highest;
    }
}

/* ---- what ops wait for ------------------------------------------------------------------------ */

struct builder {
    struct sp_ready *r;
    unsigned short *missing;
    struct sp_index ix;
    int chunks;
    int *adder; /* [passes][parts][chunks] the last op so far that adds to the gradients of these */
    bool lost;  /* there was no memory */
};

/* `op` waits for `other`: an op, or a message by its number after those of ops. */
static void wait_for(struct builder *b, int op, int other)
{
    struct sp_ready *r = b->r;

    if (r->n == r->room) {
        struct sp_ready_edge *more = realloc(r->edge, (size_t)(2 * r->n + 256) * sizeof *more);

        b->lost |= !more;
        if (!more)
            return;
        r->edge = more;
        r->room = 2 * r->n + 256;
    }
    r->edge[r->n] = (struct sp_ready_edge){.op = op, .next = r->follower[other]};
    r->follower[other] = r->n++;
    b->missing[op]++;
}

static bool is_one_unit(const struct sp_program *prog, int j, int k)
{
    return j == k || (k == j + 1 && prog->ops[j].overlap) || (j == k + 1 && prog->ops[k].overlap);
}

/* A message is known to its first reader alone: others wait for it here. */
static void wait_for_message(struct builder *b, int stage, int k, const struct sp_dep *dep, int j)
{
    const struct sp_step_messages *all = b->r->messages;
    int ops = all->first_op[b->r->plan->layout.stages];

    for (int m = all->first_of_writer[all->first_op[dep->stage] + j]; m >= 0;
         m = all->message[m].next_of_writer)
        if (all->message[m].to == stage && sp_step_message_is_sent(&all->message[m])) {
            if (all->message[m].reader >= 0 && all->message[m].reader != k)
                wait_for(b, all->first_op[stage] + k, ops + m);
            return;
        }
}

static void wait_for_deps(struct builder *b, int stage, int k)
{
    const struct sp_plan *plan = b->r->plan;
    const struct sp_program *prog = &plan->programs[stage];
    struct sp_dep deps[SP_MAX_DEPS];
    int n = sp_run_deps(plan, stage, &prog->ops[k], deps);

    for (int i = 0; i < n; i++) {
        int j = sp_index_place(&b->ix, plan, &deps[i]);

        if (j < 0)
            continue;
        if (deps[i].stage != stage)
            wait_for_message(b, stage, k, &deps[i], j);
        else if (!is_one_unit(prog, j, k))
            wait_for(b, b->r->messages->first_op[stage] + k, b->r->messages->first_op[stage] + j);
    }
}

/* Gradients of the same parameters add up in program order, and a stage that updates them at once has the forwards
 * after it wait. */
static void wait_for_adders(struct builder *b, int stage, int k)
{
    const struct sp_plan *plan = b->r->plan;
    const struct sp_program *prog = &plan->programs[stage];
    const struct sp_op *op = &prog->ops[k];
    int first = b->r->messages->first_op[stage];
    int pass = op->pass == SP_F && plan->family->updates_each ? SP_B : op->pass;
    int *adder = &b->adder[(pass * (SP_UPDATE + 1) + op->part) * b->chunks + op->chunk];

    if (pass == SP_F || op->part == SP_ATTN)
        return;
    if (*adder >= 0 && !is_one_unit(prog, *adder, k))
        wait_for(b, first + k, first + *adder);
    if (op->pass != SP_F)
        *adder = k;
}

static int build(struct builder *b)
{
    const struct sp_plan *plan = b->r->plan;
    int bad;

    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++)
            if (plan->programs[s].ops[k].chunk >= b->chunks)
                b->chunks = plan->programs[s].ops[k].chunk + 1;
    b->adder = malloc((size_t)(SP_PASSES * (SP_UPDATE + 1) * b->chunks + 1) * sizeof *b->adder);
    if (!b->adder || sp_index_create(plan, &b->ix, &bad, &bad))
        return -ENOMEM;
    for (int s = 0; s < plan->layout.stages; s++) {
        memset(b->adder, -1, (size_t)(SP_PASSES * (SP_UPDATE + 1) * b->chunks) * sizeof *b->adder);
        for (int k = 0; k < plan->programs[s].n; k++) {
            wait_for_deps(b, s, k);
            wait_for_adders(b, s, k);
        }
    }
    return b->lost ? -ENOMEM : 0;
}

int sp_ready_create(const struct sp_plan *plan, const struct sp_step_messages *messages,
                    const struct sp_ready_rule *rule, unsigned short *missing, struct sp_ready *r)
{
    int stages = plan->layout.stages, ops = messages->first_op[stages], err;
    struct builder b = {.r = r, .missing = missing};

    *r = (struct sp_ready){.plan = plan, .messages = messages, .window = rule->window};
    r->acquire = calloc((size_t)(2 * (ops + stages)) + 1, sizeof *r->acquire);
    r->order = calloc((size_t)(2 * (ops + stages) + messages->n) + 1, sizeof *r->order);
    r->taken = calloc((size_t)ops + 1, sizeof *r->taken);
    r->look_at = calloc((size_t)(stages + ops), sizeof *r->look_at);
    r->look.item = calloc((size_t)(stages + ops), sizeof *r->look.item);
    if (!r->acquire || !r->order || !r->taken || !r->look_at || !r->look.item) {
        sp_ready_destroy(r);
        return -ENOMEM;
    }
    r->release = r->acquire + ops;
    r->live = r->release + ops;
    r->bound = r->live + stages;
    r->first = r->order + ops;
    r->follower = r->first + stages;
    memset(r->follower, -1, (size_t)(ops + messages->n) * sizeof *r->follower);
    bound_memory(r, rule);
    err = build(&b);
    sp_index_destroy(&b.ix);
    free(b.adder);
    if (err)
        sp_ready_destroy(r);
    return err;
}

void sp_ready_destroy(struct sp_ready *r)
{
    free(r->acquire);
    free(r->order);
    free(r->taken);
    free(r->look_at);
    free(r->look.item);
    free(r->edge);
    *r = (struct sp_ready){0};
}

/* ---- in time ---------------------------------------------------------------------------------- */

static bool earlier(const void *arg, int a, int b)
{
    const struct sp_ready *r = arg;

    return r->look_at[a] != r->look_at[b] ? r->look_at[a] < r->look_at[b] : a < b;
}

static void look_at(struct sp_ready *r, int number, double time)
{
    r->look_at[number] = time;
    sp_heap_push(&r->look, number, earlier, r);
}

void sp_ready_begin(struct sp_ready *r)
{
    for (int s = 0; s < r->plan->layout.stages; s++)
        look_at(r, s, 0);
}

void sp_ready_there(struct sp_ready *r, int op, double time)
{
    look_at(r, r->plan->layout.stages + op, time);
}

double sp_ready_next(const struct sp_ready *r)
{
    return r->look.n > 0 ? r->look_at[r->look.item[0]] : INFINITY;
}

int sp_ready_stage(const struct sp_ready *r, int op)
{
    int low = 0, high = r->plan->layout.stages;

    while (high - low > 1) {
        int middle = (low + high) / 2;

        if (r->messages->first_op[middle] <= op)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The op of a stage to run at `time`, the first of two that overlap; -1: none. */
static int choose(const struct sp_ready *r, struct sp_player *player, int stage, double time)
{
    const struct sp_program *prog = &r->plan->programs[stage];
    const int64_t *acquire = r->acquire + r->messages->first_op[stage];
    const int64_t *release = r->release + r->messages->first_op[stage];
    const bool *taken = r->taken + r->messages->first_op[stage];
    struct sp_overtaking o = sp_overtaking_begin(r->live[stage], r->bound[stage]);
    int looked = 0;

    for (int k = r->first[stage], ops; k < prog->n; k += ops) {
        double start = time;
        int64_t more = 0;

        ops = prog->ops[k].overlap ? 2 : 1;
        if (taken[k])
            continue;
        if (r->window && looked >= r->window)
            return -1;
        looked += ops;
        for (int i = k; i < k + ops; i++)
            more += acquire[i];
        if ((k == r->first[stage] || sp_overtaking_fits(&o, more)) &&
            player->rules->wait(player, stage, k, &start) == SP_PLAYER_READY && start <= time)
            return k;
        for (int i = k; i < k + ops; i++)
            sp_overtaking_pass(&o, acquire[i], release[i]);
    }
    return -1;
}

/* The stage runs an op from `time` on, or two that overlap. */
static void take(struct sp_ready *r, struct sp_player *player, int stage, int k, double time)
{
    int first = r->messages->first_op[stage], *at = &r->first[stage], ran = player->next[stage];
    double end;
    int ops = player->rules->run(player, stage, k, time, &end);

    for (int i = k; i < k + ops; i++) {
        r->order[first + ran++] = i;
        r->taken[first + i] = true;
        r->live[stage] += r->acquire[first + i] - r->release[first + i];
    }
    while (*at < r->plan->programs[stage].n && r->taken[first + *at])
        ++*at;
    player->next[stage] = ran;
    player->free_at[stage] = end;
    look_at(r, stage, end);
}

void sp_ready_look(struct sp_ready *r, struct sp_player *player)
{
    int stages = r->plan->layout.stages, number = sp_heap_pop(&r->look, earlier, r), stage, k;
    double time = r->look_at[number];

    stage = number < stages ? number : sp_ready_stage(r, number - stages);
    if (player->free_at[stage] > time)
        return; /* it looks when it is free */
    k = choose(r, player, stage, time);
    if (k >= 0)
        take(r, player, stage, k, time);
}

/* ---- the order -------------------------------------------------------------------------------- */

int sp_ready_reorder(struct sp_plan *plan, const int *order)
{
    for (int s = 0; s < plan->layout.stages; s++) {
        struct sp_program *prog = &plan->programs[s], ran = {0};

        for (int k = 0; k < prog->n; k++)
            sp_program_add_op(&ran, prog->ops[*order++]);
        sp_program_clear(prog);
        *prog = ran;
    }
    return sp_plan_index(plan);
}
