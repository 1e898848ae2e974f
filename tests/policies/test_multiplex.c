/*
 * Multiplexed sequence partitioning: SPPO's table 3 as printed there, parts and who computes them over a
 * grid, times against a simulation that knows no family, what is refused.
 */
#include "policies/families/multiplexed/multiplex.h"
#include "policies/play.h"
#include "policies/simulation/index.h"
#include "policies/simulation/verify.h"

static struct sp_layout multiplexed(int p, int n)
{
    return layout_of(p, 1, 1, n);
}

/* ---- table 3 ----------------------------------------------------------------------------- */

enum { P = 4, N = 8, END = -1 };

TEST(table_3)
{
    static const int left[P][N + 1] = {{0, 1, 2, END}, {0, 1, END}, {0, END}, {END}};
    static const int steady[P][N + 1] = {
        {3, 4, 5, 6, 7, END}, {2, 3, 4, 5, 6, END}, {1, 2, 3, 4, 5, END}, {0, 1, 2, 3, 4, END}};
    static const int right[P][N + 1] = {{END}, {7, END}, {6, 7, END}, {5, 6, 7, END}};
    static const int left_range[P][P + 1] = {{0, 1, 2, 3, END}, {1, 2, 3, END}, {2, 3, END}, {END}};
    static const int right_range[P][P + 1] = {
        {END}, {0, 1, END}, {0, 1, 2, END}, {0, 1, 2, 3, END}};
    struct sp_layout lay = multiplexed(P, N);

    for (int g = 0; g < P; g++) {
        const int *const sets[] = {left[g], steady[g], right[g]};
        const int own[] = {g, END}, *const ranges[] = {left_range[g], own, right_range[g]};
        int at[3] = {0};

        for (int k = 0; k < N; k++) {
            enum sp_phase phase = sp_slice_phase(&lay, g, k);
            int first, last;

            assert_int_equal(sets[phase][at[phase]++], k);
            sp_slice_stages(&lay, g, k, &first, &last);
            for (int s = first; s <= last; s++)
                assert_int_equal(ranges[phase][s - first], s);
            assert_int_equal(ranges[phase][last - first + 1], END);
        }
        for (int i = 0; i < 3; i++)
            assert_int_equal(sets[i][at[i]], END);
    }
}

/* ---- parts ------------------------------------------------------------------------------- */

TEST(parts)
{
    for (int p = 1; p <= 9; p++)
        for (int n = p > 3 ? p - 1 : 2; n < 14; n++) {
            struct sp_layout lay = multiplexed(p, n);

            for (int g = 0; g < p; g++) {
                int number = 0;

                for (int k = 0; k < n; k++) {
                    int first, last;

                    sp_slice_stages(&lay, g, k, &first, &last);
                    assert_true(first <= g && g <= last && first >= 0 && last < p);
                    assert_int_equal(sp_first_part(&lay, g, k), number);
                    for (int s = first; s <= last; s++, number++) {
                        struct sp_slice_part at = sp_part_at(&lay, g, number);

                        assert_true(at.slice == k && at.stage == s && at.part == s - first &&
                                    at.of == last - first + 1);
                    }
                }
                assert_int_equal(sp_parts_of(&lay, g), number);
            }
        }
    for (int in = 1; in < 10; in++)
        for (int of = 1; of < 10; of++)
            for (int part = 0; part < in; part++) {
                int first, last;

                sp_parts_overlapping(part, in, of, &first, &last);
                for (int j = 0; j < of; j++) /* [part/in, (part+1)/in) and [j/of, (j+1)/of) */
                    assert_int_equal(j >= first && j <= last,
                                     j * in < (part + 1) * of && part * of < (j + 1) * in);
            }
}

/* ---- times --------------------------------------------------------------------------------- */

enum { MOST_PARTS = 256, MOST_STAGES = 9 };

/* Ops of all stages by stage, slice and part, played until nothing changes. */
struct play {
    struct sp_layout lay;
    double start[2][MOST_STAGES][MOST_PARTS];
};

static double length(const struct play *y, int pass, int g, int number)
{
    return (pass ? 2.0 : 1.0) / y->lay.slices / sp_part_at(&y->lay, g, number).of;
}

static double end_of(const struct play *y, int pass, int g, int number)
{
    return y->start[pass][g][number] + length(y, pass, g, number);
}

/* When the data of an op are there: of tokens, from first principles. */
static double ready(const struct play *y, int pass, int g, int number)
{
    struct sp_slice_part me = sp_part_at(&y->lay, g, number);
    int from = pass ? g + 1 : g - 1;
    double at = pass ? end_of(y, 0, g, number) : 0;

    for (int k = 0; from >= 0 && from < y->lay.stages && k < sp_parts_of(&y->lay, from); k++) {
        struct sp_slice_part other = sp_part_at(&y->lay, from, k);

        if (other.slice == me.slice && other.part * me.of < (me.part + 1) * other.of &&
            me.part * other.of < (other.part + 1) * me.of)
            at = fmax(at, end_of(y, pass, from, k));
    }
    for (int k = 0; k < sp_parts_of(&y->lay, g); k++) {
        struct sp_slice_part other = sp_part_at(&y->lay, g, k);

        if (pass ? other.slice > me.slice : other.slice < me.slice)
            at = fmax(at, end_of(y, pass, g, k));
        else if (other.slice == me.slice && (pass ? k > number : k < number))
            at = fmax(at, y->start[pass][g][k]);
    }
    return at;
}

