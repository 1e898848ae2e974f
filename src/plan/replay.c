#include "plan/replay.h"
#include "policies/simulation/index.h"
#include "policies/simulation/times.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct player {
    const struct sp_plan *plan;
    const struct sp_replay *replay;
    struct sp_index ix;
    struct sp_times t;
    double *out;     /* [ids] when others have what they wait for */
    double *free_at; /* [stages] of the worker with that number */
};

static int id_of(const struct player *p, int stage, int index)
{
    return p->plan->family->id(&p->plan->layout, stage, &p->plan->programs[stage].ops[index]);
}

/* When what an op waits for is there, not before `from`. */
static double ready(const struct player *p, int stage, int index, double from)
{
    const struct sp_replay *r = p->replay;
    struct sp_dep deps[SP_MAX_DEPS];
    int n = sp_run_deps(p->plan, stage, &p->plan->programs[stage].ops[index], deps);

    for (int i = 0; i < n; i++) {
        int at = sp_index_place(&p->ix, p->plan, &deps[i]), id;
        double sent;

        if (at < 0)
            continue;
        id = id_of(p, deps[i].stage, at);
        sent = deps[i].beside ? p->t.start[deps[i].stage][at] : p->out[id];
        if (r->delay && r->process[deps[i].stage] != r->process[stage])
            sent += r->delay[id_of(p, stage, index)];
        from = fmax(from, sent);
    }
    return from;
}

/* The `ops` ops at `index` together: one, or two that overlap. */
static void play(struct player *p, int stage, int index, int ops)
{
    const struct sp_replay *r = p->replay;
    double *free_at = &p->free_at[r->worker ? r->worker[stage] : stage];
    double start = *free_at, end;

    for (int i = index; i < index + ops; i++)
        start = ready(p, stage, i, start);
    end = start;
    for (int i = index; i < index + ops; i++)
        end += r->ms[id_of(p, stage, i)];
    for (int i = index; i < index + ops; i++) {
        int id = id_of(p, stage, i);

        p->t.start[stage][i] = start;
        p->t.end[stage][i] = end;
        p->out[id] = start + (r->part ? r->part[id] : 1) * (end - start);
    }
    *free_at = end;
}

int sp_replay_times(const struct sp_plan *plan, const struct sp_replay *replay,
                    struct sp_times *times)
{
    struct sp_costs costs = {.by_op = replay->ms};
    struct player p = {.plan = plan, .replay = replay};
    int n = 0, ops, stage, index, err;
    struct sp_placed *order = sp_plan_order(plan, &n);

    p.free_at = calloc((size_t)plan->layout.stages, sizeof *p.free_at);
    p.out = calloc((size_t)plan->family->ids(&plan->layout), sizeof *p.out);
    err = order ? sp_index_create(plan, &p.ix, &stage, &index) : -EDEADLK;
    err = err ? err : sp_times_create(plan, &p.t);
    err = err || (p.free_at && p.out) ? err : -ENOMEM;
    for (int k = 0; !err && k < n; k += ops) {
        ops = plan->programs[order[k].stage].ops[order[k].index].overlap ? 2 : 1;
        play(&p, order[k].stage, order[k].index, ops);
    }
    if (!err) {
        sp_times_summarize(plan, &costs, &p.t);
        *times = p.t;
        p.t = (struct sp_times){0};
    }
    sp_times_destroy(&p.t);
    sp_index_destroy(&p.ix);
    free(p.free_at);
    free(p.out);
    free(order);
    return err;
}
