/*
 * Stages run ahead as far as messages allow. Then the message that was ready first is sent; or, if
 * messages share ports, the first of those in transit arrives if that is earlier. A message that is
 * not ready yet comes from an op that waits for one of these, so it cannot become ready before.
 */
#include "plan/simulation/simulate.h"
#include "plan/simulation/flows.h"
#include "plan/simulation/ready.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/heap.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/player.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct sim {
    const struct sp_plan *plan;
    const struct sp_costs *costs;
    const struct sp_step_messages *messages;
    const struct sp_network *network;
    const int *worker;       /* [stages] NULL: each stage has its own */
    struct sp_placed *turns; /* [ops] of each worker in turn; NULL: each stage has its own worker */
    int *first_turn;         /* [stages + 1] */
    struct sp_times t;       /* start: before an op runs, the last arrival of its messages so far */
    double *held;            /* [ops] the earliest start that EVICT and FETCH allow an op */
    struct sp_message_times when;
    unsigned short *missing; /* [ops] messages that an op waits for */
    unsigned char *after;    /* [messages] events that it still waits for: writer, message before */
    double *free_at;         /* [ports] */
    struct sp_heap heap;     /* messages that are ready, the earliest first */
    struct sp_flows flows;   /* messages in transit, if they share ports */
    int *next_move;  /* [messages] the stage's next EVICT, or FETCH; NULL: no evictions at all */
    int *first_move; /* [2 * stages] the first that has not begun: EVICT, FETCH */
    struct sp_player player;
    struct sp_ready *overtaking; /* NULL: no op overtakes another */
};

/* ---- messages -------------------------------------------------------------------------------- */

static bool earlier(const void *arg, int a, int b)
{
    const struct sim *sim = arg;

    if (sim->when.ready[a] != sim->when.ready[b])
        return sim->when.ready[a] < sim->when.ready[b];
    if (sim->messages->message[a].from != sim->messages->message[b].from)
        return sim->messages->message[a].from < sim->messages->message[b].from;
    return a < b;
}

static int lane_of(const struct sim *sim, int stage)
{
    return sim->worker ? sim->worker[stage] : stage;
}

static void send(struct sim *sim, int message);

/* The first move that has not begun of those that go in the order of the program with this one:
 * evictions of the stage, or its fetches. */
static int *first_move(const struct sim *sim, const struct sp_step_message *m)
{
    return &sim->first_move[2 * m->from + (m->kind == SP_ACTION_FETCH)];
}

/* Nothing else uses the ports of moves, so they begin as soon as their time is known. */
static void move(struct sim *sim, int message)
{
    int *first = first_move(sim, &sim->messages->message[message]);

    while (*first >= 0 && sim->after[*first] == 0) {
        int next = *first;

        *first = sim->next_move[next];
        send(sim, next);
    }
}

/* One of the events that a message follows has happened at `time`. */
static void follow(struct sim *sim, int message, double time)
{
    sim->when.ready[message] = fmax(sim->when.ready[message], time);
    if (--sim->after[message] > 0)
        return;
    if (sp_step_message_is_move(&sim->messages->message[message]))
        move(sim, message);
    else
        sp_heap_push(&sim->heap, message, earlier, sim);
}

/* How many ops begin together at index k. */
static int unit(const struct sim *sim, int stage, int k)
{
    return sim->plan->programs[stage].ops[k].overlap ? 2 : 1;
}

/* Time that the reader of a message recomputes before it needs it. Two ops that overlap both need
 * their messages at once. */
static double again(const struct sim *sim, const struct sp_step_message *m)
{
    const struct sp_op *op = &sim->plan->programs[m->to].ops[m->reader];

    if (op->overlap || (m->reader > 0 && op[-1].overlap) || m->kind != SP_ACTION_SEND)
        return 0;
    return sp_op_again(sim->plan, sim->costs, m->to, op);
}

/* The message lets its reader start at `time`, or earlier if the reader needs it only in its
 * middle. */
static void let_start(struct sim *sim, const struct sp_step_message *m, double time)
{
    int op = sim->messages->first_op[m->to] + m->reader;

    if (sp_step_message_is_move(m)) {
        for (int i = 0; i < unit(sim, m->to, m->reader); i++)
            time -= (double)m->wanted * sp_op_cost(sim->plan, sim->costs, m->to,
                                                   &sim->plan->programs[m->to].ops[m->reader + i]);
        sim->held[op] = fmax(sim->held[op], time);
    } else {
        sim->t.start[m->to][m->reader] = fmax(sim->t.start[m->to][m->reader], time - again(sim, m));
    }
}