static double play(const struct sp_plan *plan)
{
    static struct play y;
    double makespan = 0;
    bool changed = true;

    memset(&y, 0, sizeof y);
    y.lay = plan->layout;
    while (changed) {
        changed = false;
        for (int s = 0; s < plan->layout.stages; s++) {
            double free_at = 0;

            for (int i = 0; i < plan->programs[s].n; i++) {
                const struct sp_op *op = &plan->programs[s].ops[i];
                int pass = op->pass == SP_B;
                double *start = &y.start[pass][op->chunk][op->slice];
                double at = fmax(free_at, ready(&y, pass, op->chunk, op->slice));

                changed |= at > *start + 1e-12;
                *start = at;
                free_at = end_of(&y, pass, op->chunk, op->slice);
                makespan = fmax(makespan, free_at);
            }
        }
    }
    return makespan;
}

/* Messages of parts are parts of a message; those between parts of a slice leave as they begin. */
TEST(messages)
{
    struct sp_costs costs = sp_costs_unit;
    int waited = 0;

    costs.comm = 0.05;
    for (int p = 2; p <= 6; p++) {
        struct sp_layout lay = multiplexed(p, p + 3);
        struct sp_plan plan;
        struct sp_times t;
        struct sp_index ix;
        int stage, index;

        make_and_play("sppo:multiplex", lay, &costs, &plan, &t);
        assert_int_equal(sp_index_create(&plan, &ix, &stage, &index), 0);
        for (int s = 0; s < p; s++)
            for (int k = 0; k < plan.programs[s].n; k++) {
                double start = k ? t.end[s][k - 1] : 0;
                struct sp_dep deps[SP_MAX_DEPS];
                int n = plan.family->deps(&lay, s, &plan.programs[s].ops[k], deps);

                for (int i = 0; i < n; i++) {
                    int from = deps[i].stage, at = sp_index_place(&ix, &plan, &deps[i]);
                    double ready = deps[i].beside ? t.start[from][at] : t.end[from][at];

                    if (from != s)
                        ready += 0.05 / sp_part_at(&lay, deps[i].op.chunk, deps[i].op.slice).of;
                    start = fmax(start, ready);
                }
                waited += start > (k ? t.end[s][k - 1] : 0);
                assert_true(fabs(t.start[s][k] - start) < 1e-9);
            }
        sp_index_destroy(&ix);
        played_done(&plan, &t);
    }
    assert_true(waited > 100);
}

TEST(times)
{
    int plans = 0;

    for (int p = 1; p <= 8; p++)
        for (int n = p > 3 ? p - 1 : 2; n <= 16; n += 1 + n / 6) {
            struct sp_layout lay = multiplexed(p, n);
            struct sp_plan plan, plain;
            struct sp_times t, u;
            double busy = 0;

            make_and_play("sppo:multiplex", lay, &sp_costs_unit, &plan, &t);
            make_and_play("sppo", lay, &sp_costs_unit, &plain, &u);
            for (int s = 0; s < p; s++)
                busy += t.busy[s];
            assert_true(fabs(busy - 3.0 * p) < 1e-9);
            assert_true(fabs(u.makespan - 3 * (1 + (p - 1.0) / n)) < 1e-9); /* (p-1)/n */
            if (!(fabs(t.makespan - play(&plan)) < 1e-9))
                fail_msg("p = %d, n = %d: simulated %.9g, %.9g", p, n, t.makespan, play(&plan));
            assert_true(t.makespan >= 3 - 1e-9);
            /* the bubble is at most 2/5 of what it was */
            assert_true(p == 1 || t.makespan - 3 <= 0.4 * (u.makespan - 3) + 1e-9);
            if (p == 4 && n == 8)
                assert_true(fabs(t.makespan - 3.125) < 1e-9); /* 25/24 of the work */
            for (int s = 0; s < p; s++) /* a stage takes in no more than a slice or two of others */
                assert_true(t.peak_live[s] <= n + 2);
            played_done(&plan, &t);
            played_done(&plain, &u);
            plans++;
        }
    printf("[          ] %d plans\n", plans);
}

/* ---- refusals ------------------------------------------------------------------------------ */

TEST(refusals)
{
    const struct refusal table[] = {
        {"sppo:multiplex", multiplexed(6, 4),
         "at least 5 slices on 6 stages, not 4; use --slices 5"},
        {"sppo:multiplex", multiplexed(2, 1), "at least 2 slices"},
        {"sppo:multiplex", multiplexed(31, 40), "at most 30 stages"},
        {"seq1f1b:multiplex", multiplexed(2, 4), "takes no options"},
        {"sppo:multiplex=1", multiplexed(2, 4), "takes no value"},
    };

    assert_no_plans(table);
}

/* An order in which an assisting stage comes too late for what its part waits for cannot run. */
TEST(wrong_orders)
{
    struct sp_plan plan;
    int found = 0, tried = 0;
    char why[512];

    make_plan_of("sppo:multiplex", multiplexed(P, N), &plan);
    for (int s = 0; s < P; s++)
        for (int i = 0; i + 1 < plan.programs[s].n; i++) {
            struct sp_op *ops = plan.programs[s].ops, op = ops[i];

            ops[i] = ops[i + 1];
            ops[i + 1] = op;
            found += sp_verify(&plan, why, sizeof why) != 0;
            tried++;
            ops[i + 1] = ops[i];
            ops[i] = op;
        }
    assert_int_equal(sp_verify(&plan, why, sizeof why), 0);
    printf("[          ] of %d swaps of neighbours %d are refused\n", tried, found);
    assert_true(found > tried / 2);
    plan.programs[1].n--; /* one missing */
    assert_int_equal(sp_verify(&plan, why, sizeof why), -EINVAL);
    plan.programs[1].n++;
    plan.programs[1].ops[0].slice++; /* a part of another stage */
    assert_int_equal(sp_verify(&plan, why, sizeof why), -EINVAL);
    plan.programs[1].ops[0].slice--;
    sp_plan_destroy(&plan);
}
