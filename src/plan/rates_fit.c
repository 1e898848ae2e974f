#include "plan/rates_fit.h"
#include "plan/cost/part_times.h"
#include "plan/memory.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static const double PULL = 0.01;
static const double farthest = 16; /* bound on a kind's factor relative to that of all ops */

/* Groups of equal weight: the ops of each pass, and the updates. */
enum { UPDATES = SP_PASSES, GROUPS };

/* Sums over the ops or updates of a group: products of two kinds' shares, shares, their number. */
struct group {
    double cross[SP_FIT_KINDS][SP_FIT_KINDS], share[SP_FIT_KINDS];
    int n;
};

struct fitting {
    const struct sp_plan *plan;
    const struct sp_shape *sh;
    struct sp_op_terms terms;
    struct sp_machine slow;     /* the machine with one kind of calls twice as slow */
    double *by_op;              /* predicted */
    double *kind[SP_FIT_KINDS]; /* the part of each kind in that */
    double *tasks;              /* the part of the runtime */
    struct group group[GROUPS];
    double measured, predicted; /* of all */
};

/* ---- machines -------------------------------------------------------------------------------- */

static void slow_curve(struct sp_curve *c, double factor)
{
    for (int i = 0; i < c->n; i++)
        c->at[i].rate /= factor;
}

static void slow_rates(struct sp_rates *r, enum sp_fit_kind kind, double factor)
{
    int pass = kind == SP_FIT_ATTENTION_BACKWARD ? SP_ATTENTION_BACKWARD : SP_ATTENTION_FORWARD;

    for (int t = 0; t < SP_DTYPES && kind == SP_FIT_PRODUCTS; t++)
        slow_curve(&r->matmul[t], factor);
    for (int t = 0; t < SP_ELEMENTS && kind != SP_FIT_PRODUCTS; t++) {
        if (kind == SP_FIT_MEMORY) {
            slow_curve(&r->memory[t], factor);
        } else {
            slow_curve(&r->attention[t][pass], factor);
            slow_curve(&r->pairs[t][pass], factor);
        }
    }
}

void sp_rates_apply(const struct sp_fit *fit, struct sp_machine *m)
{
    for (int i = -1; i < m->teams; i++) {
        struct sp_rates *r = i < 0 ? &m->rates : &m->team[i];

        for (int kind = 0; kind < SP_FIT_KINDS; kind++)
            slow_rates(r, (enum sp_fit_kind)kind, fit->factor[kind]);
        r->launch_s *= fit->launch;
    }
}

/* ---- predictions by kind --------------------------------------------------------------------- */

/* The time that f->slow adds to every op. It makes one kind twice as slow, so this is the kind's
 * time. */
static double *added(const struct fitting *f)
{
    struct sp_op_terms slow = f->terms;
    double *ms;

    slow.machine = &f->slow;
    ms = sp_op_times_alone(f->plan, f->sh, &slow);
    for (int i = 0; ms && i < f->plan->family->ids(&f->plan->layout); i++)
        ms[i] -= f->by_op[i];
    return ms;
}

static int predict(struct fitting *f)
{
    const struct sp_machine *machine = f->terms.machine;
    bool known;

    f->by_op = sp_op_times_alone(f->plan, f->sh, &f->terms);
    known = f->by_op;
    for (int kind = 0; known && kind < SP_FIT_KINDS; kind++) {
        f->slow = *machine;
        slow_rates(&f->slow.rates, (enum sp_fit_kind)kind, 2);
        f->kind[kind] = added(f);
        known = f->kind[kind];
    }
    f->slow = *machine;
    f->slow.rates.launch_s *= 2;
    f->tasks = known ? added(f) : NULL;
    return f->tasks ? 0 : -ENOMEM;
}

/* ---- the factors ----------------------------------------------------------------------------- */

static void add_row(struct fitting *f, struct group *g, const double ms[SP_FIT_KINDS],
                    double measured)
{
    double sum = 0;

    for (int k = 0; k < SP_FIT_KINDS; k++)
        sum += ms[k];
    if (measured <= 0 || sum <= 0)
        return;
    for (int k = 0; k < SP_FIT_KINDS; k++) {
        g->share[k] += ms[k] / measured;
        for (int j = 0; j < SP_FIT_KINDS; j++)
            g->cross[k][j] += ms[k] / measured * ms[j] / measured;
    }
    g->n++;
    f->measured += measured;
    f->predicted += sum;
}

