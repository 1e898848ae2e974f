/*
 * The solver of SPPO section 6.1: its heuristics kept, the best of all it may try found, limits of memory,
 * what pulls the number of slices up and down.
 */
#include "policies/common.h"
#include "plan/solver.h"
#include <math.h>

static struct sp_model model;

static int load(void **state)
{
    (void)state;
    return sp_model_load("gpt3-1.3b", &model);
}

static struct sp_solver_request request(int seq, int nodes, int per_node)
{
    model.positions = 1 << 22;
    return (struct sp_solver_request){
        .schedule = "sppo",
        .model = &model,
        .seq = seq,
        .batch = 1,
        .micro_batches = 1,
        .every = 1,
        .cluster = {.nodes = nodes,
                    .per_node = per_node,
                    .flops = 4e14,
                    .link = 4e11,
                    .network = 5e10,
                    .tier = {2.5e10, 2.5e10},
                    .task_s = 1e-5},
    };
}

static void heuristics(void **state)
{
    static const int seqs[] = {2048, 16384, 131072, 1 << 20};
    static const struct {
        int nodes, per_node;
    } clusters[] = {{1, 1}, {1, 4}, {1, 8}, {2, 8}, {3, 4}};
    int layouts = 0;

    (void)state;
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (size_t q = c % 2; q < sizeof seqs / sizeof *seqs; q += (size_t)test_every(2)) {
            struct sp_solver_request want =
                request(seqs[q], clusters[c].nodes, clusters[c].per_node);
            struct sp_solution best[64];
            int n = sp_solve(&want, best, 64);

            assert_true(n > 0);
            layouts += n;
            for (int i = 0; i < n; i++) {
                const struct sp_solution *s = &best[i];
                double tokens = (double)seqs[q] / s->sp / s->n;

                assert_int_equal(s->sp * s->pp, clusters[c].nodes * clusters[c].per_node);
                assert_true(s->sp <= clusters[c].per_node && clusters[c].per_node % s->sp == 0);
                assert_true(tokens <= SP_TOKENS_MOST || s->n == 256);
                assert_true(tokens >= SP_TOKENS_LEAST || s->n <= s->pp);
                assert_true(s->fits && s->step_s > 0 && s->memory > 0);
                assert_true(i == 0 || s->step_s >= best[i - 1].step_s * (1 - 1e-2));
            }
        }
    printf("[          ] %d layouts\n", layouts);
}

/* No other number of slices, and no other stages, are faster than the first. */
static void best_of_all(void **state)
{
    struct sp_solver_request want = request(65536, 1, 8), one;
    struct sp_solution best, other;
    int tried = 0;

    (void)state;
    assert_int_equal(sp_solve(&want, &best, 1), 1);
    for (int pp = 1; pp <= 8; pp *= 2)
        for (int n = 1; n <= 32; n++) {
            double tokens = 65536.0 / (8 / pp) / n;

            if (tokens > SP_TOKENS_MOST || (tokens < SP_TOKENS_LEAST && n > pp))
                continue;
            one = want;
            one.stages = pp;
            one.slices = n;
            assert_int_equal(sp_solve(&one, &other, 1), 1);
            assert_true(other.pp == pp && other.n == n);
            assert_true(best.step_s <= other.step_s * (1 + 1e-2)); /* ties go to fewer slices */
            tried++;
        }
    assert_true(tried > 30);
}

/* With free tasks as many slices as may be; with tasks that take as long as slices, as few. */
static void slices(void **state)
{
    struct sp_solver_request want = request(131072, 1, 4);
    struct sp_solution best;

    (void)state;
    want.stages = 4;
    want.cluster.task_s = 0;
    want.cluster.link = want.cluster.network = 1e18;
    assert_int_equal(sp_solve(&want, &best, 1), 1);
    assert_int_equal(best.n, 131072 / SP_TOKENS_LEAST);
    /* (p-1)/n of the work; and the head, 8 % of a stage, on the last one */
    assert_true(best.bubble > 3.0 / (best.n + 3) && best.bubble < 3.0 / (best.n + 3) + 0.08);
    want.cluster.task_s = 10;
    assert_int_equal(sp_solve(&want, &best, 1), 1);
    assert_int_equal(best.n, 131072 / SP_TOKENS_MOST);
    want.schedule = "sppo:multiplex";
    want.cluster.task_s = 0;
    assert_int_equal(sp_solve(&want, &best, 1), 1);
    assert_true(best.bubble < 0.08);
}

static void memory(void **state)
{
    struct sp_solver_request want = request(262144, 1, 4);
    struct sp_solution none, full, best[64];
    int n;

    (void)state;
    want.stages = 4;
    assert_int_equal(sp_solve(&want, &none, 1), 1);
    want.offload = SP_OFFLOAD_FULL;
    assert_int_equal(sp_solve(&want, &full, 1), 1);
    assert_true(full.memory < none.memory / 2);
    want.cluster.memory = none.memory / 2;
    want.offload = SP_OFFLOAD_NONE;
    assert_int_equal(sp_solve(&want, best, 1), 1);
    assert_false(best[0].fits);
    want.offload = SP_OFFLOAD_ADAPTIVE;
    n = sp_solve(&want, best, 64);
    assert_true(n > 1 && best[0].fits);
    for (int i = 0; i < n; i++) {
        assert_int_equal(best[i].fits, best[i].memory <= want.cluster.memory);
        assert_true(i == 0 || best[i - 1].fits >= best[i].fits);
    }
    /* slices below 2 Ki tokens where nothing else fits */
    want.offload = SP_OFFLOAD_FULL;
    want.cluster.memory = 1; /* so that the memory told is the least that would do */
    want.slices = 262144 / SP_TOKENS_LEAST;
    assert_int_equal(sp_solve(&want, &full, 1), 1);
    want.slices = 256;
    assert_int_equal(sp_solve(&want, &none, 1), 1);
    assert_true(none.memory < full.memory);
    want.slices = 0;
    want.cluster.memory = (none.memory + full.memory) / 2;
    assert_int_equal(sp_solve(&want, best, 1), 1);
    assert_true(best[0].fits && best[0].n > 262144 / SP_TOKENS_LEAST);
    want.cluster.memory = 1 << 20;
    assert_int_equal(sp_solve(&want, best, 1), 1);
    assert_true(!best[0].fits && best[0].memory > 1 << 20);
}

TEST_GROUP(solver)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heuristics),
        cmocka_unit_test(best_of_all),
        cmocka_unit_test(slices),
        cmocka_unit_test(memory),
    };

    return cmocka_run_group_tests(tests, load, NULL);
}
