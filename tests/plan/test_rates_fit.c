/*
 * Rates fitted to the times of ops. On a machine slower than described by known factors, the fit
 * finds the factors as far as the ops of a layout tell kinds of calls apart, and predicts other
 * layouts correctly.
 */
#include "../policies/common.h"
#include "model/model.h"
#include "plan/cost/part_times.h"
#include "plan/memory.h"
#include "plan/predict.h"
#include "plan/rates_fit.h"
#include <math.h>

static struct sp_machine described, slow;
static struct sp_model model;

static int load(void **state)
{
    (void)state;
    model.positions = 1 << 20;
    return sp_machine_load("laptop", &described) || sp_model_load("gpt-tiny", &model);
}

/* A layout on a machine. */
struct laid {
    struct sp_plan plan;
    struct sp_shape shape;
    struct sp_op_terms terms;
};

static void lay_out(const char *schedule, int stages, int batch, const struct sp_machine *m,
                    struct laid *l)
{
    struct sp_layout lay = layout(stages, 8 / batch);

    lay.layers = model.layers;
    assert_int_equal(sp_plan_create(schedule, &lay, &l->plan), 0);
    sp_shape_init(&l->shape, &model, batch, 1024, 8 / batch);
    l->terms = (struct sp_op_terms){.machine = m, .devices = 1, .every = 1};
}

static double step_ms(const char *schedule, int stages, int batch, const struct sp_machine *m)
{
    struct sp_prediction p;
    struct laid l;
    double ms;

    lay_out(schedule, stages, batch, m, &l);
    assert_int_equal(
        sp_predict(
            &(struct sp_predict_request){.plan = &l.plan, .shape = &l.shape, .terms = l.terms}, &p),
        0);
    ms = p.step_ms;
    sp_prediction_destroy(&p);
    sp_plan_destroy(&l.plan);
    return ms;
}

/* The described machine, slower by these factors. */
static void make_slow(const double factor[SP_FIT_KINDS], double launch)
{
    struct sp_fit by = {.launch = launch};

    memcpy(by.factor, factor, sizeof by.factor);
    slow = described;
    sp_rates_apply(&by, &slow);
}

/* Takes the times of a run of the layout on `slow`, one op of it `spoilt` times as long, and fits
 * rates to them. */
static int fit(const char *schedule, int stages, double spoilt, struct sp_fit *found)
{
    struct sp_fit_measured measured = {.counts_gaps = true};
    struct sp_machine free_tasks = slow, free_calls = slow;
    const struct sp_fit none = {{1e-9, 1e-9, 1e-9, 1e-9}, 1};
    double *busy, *tasks, *gaps, *update = calloc((size_t)stages, sizeof *update);
    struct sp_op_terms terms;
    struct laid l;
    int err, ids;

    lay_out(schedule, stages, 1, &described, &l);
    ids = l.plan.family->ids(&l.plan.layout);
    terms = l.terms;
    free_tasks.rates.launch_s = 0;
    terms.machine = &free_tasks;
    busy = sp_op_times(&l.plan, &l.shape, &terms);
    sp_rates_apply(&none, &free_calls);
    terms.machine = &free_calls;
    tasks = sp_op_times(&l.plan, &l.shape, &terms);
    gaps = calloc((size_t)ids, sizeof *gaps);
    assert_true(busy && tasks && gaps && update);
    for (int i = 0; i < ids; i++)
        gaps[i] = fmax(0, tasks[i] - 1e3 * slow.rates.launch_s);
    for (int s = 0; s < stages; s++)
        update[s] =
            1e3 * sp_update_time(&free_tasks, (double)sp_memory_updated(&l.plan, &l.shape, s));
    busy[l.plan.family->id(&l.plan.layout, 0, &l.plan.programs[0].ops[0])] *= spoilt;
    measured.busy = busy;
    measured.gaps = gaps;
    measured.update = update;
    err = sp_rates_fit(&l.plan, &l.shape, &l.terms, &measured, found);
    sp_plan_destroy(&l.plan);
    free(busy);
    free(tasks);
    free(gaps);
    free(update);
    return err;
}

