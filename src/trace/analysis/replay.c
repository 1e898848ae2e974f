#include "trace/analysis/replay.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct play {
    const struct sp_waits *w;
    const struct sp_replay *how;
    double *start, *end; /* [units] */
    double *free_at;     /* [stages] of each worker, by its first stage */
};

static bool with(const struct play *p, enum sp_part_of_step part)
{
    return p->how->with >> part & 1;
}

double sp_replay_part(const struct sp_waits *w, int op)
{
    const struct sp_unit_of_step *u = &w->unit[w->of_op[op]];

    if (u->end <= u->start)
        return 1;
    return fmax(0, fmin(1, (w->t->op[op].out - u->start) / (u->end - u->start)));
}

/* Sums the parts that the replay includes. */
static double sum_of(const struct play *p, const double parts[SP_STEP_PARTS])
{
    double sum = 0;

    for (int i = 0; i < SP_STEP_PARTS; i++)
        if (with(p, (enum sp_part_of_step)i))
            sum += parts[i];
    return sum;
}

/* When a producer has written an op's input. */
static double written(const struct play *p, const struct sp_timeline_dep *dep)
{
    int k = p->w->of_op[dep->op];
    double part = p->how->part ? p->how->part[dep->op] : sp_replay_part(p->w, dep->op);

    return dep->beside ? p->start[k] : p->start[k] + part * (p->end[k] - p->start[k]);
}

/* When the message of a unit arrives that has no op before it: weights that travel around. */
static double message_alone(const struct play *p, const struct sp_unit_of_step *u, double delay)
{
    const struct sp_timeline_message *m;

    if (u->message < 0 || u->apart)
        return 0;
    m = &p->w->t->message[u->message];
    if (m->writer < 0)
        return m->ready + delay;
    return written(p, &(struct sp_timeline_dep){.op = m->writer}) + delay;
}

/* When all inputs of a unit are there. */
static double inputs(const struct play *p, const struct sp_unit_of_step *u)
{
    const struct sp_timeline *t = p->w->t;
    double delay = sum_of(p, u->delay), last = 0;

    for (int i = u->op; i < u->op + u->ops; i++)
        for (int d = t->op[i].first_dep; d < t->op[i].first_dep + t->op[i].deps; d++) {
            int from = t->dep[d].op;
            double at;

            if (from >= u->op && from < u->op + u->ops)
                continue;
            at = written(p, &t->dep[d]);
            if (t->stage[t->op[from].stage].rank != t->stage[t->op[i].stage].rank)
                at += delay;
            last = fmax(last, at);
        }
    return fmax(last, message_alone(p, u, delay));
}

static void run(struct play *p, int k)
{
    const struct sp_unit_of_step *u = &p->w->unit[k];
    const struct sp_timeline *t = p->w->t;
    int stage = t->op[u->op].stage, lane = with(p, SP_STEP_CORE) ? t->stage[stage].lane : stage;
    double length;

    p->start[k] = fmax(p->free_at[lane], inputs(p, u));
    p->start[k] += with(p, SP_STEP_SUBMISSION) ? u->late : 0;
    p->start[k] += with(p, SP_STEP_OFFLOAD) ? u->before[SP_STEP_OFFLOAD] : 0;
    p->start[k] += with(p, SP_STEP_ENGINE) ? u->held : 0;
    length = p->how->compute ? p->how->compute[k] : u->compute;
    length += with(p, SP_STEP_CORE) ? u->core : 0;
    length += fmax(0, sum_of(p, u->inside));
    if (with(p, SP_STEP_CORE)) /* the replay lets those stages take their turns */
        length -= u->inside[SP_STEP_CORE];
    p->end[k] = p->start[k] + length;
    p->free_at[lane] = p->end[k];
}

int sp_replay(const struct sp_waits *w, const struct sp_replay *how, double *makespan)
{
    size_t units = (size_t)w->n + 1;
    double *times = calloc(2 * units + (size_t)w->t->stages, sizeof *times);
    struct play p = {.w = w, .how = how};

    if (!times)
        return -ENOMEM;
    p.start = how->start ? how->start : times;
    p.end = how->end ? how->end : times + units;
    p.free_at = times + 2 * units;
    *makespan = 0;
    for (int turn = 0; turn < w->t->n_ops; turn++) {
        int op = w->t->order[turn], k = w->of_op[op];

        if (op != w->unit[k].op)
            continue;
        run(&p, k);
        *makespan = fmax(*makespan, p.end[k]);
    }
    free(times);
    return 0;
}
