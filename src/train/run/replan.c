#include "train/run/replan.h"
#include "graphs/weights/checkpoint.h"
#include "plan/profile.h"
#include "plan/rates_fit.h"
#include "sp_error.h"
#include "train/checkpoint/resume.h"
#include "train/checkpoint/save.h"
#include "train/run/log.h"
#include "train/run/watchdog.h"
#include "train/start/auto.h"
#include "train/start/machine.h"
#include "train/start/prepare.h"
#include "train/start/start.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The first steps warm up caches and buffers, and orders that are searched (run/reorder.h). */
enum { WARM_UP = 5, SEEN = SP_AUTO_STEPS - WARM_UP };

/* What the steps after warm-up took; sums over them. */
struct sp_auto_look {
    int n;
    double ms[SEEN];
    double *busy, *gaps, *update; /* as struct sp_fit_measured has them */
};

static const enum sp_field carried[] = {SP_FIELD_W, SP_FIELD_M, SP_FIELD_V};
enum { CARRIED = 3 };

/* ---- what steps take ------------------------------------------------------------------------------ */

void sp_train_look_free(struct sp_auto_look *look)
{
    if (!look)
        return;
    free(look->busy);
    free(look->gaps);
    free(look->update);
    free(look);
}

static struct sp_auto_look *create_look(const struct sp_trainer *t)
{
    struct sp_auto_look *look = calloc(1, sizeof *look);
    size_t ids = (size_t)t->plan.family->ids(&t->plan.layout);

    if (!look)
        return NULL;
    look->busy = calloc(ids, sizeof *look->busy);
    look->gaps = calloc(ids, sizeof *look->gaps);
    look->update = calloc((size_t)t->plan.layout.stages, sizeof *look->update);
    if (look->busy && look->gaps && look->update)
        return look;
    sp_train_look_free(look);
    return NULL;
}

/* Between the tasks of an op: the time that none of them ran, nor waited for anything but the runtime. */
static double gap_us(const struct sp_op_record *op)
{
    return fmax(0, op->end_us - op->start_us - op->busy_us - op->late_us - op->stall_us -
                       op->exchange_us);
}

static void add_step(const struct sp_trainer *t, struct sp_auto_look *look)
{
    look->ms[look->n++] = t->report.step_us / 1e3;
    for (int s = 0; s < t->plan.layout.stages; s++) {
        const struct sp_stage_report *r = &t->report.stages[s];

        look->update[s] += r->update_us / 1e3 / SEEN;
        for (int i = 0; i < r->n_ops; i++) {
            int id = t->plan.family->id(&t->plan.layout, s, &t->plan.programs[s].ops[i]);

            look->busy[id] += r->ops[i].busy_us / 1e3 / SEEN;
            look->gaps[id] += gap_us(&r->ops[i]) / 1e3 / SEEN;
        }
    }
}

/* Whether the second look is still to come. */
static bool is_awaited(const struct sp_trainer *t)
{
    return t->choice && !t->choice->looked && t->done <= t->first_step + SP_AUTO_STEPS;
}

int sp_train_look(struct sp_trainer *t)
{
    if (!is_awaited(t) || t->world.rank || t->done <= t->first_step + WARM_UP)
        return 0;
    if (!t->choice->look)
        t->choice->look = create_look(t);
    if (!t->choice->look)
        return sp_error(ENOMEM, "no memory for what %d ops took", sp_plan_ops(&t->plan));
    add_step(t, t->choice->look);
    return 0;
}

bool sp_train_replans(const struct sp_trainer *t)
{
    return is_awaited(t) && t->done == t->first_step + SP_AUTO_STEPS;
}

static int compare(const void *x, const void *y)
{
    const double *a = x, *b = y;

    return (*a > *b) - (*a < *b);
}

static double median_ms(const struct sp_auto_look *look)
{
    double ms[SEEN];

    memcpy(ms, look->ms, sizeof ms);
    qsort(ms, SEEN, sizeof *ms, compare);
    return ms[SEEN / 2];
}

/* ---- the machine as it was measured ---------------------------------------------------------------- */

/* Messages between rank 0 and another process of its node, or of any: a short one, and the output of a layer. All call it;
 * the link counts on rank 0. */
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

/* On rank 0: the machine with the rates that the ops of the run had. 0 or -errno. */
static int fit_machine(const struct sp_trainer *t, struct sp_machine *m)
{
    const struct sp_auto_look *look = t->choice->look;
    const struct sp_op_terms terms = {
        .machine = &t->machine, .devices = 1, .recompute = t->recompute, .every = t->every};
    const struct sp_fit_measured measured = {.busy = look->busy,
                                             .gaps = look->gaps,
                                             .update = look->update,
                                             .counts_gaps =
                                                 sp_stages_of_worker(&t->place) == 1 &&
                                                 t->shape.context * t->shape.tensor == 1};
    struct sp_fit fit;
    int err = sp_rates_fit(&t->plan, &t->shape, &terms, &measured, &fit);

    if (!err)
        sp_rates_apply(&fit, m);
    return err;
}

/* ---- the decision ---------------------------------------------------------------------------------- */

/* Rank 0's, for all. */
struct decision {
    bool changes;
    char layout[SP_AUTO_TEXT];
    char dir[PATH_MAX]; /* where weights and moments go over; empty: there is no place for them */
};

/* What the layout of the run is predicted to take on a machine. 0 or -errno. */
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
    err = sp_train_choose_on(&own, m, 0, &choice);
    *step_ms = err ? 0 : choice.found.step_ms;
    return err;
}

