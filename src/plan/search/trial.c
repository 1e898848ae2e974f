#include "plan/search/trial.h"
#include "plan/search/bounds.h"
#include "plan/adapipe.h"
#include "plan/offload/offload.h"
#include "plan/partition.h"
#include "plan/predict.h"
#include "plan/recompute.h"
#include "plan/slices.h"
#include "policies/lowering/evictions.h"
#include "policies/plan_create.h"
#include "policies/registry.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A plan of a step with so many micro-batches. */
struct step {
    int micro_batches;
    int apart; /* devices that share the shape's sizes, if train has no such groups */
    struct sp_plan plan;
    struct sp_shape shape;
};

struct trial {
    const struct sp_search *want;
    struct sp_order_book *book;
    int micro_batches;
    double beat_ms;        /* a trial stops if its step is sure to take longer */
    struct sp_found ideal; /* predicted with least recomputation, whatever memory it needs */
    struct step step[2];   /* the one simulated; or two, to extrapolate a very long one */
    int steps, made;       /* plans */
};

/* ---- memory ---------------------------------------------------------------------------------- */

/* Devices of all members of a stage. */
static int64_t devices_of(const struct sp_found *f)
{
    return (int64_t)f->devices * f->context * f->data;
}

/* Bytes that a device of a stage may hold. */
static int64_t limit_of(const struct sp_search *want, const struct sp_found *f, int stage)
{
    const struct sp_machine *machine = sp_search_machine(want, f);

    return sp_search_limit_of(
        want, machine->kinds ? sp_machine_of_devices(machine, stage * devices_of(f), devices_of(f))
                             : want->machine);
}

/* Adds a stage that holds `bytes` over the devices that are apart. f->memory becomes that of the
 * fullest device; f->fits stays true if each device has enough. */
static void hold(const struct sp_search *want, const struct step *step, int stage, int64_t bytes,
                 struct sp_found *f)
{
    bytes /= step->apart;
    f->memory = stage && f->memory > bytes ? f->memory : bytes;
    f->fits = (!stage || f->fits) && bytes <= limit_of(want, f, stage);
}

/* Counts the memory of all stages. 0, -ENOMEM, or -EINVAL: train refuses it. */
static int weigh_stages(const struct sp_search *want, const struct step *step, struct sp_found *f)
{
    struct sp_memory *m = calloc((size_t)f->stages, sizeof *m);
    int err;

    if (!m)
        return -ENOMEM;
    err = sp_memory_of_plan(&step->plan, &step->shape, f->recompute, f->every, m);
    for (int s = 0; !err && s < f->stages; s++)
        hold(want, step, s, sp_memory_sum(&m[s]), f);
    free(m);
    return err;
}

/* Weighs stages by what needs no counting: parameters and optimizer, and activations unless they
 * are evicted. */
static void weigh_known(const struct sp_search *want, const struct step *step, struct sp_found *f)
{
    for (int s = 0; s < f->stages; s++)
        hold(want, step, s,
             f->offload == SP_OFFLOAD_NONE
                 ? sp_memory_least(&step->plan, &step->shape, f->recompute, f->every, s)
                 : sp_memory_states(&step->plan, &step->shape, s),
             f);
}

static struct sp_op_terms terms_of(const struct sp_search *want, const struct step *step,
                                   const struct sp_found *f)
{
    return (struct sp_op_terms){.machine = sp_search_machine(want, f),
                                .devices = step->apart,
                                .recompute = f->recompute,
                                .every = f->every};
}

