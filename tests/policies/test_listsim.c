/* The list simulation against closed forms, a hand-computed case, and the order of submission. */
#include "policies/play.h"
#include "policies/registry.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/verify.h"

static const struct sp_costs costs[] = {{.f = 1, .b = 1, .w = 1}, {.f = 6, .b = 9, .w = 3}};

TEST(closed_forms)
{
    static const char *const names[] = {"naive", "gpipe", "gpipe:backward=fifo", "1f1b"};
    int cases = 0;

    for (int p = 1; p <= 9; p++) {
        for (int m = 1; m <= 20; m++) {
            for (int i = 0; i < 4; i++) {
                struct sp_plan plan;

                make_plan(names[i], p, m, &plan);
                for (int k = 0; k < 2; k++) {
                    const struct sp_costs *c = &costs[k];
                    double each = c->f + c->b + c->w;
                    double want = i == 0 ? m * p * each : (m + p - 1) * each;
                    struct sp_times t;

                    play_plan(&plan, c, SP_UNBOUNDED, &t);
                    assert_true(t.makespan == want);
                    assert_true(formula_of(&plan, c) == want);
                    assert_int_equal(t.messages, 2 * m * (p - 1));
                    for (int s = 0; s < p; s++) {
                        int peak = i == 0 ? 1 : i < 3 ? m : p - s < m ? p - s : m;

                        assert_true(t.busy[s] == m * each);
                        assert_true(t.idle[s] == want - m * each);
                        assert_int_equal(t.peak_live[s], peak);
                        /* the first forward comes s stages late, the last backward is early */
                        assert_true(t.start[s][0] == s * c->f);
                        assert_true(t.span[s] == want - s * each);
                    }
                    assert_true(fabs(t.bubble_ratio - (1 - m * each / want)) < 1e-12);
                    sp_times_destroy(&t);
                    cases++;
                }
                sp_plan_destroy(&plan);
            }
        }
    }
    print_message("%d cases equal to their closed form\n", cases);
}

/* HelixPipe equation 1: bubble 3 (p-1)(pre + attn + post) L/p, at costs of its figure 2. */
TEST(helixpipe_equation_1)
{
    struct sp_plan plan;
    struct sp_costs c;
    struct sp_times t;

    make_plan("1f1b", 4, 6, &plan);
    plan.layout.layers = 8;
    assert_int_equal(sp_costs_parse("pre=1,attn=3,post=2,backward=2", &plan, &c), 0);
    assert_true(c.f == 12 && c.b == 18 && c.w == 6 && c.comm == 0);
    play_plan(&plan, &c, SP_UNBOUNDED, &t);
    print_message("1f1b p=4 m=6 L=8 pre:attn:post 1:3:2: idle %g, equation 1 %g\n", t.idle[0],
                  3 * 3 * (1. + 3 + 2) * 8 / 4);
    for (int s = 0; s < 4; s++)
        assert_true(t.idle[s] == 3 * 3 * (1. + 3 + 2) * 8 / 4);
    played_done(&plan, &t);
}

/* With communication c, 2 stages, 1 micro-batch: F, c, F, B, c, B. */
TEST(communication_counts)
{
    static const struct sp_costs c = {.f = 2, .b = 3, .w = 4, .comm = 0.5};
    struct sp_plan plan;
    struct sp_times t;

    make_plan("1f1b", 2, 1, &plan);
    for (int kind = SP_UNBOUNDED; kind <= SP_RENDEZVOUS; kind++) {
        play_plan(&plan, &c, (enum sp_channel)kind, &t);
        assert_true(t.start[1][0] == 2.5 && t.start[1][1] == 4.5 && t.start[0][1] == 12);
        assert_true(t.makespan == 19);
        sp_times_destroy(&t);
    }
    sp_plan_destroy(&plan);
}

