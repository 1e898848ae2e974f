#include "train/run/replan.h"
#include "plan/profile.h"
#include "plan/rates_fit.h"
#include "sp_error.h"
#include "sp_text.h"
#include "train/checkpoint/resume.h"
#include "train/run/log.h"
#include "train/run/watchdog.h"
#include "train/start/auto.h"
#include "train/start/machine.h"
#include "train/start/start.h"
#include "transport/transport.h"
#include "sinks/starpu/sink.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* A turn is the steps of one layout. Its first steps do not count: they warm up caches and
 * buffers after a new graph, and in the first turn orders that are searched (run/reorder.c). */
enum { FIRST_TURN = 8, FIRST_WARM_UP = 3, TURN = 4, WARM_UP = 1 };
/* The turns: the chosen layout, its contenders, and the layout that the measured rates favour. */
enum { MOST_TURNS = 2 + SP_AUTO_CONTENDERS };
/* The time of a change until one was seen: a new graph, and weights and moments at so many bytes
 * a second. */
static const double RESTART_S = 0.3, CARRIED_PER_S = 2e8;

struct turn {
    struct sp_auto_choice layout;
    double predicted_ms; /* 0: not known */
    double took_ms;      /* shortest step, since others only make it longer; 0: none counts yet */
};

/* The turns so far; the last one goes on. On rank 0 also sums over that turn's steps. */
struct sp_auto_look {
    struct turn turn[MOST_TURNS];
    int turns, next;              /* next: contenders that had their turn */
    int began;                    /* first step of this turn */
    bool at_rates;                /* the measured rates have been used */
    double spent_s, change_s;     /* in all changes, in the last one */
    int n;                        /* steps that count */
    double *busy, *gaps, *update; /* in sums[], as struct sp_fit_measured has them */
    double sums[];
};

/* ---- times of steps -------------------------------------------------------------------------- */

/* Begins the turn of the layout that the run has now. 0 or -ENOMEM. */
static int begin_turn(struct sp_trainer *t, double predicted_ms)
{
    size_t ids = (size_t)t->plan.family->ids(&t->plan.layout);
    size_t bytes = (2 * ids + (size_t)t->plan.layout.stages) * sizeof(double);
    bool first = !t->choice->look;
    struct sp_auto_look *look = realloc(t->choice->look, sizeof *look + bytes);

    if (!look)
        return sp_error(ENOMEM, "no memory for what %d ops take", sp_plan_ops(&t->plan));
    if (first)
        *look = (struct sp_auto_look){0};
    t->choice->look = look;
    look->turn[look->turns++] =
        (struct turn){.layout = t->choice->chosen, .predicted_ms = predicted_ms};
    look->began = t->done;
    look->n = 0;
    memset(look->sums, 0, bytes);
    look->busy = look->sums;
    look->gaps = look->sums + ids;
    look->update = look->sums + 2 * ids;
    return 0;
}

/* Time between the tasks of an op in which none of them ran and all waited only for the runtime. */
static double gap_us(const struct sp_op_record *op)
{
    return fmax(0, op->end_us - op->start_us - op->busy_us - op->late_us - op->stall_us -
                       op->exchange_us);
}

static void add_step(const struct sp_trainer *t, struct sp_auto_look *look)
{
    struct turn *turn = &look->turn[look->turns - 1];
    double ms = t->report.step_us / 1e3;

    turn->took_ms = look->n++ ? fmin(turn->took_ms, ms) : ms;
    for (int s = 0; s < t->plan.layout.stages; s++) {
        const struct sp_stage_report *r = &t->report.stages[s];

        look->update[s] += r->update_us / 1e3;
        for (int i = 0; i < r->n_ops; i++) {
            int id = t->plan.family->id(&t->plan.layout, s, &t->plan.programs[s].ops[i]);

            look->busy[id] += r->ops[i].busy_us / 1e3;
            look->gaps[id] += gap_us(&r->ops[i]) / 1e3;
        }
    }
}

static bool is_trying(const struct sp_trainer *t)
{
    return t->choice && !t->choice->settled;
}

int sp_train_look(struct sp_trainer *t)
{
    struct sp_auto_look *look;

    if (!is_trying(t))
        return 0;
    if (!t->choice->look) {
        int err = begin_turn(t, t->choice->step_ms);

        if (err)
            return err;
        t->choice->look->began = t->first_step;
    }
    look = t->choice->look;
    if (t->world.rank == 0 && t->done - look->began > (look->turns > 1 ? WARM_UP : FIRST_WARM_UP))
        add_step(t, look);
    return 0;
}

