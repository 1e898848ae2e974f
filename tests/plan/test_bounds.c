/*
 * A search rules out layouts by bounds: no layout of any schedule may take less. It compares all
 * grids and no others.
 */
#include "plan/search/bounds.h"
#include "plan/search/moves.h"
#include "plan/search/trial.h"
#include "policies/common.h"
#include "policies/registry.h"
#include <math.h>

static struct sp_model model;
static struct sp_machine machine;

static int load(void **state)
{
    (void)state;
    return sp_machine_load("h100-ib", &machine) || sp_model_load("gpt3-1.3b", &model);
}

static struct sp_search request(void)
{
    return (struct sp_search){.model = &model,
                              .dtype = SP_BF16,
                              .seq = 2048,
                              .sequences = 16,
                              .every = 1,
                              .group = SP_SEARCH_BOTH,
                              .any_recompute = true,
                              .machine = &machine,
                              .nodes = 1,
                              .memory = INT64_MAX / 64};
}

struct tally {
    const struct sp_search *want;
    int tried, near;
};

static void check(void *arg, const struct sp_found *f)
{
    struct tally *t = arg;
    struct sp_found whole = *f;
    double bound = sp_bound_step(t->want, f);

    whole.whole = true;
    if (sp_trial(t->want, NULL, INFINITY, &whole))
        return;
    if (bound > whole.step_ms)
        fail_msg("%s on %d x %d x %d x %d: %g ms, at least %g by the bound", f->schedule, f->stages,
                 f->devices, f->context, f->data, whole.step_ms, bound);
    if (sp_bound_memory(t->want, f) > whole.memory)
        fail_msg("%s on %d x %d x %d x %d: %lld bytes, at least %lld by the bound", f->schedule,
                 f->stages, f->devices, f->context, f->data, (long long)whole.memory,
                 (long long)sp_bound_memory(t->want, f));
    t->tried++;
    t->near += bound > 0.8 * whole.step_ms;
}

TEST(hold)
{
    const struct sp_search want = request();
    struct tally t = {.want = &want};
    const struct sp_schedule_def *def;
    struct sp_grid *grid;
    int n;

    grid = sp_grids(&want, &n);
    assert_non_null(grid);
    for (int i = 0; (def = sp_schedule_at(i)); i++)
        for (int g = i % 2; sp_schedule_is_synchronous(def->name) && g < n; g += test_every(2))
            sp_moves_begin(&want, def->name, &grid[g], 1 + g % 2, check, &t);
    free(grid);
    printf("[          ] %d layouts, %d within a quarter of the bound\n", t.tried, t.near);
    assert_true(t.tried > 100 && t.near > t.tried / 5);
}

/* The grids of 8 devices are all ways to write 8 as a product of four factors; given factors
 * stay. */
TEST(grids)
{
    struct sp_search want = request();
    struct sp_grid *grid;
    int n;

    grid = sp_grids(&want, &n);
    assert_int_equal(n, 20);
    for (int i = 0; i < n; i++) {
        assert_int_equal(grid[i].stages * grid[i].tensor * grid[i].context * grid[i].data, 8);
        for (int k = 0; k < i; k++)
            assert_true(memcmp(&grid[i], &grid[k], sizeof *grid));
    }
    free(grid);
    want.group = SP_SEARCH_TENSOR;
    want.data = 2;
    grid = sp_grids(&want, &n);
    assert_int_equal(n, 3); /* 4, 2 or 1 stages */
    for (int i = 0; i < n; i++)
        assert_true(grid[i].data == 2 && grid[i].context == 1);
    free(grid);
    want = request();
    want.stages = 3; /* with all else given, on whatever number of devices that takes */
    want.devices = 2;
    grid = sp_grids(&want, &n);
    assert_int_equal(n, 2);
    assert_true(grid[0].stages == 3 && grid[0].tensor * grid[0].context == 2 && grid[0].data == 1);
    free(grid);
    want = request();
    want.nodes = 2; /* a stage of three devices fits no node, and parameters stay within one */
    machine.devices_per_node = 4;
    grid = sp_grids(&want, &n);
    for (int i = 0; i < n; i++)
        assert_true(grid[i].tensor <= 4 && 8 % (grid[i].tensor * grid[i].context) == 0);
    assert_true(n > 10);
    free(grid);
    machine.devices_per_node = 8;
}

TEST_FIXTURE(load, NULL)