/* Split backward, chunks, slices and scales: costs of single ops. */
TEST(op_costs)
{
    static const char *const lines[] = {"F0.0 F0.1 B0.1 W0.1 B0.0"};
    static const double scale_f[] = {1, 10}, scale_b[] = {1, 100};
    struct sp_costs c = {.f = 2, .b = 6, .w = 8, .scale_f = scale_f, .scale_b = scale_b};
    static const double want[] = {1, 10, 300, 400, 7};
    struct sp_plan plan;
    struct sp_times t;
    char why[256] = "";

    write_plan(layout_of(1, 1, 2, 1), lines, &plan);
    assert_true(plan.split);
    assert_int_equal(sp_verify(&plan, why, sizeof why), 0);
    for (int k = 0; k < 5; k++)
        assert_true(sp_op_cost(&plan, &c, 0, &plan.programs[0].ops[k]) == want[k]);
    play_plan(&plan, &c, SP_FIFO, &t);
    assert_true(t.makespan == 718);
    assert_int_equal(t.peak_live[0], 2);
    assert_int_equal(t.messages, 0);
    played_done(&plan, &t);
}

/* Slices: F of a slice after the one before, B in reverse; one stage holds all of them. */
TEST(slices)
{
    static const char *const lines[] = {"F0s0 F0s1 F0s2 B0s2 B0s1 B0s0",
                                        "F0s0 F0s1 F0s2 B0s2 B0s1 B0s0"};
    static const struct sp_costs c = {.f = 3, .b = 3, .w = 3};
    struct sp_plan plan;
    struct sp_times t;
    char why[256] = "";

    write_plan(layout_of(2, 1, 1, 3), lines, &plan);
    assert_int_equal(sp_verify(&plan, why, sizeof why), 0);
    play_plan(&plan, &c, SP_RENDEZVOUS, &t);
    assert_true(t.makespan == (3 + 1) * 3); /* n + p - 1 steps of (3 + 3 + 3)/3 */
    assert_int_equal(t.peak_live[1], 3);
    played_done(&plan, &t);
}

static bool same_op(const struct sp_op *a, const struct sp_op *b)
{
    return a->pass == b->pass && a->part == b->part && a->slice == b->slice && a->mb == b->mb &&
           a->chunk == b->chunk;
}

/* Sorted by start, programs in order, producers first, even when all ops take no time. */
static void check_order(const struct sp_plan *plan, const struct sp_costs *c)
{
    int n = 0, next[16] = {0};
    struct sp_placed *order = sp_order_at_costs(plan, c, &n);
    double last = 0;
    struct sp_times t;

    assert_non_null(order);
    assert_int_equal(n, sp_plan_ops(plan));
    play_plan(plan, c, plan->paired ? SP_PAIRED : SP_UNBOUNDED, &t); /* as the graph runs */
    for (int i = 0; i < n; i++) {
        struct sp_dep deps[SP_MAX_DEPS];
        int s = order[i].stage, k;
        double place = plan->family->lowers->turn
                           ? plan->family->lowers->turn(&plan->layout, s,
                                                        &plan->programs[s].ops[order[i].index])
                           : t.start[s][order[i].index];

        assert_int_equal(order[i].index, next[s]++);
        assert_true(last <= place);
        last = place;
        k = plan->family->deps(&plan->layout, s, &plan->programs[s].ops[order[i].index], deps);
        while (k-- > 0) {
            const struct sp_program *prog = &plan->programs[deps[k].stage];
            int at = 0;

            while (!same_op(&prog->ops[at], &deps[k].op))
                at++;
            assert_true(at < next[deps[k].stage]);
        }
    }
    sp_times_destroy(&t);
    free(order);
}

TEST(orders_of_submission)
{
    static const struct sp_costs nothing = {0}, some = {.f = 6, .b = 9, .w = 3, .comm = 2};
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        for (int p = 1; p <= 7; p += 2) {
            for (int m = 1; m <= 9; m += 4) {
                struct sp_layout lay = layout_of(p, m, def->default_chunks, 1);
                struct sp_plan plan;
                struct capture c;
                int ret;

                ret = CAPTURED(&c, sp_plan_create(def->name, &lay, &plan));
                if (ret)
                    continue;
                check_order(&plan, &nothing);
                check_order(&plan, &some);
                sp_plan_destroy(&plan);
            }
        }
    }
}
