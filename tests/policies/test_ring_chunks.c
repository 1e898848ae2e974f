/*
 * Several chunks a worker, whose weights go down the line: every op once and in order, closed forms, activations,
 * owners, and buffers of what travels, all from V alone; wzb1 down the line, with any number of workers; what is
 * refused.
 */
#include "graphs/count.h"
#include "plan/memory.h"
#include "policies/families/family.h"
#include "policies/families/weight_ring/ring.h"
#include "policies/play.h"

static const char *const schedules[] = {"weipipe:flow=line", "tawpipe:node=1", "wzb2",
                                        "wzb2:owner=each", "wzb1:flow=line"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules, WZB1 = SCHEDULES - 1 };

static void make_chunked(const char *schedule, int p, int m, int v, struct sp_plan *plan)
{
    make_plan_of(schedule, layout_of(p, m, v, 1), plan);
}

/* ---- ops --------------------------------------------------------------------------------------- */

/* The place of an op of a micro-batch in the program of its worker. */
static int place_of(const struct sp_plan *plan, int pass, int mb, int chunk)
{
    const struct sp_program *prog = &plan->programs[mb % plan->layout.stages];
    int found = -1;

    for (int k = 0; k < prog->n; k++) {
        const struct sp_op *op = &prog->ops[k];

        if (op->part != SP_CHUNK || op->pass != pass || op->mb != mb || op->chunk != chunk)
            continue;
        assert_int_equal(found, -1);
        found = k;
    }
    assert_true(found >= 0);
    return found;
}

/* F of chunks 0 .. C-1, then B of C-1 .. 0; W after B: at once down the same chunks (wzb1), or after the last B and up
 * again (wzb2). */
static void check_ops(const struct sp_plan *plan, int mb)
{
    int C = plan->layout.stages * plan->layout.chunks;

    for (int c = 0; c < C; c++) {
        int b = place_of(plan, SP_B, mb, c), w = plan->split ? place_of(plan, SP_W, mb, c) : b + 1;
        bool up = !strcmp(plan->def->name, "wzb2");

        assert_true(place_of(plan, SP_F, mb, c) < b && b < w);
        if (c == 0)
            continue;
        assert_true(place_of(plan, SP_F, mb, c - 1) < place_of(plan, SP_F, mb, c));
        assert_true(b < place_of(plan, SP_B, mb, c - 1));
        if (plan->split)
            assert_true(up ? place_of(plan, SP_W, mb, c - 1) < w
                           : w < place_of(plan, SP_B, mb, c - 1));
    }
}

TEST(every_op_once)
{
    int plans = 0;

    for (int k = 0; k < SCHEDULES; k++)
        for (int p = 1; p <= 6; p++)
            for (int v = 1; v <= 4; v++)
                for (int m = 1; m <= 3 * p + 1; m++) {
                    struct sp_plan plan;

                    if ((k + p + v + m) % test_every(3))
                        continue;
                    make_chunked(schedules[k], p, m, v, &plan);
                    for (int s = 0; s < p; s++)
                        assert_int_equal(plan.programs[s].n,
                                         (m - s + p - 1) / p * ((plan.split ? 3 : 2) * p * v + 1));
                    for (int i = 0; i < m; i++)
                        check_ops(&plan, i);
                    sp_plan_destroy(&plan);
                    plans++;
                }
    print_message("%d plans\n", plans);
}

/* ---- times ------------------------------------------------------------------------------------- */

/* G rounds of all ops, and the longest turn, of one of V chunks of a stage, for each worker but the first. */
static double closed_form(int k, int p, int G, int v, const struct sp_costs *c)
{
    double f = c->f, back = c->b + c->w;
    const double longest[] = {G > 1 ? f + back : fmax(f, back), fmax(f, back),
                              fmax(f, fmax(c->b, c->w)), fmax(f, fmax(c->b, c->w)), G > 1 ? 2 : 1};

    return G * p * (f + back) + (p - 1) * longest[k] / v;
}