/* In --save DIR, which all nodes see, or where activations would go, if there is one node; with room for all. */
static void find_dir(const struct sp_trainer *t, char dir[PATH_MAX])
{
    const struct sp_train_config *a = &t->cfg;
    bool here = t->world.node_size == t->world.size;
    double bytes = 12.0 * (double)sp_model_parameters(&t->model) + (1 << 20);
    struct statvfs fs;
    int n = snprintf(dir, PATH_MAX, "%s/.layout-XXXXXX", a->save ? a->save : a->offload_dir);

    if (n >= PATH_MAX || (!a->save && !here) || !mkdtemp(dir)) {
        *dir = '\0';
    } else if (statvfs(dir, &fs) || (double)fs.f_bavail * (double)fs.f_frsize < bytes) {
        rmdir(dir);
        *dir = '\0';
    }
}

/* On rank 0, at the rates measured. Whatever is not known leaves the layout as it is. */
static void decide(struct sp_trainer *t, struct sp_machine *m, struct decision *d)
{
    const double took = median_ms(t->choice->look), predicted = t->choice->step_ms;
    struct sp_auto_choice other;
    bool quiet = sp_error_quiet(true);
    double own_ms = 0;
    char name[SP_AUTO_TEXT], far[128];
    int err = fit_machine(t, m);

    err = err ? err : predict_own(t, m, &own_ms);
    err = err ? err : sp_train_choose_on(t, m, t->choice->within_s, &other);
    sp_error_quiet(quiet);
    d->changes = !err && !sp_auto_same(&other, &t->choice->chosen) &&
                 own_ms > (1 + SP_AUTO_GAIN) * other.found.step_ms;
    snprintf(far, sizeof far, "auto: %d steps took %.4g ms each, predicted %.4g (%+.0f %%)",
             SP_AUTO_STEPS, took, predicted, 100 * (predicted / took - 1));
    if (!d->changes) {
        sp_train_say(t, "%s; at the rates measured no layout is predicted to be %.0f %% faster",
                     far, 100 * SP_AUTO_GAIN);
        return;
    }
    sp_auto_choice_name(&other, name);
    find_dir(t, d->dir);
    d->changes = *d->dir;
    sp_train_say(t, "%s; at the rates measured %s is predicted to be %.0f %% faster: %.4g ms%s",
                 far, name, 100 * (own_ms / other.found.step_ms - 1),
                 took / own_ms * other.found.step_ms,
                 d->changes ? "; goes on with it"
                            : "; stays, as all nodes see no directory with room for the weights: "
                              "give --save");
    sp_auto_choice_pack(&other, d->layout);
}

/* ---- the change ------------------------------------------------------------------------------------ */

static void path_of(const struct sp_trainer *t, enum sp_field field, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 64, t->choice->carried, sp_field_files[field]);
}

/* Of all blocks, gathered on rank 0. */
static int write_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];
    int err = 0;

    for (int i = 0; i < CARRIED && !err; i++) {
        path_of(t, carried[i], path);
        err = sp_checkpoint_write(&t->graph, carried[i], path);
    }
    return err;
}

static void remove_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];

    for (int i = 0; i < CARRIED && t->world.rank == 0; i++) {
        path_of(t, carried[i], path);
        unlink(path);
    }
    if (t->world.rank == 0)
        rmdir(t->choice->carried);
    *t->choice->carried = '\0';
}

bool sp_train_carries(const struct sp_trainer *t)
{
    return t->choice && *t->choice->carried;
}

int sp_train_take_carried(struct sp_trainer *t)
{
    char path[PATH_MAX];
    int err = 0;

    for (int i = 0; i < CARRIED && !err; i++) {
        struct sp_st_file st;

        path_of(t, carried[i], path);
        err = sp_st_open(path, &st);
        if (err)
            return err;
        err = sp_weights_check(&st, &t->params);
        if (!err && carried[i] == SP_FIELD_W)
            err = sp_checkpoint_init(&t->graph, &st);
        else if (!err)
            err = sp_checkpoint_read(&t->graph, carried[i], &st);
        sp_st_close(&st);
    }
    return err;
}

/* Lays the run out as chosen; or, where a process refuses that, as it was. 0 or -errno. */
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

/* The graph ends, StarPU with it, as workers may be others; and both begin again. */
static int change(struct sp_trainer *t, const struct decision *d)
{
    struct sp_auto_choice to;
    int err = sp_auto_choice_unpack(d->layout, &to);

    snprintf(t->choice->carried, sizeof t->choice->carried, "%s", d->dir);
    err = err ? err : write_carried(t);
    if (!err) {
        sp_transport_barrier();
        sp_train_stop_graph(t);
        err = lay_out(t, &to);
        err = err ? err : sp_train_start_graph(t);
    }
    if (!err)
        sp_transport_barrier(); /* all have read */
    remove_carried(t);
    if (err)
        return err;
    sp_watchdog_know_graph(&t->graph);
    return sp_train_log_layout(t);
}

int sp_train_replan(struct sp_trainer *t)
{
    static struct sp_machine machine; /* a large one */
    struct decision d = {.changes = false};
    int err = 0;

    sp_watchdog_begin(SP_PHASE_PREPARE, "choosing a layout at the rates measured");
    if (t->world.rank == 0)
        err = sp_train_load_machine(t, &machine);
    measure_link(t, &machine);
    if (t->world.rank == 0 && !err)
        decide(t, &machine, &d);
    sp_train_look_free(t->choice->look);
    t->choice->look = NULL;
    t->choice->looked = true;
    sp_transport_share(&d, sizeof d);
    sp_watchdog_end();
    if (!d.changes)
        return 0;
    sp_watchdog_begin(SP_PHASE_SETUP, "changing the layout");
    err = change(t, &d);
    sp_watchdog_end();
    return err;
}
