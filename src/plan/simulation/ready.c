#include "plan/simulation/ready.h"
#include "policies/families/activations.h"
#include "policies/families/ownership.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/index.h"
#include "policies/simulation/overtaking.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int sp_ready_check(const struct sp_plan *plan, char *why, size_t n)
{
    if (plan->family->lowers->run_deps || plan->family->facts.sharded)
        snprintf(why, n, "stages of %s keep in step with each other", plan->def->name);
    else if (plan->evictions)
        snprintf(why, n, "what leaves memory is planned for the strict order");
    else
        return 0;
    return -EINVAL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Scale that turns parts of a micro-batch into whole numbers. */
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

/* The memory bound of a stage is the peak of its strict order. */
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

/* ---- dependencies ---------------------------------------------------------------------------- */

struct builder {
    struct sp_ready *r;
    unsigned short *missing;
    struct sp_index ix;
    int chunks;
    int *adder; /* [passes][parts][chunks] the last op so far that adds to their gradients */
    bool lost;  /* there was no memory */
};

/* `op` waits for `other`, an op of the same stage. */
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

/* Adds the producers on the op's own stage; messages bring all other inputs. */
static void wait_for_deps(struct builder *b, int stage, int k)
{
    const struct sp_plan *plan = b->r->plan;
    const struct sp_program *prog = &plan->programs[stage];
    struct sp_dep deps[SP_MAX_DEPS];
    int n = sp_run_deps(plan, stage, &prog->ops[k], deps);

    for (int i = 0; i < n; i++) {
        int j = sp_index_place(&b->ix, plan, &deps[i]);

        if (j >= 0 && deps[i].stage == stage && !is_one_unit(prog, j, k))
            wait_for(b, b->r->messages->first_op[stage] + k, b->r->messages->first_op[stage] + j);
    }
}

/* Gradients of the same parameters add up in program order. On a stage that updates at once, later
 * forwards wait for them too. */
static void wait_for_adders(struct builder *b, int stage, int k)
{
    const struct sp_plan *plan = b->r->plan;
    const struct sp_program *prog = &plan->programs[stage];
    const struct sp_op *op = &prog->ops[k];
    int first = b->r->messages->first_op[stage];
    int pass =
        op->pass == SP_F && plan->family->facts.stashes && !plan->map->late ? SP_B : op->pass;
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

/* ---- tasks ----------------------------------------------------------------------------------- */

enum { TASKS_OF_LAYER = 3, TASKS_OF_BLOCK = 2 }; /* pre, attn, post; post, pre of the next layer */

static int tasks_of(const struct sp_plan *plan, int stage, const struct sp_op *op)
{
    int first, layers = 0;

    if (op->part == SP_BLOCK)
        return TASKS_OF_BLOCK;
    if (op->part != SP_CHUNK)
        return 1;
    if (plan->layout.layers > 0)
        sp_chunk_layers(plan, plan->layout.layers, stage, op->chunk, &first, &layers);
    return TASKS_OF_LAYER * (layers < 1 ? 1 : layers);
}

static void set_tasks(struct sp_ready *r, const struct sp_costs *costs)
{
    for (int s = 0; s < r->plan->layout.stages; s++) {
        const struct sp_program *prog = &r->plan->programs[s];

        for (int k = 0; k < prog->n; k++) {
            int at = r->messages->first_op[s] + k,
                leader = at - (k > 0 && prog->ops[k - 1].overlap);

            r->began[at] = -1;
            r->tasks[leader] += tasks_of(r->plan, s, &prog->ops[k]);
            r->all_tasks[leader] = r->tasks[leader];
            r->cost[leader] += sp_op_cost(r->plan, costs, s, &prog->ops[k]);
        }
        r->running[s] = -1;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int allocate(struct sp_ready *r, size_t stages, size_t ops)
{
    r->acquire = calloc(2 * (ops + stages) + 1, sizeof *r->acquire);
    r->first = calloc(3 * (ops + stages) + 1, sizeof *r->first);
    r->began = calloc(3 * ops + 2 * stages + 1, sizeof *r->began);
    r->look.item = calloc(stages + ops + 1, sizeof *r->look.item);
    if (!r->acquire || !r->first || !r->began || !r->look.item)
        return -ENOMEM;
    r->release = r->acquire + ops;
    r->live = r->release + ops;
    r->bound = r->live + stages;
    r->running = r->first + stages;
    r->resumed_with = r->running + stages;
    r->tasks = r->resumed_with + stages;
    r->all_tasks = r->tasks + ops;
    r->follower = r->all_tasks + ops;
    memset(r->follower, -1, ops * sizeof *r->follower);
    r->cost = r->began + ops;
    r->resumed = r->cost + ops;
    r->look_at = r->resumed + stages;
    return 0;
}

int sp_ready_create(const struct sp_ready_request *request, unsigned short *missing,
                    struct sp_ready *r)
{
    const struct sp_plan *plan = request->plan;
    int stages = plan->layout.stages, err;
    struct builder b = {.r = r, .missing = missing};

    *r = (struct sp_ready){
        .plan = plan, .messages = request->messages, .window = request->rule->window};
    err = allocate(r, (size_t)stages, (size_t)r->messages->first_op[stages]);
    if (!err) {
        bound_memory(r, request->rule);
        set_tasks(r, request->costs);
        err = build(&b);
    }
    sp_index_destroy(&b.ix);
    free(b.adder);
    if (err)
        sp_ready_destroy(r);
    return err;
}

void sp_ready_destroy(struct sp_ready *r)
{
    free(r->acquire);
    free(r->first);
    free(r->began);
    free(r->look.item);
    free(r->edge);
    *r = (struct sp_ready){0};
}

/* ---- in time --------------------------------------------------------------------------------- */

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

/* Finds the stage of an op by its number. */
static int stage_of(const struct sp_ready *r, int op)
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

/* True if at `time` all inputs of an op, or of two that overlap, are there. */
static bool is_there(struct sp_player *player, int stage, int k, double time)
{
    double start = time;

    return player->rules->wait(player, stage, k, &start) == SP_PLAYER_READY && start <= time;
}

/* Chooses the op of a stage whose next task runs at `time`, the first of two that overlap; -1:
 * none. An op that has begun already holds its memory. */
static int choose(const struct sp_ready *r, struct sp_player *player, int stage, double time)
{
    const struct sp_program *prog = &r->plan->programs[stage];
    int first = r->messages->first_op[stage], looked = 0;
    struct sp_overtaking o = sp_overtaking_begin(r->live[stage], r->bound[stage]);

    for (int k = r->first[stage], ops; k < prog->n; k += ops) {
        int64_t more = 0;

        ops = prog->ops[k].overlap ? 2 : 1;
        if (!r->tasks[first + k])
            continue;
        if (r->window && looked >= r->window)
            return -1;
        looked += ops;
        for (int i = k; i < k + ops && r->began[first + k] < 0; i++)
            more += r->acquire[first + i];
        if ((k == r->first[stage] || sp_overtaking_fits(&o, more)) &&
            is_there(player, stage, k, time))
            return k;
        sp_overtaking_pass(&o, more,
                           r->release[first + k] + (ops > 1 ? r->release[first + k + 1] : 0));
    }
    return -1;
}

/* The end of an op's next task that runs from `time` on. An op that was not overtaken ends at
 * exactly the same time as without tasks. */
static double end_of_task(struct sp_ready *r, int stage, int at, double time)
{
    if (r->running[stage] != at) {
        r->running[stage] = at;
        r->resumed[stage] = time;
        r->resumed_with[stage] = r->tasks[at];
    }
    if (r->tasks[at] == 1 && r->resumed_with[stage] == r->all_tasks[at])
        return r->began[at] + r->cost[at];
    return r->resumed[stage] +
           r->cost[at] * (r->resumed_with[stage] - r->tasks[at] + 1) / r->all_tasks[at];
}

/* Runs the next task of an op from `time` on. The player hears only of the last one. */
static void run_task(struct sp_ready *r, struct sp_player *player, int stage, int k, double time)
{
    int first = r->messages->first_op[stage], at = first + k, *next = &r->first[stage];
    int ops = r->plan->programs[stage].ops[k].overlap ? 2 : 1;
    double end;

    for (int i = at; i < at + ops && r->began[i] < 0; i++) {
        r->began[i] = time;
        r->live[stage] += r->acquire[i];
    }
    end = end_of_task(r, stage, at, time);
    if (--r->tasks[at] == 0) {
        bool whole = r->resumed_with[stage] == r->all_tasks[at];

        for (int i = at; i < at + ops; i++)
            r->live[stage] -= r->release[i];
        player->next[stage] +=
            player->rules->run(player, stage, k, whole ? r->began[at] : end - r->cost[at], &end);
        while (*next < r->plan->programs[stage].n && !r->tasks[first + *next])
            ++*next;
    }
    player->free_at[stage] = end;
    look_at(r, stage, end);
}

void sp_ready_look(struct sp_ready *r, struct sp_player *player)
{
    int stages = r->plan->layout.stages, number = sp_heap_pop(&r->look, earlier, r), stage, k;
    double time = r->look_at[number];

    stage = number < stages ? number : stage_of(r, number - stages);
    if (player->free_at[stage] > time)
        return; /* it will look when it is free */
    k = choose(r, player, stage, time);
    if (k >= 0)
        run_task(r, player, stage, k, time);
}

/* ---- the order ------------------------------------------------------------------------------- */

struct place {
    double start, end;
    int index;
    struct sp_op op;
};

static int by_start(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return x->start != y->start ? (x->start < y->start ? -1 : 1) : x->index - y->index;
}

/* Sets now_at[k] to the new index of the op at k. */
static void reorder_stage(struct sp_program *prog, double *start, double *end, struct place *place,
                          int *now_at)
{
    for (int k = 0; k < prog->n; k++)
        place[k] = (struct place){start[k], end[k], k, prog->ops[k]};
    qsort(place, (size_t)prog->n, sizeof *place, by_start);
    for (int k = 0; k < prog->n; k++) {
        now_at[place[k].index] = k;
        prog->ops[k] = place[k].op;
        start[k] = place[k].start;
        end[k] = place[k].end;
    }
}

static void renumber(struct sp_step_messages *all, const int *now_at, int ops)
{
    for (int i = 0; i < ops; i++)
        all->first_of_writer[i] = -1;
    for (int i = all->n - 1; i >= 0; i--) {
        struct sp_step_message *m = &all->message[i];

        if (m->reader >= 0)
            m->reader = now_at[all->first_op[m->to] + m->reader];
        if (m->writer >= 0) {
            int *first;

            m->writer = now_at[all->first_op[m->writer_stage] + m->writer];
            first = &all->first_of_writer[all->first_op[m->writer_stage] + m->writer];
            m->next_of_writer = *first;
            *first = i;
        }
    }
}

int sp_ready_reorder(const struct sp_ready_request *request, struct sp_times *times)
{
    struct sp_plan *plan = request->plan;
    const int *first_op = request->messages->first_op;
    int ops = first_op[plan->layout.stages];
    struct place *place = malloc(((size_t)ops + 1) * sizeof *place);
    int *now_at = malloc(((size_t)ops + 1) * sizeof *now_at);
    int err = place && now_at ? 0 : -ENOMEM;

    for (int s = 0; !err && s < plan->layout.stages; s++)
        reorder_stage(&plan->programs[s], times->start[s], times->end[s], place,
                      now_at + first_op[s]);
    if (!err) {
        renumber(request->messages, now_at, ops);
        err = sp_plan_index(plan);
    }
    free(place);
    free(now_at);
    return err;
}
