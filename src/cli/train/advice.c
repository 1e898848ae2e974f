/* Each piece of advice comes with a factor, how much faster a step would be; only the largest is
 * given. */
#include "cli/train/train.h"
#include "plan/expected.h"
#include "policies/families/family.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "sp_error.h"
#include "sp_text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SP_WHAT = 320,
    MOST_OPS = 100000 /* at most, for another play to be worth its time */
};

static const double LEAST = 1.1;        /* the least factor worth mentioning */
static const double CROWDED = 0.2;      /* waits for cores, relative to what ops compute */
static const double NEAR_ENOUGH = 0.15; /* of a step: how close a play must come to it */

/* ---- other layouts -------------------------------------------------------------------------- */

/* The usual time of each kind of op when it has a core. 0 or -ENOMEM. */
static int usual_costs(const struct sp_trainer *t, const struct sp_report *r,
                       struct sp_costs *costs)
{
    struct sp_step_report usual;
    struct sp_timeline order;
    int err = sp_causes_expected(&r->waits, &order);

    if (err)
        return err;
    err = sp_step_report_create(&t->graph, &usual);
    for (int s = 0; !err && s < order.stages; s++)
        for (int i = order.first_op[s]; i < order.first_op[s + 1]; i++)
            usual.stages[s].ops[i - order.first_op[s]].busy_us =
                1e3 * (order.op[i].end - order.op[i].start);
    err = err ? err : sp_expected_costs(&t->plan, &usual, costs);
    sp_step_report_destroy(&t->graph, &usual);
    sp_timeline_destroy(&order);
    return err;
}

/* Adapts the measured costs to another number of stages, which share the layers equally. */
static void spread_costs(struct sp_costs *costs, int globals, double factor)
{
    double *const scale[] = {(double *)costs->scale_f, (double *)costs->scale_b,
                             (double *)costs->scale_w};

    for (int i = 0; i < 3; i++) {
        double sum = 0;

        for (int g = 0; g < globals; g++)
            sum += scale[i][g];
        for (int g = 0; g < globals; g++)
            scale[i][g] = factor * sum / globals;
    }
}

static double makespan_of(const struct sp_trainer *t, struct sp_layout *lay,
                          const struct sp_costs *costs)
{
    char name[512], why[256];
    struct sp_plan plan;
    struct sp_times times;
    double ms = -1;

    snprintf(name, sizeof name, "%s%s%s", t->plan.def->name, t->plan.options[0] ? ":" : "",
             t->plan.options);
    lay->costs = costs;
    if (sp_plan_create(name, lay, &plan))
        return -1;
    if (!sp_listsim(&plan, costs, SP_UNBOUNDED, &times, why, sizeof why)) {
        ms = times.makespan;
        sp_times_destroy(&times);
    }
    sp_plan_destroy(&plan);
    return ms;
}

/* Time from the first op to the last in this layout, if only its order took time; -1: not known. */
static double play_layout(const struct sp_trainer *t, const struct sp_report *r, int stages,
                          int micro_batches)
{
    const struct sp_layout *now = &t->plan.layout;
    struct sp_layout lay = *now;
    struct sp_costs costs;
    bool quiet = sp_error_quiet(true); /* a layout that is refused is no error here */
    double ms = -1;

    lay.stages = stages;
    lay.micro_batches = micro_batches;
    if (!usual_costs(t, r, &costs)) {
        if (stages != now->stages)
            spread_costs(&costs, sp_globals(now), (double)now->stages / stages);
        ms = makespan_of(t, &lay, &costs);
        sp_expected_costs_free(&costs);
    }
    sp_error_quiet(quiet);
    return ms;
}

/* Other programs use the cores, so ops take much longer; they would in another layout too. */
static bool is_crowded(const struct sp_waits *w)
{
    double compute = 0, core = 0;

    for (int k = 0; k < w->n; k++) {
        compute += w->unit[k].compute;
        core += w->unit[k].core;
    }
    return core > CROWDED * compute;
}

static bool is_even(const struct sp_trainer *t)
{
    return !strcmp(t->cfg.partition, "even");
}

/* sp_expected_costs adds up ops of whole chunks that lie where the plan says. */
static bool has_costs_by_chunk(const struct sp_family *f)
{
    return !f->facts.names_global && !f->facts.one_line && !f->facts.parts && !f->facts.sharded &&
           !f->facts.stashes;
}

