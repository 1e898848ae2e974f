/* Records of list simulations of every schedule: replayed, written, read again. */
#include "policies/registry.h"
#include "policies/simulation/listsim.h"
#include "trace/analysis/path.h"
#include "trace/records.h"
#include "trace/timeline/json.h"
#include "trace/timeline/tracks.h"
#include <limits.h>

/* Calls `check` with a record of every schedule on 2 and 4 stages at uneven costs; returns how
 * many. */
static int each_record(double comm, double wire,
                       void (*check)(const struct sp_plan *plan, const struct sp_costs *costs,
                                     struct sp_timeline *t))
{
    int cases = 0;

    for (int i = 0; sp_schedule_at(i); i++)
        for (int p = 2; p <= 4; p += 2) {
            struct sp_layout lay = layout(p, 8);
            struct sp_costs costs = {.comm = comm, .wire = wire};
            struct sp_timeline t;
            struct sp_plan plan;
            uint64_t seed = (uint64_t)i;
            double *ms;

            lay.chunks = 0;
            lay.layers = 8;
            lay.slices = strcmp(sp_schedule_at(i)->name, "sppo") ? 1 : 2;
            if (sp_plan_create(sp_schedule_at(i)->name, &lay, &plan))
                continue;
            ms = calloc((size_t)plan.family->ids(&plan.layout), sizeof *ms);
            assert_non_null(ms);
            for (int k = 0; k < plan.family->ids(&plan.layout); k++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                ms[k] = 1 + (double)(seed >> 54) / 256;
            }
            costs.by_op = ms;
            record_of(&plan, &costs, &t);
            check(&plan, &costs, &t);
            sp_timeline_destroy(&t);
            sp_plan_destroy(&plan);
            free(ms);
            cases++;
        }
    return cases;
}

/* ---- replays -------------------------------------------------------------------------------------- */

/* Without messages a replay is the list simulation of a run. */
static void check_list_simulation(const struct sp_plan *plan, const struct sp_costs *costs,
                                  struct sp_timeline *t)
{
    double *times = calloc(2 * (size_t)t->n_ops, sizeof *times), makespan;
    struct sp_replay how = {.start = times, .end = times + t->n_ops};
    const struct sp_timeline_terms terms = {.plan = plan, .every = 1};
    struct sp_times simulated;
    struct sp_waits w;
    char why[256];

    assert_non_null(times);
    assert_int_equal(sp_listsim(plan, costs, SP_RUN, &simulated, why, sizeof why), 0);
    sp_timeline_destroy(t);
    assert_int_equal(sp_timeline_of_plan(&terms, t), 0);
    for (int i = 0; i < t->n_ops; i++) {
        struct sp_timeline_op *op = &t->op[i];

        op->start = simulated.start[op->stage][op->index];
        op->end = op->out = simulated.end[op->stage][op->index];
        op->busy =
            (op->end - op->start) / (op->op.overlap || (op->index && op[-1].op.overlap) ? 2 : 1);
    }
    t->span = t->length = simulated.makespan;
    assert_int_equal(sp_timeline_finish(t), 0);
    assert_int_equal(sp_waits_create(t, &w), 0);
    assert_int_equal(sp_replay(&w, &how, &makespan), 0);
    assert_true(fabs(makespan - simulated.makespan) < 1e-9);
    for (int i = 0; i < t->n_ops; i++) {
        int k = w.of_op[i];

        assert_true(fabs(how.start[k] - simulated.start[t->op[i].stage][t->op[i].index]) < 1e-9);
        assert_true(fabs(how.end[k] - simulated.end[t->op[i].stage][t->op[i].index]) < 1e-9);
    }
    sp_waits_destroy(&w);
    sp_times_destroy(&simulated);
    free(times);
}

TEST(as_list_simulation)
{
    int n = each_record(0, 0, check_list_simulation);

    print_message("%d plans as their list simulation has them\n", n);
    assert_true(n > 30);
}

/* A replay of everything takes as long as the step, and its parts add up to it. */
static void check_whole(const struct sp_plan *plan, const struct sp_costs *costs,
                        struct sp_timeline *t)
{
    struct sp_replay how = {.with = SP_REPLAY_ALL};
    struct sp_waits w;
    struct sp_path path;
    double makespan, on_path = 0;