bool sp_train_replans(const struct sp_trainer *t)
{
    const struct sp_auto_look *look = is_trying(t) ? t->choice->look : NULL;
    int steps = look ? t->done - look->began : 0;

    /* the last turn gets all steps that are left */
    return look && (steps == (look->turns > 1 ? TURN : FIRST_TURN) ||
                    t->done == t->first_step + SP_AUTO_STEPS);
}

/* ---- the machine as it was measured ---------------------------------------------------------- */

/* Measures messages between rank 0 and another process, on its node or any: a short one, and the
 * output of a layer. All processes call it; rank 0 has the link. */
static void measure_link(const struct sp_trainer *t, struct sp_machine *m)
{
    enum { SHORT = 1024 };
    size_t bytes = (size_t)t->shape.rows * (size_t)t->model.hidden * sp_shape_elem(&t->shape);
    double little_us = sp_profile_comm_us(&t->world, 1, SHORT);
    double much_us = sp_profile_comm_us(&t->world, 1, bytes);
    struct sp_link *link = t->world.node_size > 1 ? &m->node : &m->network;

    if (t->world.rank || little_us <= 0 || much_us <= 0)
        return;
    link->latency_s = 1e-6 * fmin(little_us, much_us);
    if (bytes > 2 * SHORT && much_us > little_us)
        link->bandwidth = (double)(bytes - SHORT) / (1e-6 * (much_us - little_us));
}

/* On rank 0: fits the machine to the rates that the run's ops had. 0 or -errno. */
static int fit_machine(const struct sp_trainer *t, struct sp_machine *m)
{
    struct sp_auto_look *look = t->choice->look;
    const struct sp_op_terms terms = {
        .machine = &t->machine, .devices = 1, .recompute = t->recompute, .every = t->every};
    const struct sp_fit_measured measured = {.busy = look->busy,
                                             .gaps = look->gaps,
                                             .update = look->update,
                                             .counts_gaps =
                                                 sp_stages_of_worker(&t->place) == 1 &&
                                                 t->shape.context * t->shape.tensor == 1};
    size_t ids = (size_t)t->plan.family->ids(&t->plan.layout);
    struct sp_fit fit;
    int err;

    if (!look->n)
        return -EINVAL;
    for (size_t i = 0; i < ids; i++) {
        look->busy[i] /= look->n;
        look->gaps[i] /= look->n;
    }
    for (int s = 0; s < t->plan.layout.stages; s++)
        look->update[s] /= look->n;
    err = sp_rates_fit(&t->plan, &t->shape, &terms, &measured, &fit);
    if (!err)
        sp_rates_apply(&fit, m);
    return err;
}

/* ---- the decision ---------------------------------------------------------------------------- */

/* Rank 0's decision, for all ranks. */
struct decision {
    bool changes; /* to `layout` */
    bool settles; /* on `layout`, or on the layout that the run has */
    double predicted_ms, gain;
    struct sp_auto_choice layout;
    char dir[PATH_MAX]; /* directory that carries weights and moments over; empty: none has room */
};

/* Predicts the step of the run's own layout on a machine. 0 or -errno. */
static int predict_own(const struct sp_trainer *t, const struct sp_machine *m, double *step_ms)
{
    const struct sp_layout_kept all = {true, true, true, true, true, true, true};
    struct sp_auto now = *t->choice;
    struct sp_trainer own = *t;
    struct sp_auto_choice choice;
    int err;

    now.layout = t->cfg.layout;
    now.layout.kept = all;
    now.groups = t->cfg.groups;
    own.choice = &now;
    err = sp_train_choose_on(&own, m, 0, &choice, NULL);
    *step_ms = err ? 0 : choice.found.step_ms;
    return err;
}

/* Bytes of the weights and moments of all blocks, as f32. */
static double carried_bytes(const struct sp_trainer *t)
{
    return 3.0 * sizeof(float) * (double)sp_model_parameters(&t->model);
}

/* Finds a directory with room for all: --save DIR, which all nodes see, or on a single node that
 * of offloaded activations. */
static void find_dir(const struct sp_trainer *t, char dir[PATH_MAX])
{
    const struct sp_train_config *a = &t->cfg;
    bool here = t->world.node_size == t->world.size;
    double bytes = carried_bytes(t) + (1 << 20);
    struct statvfs fs;
    int n = snprintf(dir, PATH_MAX, "%s/.layout-XXXXXX", a->save ? a->save : a->offload_dir);

    if (n >= PATH_MAX || (!a->save && !here) || !mkdtemp(dir)) {
        *dir = '\0';
    } else if (statvfs(dir, &fs) || (double)fs.f_bavail * (double)fs.f_frsize < bytes) {
        rmdir(dir);
        *dir = '\0';
    }
}