/* Forms of schedules whose W are apart hold at costs of 1. */
TEST(closed_forms)
{
    static const struct sp_costs costs[] = {{.f = 1, .b = 1, .w = 1},
                                            {.f = 1, .b = 1.25, .w = 0.5}};
    int checks = 0;

    for (int k = 0; k < SCHEDULES; k++)
        for (int p = 1; p <= 6; p++)
            for (int v = 1; v <= 4; v++)
                for (int G = 1; G <= 4; G++)
                    for (int i = 0; i < (k < 2 ? 2 : 1); i++, checks++) {
                        int C = p * v, peak = k == WZB1 && G > 1 ? C + (C + 1) / 2 : C;
                        double want = closed_form(k, p, G, v, &costs[i]);
                        struct sp_plan plan;
                        struct sp_times t;

                        make_chunked(schedules[k], p, G * p, v, &plan);
                        play_plan(&plan, &costs[i], SP_PAIRED, &t);
                        if (fabs(t.makespan - want) > 1e-9 * want)
                            fail_msg("%s p=%d G=%d v=%d: %g, not %g", schedules[k], p, G, v,
                                     t.makespan, want);
                        assert_true(fabs(formula_of(&plan, &costs[i]) - want) < 1e-9 * want);
                        for (int s = 0; s < p; s++)
                            assert_int_equal(t.peak_live[s], peak);
                        assert_true(sp_activation_share(plan.family, &plan.layout) == 1. / v);
                        played_done(&plan, &t);
                    }
    print_message("%d layouts\n", checks);
}