/* Chooses evictions, and puts them into the plan if they suffice (f->fits). 0 or -ENOMEM. */
static int choose_offload(const struct sp_search *want, struct step *step, struct sp_found *f)
{
    const struct sp_machine *m = sp_search_machine(want, f);
    int each = f->devices * f->context, stages = f->stages * f->data;
    int per_node = m->devices_per_node / each > 0 ? m->devices_per_node / each : 1;
    const struct sp_op_terms terms = terms_of(want, step, f);
    struct sp_offload_request request =
        sp_offload_request(&terms, &step->shape, f->offload, sp_search_limit(want) * step->apart);
    struct sp_offload offload = {0};
    struct sp_offload_lack lack;
    int err = sp_offload_try(&step->plan, &step->shape, &request, &offload, &lack);

    f->memory = f->host = 0;
    f->fits = !err;
    if (err == -EINVAL)
        f->memory = (sp_memory_sum(&lack.memory) + lack.least) / step->apart;
    if (err)
        return err == -EINVAL ? 0 : err;
    for (int s = 0; s < offload.stages; s++) {
        int64_t bytes = sp_memory_sum(&offload.memory[s]) / step->apart;

        f->memory = bytes > f->memory ? bytes : f->memory;
        f->host = offload.evictions[s].most_evicted > f->host ? offload.evictions[s].most_evicted
                                                              : f->host;
    }
    f->host *= each / step->apart * (stages < per_node ? stages : per_node);
    f->fits = sp_machine_is_cpu(m) || f->host <= m->host_bytes;
    err = sp_offload_apply(&offload, &step->shape, &step->plan);
    sp_offload_destroy(&offload);
    return err;
}

/* Weighs the devices in the modes of f, and puts evictions into the plan. If they exceed the
 * limit, f->memory may be only a part, unless `exact`. 0, -ENOMEM, or -EINVAL: train refuses
 * these modes. */
static int weigh(const struct sp_search *want, struct step *step, bool exact, struct sp_found *f)
{
    const struct sp_train_wish wish = {.recompute = f->recompute,
                                       .recompute_text = "",
                                       .partition = f->balanced ? f->layers : "even",
                                       .tied = want->model->tied && f->stages > 1,
                                       .grouped = f->devices * f->context > 1};
    int err = sp_plan_refuse(&step->plan, &wish);

    sp_evictions_destroy(step->plan.evictions, f->stages);
    step->plan.evictions = NULL;
    f->host = 0;
    if (err)
        return err;
    if (f->offload != SP_OFFLOAD_NONE && step->plan.recompute)
        return -EINVAL;
    if (!exact) {
        weigh_known(want, step, f);
        if (!f->fits)
            return 0;
    }
    return f->offload != SP_OFFLOAD_NONE ? choose_offload(want, step, f)
                                         : weigh_stages(want, step, f);
}

/* The factor that extrapolates to all micro-batches: the difference between the longer and the
 * shorter step counts so many times more. */
static double beyond(const struct trial *t)
{
    int more = t->step[1].micro_batches;

    return (double)(t->micro_batches - more) / (more - t->step[0].micro_batches);
}

static int weigh_all(struct trial *t, bool exact, struct sp_found *f)
{
    const struct step *more = &t->step[t->steps - 1];
    struct sp_found few = *f, many = *f;
    int err = weigh(t->want, &t->step[t->steps - 1], exact, f);

    if (err || t->steps == 1 || (!f->fits && !exact))
        return err;
    if (f->offload == SP_OFFLOAD_NONE) { /* kept activations and tokens grow, buffers do not */
        weigh_known(t->want, more, &many);
        weigh_known(t->want, &t->step[0], &few);
        f->memory += (int64_t)(beyond(t) * (double)(many.memory - few.memory));
        f->memory += sp_memory_tokens(&more->shape) * (t->micro_batches - more->micro_batches);
    } else {
        err = weigh(t->want, &t->step[0], true, &few);
        f->memory += (int64_t)(beyond(t) * (double)(f->memory - few.memory));
        f->host += (int64_t)(beyond(t) * (double)(f->host - few.host));
    }
    f->fits = f->fits && f->memory <= sp_search_limit(t->want);
    return err;
}

/* ---- time ------------------------------------------------------------------------------------ */

static struct sp_predict_request request_of(const struct sp_search *want, const struct step *step,
                                            const struct sp_found *f)
{
    return (struct sp_predict_request){
        .plan = &step->plan,
        .shape = &step->shape,
        .terms = terms_of(want, step, f),
        .tier = sp_offload_tier(sp_search_machine(want, f), step->apart)};
}