/* The turn with the shortest step. */
static const struct turn *best_of(const struct sp_auto_look *look)
{
    const struct turn *best = &look->turn[0];

    for (int i = 1; i < look->turns; i++)
        if (look->turn[i].took_ms > 0 && look->turn[i].took_ms < best->took_ms)
            best = &look->turn[i];
    return best;
}

static bool was_tried(const struct sp_auto_look *look, const struct sp_auto_choice *layout)
{
    for (int i = 0; i < look->turns; i++)
        if (sp_auto_same(&look->turn[i].layout, layout))
            return true;
    return false;
}

/* True if there is time to change the layout and back. */
static bool has_time(const struct sp_trainer *t)
{
    const struct sp_auto_look *look = t->choice->look;
    double change_s =
        look->spent_s > 0 ? look->change_s : RESTART_S + carried_bytes(t) / CARRIED_PER_S;

    return look->spent_s + 2 * change_s <= t->choice->within_s;
}

static void change_to(const struct sp_trainer *t, const struct sp_auto_choice *layout,
                      struct decision *d)
{
    d->layout = *layout;
    if (!sp_auto_same(layout, &t->choice->chosen))
        find_dir(t, d->dir);
    d->changes = *d->dir;
}

/* Takes the next contender if there is time for it, with its step predicted on this machine. */
static bool take_contender(struct sp_trainer *t, struct decision *d)
{
    const struct sp_auto_contenders *all = &t->choice->contenders;
    struct sp_auto_look *look = t->choice->look;

    while (look->next < all->n && has_time(t)) {
        const struct sp_auto_choice *next = &all->layout[look->next++];

        if (was_tried(look, next))
            continue;
        change_to(t, next, d);
        d->predicted_ms = next->found.step_ms;
        return d->changes;
    }
    return false;
}

/* Takes the layout that is predicted to be fastest at the measured rates, if it is faster than
 * all that were tried by more than SP_AUTO_GAIN. If something is not known, the run stays as it
 * is. */
static bool take_predicted(struct sp_trainer *t, struct sp_machine *m, struct decision *d,
                           struct sp_auto_choice *other)
{
    const struct sp_auto_look *look = t->choice->look;
    const struct turn *now = &look->turn[look->turns - 1];
    double own_ms = 0;
    bool quiet = sp_error_quiet(true);
    int err = fit_machine(t, m);

    err = err ? err : predict_own(t, m, &own_ms);
    err = err ? err : sp_train_choose_on(t, m, t->choice->within_s, other, NULL);
    sp_error_quiet(quiet);
    if (err || own_ms <= 0 || was_tried(look, other))
        return false;
    d->predicted_ms = now->took_ms / own_ms * other->found.step_ms;
    if (best_of(look)->took_ms <= (1 + SP_AUTO_GAIN) * d->predicted_ms)
        return false;
    change_to(t, other, d);
    d->gain = best_of(look)->took_ms / d->predicted_ms - 1;
    return true;
}

/* Lists the layouts that were tried, without `but`. */
static void list_tried(const struct sp_auto_look *look, const struct turn *but,
                       char text[SP_AUTO_TEXT])
{
    const char *between = "; tried ";
    int at = 0;

    *text = '\0';
    for (int i = 0; i < look->turns && at < SP_AUTO_TEXT; i++) {
        const struct turn *turn = &look->turn[i];
        const struct sp_found *f = &turn->layout.found;

        if (turn == but || turn->took_ms <= 0)
            continue;
        at += snprintf(text + at, (size_t)(SP_AUTO_TEXT - at), "%s%s on %s: %.4g ms", between,
                       f->schedule, SP_COUNT(f->stages, "stage"), turn->took_ms);
        between = ", ";
    }
}

/* After SP_AUTO_STEPS steps: reports how good predictions were, and decides if another layout is
 * worth a turn. */
static void look_again(struct sp_trainer *t, struct sp_machine *m, struct decision *d)
{
    const struct sp_auto_look *look = t->choice->look;
    const struct turn *best = best_of(look);
    char name[SP_AUTO_TEXT], tried[SP_AUTO_TEXT], far[SP_AUTO_TEXT] = "";
    struct sp_auto_choice predicted;
    bool other = take_predicted(t, m, d, &predicted);

    list_tried(look, best, tried);
    sp_auto_choice_name(&best->layout, name);
    if (best->predicted_ms > 0)
        snprintf(far, sizeof far, ", predicted %.4g (%+.0f %%)", best->predicted_ms,
                 100 * (best->predicted_ms / best->took_ms - 1));
    sp_train_say(t, "auto: after %d steps: %s takes %.4g ms%s%s", SP_AUTO_STEPS, name,
                 best->took_ms, far, tried);
    if (!other) {
        sp_train_say(t, "auto: at the rates measured no layout is predicted to be %.0f %% faster",
                     100 * SP_AUTO_GAIN);
        return;
    }
    sp_auto_choice_name(&predicted, name);
    sp_train_say(t, "auto: at the rates measured %s is predicted to be %.0f %% faster: %.4g ms%s",
                 name, 100 * d->gain, d->predicted_ms,
                 d->changes ? "; tries it"
                            : "; stays, as all nodes see no directory with room for the weights: "
                              "give --save");
}