/* Unequal ops: bounds; a last round of fewer workers: never longer than a full one. */
TEST(bounds)
{
    static const struct sp_costs costs = {.f = 1, .b = 1.4, .w = 0.7};

    for (int k = 0; k < SCHEDULES; k++)
        for (int p = 1; p <= 5; p++)
            for (int v = 1; v <= 3; v++) {
                double last = INFINITY;

                for (int m = 3 * p; m >= 1; m--) {
                    struct sp_plan plan;
                    double now, formula;

                    make_chunked(schedules[k], p, m, v, &plan);
                    now = makespan_of(&plan, &costs, SP_PAIRED);
                    formula = formula_of(&plan, &costs);
                    assert_true(m % p ? formula < 0 : now >= formula - 1e-9);
                    assert_true(now <= last + 1e-9);
                    last = now;
                    sp_plan_destroy(&plan);
                }
            }
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Bytes of stage 0's buffers, *layer of the weights of a layer. */
static int64_t buffers_of(const char *schedule, int p, int v, int64_t *layer)
{
    const struct sp_model model = {.arch = SP_ARCH_GPT2,
                                   .layers = 12 * p,
                                   .hidden = 24,
                                   .heads = 4,
                                   .kv_heads = 4,
                                   .head_dim = 6,
                                   .mlp = 96,
                                   .vocab = 61,
                                   .positions = 64};
    struct sp_shape shape;
    struct sp_plan plan;
    struct sp_count counted[4];

    make_chunked(schedule, p, 2 * p, v, &plan);
    sp_shape_init(&shape, &model, 1, 24, 2 * p);
    plan.processes = p;
    assert_int_equal(sp_memory_count(&plan, &shape, SP_RECOMPUTE_NONE, 1, counted), 0);
    *layer = 0;
    for (int i = 0; i < SP_LAYER_BLOCKS; i++)
        *layer += 4 * (int64_t)sp_block_elements(&model, sp_layer_block(i));
    sp_plan_destroy(&plan);
    return counted[0].buffers;
}

/* Buffers shrink by what V makes a chunk smaller: by the weights of one at least. */
TEST(buffers)
{
    for (int k = 0; k < SCHEDULES; k++)
        for (int p = 2; p <= 4; p++) {
            int64_t layer, one = buffers_of(schedules[k], p, 1, &layer);
            int64_t two = buffers_of(schedules[k], p, 2, &layer);
            int64_t four = buffers_of(schedules[k], p, 4, &layer);

            if (one - two < 6 * layer || two - four < 3 * layer)
                fail_msg("%s, %d stages: %lld bytes, with two chunks %lld, with four %lld",
                         schedules[k], p, (long long)one, (long long)two, (long long)four);
        }
}

/* ---- owners, flows, refusals -------------------------------------------------------------------- */

TEST(owners)
{
    static const char *const shared[] = {"weipipe:flow=line", "tawpipe:node=2", "tawpipe:node=4",
                                         "wzb2:owner=each", "wzb1"};
    struct sp_plan plan;

    for (size_t k = 0; k < sizeof shared / sizeof *shared; k++)
        for (int v = 1; v <= 4; v++) {
            int owned[4] = {0};

            make_chunked(shared[k], 4, 4, v, &plan);
            for (int c = 0; c < 4 * v; c++) {
                int owner = sp_ring_owner(sp_ring_of(&plan.layout), c);

                assert_int_equal(plan.family->owners->owned(&plan.layout, owner, owned[owner]++),
                                 c);
            }
            for (int s = 0; s < 4; s++)
                assert_true(owned[s] == v && plan.family->owners->owned(&plan.layout, s, v) == -1);
            sp_plan_destroy(&plan);
        }
    make_chunked("wzb2", 4, 4, 3, &plan);
    for (int c = 0; c < 12; c++)
        assert_int_equal(plan.family->owners->owned(&plan.layout, 3, c), c);
    assert_int_equal(plan.family->owners->owned(&plan.layout, 0, 0), -1);
    sp_plan_destroy(&plan);
}

/* wzb1 goes around where pairs of chunks do; down the line its ops are the same. */
TEST(flows)
{
    const struct sp_train_wish ahead = {
        .recompute_text = "", .partition = "even", .post_validation = true};

    sp_error_quiet(true);
    for (int p = 1; p <= 6; p++)
        for (int v = 1; v <= 3; v++) {
            struct sp_plan plan, line;
            bool around = p % 2 == 0 && v == 1;

            make_chunked("wzb1", p, 3 * p + 1, v, &plan);
            make_chunked("wzb1:flow=line", p, 3 * p + 1, v, &line);
            assert_int_equal(sp_ring_of(&plan.layout)->layout,
                             around ? SP_RING_PAIRS : SP_RING_LINE);
            assert_int_equal(sp_ring_of(&line.layout)->layout, SP_RING_LINE);
            assert_int_equal(sp_plan_refuse(&plan, &ahead), around ? -EINVAL : 0);
            assert_same_programs(&plan, &line);
            sp_plan_destroy(&line);
            sp_plan_destroy(&plan);
        }
    sp_error_quiet(false);
}

static struct sp_layout chunked(int p, int v, int layers)
{
    struct sp_layout lay = layout_of(p, 8, v, 1);

    lay.layers = layers;
    return lay;
}

TEST(refusals)
{
    const struct refusal table[] = {
        {"weipipe", chunked(4, 2, 0),
         "where weights go around, not 2; use --chunks 1, or flow=line\n"},
        {"wzb1:flow=ring", chunked(4, 3, 0),
         "where weights go around, not 3; use --chunks 1, or flow=line\n"},
        {"wzb1:flow=ring", chunked(3, 1, 0), "not 3; use --stages 4, or flow=line\n"},
        {"wzb1:flow=up", chunked(4, 1, 0), "use flow=ring or flow=line\n"},
        {"weipipe-naive", chunked(4, 2, 0), "has 1 chunk per stage, not 2; use --chunks 1\n"},
        {"weipipe:flow=line", chunked(4, 3, 8),
         "4 stages of 3 chunk(s) need 12 layers, the model has 8"},
        {"wzb2", chunked(2, 9, 8), "9 chunks per stage are more than the 8 layers"},
    };

    assert_no_plans(table);
}
