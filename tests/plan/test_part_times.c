/* What the parts of a layer take, where devices share a stage. */
#include "../policies/common.h"
#include "model/model.h"
#include "plan/cost/part_times.h"
#include <math.h>
#include <stdio.h>

static double forward(const struct sp_machine *machine, int devices)
{
    struct sp_part_times t;
    struct sp_model model;
    struct sp_shape sh;

    assert_int_equal(sp_model_load("gpt3-7b", &model), 0);
    sp_shape_init(&sh, &model, 1, 16384, 1, 0, 0);
    sh.dtype = SP_BF16;
    sp_part_times(machine, devices, &sh, &t);
    return t.pre + t.attention + t.post;
}

/* A layer's forward gathers and scatters its rows four times; beyond a node they go through its adapters. */
static void gathers_beyond_a_node_take_the_network(void **state)
{
    static struct sp_machine machine, fast;
    const double bytes = 2.0 * 16384 * 4096 * 15 / 16;
    double beyond, within, adapters, more;

    (void)state;
    assert_int_equal(sp_machine_load("a100-sppo", &machine), 0);
    fast = machine;
    fast.network.bandwidth = 1e15;
    fast.network.latency_s = 0;
    beyond = forward(&machine, 16);
    within = forward(&fast, 16);
    adapters = machine.network.bandwidth * machine.devices_per_node / machine.network.shared_by;
    more = 4 * (bytes / adapters + machine.network.latency_s - bytes / machine.node.bandwidth -
                machine.node.latency_s);
    printf("  16 devices: %.2f ms, %.2f if the network were no slower than a node; %.2f more, not "
           "%.2f\n",
           1e3 * beyond, 1e3 * within, 1e3 * (beyond - within), 1e3 * more);
    assert_true(fabs((beyond - within) / more - 1) < 1e-6);
    assert_true(forward(&machine, 8) == forward(&fast, 8));
}

TEST_GROUP(part_times)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_beyond_a_node_take_the_network),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