    (void)costs;
    assert_int_equal(sp_waits_create(t, &w), 0);
    assert_int_equal(sp_replay(&w, &how, &makespan), 0);
    if (fabs(makespan - t->span) > 1e-9 * t->span)
        fail_msg("%s, %d stages: %.9g replayed, %.9g recorded", plan->def->name, t->stages,
                 makespan, t->span);
    for (int s = 0; s < t->stages; s++) {
        double sum = 0;

        for (int i = 0; i < SP_STEP_PARTS; i++)
            sum += w.stage[s][i];
        assert_true(fabs(sum - t->length) < 1e-9 * t->length);
    }
    assert_int_equal(sp_path_find(&w, &path), 0);
    for (int i = 0; i < SP_STEP_PARTS; i++)
        on_path += path.part[i];
    if (fabs(on_path - t->span) > 1e-2 * t->span)
        fail_msg("%s, %d stages: %.9g on the critical path, %.9g recorded", plan->def->name,
                 t->stages, on_path, t->span);
    sp_path_destroy(&path);
    sp_waits_destroy(&w);
}

TEST(whole_step)
{
    int n = each_record(0.5, 0, check_whole);

    n += each_record(0.25, 0.5, check_whole);
    print_message("%d steps replayed as they were\n", n);
    assert_true(n > 60);
}

/* ---- files ------------------------------------------------------------------------------------------ */

static bool is_near(double a, double b)
{
    return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-12 * (fabs(a) + fabs(b));
}

static void check_same(const struct sp_timeline *a, const struct sp_timeline *b)
{
    assert_int_equal(a->n_ops, b->n_ops);
    assert_int_equal(a->n_messages, b->n_messages);
    assert_int_equal(a->n_deps, b->n_deps);
    assert_string_equal(a->schedule, b->schedule);
    assert_true(a->source == b->source && a->processes == b->processes &&
                is_near(a->span, b->span));
    for (int i = 0; i < a->n_ops; i++) {
        const struct sp_timeline_op *x = &a->op[i], *y = &b->op[i];

        assert_memory_equal(&x->op, &y->op, sizeof x->op);
        assert_true(x->stage == y->stage && x->turn == y->turn && x->split == y->split &&
                    x->alive == y->alive && x->after == y->after && x->deps == y->deps);
        assert_true(is_near(x->start, y->start) && is_near(x->end, y->end) &&
                    is_near(x->busy, y->busy) && is_near(x->out, y->out) &&
                    is_near(x->arrived, y->arrived) && is_near(x->submitted, y->submitted));
        for (int d = 0; d < x->deps; d++)
            assert_true(a->dep[x->first_dep + d].op == b->dep[y->first_dep + d].op &&
                        a->dep[x->first_dep + d].beside == b->dep[y->first_dep + d].beside);
    }
    for (int i = 0; i < a->n_messages; i++) {
        const struct sp_timeline_message *x = &a->message[i], *y = &b->message[i];

        assert_string_equal(x->tensor, y->tensor);
        assert_true(x->kind == y->kind && x->from == y->from && x->to == y->to &&
                    x->writer == y->writer && x->reader == y->reader && x->bytes == y->bytes &&
                    is_near(x->ready, y->ready) && is_near(x->sent, y->sent) &&
                    is_near(x->arrived, y->arrived));
    }
}

/* Loads a file with a record, or without one (t NULL) with a text; what that says is in c->text. */
static int load(const struct sp_timeline *t, const char *text, struct sp_timeline *back,
                struct capture *c)
{
    char path[] = "/tmp/starpipe-test-record-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    int err;

    assert_non_null(f);
    if (t)
        assert_int_equal(sp_timeline_write(t, f), 0);
    else
        fputs(text, f);
    assert_int_equal(fclose(f), 0);
    err = CAPTURED(c, sp_timeline_load("test", path, back));
    unlink(path);
    return err;
}

static void check_file(const struct sp_plan *plan, const struct sp_costs *costs,
                       struct sp_timeline *t)
{
    struct sp_timeline back;
    struct capture c;

    (void)costs;
    snprintf(t->model, sizeof t->model, "a \"model\" of <%s>", plan->def->name);
    assert_int_equal(load(t, NULL, &back, &c), 0);
    assert_string_equal(t->model, back.model);
    check_same(t, &back);
    sp_timeline_destroy(&back);
}

