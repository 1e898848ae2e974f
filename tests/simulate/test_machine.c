/* The links of a simulated machine, as --link gives them. */
#include "../policies/common.h"
#include "simulate/machine.h"
#include <math.h>

static void refused(const char *text)
{
    struct sp_sim_machine m = sp_sim_machine_default;

    assert_int_equal(sp_sim_machine_parse(text, &m), -EINVAL);
    assert_memory_equal(&m, &sp_sim_machine_default, sizeof m);
}

TEST(test_default_is_instant)
{
    const struct sp_sim_machine *m = &sp_sim_machine_default;

    assert_true(sp_sim_link_is_instant(sp_sim_link_between(m, 0, 1)));
    assert_int_equal(sp_sim_node(m, 63), 0);
    assert_int_equal(sp_sim_interface(&m->node, 5), 5);
}

TEST(test_one_link_serves_for_both)
{
    struct sp_sim_machine m = sp_sim_machine_default;

    assert_int_equal(sp_sim_machine_parse("latency=0.5,bandwidth=1e9", &m), 0);
    assert_true(sp_sim_link_between(&m, 0, 7)->latency_s == 0.5);
    assert_true(sp_sim_link_between(&m, 0, 7)->bandwidth == 1e9);
    assert_true(m.network.bandwidth == 1e9);
    assert_int_equal(m.sharing, SP_LINK_QUEUED);
}

TEST(test_nodes)
{
    struct sp_sim_machine m = sp_sim_machine_default;

    assert_int_equal(sp_sim_machine_parse("devices=4,node_bandwidth=400,bandwidth=50,latency=2,"
                                          "node_latency=0,duplex=half,node_duplex=full,shared_by=4,"
                                          "node_shared_by=1,sharing=fair",
                                          &m),
                     0);
    assert_int_equal(sp_sim_node(&m, 3), 0);
    assert_int_equal(sp_sim_node(&m, 4), 1);
    assert_ptr_equal(sp_sim_link_between(&m, 0, 3), &m.node);
    assert_ptr_equal(sp_sim_link_between(&m, 3, 4), &m.network);
    assert_true(m.node.bandwidth == 400 && m.network.bandwidth == 50);
    assert_true(m.node.latency_s == 0 && m.network.latency_s == 2);
    assert_true(m.network.half_duplex && !m.node.half_duplex);
    assert_int_equal(sp_sim_interface(&m.network, 7), 1);
    assert_int_equal(sp_sim_interface(&m.node, 7), 7);
    assert_int_equal(m.sharing, SP_LINK_FAIR);
}

/* Costs are milliseconds there, and so are latencies that are given. */
TEST(test_of_a_machine)
{
    static struct sp_machine h100;
    struct sp_sim_machine m;

    assert_int_equal(sp_machine_load("h100-ib", &h100), 0);
    m = sp_sim_machine_of(&h100);
    assert_int_equal(m.devices_per_node, h100.devices_per_node);
    assert_true(m.network.bandwidth == h100.network.bandwidth);
    assert_int_equal(sp_sim_machine_parse("latency=2,bandwidth=1e6", &m), 0);
    assert_true(fabs(m.network.latency_s - 2e-3) < 1e-12);
    assert_true(fabs(m.network.bandwidth - 1e9) < 1e-3);
    assert_int_equal(m.network.shared_by, h100.network.shared_by);
}

TEST(test_refusals)
{
    static const char *const texts[] = {"speed=1",        "latency",
                                        "latency=",       "latency=-1",
                                        "latency=1x",     "duplex=both",
                                        "sharing=1",      "devices=1.5",
                                        "sharing=",       "bandwidth=inf",
                                        "node_=1",        "shared_by=-1",
                                        "node_devices=2", "latency=1,,duplex=full"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refused(texts[i]);
}
