#include "policies/families/families.h"
#include "policies/families/vocabulary/vocabulary.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include "policies/simulation/verify.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Message costs, in forwards, for which orders are made. An order in which all stages wait for all
 * a few times a micro-batch loses with slow messages what it gained without, unless it leaves time
 * for them. Orders of little memory, which go down and up the stages, leave none. */
static const double comms[] = {0, 0.05};

/* Whatever the model, the head costs a quarter of a stage's forward and backward, and messages cost
 * `comm` forwards. If ops are parts of layers, these cost what `show` assumes. */
static struct sp_costs nominal(const struct sp_plan *plan, double comm)
{
    struct sp_costs costs = sp_costs_unit;
    double layers = (double)plan->layout.layers / plan->layout.stages;
    double forward = plan->family->facts.parts
                         ? layers * (costs.parts.pre + costs.parts.attn + costs.parts.post)
                         : costs.f;

    costs.head = 0.75 * forward;
    costs.comm = comm * forward;
    return costs;
}

enum { FAST = 3 }; /* hundredths of a forward that a message takes on a fast network */

/* In micro-batches: as many as there are barriers between a forward and its backward. */
enum { MOST_AHEAD = 2 };

/* An order and its times at nominal costs: of the step, and of one more micro-batch per stage in
 * the middle. With many micro-batches only the latter counts. */
struct candidate {
    struct sp_program *programs; /* [stages] */
    double makespan, more;       /* INFINITY: there is none */
};

/* The end of the i-th backward that begins with the head's gradient. */
static double end_of(const struct sp_plan *plan, const struct candidate *c,
                     const struct sp_times *t, int i)
{
    int root = sp_vocabulary_root(&plan->layout), k = 0;
    const struct sp_program *prog = &c->programs[root];

    for (int n = 0; n <= i && k < prog->n; k++)
        n += prog->ops[k].pass == SP_B && sp_vocabulary_is_last(&plan->layout, root, &prog->ops[k]);
    return t->end[root][k - 1];
}

/* 0 if a step has no middle. */
static double more_of(const struct sp_plan *plan, const struct candidate *c,
                      const struct sp_times *t)
{
    const struct sp_layout *lay = &plan->layout;
    int units = lay->micro_batches * lay->slices, more = lay->stages * lay->slices;

    if (units < 4 * more)
        return 0;
    return end_of(plan, c, t, units / 2 + more) - end_of(plan, c, t, units / 2);
}

static bool is_better(const struct candidate *a, const struct candidate *b)
{
    if (isinf(a->makespan) || isinf(b->makespan) || fabs(a->more - b->more) <= 1e-3 * a->more)
        return a->makespan < (1 - 1e-6) * b->makespan;
    return a->more < b->more;
}

/* Makes an order for messages that cost `comm`. 0 or -ENOMEM. */
static int try_order(const struct sp_plan *plan, struct sp_insertion *w, int ahead, double comm,
                     struct candidate *c)
{
    struct sp_plan inserted = *plan;
    struct sp_costs costs = nominal(plan, comm), fast = nominal(plan, FAST / 100.0);
    char why[256];
    struct sp_times t;
    double held;
    int err;

    c->makespan = INFINITY;
    if (!sp_insertion(w, &costs, ahead, c->programs))
        return 0;
    inserted.programs = c->programs;
    err =
        sp_listsim(&inserted, &fast, plan->paired ? SP_PAIRED : SP_UNBOUNDED, &t, why, sizeof why);
    if (err)
        return err == -ENOMEM ? err : 0;
    if (sp_times_beyond_memory(plan, &t, &held) < 0) {
        c->makespan = t.makespan;
        c->more = more_of(plan, c, &t);
    }
    sp_times_destroy(&t);
    return 0;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate was = *a;

    *a = *b;
    *b = was;
}

/* Leaves the fastest order with k micro-batches ahead in best[k]; `spare` receives the slower
 * ones. */
static int try_orders(const struct sp_plan *plan, struct candidate best[MOST_AHEAD + 1],
                      struct candidate *spare)
{
    struct sp_insertion *w = sp_insertion_create(plan);
    int err = w ? 0 : -ENOMEM;

    for (int k = 0; k <= MOST_AHEAD; k++) {
        best[k].makespan = INFINITY;
        for (size_t i = 0;
             !err && (k == 0 || !plan->family->facts.parts) && i < sizeof comms / sizeof *comms;
             i++) {
            err = try_order(plan, w, k, comms[i], spare);
            if (is_better(spare, &best[k]))
                swap(spare, &best[k]);
        }
    }
    sp_insertion_destroy(w);
    return err;
}

/* The fastest order; of equals, the one with fewest micro-batches ahead; -1: there is none. */
static int choose(const struct candidate all[MOST_AHEAD + 1])
{
    int best = 0;

    for (int k = 1; k <= MOST_AHEAD; k++)
        if (is_better(&all[k], &all[best]))
            best = k;
    return isinf(all[best].makespan) ? -1 : best;
}

/* Verifies the programs as a schedule of the base family; the verifier says what is wrong. */
static int verify_chunks(struct sp_plan *plan, char *why, size_t n)
{
    const struct sp_family *family = plan->family;
    int err;

    plan->family = sp_vocabulary_base(&plan->layout);
    err = sp_plan_index(plan);
    err = err ? err : sp_verify(plan, why, n);
    plan->family = family;
    return err ? err : sp_plan_index(plan);
}

static int choose_order(struct sp_plan *plan, struct candidate all[MOST_AHEAD + 2], char *why,
                        size_t n)
{
    int err = try_orders(plan, all, &all[MOST_AHEAD + 1]), at;

    if (err)
        return err;
    at = choose(all);
    if (at < 0) {
        snprintf(why, n,
                 "the head's ops find no place in this order; leave out "
                 "--vocabulary-parallel");
        return -EINVAL;
    }
    for (int s = 0; s < plan->layout.stages; s++) {
        struct sp_program without = plan->programs[s];

        plan->programs[s] = all[at].programs[s];
        all[at].programs[s] = without;
    }
    return 0;
}

int sp_vocabulary_insert_ops(struct sp_plan *plan, char *why, size_t n)
{
    size_t stages = (size_t)plan->layout.stages;
    struct candidate all[MOST_AHEAD + 2];
    int err = verify_chunks(plan, why, n);

    for (int k = 0; k < MOST_AHEAD + 2; k++) {
        all[k] = (struct candidate){.programs = calloc(stages, sizeof *all[k].programs)};
        err = all[k].programs ? err : -ENOMEM;
    }
    err = err ? err : choose_order(plan, all, why, n);
    for (int k = 0; k < MOST_AHEAD + 2; k++)
        sp_programs_destroy(all[k].programs, plan->layout.stages);
    return err;
}