TEST(parts_of_layers_tell_kinds_apart)
{
    static const double factor[SP_FIT_KINDS] = {2, 3, 5, 1.5};
    struct sp_fit found;

    make_slow(factor, 7);
    assert_int_equal(fit("helix", 4, 1, &found), 0);
    printf("  products %.3f, attention %.3f and %.3f, memory %.3f, tasks %.3f\n", found.factor[0],
           found.factor[1], found.factor[2], found.factor[3], found.launch);
    for (int k = 0; k < SP_FIT_KINDS; k++)
        assert_true(fabs(found.factor[k] / factor[k] - 1) < 0.05);
    assert_true(fabs(found.launch / 7 - 1) < 0.05);
}

/* A factor common to all kinds is found exactly, whatever the ops are. */
TEST(a_common_factor_is_that_of_all_kinds)
{
    static const char *const schedules[] = {"1f1b", "zb1p", "helix", "weipipe"};
    static const double factor[SP_FIT_KINDS] = {3, 3, 3, 3};
    struct sp_fit found;

    make_slow(factor, 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fit(schedules[i], 4, 1, &found), 0);
        for (int k = 0; k < SP_FIT_KINDS; k++)
            assert_true(fabs(found.factor[k] / 3 - 1) < 1e-6);
    }
}

/* Ops of whole stages show only sums of kinds; the fit must still predict the step of another
 * layout. */
TEST(other_layouts_are_predicted)
{
    static const double factors[][SP_FIT_KINDS] = {
        {1, 6, 1, 1}, {4, 1, 1, 1}, {1, 1, 1, 8}, {0.5, 1, 3, 2}};
    static const struct {
        const char *schedule;
        int stages, batch;
    } others[] = {{"1f1b", 4, 1}, {"gpipe", 2, 4}, {"zb1p", 4, 2}, {"helix", 2, 1}};
    double worst = 0, without = 0;

    for (int f = 0; f < 4; f++) {
        struct sp_machine machine = described;
        struct sp_fit found;

        make_slow(factors[f], 1);
        assert_int_equal(fit("1f1b", 2, 1, &found), 0);
        sp_rates_apply(&found, &machine);
        for (int i = 0; i < 4; i++) {
            double is = step_ms(others[i].schedule, others[i].stages, others[i].batch, &slow);
            double was = step_ms(others[i].schedule, others[i].stages, others[i].batch, &described);
            double ms = step_ms(others[i].schedule, others[i].stages, others[i].batch, &machine);

            worst = fmax(worst, fabs(ms / is - 1));
            without = fmax(without, fabs(was / is - 1));
        }
    }
    printf("  steps of other layouts: at most %.1f %% off, %.0f %% as described\n", 100 * worst,
           100 * without);
    assert_true(worst < 0.1);
    assert_true(without > 0.3);
}

/* A disturbed op counts no more than one that takes no time. */
TEST(one_op_moves_little)
{
    static const double factor[SP_FIT_KINDS] = {2, 2, 2, 2};
    struct sp_fit found;

    make_slow(factor, 1);
    assert_int_equal(fit("1f1b", 2, 1000, &found), 0);
    printf("  an op 1000 times as long: products %.2f\n", found.factor[SP_FIT_PRODUCTS]);
    assert_true(fabs(found.factor[SP_FIT_PRODUCTS] / 2 - 1) < 0.2);
}

TEST(nothing_measured_is_nothing)
{
    const double none[4096] = {0};
    const struct sp_fit_measured measured = {none, none, none, false};
    struct sp_fit found;
    struct laid l;

    lay_out("1f1b", 2, 1, &described, &l);
    assert_true(l.plan.family->ids(&l.plan.layout) <= 4096);
    assert_int_equal(sp_rates_fit(&l.plan, &l.shape, &l.terms, &measured, &found), -EINVAL);
    sp_plan_destroy(&l.plan);
}

TEST_FIXTURE(load, NULL)
