/*
 * Every schedule over a grid of layouts: a layout is refused with one line, or its plan is complete
 * and legal and all figures of its list simulation are right. If a refusal says what to use, that
 * works.
 */
#include "policies/layers.h"
#include "policies/registry.h"
#include "policies/simulation/verify.h"

/* Variants, tried where the schedule is there. */
static const struct {
    const char *name;
    int every; /* one layout of so many: searches take their time */
} variants[] = {
    {"gpipe:backward=fifo", 1}, {"interleaved:group=3", 1}, {"zb1p:group=3", 1},
    {"zb1p:auto", 50},          {"zb2p:auto", 50},
};

static struct oracle oracle;
static uint32_t seed;

static int pick(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

static const char *name_layout(const char *name, const struct sp_layout *lay)
{
    static char text[160];

    snprintf(text, sizeof text, "%s p=%d m=%d v=%d n=%d", name, lay->stages, lay->micro_batches,
             lay->chunks, lay->slices);
    return text;
}

/* Checks that a refusal is one line, and that following its advice leads to a plan after a few
 * tries. Returns true if it gives any. */
static bool check_refusal(const char *name, const struct sp_layout *lay, int ret, struct capture *c)
{
    struct sp_layout now = *lay;

    for (int tries = 0; tries < 6; tries++) {
        struct sp_layout before = now;
        size_t len = strlen(c->text);
        struct sp_plan plan;

        if (ret != -EINVAL || strncmp(c->text, "starpipe: schedule ", 19) || len < 30 ||
            strchr(c->text, '\n') != c->text + len - 1)
            fail_msg("%s: %d and '%s'", name_layout(name, &now), ret, c->text);
        if (!follow_advice(c->text, &now) || !memcmp(&before, &now, sizeof now)) {
            if (tries > 0 && !strstr(c->text, "; use ")) /* of an option, "use group=4" */
                fail_msg("%s: what was said to do is refused: '%s'", name_layout(name, &now),
                         c->text);
            return false;
        }
        ret = CAPTURED(c, sp_plan_create(name, &now, &plan));
        if (!ret) {
            sp_plan_destroy(&plan);
            return true;
        }
    }
    fail_msg("%s: no end of '%s'", name_layout(name, lay), c->text);
    return false;
}

/* F and B once for every micro-batch, slice and global stage, and at most one W. */
static void check_whole(const struct sp_plan *plan)
{
    int per_mb[SP_PASSES][64] = {{0}}, whole = oracle.globals * plan->layout.slices;

    for (int s = 0; s < plan->layout.stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++)
            per_mb[plan->programs[s].ops[k].pass][plan->programs[s].ops[k].mb]++;
    }
    for (int i = 0; i < plan->layout.micro_batches; i++) {
        if (per_mb[SP_F][i] != whole || per_mb[SP_B][i] != whole || per_mb[SP_W][i] > whole)
            fail_msg("%s: micro-batch %d has %d F, %d B, %d W, not %d", describe(plan), i,
                     per_mb[SP_F][i], per_mb[SP_B][i], per_mb[SP_W][i], whole);
    }
}

/* Checks the claim of the published formula about the makespan without communication. */
static void check_formula(const struct sp_plan *plan, const struct sp_costs *c)
{
    const struct sp_schedule_def *def = plan->def;
    double says = def->makespan ? formula_of(plan, c) : -1, is;
    bool lower = def->makespan_is == SP_LOWER_BOUND || def->makespan_is == SP_EXACT;
    bool upper = def->makespan_is == SP_UPPER_BOUND || def->makespan_is == SP_EXACT;

    if (says < 0)
        return;
    oracle_play(&oracle, c, plan->paired, 0);
    is = oracle.makespan;
    if (((lower && says > is) || (upper && says < is)) && !oracle_near(says, is, 1e-9))
        fail_msg("%s f=%g b=%g w=%g: makespan %g, not %g = %s", describe(plan), c->f, c->b, c->w,
                 is, says, def->makespan_source);
}

/* Checks the smallest capacity of a channel that suffices. */
static void check_buffers(const struct sp_plan *plan)
{
    static const struct sp_costs none = {0};
    int buffers, k;

    assert_int_equal(sp_listsim_buffers(plan, &buffers), 0);
    k = buffers ? buffers : 1;
    if (k < 1 || buffers == 1 || !oracle_play(&oracle, &none, true, k))
        fail_msg("%s: stuck with channels of %d messages", describe(plan), k);
    if (k > 1 && oracle_play(&oracle, &none, true, k - 1))
        fail_msg("%s: channels of %d messages would do, not only %d", describe(plan), k - 1, k);
}