static void add_ops(struct fitting *f, const struct sp_fit_measured *measured)
{
    const struct sp_layout *lay = &f->plan->layout;

    for (int s = 0; s < lay->stages; s++)
        for (int i = 0; i < f->plan->programs[s].n; i++) {
            const struct sp_op *op = &f->plan->programs[s].ops[i];
            int id = f->plan->family->id(lay, s, op);
            double ms[SP_FIT_KINDS];

            for (int k = 0; k < SP_FIT_KINDS; k++)
                ms[k] = f->kind[k][id];
            add_row(f, &f->group[op->pass], ms, measured->busy[id]);
        }
}

/* Updates are passes over memory, between tasks that wait for all others. */
static void add_updates(struct fitting *f, const struct sp_fit_measured *measured)
{
    if (f->plan->updates_on_cores) /* other memory */
        return;
    for (int s = 0; s < f->plan->layout.stages && !f->plan->family->facts.stashes; s++) {
        double elements = (double)sp_memory_updated(f->plan, f->sh, s) / f->terms.devices;
        double task_s = 2 * f->terms.machine->rates.launch_s;
        double ms[SP_FIT_KINDS] = {0};

        ms[SP_FIT_MEMORY] = 1e3 * (sp_update_time(f->terms.machine, elements) - task_s);
        add_row(f, &f->group[UPDATES], ms, measured->update[s]);
    }
}

/* Minimises a quadratic form in few variables by each factor in turn, within its bounds. */
static void minimise(const struct fitting *f, double factor[SP_FIT_KINDS])
{
    const double all = f->measured / f->predicted;
    double a[SP_FIT_KINDS][SP_FIT_KINDS] = {{0}}, b[SP_FIT_KINDS];

    for (int k = 0; k < SP_FIT_KINDS; k++) {
        factor[k] = all;
        a[k][k] = PULL / (all * all);
        b[k] = PULL / all;
        for (int g = 0; g < GROUPS; g++) {
            int n = f->group[g].n > 0 ? f->group[g].n : 1;

            b[k] += f->group[g].share[k] / n;
            for (int j = 0; j < SP_FIT_KINDS; j++)
                a[k][j] += f->group[g].cross[k][j] / n;
        }
    }
    for (int turn = 0; turn < 1000; turn++)
        for (int k = 0; k < SP_FIT_KINDS; k++) {
            double rest = b[k];

            for (int j = 0; j < SP_FIT_KINDS; j++)
                rest -= j == k ? 0 : a[k][j] * factor[j];
            factor[k] = fmin(all * farthest, fmax(all / farthest, rest / a[k][k]));
        }
}

/* Fits the cost of a task to the gaps: n tasks have n - 1 gaps between them. */
static double find_launch(const struct fitting *f, const struct sp_fit_measured *measured)
{
    const struct sp_layout *lay = &f->plan->layout;
    double task_ms = 1e3 * f->terms.machine->rates.launch_s, gaps = 0, expected = 0;

    for (int s = 0; s < lay->stages && measured->counts_gaps && task_ms > 0; s++)
        for (int i = 0; i < f->plan->programs[s].n; i++) {
            int id = f->plan->family->id(lay, s, &f->plan->programs[s].ops[i]);

            if (measured->busy[id] <= 0 || f->tasks[id] < 1.5 * task_ms)
                continue;
            gaps += measured->gaps[id];
            expected += f->tasks[id] - task_ms;
        }
    return gaps > 0 && expected > 0 ? gaps / expected : 1;
}

int sp_rates_fit(const struct sp_plan *plan, const struct sp_shape *sh,
                 const struct sp_op_terms *terms, const struct sp_fit_measured *measured,
                 struct sp_fit *fit)
{
    struct fitting *f = calloc(1, sizeof *f); /* machines are large */
    int err;

    if (!f)
        return -ENOMEM;
    *f = (struct fitting){.plan = plan, .sh = sh, .terms = *terms};
    err = predict(f);
    if (!err) {
        add_ops(f, measured);
        add_updates(f, measured);
        err = f->predicted > 0 ? 0 : -EINVAL;
    }
    if (!err) {
        minimise(f, fit->factor);
        fit->launch = find_launch(f, measured);
    }
    free(f->by_op);
    free(f->tasks);
    for (int kind = 0; kind < SP_FIT_KINDS; kind++)
        free(f->kind[kind]);
    free(f);
    return err;
}
