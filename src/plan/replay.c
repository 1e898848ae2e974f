#include "plan/replay.h"
#include "policies/simulation/index.h"
#include "policies/simulation/player.h"
#include "policies/simulation/times.h"
#include "policies/simulation/merge.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* A lane of the player is a worker, its ops those of its stages in the order of submission. */
struct replayed {
    const struct sp_plan *plan;
    const struct sp_replay *replay;
    struct sp_index ix;
    struct sp_times t;
    const struct sp_placed *order;
    int *turns;  /* [ops] places in the order, lane after lane */
    int *first;  /* [stages + 1] the first of a lane's */
    int *ran;    /* [stages] ops of a stage */
    double *out; /* [ids] when others have what they wait for */
    struct sp_player player;
};

static int id_of(const struct replayed *r, int stage, int index)
{
    return r->plan->family->id(&r->plan->layout, stage, &r->plan->programs[stage].ops[index]);
}

static int lane_of(const struct replayed *r, int stage)
{
    return r->replay->worker ? r->replay->worker[stage] : stage;
}

static const struct sp_placed *turn(const struct replayed *r, int lane, int at)
{
    return &r->order[r->turns[r->first[lane] + at]];
}

static int ops_of(const struct replayed *r, const struct sp_placed *turn)
{
    return r->plan->programs[turn->stage].ops[turn->index].overlap ? 2 : 1;
}

/* When what one op waits for is there, or for which op it waits. */
static int wait_for_op(const struct replayed *r, int stage, int index, double *start)
{
    const double *delay = r->replay->delay;
    struct sp_dep deps[SP_MAX_DEPS];
    int n = sp_run_deps(r->plan, stage, &r->plan->programs[stage].ops[index], deps);

    for (int i = 0; i < n; i++) {
        int at = sp_index_place(&r->ix, r->plan, &deps[i]), id;
        double sent;

        if (at < 0)
            continue;
        id = id_of(r, deps[i].stage, at);
        if (at >= r->ran[deps[i].stage])
            return id;
        sent = deps[i].beside ? r->t.start[deps[i].stage][at] : r->out[id];
        if (delay && r->replay->process[deps[i].stage] != r->replay->process[stage])
            sent += delay[id_of(r, stage, index)];
        *start = fmax(*start, sent);
    }
    return SP_PLAYER_READY;
}

static int wait_for(struct sp_player *player, int lane, int at, double *start)
{
    const struct replayed *r = player->arg;
    const struct sp_placed *next = turn(r, lane, at);
    int event = SP_PLAYER_READY;

    for (int i = 0; i < ops_of(r, next) && event == SP_PLAYER_READY; i++)
        event = wait_for_op(r, next->stage, next->index + i, start);
    return event;
}

static int run(struct sp_player *player, int lane, int at, double start, double *end)
{
    struct replayed *r = player->arg;
    const struct sp_placed *next = turn(r, lane, at);
    int ops = ops_of(r, next), stage = next->stage;

    *end = start;
    for (int i = next->index; i < next->index + ops; i++)
        *end += r->replay->ms[id_of(r, stage, i)];
    for (int i = next->index; i < next->index + ops; i++) {
        int id = id_of(r, stage, i);

        r->t.start[stage][i] = start;
        r->t.end[stage][i] = *end;
        r->out[id] = start + (r->replay->part ? r->replay->part[id] : 1) * (*end - start);
        r->ran[stage]++;
        sp_player_wake(player, id);
    }
    return ops;
}

static const struct sp_player_rules rules = {.wait = wait_for, .run = run};

/* Deals the n ops out to the lanes. */
static int deal(struct replayed *r, int n)
{
    int stages = r->plan->layout.stages, err;

    r->turns = calloc((size_t)n + 1, sizeof *r->turns);
    r->first = calloc(2 * (size_t)stages + 1, sizeof *r->first);
    r->out = calloc((size_t)r->ix.ids, sizeof *r->out);
    if (!r->turns || !r->first || !r->out)
        return -ENOMEM;
    err = sp_player_create(&rules, r, stages, r->ix.ids, &r->player);
    if (err)
        return err;
    r->ran = r->first + stages + 1;
    for (int k = 0; k < n; k++)
        r->first[lane_of(r, r->order[k].stage) + 1]++;
    for (int lane = 0; lane < stages; lane++)
        r->first[lane + 1] += r->first[lane];
    for (int k = 0; k < n; k++) {
        int lane = lane_of(r, r->order[k].stage);

        r->turns[r->first[lane] + r->player.ops[lane]++] = k;
    }
    return 0;
}

int sp_replay_times(const struct sp_plan *plan, const struct sp_replay *replay,
                    struct sp_times *times)
{
    struct sp_costs costs = {.by_op = replay->ms};
    struct replayed r = {.plan = plan, .replay = replay};
    int n = 0, stage, index, err;
    struct sp_placed *order = sp_plan_order(plan, &n);

    r.order = order;
    err = order ? sp_index_create(plan, &r.ix, &stage, &index) : -EDEADLK;
    err = err ? err : sp_times_create(plan, &r.t);
    err = err ? err : deal(&r, n);
    if (!err && !sp_player_play(&r.player))
        err = -EDEADLK;
    if (!err) {
        sp_times_summarize(plan, &costs, &r.t);
        *times = r.t;
        r.t = (struct sp_times){0};
    }
    sp_player_destroy(&r.player);
    sp_times_destroy(&r.t);
    sp_index_destroy(&r.ix);
    free(r.turns);
    free(r.first);
    free(r.out);
    free(order);
    return err;
}