static int predict(const struct sp_search *want, const struct step *step, struct sp_found *f)
{
    struct sp_predict_request request = request_of(want, step, f);
    struct sp_prediction p;
    int err = sp_predict(&request, &p);

    if (err)
        return err;
    f->step_ms = p.step_ms;
    f->bubble = p.times.bubble_ratio;
    f->stall_ms = 0;
    for (int s = 0; s < f->stages; s++)
        f->stall_ms = fmax(f->stall_ms, p.when.stalled[s]);
    sp_prediction_destroy(&p);
    return 0;
}

/* Extrapolates from the figures of the shorter step and of the longer one, which is *f, to all
 * micro-batches. */
static void extend(const struct trial *t, const struct sp_found *few, struct sp_found *f)
{
    /* a step is not proportional to its micro-batches: it has one update, however many there are */
    double idle_ms = f->bubble * f->step_ms, step_ms;

    idle_ms += beyond(t) * (idle_ms - few->bubble * few->step_ms);
    step_ms = f->step_ms + beyond(t) * fmax(0, f->step_ms - few->step_ms);
    f->bubble = step_ms > 0 ? fmin(1, fmax(0, idle_ms) / step_ms) : 0;
    f->step_ms = step_ms;
    f->stall_ms += beyond(t) * (f->stall_ms - few->stall_ms);
}

static int predict_all(const struct trial *t, struct sp_found *f)
{
    struct sp_found few = *f;
    int err = predict(t->want, &t->step[t->steps - 1], f);

    if (err || t->steps == 1)
        return err;
    err = predict(t->want, &t->step[0], &few);
    if (!err)
        extend(t, &few, f);
    return err;
}

/* A recompute mode is good enough to compare layouts by if its step is at most so many times the
 * ideal one. */
static const double ENOUGH = 1.03;

/* ---- modes ----------------------------------------------------------------------------------- */

static bool is_better(const struct sp_found *a, const struct sp_found *b)
{
    if (a->fits != b->fits)
        return a->fits;
    return a->fits ? a->step_ms < b->step_ms : a->memory < b->memory;
}

/* True if f in its mode has the ideal step. */
static bool is_ideal(const struct trial *t, const struct sp_found *f)
{
    return t->ideal.step_ms > 0 && f->offload == SP_OFFLOAD_NONE &&
           f->recompute == t->ideal.recompute && f->every == t->ideal.every;
}

/* Tries f in one mode; *best, if *found, is the best so far. A mode that does not fit is not
 * simulated, and the ideal step is not simulated again. 0, -ENOMEM, or -EINVAL. */
static int take(struct trial *t, struct sp_found f, struct sp_found *best, bool *found)
{
    int err = weigh_all(t, false, &f);

    if (!err && f.fits && is_ideal(t, &f)) {
        f.step_ms = t->ideal.step_ms;
        f.bubble = t->ideal.bubble;
        f.stall_ms = 0;
    } else if (!err && f.fits) {
        err = predict_all(t, &f);
    }
    if (!err && (!*found || is_better(&f, best))) {
        *best = f;
        *found = true;
    }
    return err;
}

/* Tries modes with less recomputation first, until one fits; then evictions, if they are
 * allowed. */
