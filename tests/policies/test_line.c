/*
 * Weights down a line of workers: how often a chunk is sent from node to node and inside of one, in full rounds as TawPipe
 * says and in a last round of fewer workers; every number of micro-batches; TawPipe's makespan.
 */
#include "policies/families/weight_ring/ring.h"
#include "policies/lowering/lowering.h"
#include "policies/play.h"

struct count {
    int node, between, inside;
};

static void count(void *arg, const struct sp_action *a)
{
    struct count *c = arg;

    if (a->kind == SP_ACTION_SEND && a->tensor.kind >= SP_TENSOR_W && a->tensor.kind <= SP_TENSOR_D)
        *(a->stage / c->node == a->peer / c->node ? &c->inside : &c->between) += 1;
}

/* In a round every worker but the owner receives a chunk once for a pass, and sends its gradient once: a node's first
 * from another node, if the owner is not in it. */
static struct count expected(const struct sp_plan *plan, int node)
{
    int P = plan->layout.stages, m = plan->layout.micro_batches;
    struct count c = {.node = node};

    for (int chunk = 0; chunk < P * plan->layout.chunks; chunk++)
        for (int left = m; left > 0; left -= P)
            for (int first = 0; first < P && first < left; first += node) {
                int n = left - first < node ? left - first : node;
                int owner = sp_ring_owner(sp_ring_of(&plan->layout), chunk);

                if (owner / node == first / node) {
                    c.inside += 3 * (owner - first < n ? n - 1 : n);
                } else {
                    c.between += 3;
                    c.inside += 3 * (n - 1);
                }
            }
    return c;
}

static void check(const char *schedule, int P, int m, int node, int chunks)
{
    struct sp_plan plan;
    struct sp_lowering l;
    struct count is = {.node = node}, want;

    make_plan_of(schedule, layout_of(P, m, chunks, 1), &plan);
    want = expected(&plan, node);
    assert_int_equal(sp_lowering_create(&plan, NULL, P, &l), 0);
    assert_int_equal(sp_lower_step(&l, count, &is), 0);
    if (is.between != want.between || is.inside != want.inside)
        fail_msg("%s p=%d m=%d v=%d: %d messages between nodes and %d inside, not %d and %d",
                 schedule, P, m, chunks, is.between, is.inside, want.between, want.inside);
    if (m % P ==
        0) /* TawPipe: 3G(K-1)P and 3G(P-K)P, of chunks that are V times smaller V times as many */
        assert_true(is.between == 3 * m * chunks * (P / node - 1) &&
                    is.inside == 3 * m * chunks * (P - P / node));
    sp_lowering_destroy(&l);
    sp_plan_destroy(&plan);
}

static void check_all(int P, int m, int node, int chunks)
{
    static const char *const lines[] = {"wzb2", "wzb2:owner=each", "wzb1:flow=line"};
    char name[64];

    snprintf(name, sizeof name, "tawpipe:node=%d", node);
    check(name, P, m, node, chunks);
    snprintf(name, sizeof name, "weipipe:flow=line,node=%d", node);
    check(name, P, m, node, chunks);
    for (size_t k = 0; k < sizeof lines / sizeof *lines && node == 1; k++)
        check(lines[k], P, m, 1, chunks);
}

TEST(messages)
{
    int checks = 0;

    for (int P = 1; P <= 8; P++)
        for (int node = 1; node <= P; node++)
            for (int m = 1; m <= 3 * P + 1 && P % node == 0; m++, checks++)
                check_all(P, m, node, 1 + (P + node + m) % 4);
    print_message("%d layouts\n", checks);
}

/* From the turns, where weights wait for the op before; and never longer than the next multiple of workers takes. */
TEST(makespans)
{
    static const struct sp_costs costs = {.f = 1, .b = 1.25, .w = 0.75};
    char name[64];

    for (int P = 1; P <= 8; P++)
        for (int node = 1; node <= P; node++) {
            double last = 0;

            for (int m = 3 * P; m >= 1 && P % node == 0; m--) {
                struct sp_plan plan;
                double now, formula;

                snprintf(name, sizeof name, "tawpipe:node=%d", node);
                make_plan(name, P, m, &plan);
                now = makespan_of(&plan, &costs, SP_PAIRED);
                formula = formula_of(&plan, &costs);
                if (m % P == 0)
                    assert_true(fabs(now - formula) < 1e-9 * formula);
                else
                    assert_true(formula < 0 && now <= last + 1e-9);
                last = now;
                sp_plan_destroy(&plan);
            }
        }
}

static double takes(const char *schedule, int P, int m, const struct sp_costs *costs)
{
    struct sp_plan plan;
    double makespan;

    make_plan(schedule, P, m, &plan);
    makespan = makespan_of(&plan, costs, SP_PAIRED);
    sp_plan_destroy(&plan);
    return makespan;
}

/* A last round of fewer workers: every op once and in order, or there is no plan, and never longer than a full one. */
TEST(last_rounds)
{
    static const char *const schedules[] = {"weipipe", "weipipe-naive", "wzb1", "wzb2",
                                            "weipipe:flow=line"};
    static const struct sp_costs costs = {.f = 1, .b = 1.25, .w = 0.75};
    int plans = 0;

    for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++)
        for (int P = 1; P <= 8; P++) {
            double last = INFINITY;

            for (int m = 4 * P; m >= 1; m--, plans++) {
                double now = takes(schedules[k], P, m, &costs);

                if (now > last + 1e-9)
                    fail_msg("%s p=%d: %d micro-batches take %g, one more %g", schedules[k], P, m,
                             now, last);
                last = now;
            }
        }
    print_message("%d plans\n", plans);
}