/* One of the inputs of an op has arrived. */
static void there(struct sim *sim, int stage, int k)
{
    int op = sim->messages->first_op[stage] + k;

    if (--sim->missing[op] > 0)
        return;
    if (sim->overtaking)
        sp_ready_there(sim->overtaking, op, sim->t.start[stage][k]);
    else
        sp_player_try(&sim->player, lane_of(sim, stage));
}

/* With overtaking: an op has ended at `time`; tells the ops of its stage that wait for it. */
static void let_followers_start(struct sim *sim, int stage, int k, double time)
{
    const struct sp_ready *r = sim->overtaking;
    int first = sim->messages->first_op[stage];

    for (int e = r->follower[first + k]; e >= 0; e = r->edge[e].next) {
        double *start = &sim->t.start[stage][r->edge[e].op - first];

        *start = fmax(*start, time);
        there(sim, stage, r->edge[e].op - first);
    }
}

static void arrive(struct sim *sim, int message)
{
    const struct sp_step_messages *all = sim->messages;
    const struct sp_step_message *m = &all->message[message];

    for (int i = all->first_of_before[message]; i >= 0; i = all->message[i].next_of_before)
        follow(sim, i, sim->when.arrived[message]);
    if (m->reader < 0)
        return;
    let_start(sim, m, sim->when.arrived[message]);
    there(sim, m->to, m->reader);
}

static void send(struct sim *sim, int message)
{
    struct sp_route r = sim->network->route(sim->network->arg, &sim->messages->message[message]);
    double start = sim->when.ready[message];

    if (r.out >= 0 && sim->network->flows &&
        !sp_step_message_is_move(&sim->messages->message[message])) {
        sp_flows_begin(&sim->flows, message, r.out, r.in, r.busy, start);
        return;
    }
    if (r.out >= 0) {
        start = fmax(start, fmax(sim->free_at[r.out], sim->free_at[r.in]));
        sim->free_at[r.out] = sim->free_at[r.in] = start + r.busy;
    }
    sim->when.sent[message] = start;
    sim->when.arrived[message] = start + r.busy + r.delay;
    arrive(sim, message);
}

/* When the flow that arrives first does; INFINITY: none is in transit. */
static double first_arrival(const struct sim *sim)
{
    int flow = sp_flows_first(&sim->flows);

    return flow < 0 ? INFINITY : sim->flows.flow[flow].ends;
}

/* Sends the next message that is ready, or lets the next flow arrive; everything that follows is
 * later. Time that a flow lost by sharing its ports counts as waiting for them. */