/* The memory of the fullest stage suffices as a limit; any less does not. */
static void check_memory(struct sp_plan *plan)
{
    double part = 1.0 / ((oracle.two_ways ? 1 : oracle.v) * oracle.n);
    char why[512] = "", want[64];
    int peak = oracle.peak[0], at = 0;

    for (int s = 1; s < plan->layout.stages; s++) {
        at = oracle.peak[s] > peak ? s : at;
        peak = oracle.peak[at];
    }
    plan->layout.memory = peak * part;
    if (sp_verify(plan, why, sizeof why))
        fail_msg("%s: %s", describe(plan), why);
    plan->layout.memory = (peak - 0.5) * part;
    snprintf(want, sizeof want, "order: stage %d holds ", at);
    if (sp_verify(plan, why, sizeof why) != -EINVAL || strncmp(why, want, strlen(want)))
        fail_msg("%s: '%s' is not '%s'", describe(plan), why, want);
    plan->layout.memory = 0;
}

static void check_plan(struct sp_plan *plan)
{
    struct sp_costs c = {.f = 1 + pick(9), .b = 1 + pick(9), .w = 1 + pick(9)};
    char why[512] = "";
    int wrong;

    if (sp_verify(plan, why, sizeof why))
        fail_msg("%s: %s", describe(plan), why);
    layers_create(plan, &oracle);
    wrong = oracle_judge(&oracle);
    if (wrong)
        fail_msg("%s: the oracle finds %d", describe(plan), wrong);
    check_whole(plan);
    check_formula(plan, &c);
    for (int comm = 0; comm < 2; comm++) {
        c.comm = comm * (0.5 + pick(4));
        oracle_compare(&oracle, &c, SP_UNBOUNDED, 1e-9);
        oracle_compare(&oracle, &c, SP_FIFO, 1e-9); /* legal programs lose no time by it */
        if (plan->paired)
            oracle_compare(&oracle, &c, SP_PAIRED, 1e-9);
    }
    check_buffers(plan);
    check_memory(plan);
    oracle_destroy(&oracle);
}

static void check_schedule(const char *name, int every)
{
    int built = 0, refused = 0, hinted = 0, skipped = 0, buffers = 0, wanted;
    int chunks = sp_schedule_find(name)->default_chunks;

    seed = 2024; /* the same layouts and costs whatever came before */
    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 20; m++) {
            for (int v = 1; v <= 4; v++) {
                for (int n = 1; n <= 3; n++) {
                    struct sp_layout lay = layout_of(p, m, v, n);
                    struct sp_plan plan;
                    struct capture c;
                    int ret;

                    /* of large layouts a sample, a larger one of what the schedule is meant for */
                    if (p * m > (v == chunks && n == 1 ? 80 : 40) && pick(4))
                        continue;
                    if (every > 1 && pick(every))
                        continue;
                    ret = CAPTURED(&c, sp_plan_create(name, &lay, &plan));
                    if (ret) {
                        hinted += check_refusal(name, &lay, ret, &c);
                        refused++;
                        continue;
                    }
                    if (*c.text)
                        fail_msg("%s prints '%s'", describe(&plan), c.text);
                    if (layers_cover(&plan)) {
                        check_plan(&plan);
                        built++;
                    } else {
                        skipped++;
                    }
                    assert_int_equal(sp_listsim_buffers(&plan, &wanted), 0);
                    buffers = wanted > buffers ? wanted : buffers;
                    sp_plan_destroy(&plan);
                }
            }
        }
    }
    print_message("%-20s %4d built, %4d refused (%d with what works)", name, built, refused,
                  hinted);
    if (skipped)
        print_message(", %d of a family the oracle does not know", skipped);
    if (buffers)
        print_message(", up to %d messages in a channel", buffers);
    print_message("\n");
    assert_true(built + skipped > 0);
}

/* With SP_LONG all layouts, otherwise a sixth of them, a third of variants. */
TEST(schedules)
{
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++)
        if (!sp_family_find(def->family)->facts.parts) /* those have tests of their own */
            check_schedule(def->name, test_every(6) * (def->emit_all ? 3 : 1));
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (sp_schedule_find(variants[i].name))
            check_schedule(variants[i].name, test_every(3) * variants[i].every);
    }
}