/* True if a record is refused, with one line. */
static bool is_refused(const struct sp_timeline *t)
{
    struct sp_timeline back;
    struct capture c;
    int err = load(t, NULL, &back, &c);

    if (!err)
        sp_timeline_destroy(&back);
    return err == -EINVAL && strchr(c.text, '\n') == c.text + strlen(c.text) - 1;
}

/* Refuses numbers with which sums and products of a step would overflow. */
static void check_bounds(const struct sp_plan *plan, const struct sp_costs *costs,
                         struct sp_timeline *t)
{
    struct sp_timeline_stage kept = t->stage[0];
    int layers = t->layers;

    (void)plan, (void)costs;
    assert_false(is_refused(t));
    t->stage[0].layers = INT_MAX;
    assert_true(is_refused(t));
    t->stage[0] = kept;
    t->stage[0].busy = 1e300;
    assert_true(is_refused(t));
    t->stage[0] = kept;
    t->stage[0].peak_bytes = INT64_MAX;
    assert_true(is_refused(t));
    t->stage[0] = kept;
    t->layers = INT_MIN;
    assert_true(is_refused(t));
    t->layers = layers;
}

/* Refuses numbers that no step has, and missing ones. */
static void check_numbers(const struct sp_plan *plan, const struct sp_costs *costs,
                          struct sp_timeline *t)
{
    double *const of_t[] = {&t->bubble, &t->span, &t->stage[0].busy, &t->stage[0].bubble};
    int micro_batches = t->micro_batches;

    (void)plan, (void)costs;
    for (size_t i = 0; i < sizeof of_t / sizeof *of_t; i++) {
        double kept = *of_t[i];

        *of_t[i] = -0.5;
        assert_true(is_refused(t));
        *of_t[i] = NAN; /* left out of the file */
        assert_true(is_refused(t));
        *of_t[i] = kept;
    }
    t->bubble += 1.5;
    assert_true(is_refused(t));
    t->bubble -= 1.5;
    t->micro_batches = -1;
    assert_true(is_refused(t));
    t->micro_batches = micro_batches;
    assert_false(is_refused(t));
}

TEST(numbers_are_bounded)
{
    assert_true(each_record(0.25, 0.5, check_bounds) > 30);
    assert_true(each_record(0.25, 0.5, check_numbers) > 30);
}

TEST(read_again)
{
    int n = each_record(0.25, 0.5, check_file);

    print_message("%d records read as they were written\n", n);
    assert_true(n > 30);
}

/* On a track nothing overlaps, whatever runs at the same time. */
static void check_tracks(const struct sp_plan *plan, const struct sp_costs *costs,
                         struct sp_timeline *t)
{
    struct sp_tracks tracks;

    (void)plan, (void)costs;
    assert_int_equal(sp_tracks_create(t, &tracks), 0);
    for (int i = 0; i < t->n_messages; i++)
        for (int k = 0; k < i; k++)
            if (tracks.of_message[i] == tracks.of_message[k])
                assert_true(t->message[i].sent >= t->message[k].arrived - 1e-9 ||
                            t->message[k].sent >= t->message[i].arrived - 1e-9);
    for (int s = 0; s < t->stages; s++)
        for (int i = t->first_op[s]; i < t->first_op[s + 1]; i++)
            for (int k = t->first_op[s]; k < i; k++)
                if (tracks.of_op[i] == tracks.of_op[k])
                    assert_true(t->op[i].start >= t->op[k].end - 1e-9 ||
                                t->op[k].start >= t->op[i].end - 1e-9);
    sp_tracks_destroy(&tracks);
}

TEST(tracks_apart)
{
    assert_true(each_record(3, 0.5, check_tracks) > 30);
}

/* A text that is no record is refused with one line. */
TEST(refusals)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"traceEvents\":[]}",
        "{\"otherData\":{\"format\":\"starpipe step 1\",\"stages\":2},\"traceEvents\":[]}",
        "{\"otherData\":{\"format\":\"starpipe step "
        "1\",\"stages\":1,\"processes\":1,\"stage\":[{}]},"
        "\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"op\",\"name\":\"F0.0\",\"ts\":0,\"dur\":1,"
        "\"args\":{\"stage\":0,\"index\":3}}]}"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct sp_timeline t;
        struct capture c;

        assert_true(load(NULL, texts[i], &t, &c) < 0);
        assert_true(strchr(c.text, '\n') == c.text + strlen(c.text) - 1);
    }
}
