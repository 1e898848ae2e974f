/* Causes planted in a step, one at a time: the report names each of them first, and its parts add up. */
#include "trace/analysis/causes.h"
#include "trace/analysis/findings.h"
#include "trace/analysis/path.h"
#include "trace/records.h"

enum { P = 4, M = 8 };

static int stage_of(const struct sp_waits *w, int k)
{
    return w->t->op[w->unit[k].op].stage;
}

/* 1F1B with forwards of 2 ms and backwards of 4. */
static void base(struct sp_plan *plan, struct sp_timeline *t)
{
    const struct sp_costs costs = {.f = 2, .b = 2, .w = 2};

    make_plan("1f1b", P, M, plan);
    record_of(plan, &costs, t);
    for (int s = 0; s < P; s++)
        t->stage[s].layers = 2;
}

/* ---- what is planted -------------------------------------------------------------------------------- */

static void nothing(struct sp_waits *w)
{
    (void)w;
}

static void slow_stage(struct sp_waits *w)
{
    for (int k = 0; k < w->n; k++)
        w->unit[k].compute *= stage_of(w, k) == 2 ? 1.6 : 1;
}

/* Stage 1 has five layers, the others one. */
static void partition(struct sp_waits *w)
{
    for (int s = 0; s < P; s++)
        ((struct sp_timeline *)w->t)->stage[s].layers = s == 1 ? 5 : 1;
    for (int k = 0; k < w->n; k++)
        w->unit[k].compute *= stage_of(w, k) == 1 ? 2.5 : 0.5;
}

static void slow_link(struct sp_waits *w)
{
    for (int k = 0; k < w->n; k++)
        if (w->unit[k].message >= 0 && w->t->message[w->unit[k].message].from == 1 &&
            stage_of(w, k) == 2)
            w->unit[k].delay[SP_STEP_MESSAGE] += 6;
}

/* One message, of the last backward, behind one that nobody waits for. */
static void late_message(struct sp_waits *w)
{
    int last = w->first_unit[1] - 1; /* of stage 0 */
    struct sp_timeline_message m = w->t->message[w->unit[last].message];

    m.kind = SP_ACTION_REDUCE;
    m.to = 3;
    m.writer = m.reader = -1;
    m.ready = m.begun = m.posted = --m.sent;
    m.arrived += 9;
    snprintf(m.tensor, sizeof m.tensor, "dw.1");
    assert_int_equal(sp_timeline_add_message((struct sp_timeline *)w->t, &m), 0);
    w->unit[last].delay[SP_STEP_INTERFACE] += 9;
}

static void slow_disk(struct sp_waits *w)
{
    for (int k = 0; k < w->n; k++)
        if (stage_of(w, k) == 1)
            w->unit[k].before[SP_STEP_OFFLOAD] = 1.5;
}

static void one_worker(struct sp_waits *w)
{
    struct sp_timeline *t = (struct sp_timeline *)w->t;

    t->stage[1].rank = t->stage[0].rank;
    t->stage[1].lane = 0;
}

static void no_core(struct sp_waits *w)
{
    for (int k = 0; k < w->n; k++)
        w->unit[k].core = stage_of(w, k) == 3 ? 1.5 : 0;
}

static void late_submission(struct sp_waits *w)
{
    w->unit[w->first_unit[2] + 4].late = 7;
}

static void runtime(struct sp_waits *w)
{
    for (int k = 0; k < w->n; k++)
        w->unit[k].held = 0.7;
}

static void long_op(struct sp_waits *w)
{
    w->unit[w->first_unit[3] + 5].compute += 12;
}

static void long_update(struct sp_waits *w)
{
    ((struct sp_timeline *)w->t)->stage[2].update = 5;
}

static const struct planted {
    const char *what;
    void (*plant)(struct sp_waits *w);
    enum sp_finding_kind kind;
    int stage;
    const char *says;
} table[] = {
    {"a slow stage", slow_stage, SP_FINDING_STAGES, 2, "stage 2 is slow"},
    {"an uneven partition", partition, SP_FINDING_STAGES, 1, "stage 1 has 5 of 8 layers"},
    {"a slow link", slow_link, SP_FINDING_MESSAGES, 1, "from rank 1 to rank 2"},
    {"a message behind another one", late_message, SP_FINDING_INTERFACE, 1,
     "from stage 1 to stage 0 for 9 ms, behind dw.1"},
    {"a slow disk", slow_disk, SP_FINDING_OFFLOAD, 1, "stage 1 waits"},
    {"one worker for two stages", one_worker, SP_FINDING_CORE, -1, "stages 0 and 1"},
    {"a stage without a core", no_core, SP_FINDING_CORE, 3, "stage 3 waits"},
    {"a late submission", late_submission, SP_FINDING_SUBMISSION, 2, "on stage 2"},
    {"a slow runtime", runtime, SP_FINDING_ENGINE, -1, "wait for the runtime"},
    {"a long op", long_op, SP_FINDING_OPS, 3, "on stage 3 16"},
    {"a long update", long_update, SP_FINDING_UPDATE, 2, "of stage 2 take 5"},
};