/* Plays are trusted only if a play of the run's own layout takes as long as was measured. */
static bool plays_are_right(const struct sp_trainer *t, const struct sp_report *r)
{
    const struct sp_layout *lay = &t->plan.layout;
    double order = r->causes.ms[SP_CAUSE_SCHEDULE], played;

    if (!has_costs_by_chunk(t->plan.family) || is_crowded(&r->waits) || r->t->overlaps ||
        sp_layout_flag(lay, "auto") || sp_train_offloads(t) || sp_plan_ops(&t->plan) > MOST_OPS)
        return false;
    played = play_layout(t, r, lay->stages, lay->micro_batches);
    return played > 0 && fabs(played - order) <= NEAR_ENOUGH * r->t->length;
}

/* Fewer stages save neither the runtime's share of the step nor the time after the last op. */
static double advise_stages(const struct sp_trainer *t, const struct sp_report *r, char *text)
{
    const struct sp_placement *place = &t->place;
    int stages = t->plan.layout.stages, workers = place->workers;
    double ms, factor;

    if (t->world.size > 1 || place->gpus || workers >= stages || !is_even(t))
        return 0;
    ms = play_layout(t, r, workers, t->plan.layout.micro_batches);
    ms = ms > 0
             ? ms + r->causes.ms[SP_CAUSE_RUNTIME] + fmax(0, r->t->length - r->causes.measured_ms)
             : INFINITY;
    factor = r->t->length / ms;
    snprintf(text, SP_ADVICE, "%s share %s: %d would be %.1f times as fast (--stages %d)",
             SP_COUNT(stages, "stage"), SP_COUNT((long)workers * place->threads, "core"), workers,
             factor, workers);
    return factor;
}

/* Doubles the micro-batches: everything but the order then takes twice as long. */
static double advise_micro_batches(const struct sp_trainer *t, const struct sp_report *r,
                                   char *text)
{
    const struct sp_layout *lay = &t->plan.layout;
    const struct sp_causes *c = &r->causes;
    double order = c->ms[SP_CAUSE_SCHEDULE], end = fmax(0, r->t->length - c->measured_ms);
    double ms = lay->stages > 1 ? play_layout(t, r, lay->stages, 2 * lay->micro_batches) : 0;
    double factor = ms > 0 ? 2 * r->t->length / (ms + 2 * (c->measured_ms - order) + end) : 0;

    snprintf(text, SP_ADVICE,
             "with %d micro-batches %s itself is idle %.0f %% of the time: twice as many "
             "(--micro-batches %d) would train %.1f times as many tokens a second",
             lay->micro_batches, t->plan.def->name, 100 * c->bubble[SP_CAUSE_SCHEDULE],
             2 * lay->micro_batches, factor);
    return factor;
}

/* ---- the step without its main cause of delay ------------------------------------------------ */

/* Puts a finding in words, with its remedy ("" if there is none). */
static void find_words(const struct sp_trainer *t, const struct sp_report *r,
                       const struct sp_finding *f, char what[SP_WHAT], const char **remedy)
{
    const char *words = f->text;

    *remedy = "";
    if (f->kind == SP_FINDING_CORE && is_crowded(&r->waits)) {
        words = "other programs have the cores";
    } else if (f->kind == SP_FINDING_STAGES && is_even(t)) {
        *remedy = " (--partition balanced)";
    } else if (f->kind == SP_FINDING_ENGINE || f->kind == SP_FINDING_SUBMISSION) {
        words = "tasks this short wait for the runtime";
        *remedy = " (larger micro-batches leave less of it)";
    } else if (f->kind == SP_FINDING_UPDATE) {
        words = "norm and optimizer come once a step";
        *remedy = " (more micro-batches a step leave less of it)";
    }
    sp_text_show(words, what, SP_WHAT);
}

static double advise_finding(const struct sp_trainer *t, const struct sp_report *r, char *text)
{
    const struct sp_finding *f = r->finding;
    const char *remedy;
    char what[SP_WHAT];
    double factor;

    if (f->kind == SP_FINDING_OPS) /* pure chance: take the next finding */
        f++;
    find_words(t, r, f, what, &remedy);
    factor = f->gain < r->t->length ? r->t->length / (r->t->length - f->gain) : 0;
    snprintf(text, SP_ADVICE, "%s; without that a step would be %.1f times as fast%s", what, factor,
             remedy);
    return factor;
}

void sp_advise(const struct sp_trainer *t, const struct sp_report *r, char text[SP_ADVICE])
{
    double (*const advise[])(const struct sp_trainer *, const struct sp_report *,
                             char *) = {advise_stages, advise_micro_batches, advise_finding};
    bool plays = plays_are_right(t, r);
    double best = LEAST;
    char other[SP_ADVICE];

    text[0] = '\0';
    for (int i = 0; i < 3; i++) {
        double factor = i == 2 || plays ? advise[i](t, r, other) : 0;

        if (factor < best)
            continue;
        best = factor;
        snprintf(text, SP_ADVICE, "%s", other);
        if (i == 0) /* stages that take turns on a worker matter most */
            break;
    }
}