/* On rank 0, at the end of a turn: decides what comes next. */
static void decide(struct sp_trainer *t, struct sp_machine *m, struct decision *d)
{
    struct sp_auto_look *look = t->choice->look;
    bool all_steps = t->done >= t->first_step + SP_AUTO_STEPS;

    if (!look->at_rates && take_contender(t, d))
        return;
    if (!all_steps) /* the turn goes on */
        return;
    if (!look->at_rates) {
        look->at_rates = true;
        look_again(t, m, d);
        if (d->changes)
            return;
    }
    d->settles = true;
    change_to(t, &best_of(look)->layout, d);
    if (d->changes || look->turns > 1) {
        char name[SP_AUTO_TEXT];

        sp_auto_choice_name(d->changes ? &best_of(look)->layout : &t->choice->chosen, name);
        sp_train_say(t, "auto: goes on with %s", name);
    }
}

/* ---- the change ------------------------------------------------------------------------------ */

/* Changes the run to the chosen layout, or back to its old one if a process refuses that. 0 or
 * -errno. */
static int lay_out(struct sp_trainer *t, const struct sp_auto_choice *to)
{
    const struct sp_auto_choice was = t->choice->chosen;
    bool quiet = sp_error_quiet(true);
    int err = sp_train_take_choice(t, to);

    err = err ? err : sp_train_lay_out_again(t);
    sp_error_quiet(quiet);
    if (!err)
        return 0;
    sp_train_say(t, "auto: that is refused here; goes on as before");
    err = sp_train_take_choice(t, &was);
    return err ? err : sp_train_lay_out_again(t);
}

/* Changes the layout: ends the graph and StarPU, whose workers may be others afterwards, and
 * starts both again. */
static int change(struct sp_trainer *t, const struct decision *d)
{
    int err;

    snprintf(t->choice->carried, sizeof t->choice->carried, "%s", d->dir);
    err = sp_train_write_carried(t);
    if (!err) {
        sp_transport_barrier();
        sp_train_stop_graph(t);
        err = lay_out(t, &d->layout);
        err = err ? err : sp_train_start_graph(t);
    }
    if (!err)
        sp_transport_barrier(); /* until all have read */
    sp_train_remove_carried(t);
    if (err)
        return err;
    sp_watchdog_know_graph(&t->graph);
    return sp_train_log_layout(t);
}

/* Makes the change to a turn's layout, or the final one. Until the final one, checkpoints record
 * the layout chosen first. */
static int make_change(struct sp_trainer *t, const struct decision *d)
{
    struct sp_auto_look *look = t->choice->look;
    char *kept = d->settles ? NULL : strdup(t->settings);
    double began_us = sp_now_us();
    int err;

    sp_watchdog_begin(SP_PHASE_SETUP, "changing the layout");
    err = change(t, d);
    sp_watchdog_end();
    if (kept && !err) {
        free(t->settings);
        t->settings = kept;
        kept = NULL;
    }
    free(kept);
    look->change_s = 1e-6 * (sp_now_us() - began_us);
    look->spent_s += look->change_s;
    return err || d->settles ? err : begin_turn(t, d->predicted_ms);
}

int sp_train_replan(struct sp_trainer *t)
{
    static struct sp_machine machine; /* static, because it is large */
    struct decision d = {.changes = false};
    bool last = t->done == t->first_step + SP_AUTO_STEPS;
    int err = 0;

    sp_watchdog_begin(SP_PHASE_PREPARE, "choosing a layout at the rates measured");
    if (t->world.rank == 0 && last)
        err = sp_train_load_machine(t, &machine);
    if (last)
        measure_link(t, &machine);
    if (t->world.rank == 0 && !err)
        decide(t, &machine, &d);
    sp_transport_share(&d, sizeof d);
    sp_watchdog_end();
    if (d.changes)
        err = make_change(t, &d);
    if (d.settles && !d.changes && !err)
        err = sp_train_keep_layout(t);
    if (d.settles || err) {
        free(t->choice->look);
        t->choice->look = NULL;
        t->choice->settled = true;
    }
    return err;
}