/* ---- what must hold of every record -------------------------------------------------------------------- */

static void check_sums(const struct sp_waits *w)
{
    struct sp_path path;
    struct sp_causes c;
    double on_path = 0, causes = 0;

    for (int s = 0; s < w->t->stages; s++) {
        double sum = 0;

        for (int i = 0; i < SP_STEP_PARTS; i++) {
            assert_true(w->stage[s][i] > -1e-9 * w->t->length);
            sum += w->stage[s][i];
        }
        assert_true(fabs(sum - w->t->length) < 1e-9 * w->t->length);
    }
    assert_int_equal(sp_path_find(w, &path), 0);
    for (int i = 0; i < SP_STEP_PARTS; i++)
        on_path += path.part[i];
    assert_true(fabs(on_path - w->t->span) < 1e-6 * w->t->span);
    sp_path_destroy(&path);
    assert_int_equal(sp_causes_find(w, &c), 0);
    for (int k = 0; k < SP_CAUSES; k++)
        causes += c.ms[k];
    assert_true(fabs(causes - c.measured_ms) < 1e-9 * w->t->span);
    assert_true(fabs(c.ms[SP_CAUSE_REST]) < 1e-9 * w->t->span);
}

TEST(named_first)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_finding f[SP_FINDINGS];
        struct sp_plan plan;
        struct sp_timeline t;
        struct sp_waits w;

        base(&plan, &t);
        plant_in(&t, table[i].plant);
        assert_int_equal(sp_waits_create(&t, &w), 0);
        check_sums(&w);
        assert_int_equal(sp_findings_make(&w, f), 0);
        print_message("%s: %.4g of %.4g ms: %s\n", table[i].what, f[0].gain, t.length, f[0].text);
        if (f[0].kind != table[i].kind || (table[i].stage >= 0 && f[0].stage != table[i].stage) ||
            !strstr(f[0].text, table[i].says))
            fail_msg("%s: first is %s on stage %d: %s", table[i].what, sp_finding_name(f[0].kind),
                     f[0].stage, f[0].text);
        assert_true(f[0].gain > 1.3 * f[1].gain);
        sp_waits_destroy(&w);
        sp_timeline_destroy(&t);
        sp_plan_destroy(&plan);
    }
}

/* The step that is its order: nothing to be found. */
TEST(nothing_is_wrong)
{
    struct sp_finding f[SP_FINDINGS];
    struct sp_long_wait longest[SP_LONG_WAITS];
    struct sp_plan plan;
    struct sp_timeline t;
    struct sp_waits w;

    base(&plan, &t);
    plant_in(&t, nothing);
    assert_int_equal(sp_waits_create(&t, &w), 0);
    check_sums(&w);
    assert_int_equal(sp_findings_make(&w, f), 0);
    assert_true(f[0].gain < 1e-9);
    /* stage 3 waits for three forwards */
    assert_int_equal(sp_long_waits(&w, longest), SP_LONG_WAITS);
    for (int i = 1; i < SP_LONG_WAITS; i++)
        assert_true(longest[i - 1].time >= longest[i].time);
    assert_true(longest[0].part == SP_STEP_UPSTREAM && longest[0].producer >= 0);
    sp_waits_destroy(&w);
    sp_timeline_destroy(&t);
    sp_plan_destroy(&plan);
}

/* The same of steps that a network, workers and a disk make, not the test. */
TEST(simulated)
{
    static const struct {
        const char *what;
        double comm, wire;
        enum sp_finding_kind kind;
    } links[] = {{"latency", 3, 0, SP_FINDING_MESSAGES},
                 {"bandwidth", 0, 1.5, SP_FINDING_MESSAGES}};

    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        const struct sp_costs costs = {
            .f = 2, .b = 2, .w = 2, .comm = links[i].comm, .wire = links[i].wire};
        struct sp_finding f[SP_FINDINGS];
        struct sp_plan plan;
        struct sp_timeline t;
        struct sp_waits w;

        make_plan("1f1b", P, M, &plan);
        record_of(&plan, &costs, &t);
        assert_int_equal(sp_waits_create(&t, &w), 0);
        check_sums(&w);
        assert_int_equal(sp_findings_make(&w, f), 0);
        print_message("%s: %.4g of %.4g ms: %s\n", links[i].what, f[0].gain, t.length, f[0].text);
        assert_int_equal(f[0].kind, links[i].kind);
        sp_waits_destroy(&w);
        sp_timeline_destroy(&t);
        sp_plan_destroy(&plan);
    }
}