static void pass(struct sim *sim)
{
    int flow = sp_flows_first(&sim->flows);
    double ends = first_arrival(sim);
    struct sp_route r;

    if (sim->heap.n > 0 && sim->when.ready[sim->heap.item[0]] <= ends) {
        send(sim, sp_heap_pop(&sim->heap, earlier, sim));
        return;
    }
    sp_flows_end(&sim->flows, flow);
    r = sim->network->route(sim->network->arg, &sim->messages->message[flow]);
    sim->when.sent[flow] = fmax(sim->when.ready[flow], ends - r.busy);
    sim->when.arrived[flow] = ends + r.delay;
    arrive(sim, flow);
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* Finds the stage of a worker's next turn; *k, the place among the worker's turns, becomes that in
 * the stage's program. */
static int stage_of(const struct sim *sim, int lane, int *k)
{
    const struct sp_placed *turn;

    if (!sim->turns)
        return lane;
    turn = &sim->turns[sim->first_turn[lane] + *k];
    *k = turn->index;
    return turn->stage;
}

static int wait_for(struct sp_player *player, int lane, int k, double *start)
{
    struct sim *sim = player->arg;
    int stage = stage_of(sim, lane, &k), op;
    const unsigned short *missing = &sim->missing[sim->messages->first_op[stage] + k];

    for (int i = 0; i < unit(sim, stage, k); i++) {
        if (missing[i])
            return SP_PLAYER_BLOCKED; /* the player tries again when the last of them arrives */
        *start = fmax(*start, sim->t.start[stage][k + i]);
    }
    op = sim->messages->first_op[stage] + k;
    if (sim->held[op] > *start) {
        sim->when.stall[op] = sim->held[op] - *start;
        sim->when.stalled[stage] += sim->when.stall[op];
        *start = sim->held[op];
    }
    return SP_PLAYER_READY;
}

/* When an op that runs from start to end has produced a message, or its first usable part. */
static double left_at(const struct sim *sim, const struct sp_step_message *m, double start,
                      double end)
{
    const struct sp_network *n = sim->network;

    if (m->beside)
        return start;
    if (sp_step_message_is_move(m))
        return start + (double)m->left * (end - start);
    return m->layers && n->is_shared && n->is_shared(n->arg, m) ? start + (end - start) / m->layers
                                                                : end;
}

static int run(struct sp_player *player, int lane, int k, double start, double *end)
{
    struct sim *sim = player->arg;
    const struct sp_step_messages *all = sim->messages;
    int stage = stage_of(sim, lane, &k), ops = unit(sim, stage, k);

    *end = sp_times_of_unit(sim->plan, sim->costs, &sim->t, stage, k, ops, start);
    for (int i = k; i < k + ops; i++)
        for (int m = all->first_of_writer[all->first_op[stage] + i]; m >= 0;
             m = all->message[m].next_of_writer)
            follow(sim, m, left_at(sim, &all->message[m], start, sim->t.end[stage][i]));
    for (int i = k; sim->overtaking && i < k + ops; i++) {
        sim->t.start[stage][i] = sim->overtaking->began[all->first_op[stage] + i];
        let_followers_start(sim, stage, i, *end);
    }
    return ops;
}

static const struct sp_player_rules rules = {.wait = wait_for, .run = run};

/* ---- a step ---------------------------------------------------------------------------------- */

/* Deals the ops out to the workers in the order of submission. */
static int deal(struct sim *sim)
{
    int stages = sim->plan->layout.stages, n;
    struct sp_placed *order = sp_plan_order(sim->plan, &n);

    sim->turns = calloc((size_t)sp_plan_ops(sim->plan) + 1, sizeof *sim->turns);
    sim->first_turn = calloc((size_t)stages + 1, sizeof *sim->first_turn);
    if (!order || !sim->turns || !sim->first_turn) {
        free(order);
        return -ENOMEM;
    }
    for (int s = 0; s < stages; s++)
        sim->first_turn[sim->worker[s] + 1] += sim->plan->programs[s].n;
    for (int lane = 0; lane < stages; lane++)
        sim->first_turn[lane + 1] += sim->first_turn[lane];
    for (int i = 0; i < n; i++) {
        int lane = sim->worker[order[i].stage];

        sim->turns[sim->first_turn[lane] + sim->player.ops[lane]++] = order[i];
    }
    free(order);
    return 0;
}

/* Lists the moves of each stage. */
static int list_moves(struct sim *sim)
{
    const struct sp_step_messages *all = sim->messages;
    int stages = sim->plan->layout.stages;

    if (!sim->plan->evictions)
        return 0;
    sim->next_move = calloc((size_t)(all->n + 2 * stages), sizeof *sim->next_move);
    if (!sim->next_move)
        return -ENOMEM;
    sim->first_move = sim->next_move + all->n;
    for (int i = 0; i < 2 * stages; i++)
        sim->first_move[i] = -1;
    for (int i = all->n - 1; i >= 0; i--) {
        const struct sp_step_message *m = &all->message[i];

        if (!sp_step_message_is_move(m))
            continue;
        sim->next_move[i] = *first_move(sim, m);
        *first_move(sim, m) = i;
    }
    return 0;
}

static int create(struct sim *sim)
{
    const struct sp_step_messages *all = sim->messages;
    int stages = sim->plan->layout.stages, err = sp_times_create(sim->plan, &sim->t);
    size_t n = (size_t)all->n + 1;

    err = err ? err : sp_player_create(&rules, sim, stages, 1, &sim->player);
    sim->missing = calloc((size_t)all->first_op[stages] + 1, sizeof *sim->missing);
    sim->after = calloc(n, sizeof *sim->after);
    sim->heap.item = calloc(n, sizeof *sim->heap.item);
    sim->when.sent = calloc(3 * n + (size_t)(all->first_op[stages] + stages), sizeof(double));
    sim->free_at = calloc((size_t)sim->network->ports + 1, sizeof *sim->free_at);
    sim->held = calloc((size_t)all->first_op[stages] + 1, sizeof *sim->held);
    if (err || !sim->missing || !sim->after || !sim->heap.item || !sim->when.sent ||
        !sim->free_at || !sim->held)
        return -ENOMEM;
    sim->when.arrived = sim->when.sent + n;
    sim->when.ready = sim->when.arrived + n;
    sim->when.stalled = sim->when.ready + n;
    sim->when.stall = sim->when.stalled + stages;
    for (int s = 0; !sim->worker && s < stages; s++)
        sim->player.ops[s] = sim->plan->programs[s].n;
    for (int i = 0; i < all->n; i++) {
        const struct sp_step_message *m = &all->message[i];

        sim->t.messages += sp_step_message_is_sent(m);
        sim->after[i] = (unsigned char)((m->writer >= 0) + (m->before >= 0));
        if (m->reader >= 0)
            sim->missing[all->first_op[m->to] + m->reader]++;
        if (!sim->after[i])
            sp_heap_push(&sim->heap, i, earlier, sim);
    }
    err = list_moves(sim);
    if (!err && sim->network->flows)
        err = sp_flows_create(&sim->flows, sim->network->ports, all->n);
    return !err && sim->worker ? deal(sim) : err;
}

static void destroy(struct sim *sim)
{
    sp_player_destroy(&sim->player);
    sp_times_destroy(&sim->t);
    sp_flows_destroy(&sim->flows);
    free(sim->turns);
    free(sim->first_turn);
    free(sim->missing);
    free(sim->after);
    free(sim->heap.item);
    sp_message_times_destroy(&sim->when);
    free(sim->free_at);
    free(sim->held);
    free(sim->next_move);
}

/* Hands the times over to the caller, unless there was an error. */
static int finish(struct sim *sim, int err, struct sp_times *times, struct sp_message_times *when)
{
    if (!err) {
        sp_times_summarize(sim->plan, sim->costs, &sim->t);
        *times = sim->t;
        sim->t = (struct sp_times){0};
    }
    if (!err && when) {
        *when = sim->when;
        sim->when = (struct sp_message_times){0};
    }
    destroy(sim);
    return err;
}

int sp_simulate(const struct sp_simulated_step *step, struct sp_times *times,
                struct sp_message_times *when)
{
    struct sim sim = {.plan = step->plan,
                      .costs = step->costs,
                      .messages = step->messages,
                      .network = step->network,
                      .worker = step->worker};
    int err = create(&sim);
    bool finished = !err && sp_player_play(&sim.player);

    while (!err && (sim.heap.n > 0 || sp_flows_first(&sim.flows) >= 0)) {
        pass(&sim);
        finished = sp_player_go_on(&sim.player);
    }
    if (!err && !finished)
        err = -EDEADLK;
    return finish(&sim, err, times, when);
}

/* When the next message is sent, or arrives if messages share ports. */
static double next_message(const struct sim *sim)
{
    double ends = first_arrival(sim);

    return sim->heap.n > 0 ? fmin(sim->when.ready[sim->heap.item[0]], ends) : ends;
}

/* Advances through time: messages first, then stages that look for an op. True: all ops ran. */
static bool play_ready(struct sim *sim)
{
    int to_go = sp_plan_ops(sim->plan);

    sp_ready_begin(sim->overtaking);
    for (;;) {
        double message = next_message(sim), stage = sp_ready_next(sim->overtaking);

        if (isinf(message) && isinf(stage))
            break;
        if (message <= stage)
            pass(sim);
        else
            sp_ready_look(sim->overtaking, &sim->player);
    }
    for (int s = 0; s < sim->plan->layout.stages; s++)
        to_go -= sim->player.next[s];
    return to_go == 0;
}

int sp_simulate_ready(const struct sp_ready_request *request, struct sp_times *times,
                      struct sp_message_times *when)
{
    struct sim sim = {.plan = request->plan,
                      .costs = request->costs,
                      .messages = request->messages,
                      .network = request->network};
    struct sp_ready ready = {0};
    int err = create(&sim);

    err = err ? err : sp_ready_create(request, sim.missing, &ready);
    sim.overtaking = &ready;
    if (!err && !play_ready(&sim))
        err = -EDEADLK;
    err = err ? err : sp_ready_reorder(request, &sim.t);
    sp_ready_destroy(&ready);
    return finish(&sim, err, times, when);
}

void sp_message_times_destroy(struct sp_message_times *when)
{
    free(when->sent);
    *when = (struct sp_message_times){0};
}