static int try_modes(struct trial *t, struct sp_found *best)
{
    const struct sp_search *want = t->want;
    bool found = false, own = t->step[0].plan.recompute; /* adapipe chose its own */
    struct sp_found f = *best;
    int err = 0;

    f.every = want->any_recompute ? 1 : want->every;
    f.offload = want->any_offload ? SP_OFFLOAD_NONE : want->offload;
    for (int mode = 0; mode < SP_RECOMPUTE_MODES && err != -ENOMEM && !(found && best->fits);
         mode++) {
        f.recompute = want->any_recompute ? (enum sp_recompute)mode : want->recompute;
        err = take(t, f, best, &found);
        if (!want->any_recompute || own)
            break;
    }
    if (err != -ENOMEM && found && want->any_offload &&
        !(best->fits &&
          (best->recompute == SP_RECOMPUTE_NONE || best->step_ms <= ENOUGH * t->ideal.step_ms))) {
        f.recompute = want->any_recompute ? SP_RECOMPUTE_NONE : want->recompute;
        f.offload = SP_OFFLOAD_ADAPTIVE;
        err = take(t, f, best, &found);
    }
    if (err != -ENOMEM && found &&
        !best->fits) { /* for rows that are not shown it is enough to know that */
        err = best->whole ? weigh_all(t, true, best) : 0;
        err = err ? err : predict_all(t, best);
    }
    return err == -ENOMEM ? err : found ? 0 : -EINVAL;
}

/* Chooses recomputation layer by layer for the limit, and puts it into the plan. 0, -ENOMEM, or
 * -EINVAL: the layers cannot choose, or no choice fits. */
static int choose_layers(const struct sp_search *want, struct step *step, struct sp_found *f)
{
    const struct sp_recompute_wish wish = {.plan = &step->plan,
                                           .shape = &step->shape,
                                           .limit = sp_search_limit(want),
                                           .machine = sp_search_machine(want, f),
                                           .devices = step->apart};
    struct sp_recompute_chosen chosen;
    int err;

    if (step->plan.family->facts.parts || step->plan.recompute || step->apart > 1)
        return -EINVAL;
    sp_evictions_destroy(step->plan.evictions, f->stages);
    step->plan.evictions = NULL;
    err = sp_recompute_choose(&wish, &chosen);
    if (err)
        return err;
    step->plan.recompute = chosen.layer;
    f->recompute = chosen.mode;
    f->every = 1;
    f->offload = SP_OFFLOAD_NONE;
    f->by_layer = true;
    return 0;
}

/* Tries the choice by layers if it may be faster than one mode for all layers. If none of those
 * fits, no choice does. */
