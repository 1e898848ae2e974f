/* Orders equal to those that torch.distributed.pipelining ran, and with its figures. */
#include "common.h"
#include <jansson.h>
#include <math.h>

static json_t *load(const char *name)
{
    char path[512];
    json_error_t error;
    json_t *root;

    snprintf(path, sizeof path, "%s/schedules/%s.json", SP_TESTDATA, name);
    root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static void compare_orders(const struct sp_plan *plan, json_t *root)
{
    json_t *ranks = json_object_get(root, "ranks");

    assert_int_equal(json_array_size(ranks), plan->layout.stages);
    for (int s = 0; s < plan->layout.stages; s++) {
        json_t *ops = json_array_get(ranks, (size_t)s);

        assert_int_equal(json_array_size(ops), plan->programs[s].n);
        for (int k = 0; k < plan->programs[s].n; k++) {
            char text[SP_OP_TEXT];

            assert_string_equal(sp_op_print(&plan->programs[s].ops[k], 0, text),
                                json_string_value(json_array_get(ops, (size_t)k)));
        }
    }
}

static double number(json_t *check, const char *key, int rank)
{
    json_t *v = json_object_get(check, key);

    if (rank >= 0)
        v = json_array_get(v, (size_t)rank);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void compare_figures(const struct sp_plan *plan, json_t *check)
{
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    char why[128] = "";
    struct sp_times t;

    assert_int_equal(sp_listsim(plan, &unit, SP_UNBOUNDED, &t, why, sizeof why), 0);
    assert_true(t.makespan == number(check, "makespan_F1_B1_W1_comm0", -1));
    assert_true(fabs(t.bubble_ratio - number(check, "idle_fraction", -1)) < 1e-6);
    for (int s = 0; s < plan->layout.stages; s++) {
        assert_true(t.span[s] == number(check, "rank_span", s));
        assert_int_equal(t.peak_live[s], (int)number(check, "peak_live_until_W", s));
    }
    print_message("%-22s p=%d m=%d makespan %g bubble %.4f peak %d\n", plan->def->name,
                  plan->layout.stages, plan->layout.micro_batches, t.makespan, t.bubble_ratio,
                  t.peak_live[0]);
    sp_times_destroy(&t);
}

static void equal_to_reference(void **state)
{
    static const struct {
        const char *schedule, *file;
    } table[] = {
        {"gpipe:backward=fifo", "torch_gpipe_p2_m4_v1"},
        {"gpipe:backward=fifo", "torch_gpipe_p2_m8_v1"},
        {"gpipe:backward=fifo", "torch_gpipe_p4_m8_v1"},
        {"1f1b", "torch_1f1b_p2_m4_v1"},
        {"1f1b", "torch_1f1b_p2_m8_v1"},
        {"1f1b", "torch_1f1b_p4_m8_v1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *root = load(table[i].file);
        struct sp_plan plan;

        make_plan(table[i].schedule, (int)number(root, "p", -1), (int)number(root, "m", -1), &plan);
        compare_orders(&plan, root);
        compare_figures(&plan, json_object_get(root, "check"));
        sp_plan_destroy(&plan);
        json_decref(root);
    }
}

/* Last in, first out unless asked otherwise, as in the paper. */
static void gpipe_defaults_to_lifo(void **state)
{
    struct sp_plan plan, lifo;
    char text[SP_OP_TEXT];

    (void)state;
    make_plan("gpipe", 3, 5, &plan);
    make_plan("gpipe:backward=lifo", 3, 5, &lifo);
    for (int s = 0; s < 3; s++) {
        assert_string_equal(sp_op_print(&plan.programs[s].ops[4], 0, text), "F4.0");
        assert_string_equal(sp_op_print(&plan.programs[s].ops[5], 0, text), "B4.0");
        assert_string_equal(sp_op_print(&plan.programs[s].ops[9], 0, text), "B0.0");
        assert_memory_equal(plan.programs[s].ops, lifo.programs[s].ops, 10 * sizeof(struct sp_op));
    }
    sp_plan_destroy(&plan);
    sp_plan_destroy(&lifo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_reference),
        cmocka_unit_test(gpipe_defaults_to_lifo),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