static int try_layers(struct trial *t, struct sp_found *best)
{
    struct sp_found f = *best;
    bool found = true;
    int err;

    if (!t->want->any_recompute || !f.whole || !f.fits ||
        (!t->want->any_offload && t->want->offload != SP_OFFLOAD_NONE) ||
        (f.fits && f.recompute == SP_RECOMPUTE_NONE && f.offload == SP_OFFLOAD_NONE))
        return 0;
    err = choose_layers(t->want, &t->step[0], &f);
    if (!err) {
        t->ideal.step_ms = 0; /* it holds for one mode */
        err = take(t, f, best, &found);
        free(t->step[0].plan.recompute);
        t->step[0].plan.recompute = NULL;
    }
    return err == -EINVAL ? 0 : err;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Writes counts as --partition has them. 0, or -EINVAL: the list is too long. */
static int list_layers(const int *counts, int n, char text[SP_PARTITION_TEXT])
{
    int at = 0;

    for (int i = 0; i < n && at < SP_PARTITION_TEXT; i++)
        at +=
            snprintf(text + at, (size_t)(SP_PARTITION_TEXT - at), "%s%d", i ? "," : "", counts[i]);
    return at < SP_PARTITION_TEXT ? 0 : -EINVAL;
}

/* Deals layers out so that the slowest stage is as fast as possible. -EINVAL: they cannot be dealt
 * out, or the even partition is the best. */
static int balance(const struct sp_search *want, struct sp_found *f, struct step *step)
{
    int globals = sp_globals(&step->plan.layout), layers = want->model->layers, err, first, even;
    const struct sp_machine *machine = sp_search_machine(want, f);
    int *counts = calloc((size_t)globals, sizeof *counts);
    bool differs = false;

    if (!counts)
        return -ENOMEM;
    err = sp_partition_on_machine(&step->plan, &step->shape, machine, (int)devices_of(f),
                                  want->recompute, counts);
    for (int g = 0; !err && g < globals; g++) {
        sp_partition(layers, globals, g, &first, &even);
        differs |= counts[g] != even;
    }
    f->balanced = differs;
    if (differs)
        err = err ? err : list_layers(counts, globals, f->layers);
    else if (!machine->kinds)
        err = -EINVAL; /* the even partition is tried as such */
    err = err ? err : differs ? sp_plan_partition(&step->plan, counts) : 0;
    free(counts);
    return err;
}

/* Sets the sizes of one device if train has such groups; with `apart`, those of all devices of a
 * stage together. */
static void shape_of(const struct sp_search *want, const struct sp_found *f, bool apart,
                     struct step *step)
{
    struct sp_found few = *f;

    few.micro_batches = step->micro_batches;
    step->apart = apart ? f->devices : 1;
    sp_found_shape(want, &few, apart, &step->shape);
}

static int check(const struct sp_search *want, const struct sp_found *f, const struct step *step)
{
    return sp_plan_check_members("plan", f->schedule, &step->plan, want->model, &step->shape);
}

/* Makes the plan of a step. Sets f->layers if layers are balanced. On failure nothing is left to
 * destroy. */
static int create(const struct sp_search *want, struct sp_order_book *book, struct sp_found *f,
                  struct step *step)
{
    struct sp_layout lay = {.stages = f->stages,
                            .micro_batches = step->micro_batches,
                            .chunks = f->chunks,
                            .slices = f->slices,
                            .layers = want->model->layers,
                            .options = "",
                            .vocabulary_parallel = f->vocabulary};
    struct sp_op_terms terms;
    struct sp_costs costs;
    int err;

    shape_of(want, f, false, step);
    if (sp_schedule_is_searched(f->schedule)) {
        costs = sp_search_costs(sp_search_machine(want, f), &step->shape, f->stages,
                                want->recompute, sp_schedule_tensors(f->schedule));
        lay.costs = &costs;
    }
    err = sp_plan_create_by(book, f->schedule, &lay, &step->plan);
    if (err)
        return err;
    err = sp_globals(&step->plan.layout) > lay.layers ? -EINVAL : 0; /* too few layers */
    if (!err && f->devices > 1 && want->simulated && check(want, f, step))
        shape_of(want, f, true, step);
    err = err ? err : check(want, f, step);
    if (!err && f->slices > 1)
        err = sp_plan_cut(&step->plan, &step->shape, want->cut, sp_search_machine(want, f));
    step->plan.processes = f->stages;
    step->plan.states_evicted = want->states_evicted;
    terms = terms_of(want, step, f);
    step->plan.updates_on_cores =
        sp_update_is_on_cores(&step->plan, &step->shape, &terms, want->optimizer);
    if (!err && !strcmp(step->plan.def->name, "adapipe"))
        err = sp_adapipe_take(&step->plan, &step->shape, sp_search_machine(want, f),
                              sp_search_limit(want) * step->apart);
    if (!err && f->balanced)
        err = balance(want, f, step);
    if (err)
        sp_plan_destroy(&step->plan);
    return err;
}

/* Micro-batches per stage, or their slices, after which the steady state has usually begun; and the
 * period in which a schedule may repeat itself. Rows that are shown are predicted whole. */
enum { UNTIL_STEADY = 2, PERIOD = 2 };

/* Chooses how many micro-batches to simulate. A micro-batch of multiplexed slices fills all stages
 * alone. */
static void choose_steps(struct trial *t, const struct sp_found *f)
{
    bool slices =
        f->slices > 1 && sp_schedule_wants_slices(f->schedule); /* slices alone fill stages */
    int p = f->stages, period = slices ? 1 + PERIOD * p / f->slices : PERIOD * p;
    int few = slices ? 2 + UNTIL_STEADY * p / f->slices : UNTIL_STEADY * p;

    if (sp_schedule_flag(f->schedule, "multiplex")) {
        few = 2;
        period = 1;
    }

    t->steps = !f->whole && !t->want->machine->kinds && f->micro_batches > 2 * few + period ? 2 : 1;
    t->step[0].micro_batches = f->micro_batches;
    if (t->steps == 1)
        return;
    few += (f->micro_batches - few) % period; /* so that the remainder is the same */
    t->step[0].micro_batches = few;
    t->step[1].micro_batches = few + period;
}

/* True if a step of all micro-batches is sure to take too long: its warm-up and cool-down are those
 * of the shorter step, and everything else takes no more than the bound. */
static bool is_beaten(const struct trial *t, const struct sp_found *f, double few_ms)
{
    struct sp_found few = *f;

    few.micro_batches = t->step[0].micro_batches;
    return few_ms + sp_bound_step(t->want, f) - sp_bound_step(t->want, &few) > t->beat_ms;
}

/* Makes the plan of the longer step, if there is one and it is not made yet. */
static int create_longer(struct trial *t, struct sp_found *f)
{
    int err = t->made < t->steps ? create(t->want, t->book, f, &t->step[1]) : 0;

    if (!err)
        t->made = t->steps;
    return err;
}

/* Predicts the step with unlimited memory, which no mode beats. -EINVAL: it takes too long. */
static int predict_ideal(struct trial *t, struct sp_found *f)
{
    struct sp_found few = *f;
    int err;

    few.every = t->want->any_recompute ? 1 : t->want->every;
    few.offload = SP_OFFLOAD_NONE;
    few.recompute = t->want->any_recompute ? SP_RECOMPUTE_NONE : t->want->recompute;
    t->ideal = few;
    err = predict(t->want, &t->step[0], t->steps > 1 ? &few : &t->ideal);
    if (!err && t->steps > 1) {
        if (is_beaten(t, f, few.step_ms))
            return -EINVAL;
        err = create_longer(t, f);
        err = err ? err : predict(t->want, &t->step[1], &t->ideal);
        if (!err)
            extend(t, &few, &t->ideal);
    }
    return err ? err : t->ideal.step_ms > t->beat_ms ? -EINVAL : 0;
}

int sp_trial(const struct sp_search *want, struct sp_order_book *book, double beat_ms,
             struct sp_found *f)
{
    bool quiet = sp_error_quiet(true);
    struct trial t = {
        .want = want, .book = book, .micro_batches = f->micro_batches, .beat_ms = beat_ms};
    int err;

    f->by_layer = false;
    choose_steps(&t, f);
    err = create(want, book, f, &t.step[0]);
    t.made = !err;
    if (!err && isfinite(beat_ms))
        err = predict_ideal(&t, f);
    err = err ? err : create_longer(&t, f);
    if (!err) {
        f->chunks = t.step[0].plan.layout.chunks;
        f->trains = t.step[0].apart == 1;
        err = try_modes(&t, f);
        err = err ? err : try_layers(&t, f);
    }
    for (int i = 0; i < t.made; i++)
        sp_plan_destroy(&t.step[i].plan);
    sp_error_quiet(quiet);
    if (!err)
        f->tokens_per_s = 1e3 * (double)want->seq * f->batch * f->micro_batches / f->step_ms /
                          (f->stages * f->devices * f->context);
    return err;
}

int sp_trial_show(const struct sp_search *want, const struct sp_found *f, sp_trial_look *look,
                  void *data)
{
    bool quiet = sp_error_quiet(true);
    struct step step = {.micro_batches = f->micro_batches};
    struct sp_predict_request request;
    struct sp_found again = *f;
    struct sp_prediction p;
    int err = create(want, NULL, &again, &step);

    if (!err && f->by_layer)
        err = choose_layers(want, &step, &again);
    if (!err) {
        err = weigh(want, &step, true, &again);
        request = request_of(want, &step, &again);
        request.exchanges = true;
        err = err ? err : sp_predict(&request, &p);
        if (!err) {
            err = look(&step.plan, &p, data);
            sp_prediction_destroy(&p);
        }
        sp_plan_destroy(&step.plan);
    }
    sp_error_quiet(quiet);
    return err;
}
