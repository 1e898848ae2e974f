/* Reference orders: JSON files made by running other projects' schedules (tests/data/schedules). */
#ifndef SP_TESTS_REFERENCE_H
#define SP_TESTS_REFERENCE_H

#include "policies/common.h"
#include <jansson.h>

static inline json_t *reference_load(const char *name)
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

/* A number of an object, of its list where `at` >= 0. */
static inline double reference_number(json_t *root, const char *key, int at)
{
    json_t *v = json_object_get(root, key);

    if (at >= 0)
        v = json_array_get(v, (size_t)at);
    if (!json_is_number(v))
        fail_msg("%s: not a number", key);
    return json_number_value(v);
}

/* A whole number of an object; `otherwise` if there is none. */
static inline int reference_integer(json_t *root, const char *key, int otherwise)
{
    json_t *v = json_object_get(root, key);

    return v ? (int)json_integer_value(v) : otherwise;
}

/* The sizes of a file. */
static inline struct sp_layout reference_layout(json_t *root)
{
    struct sp_layout lay =
        layout_of(reference_integer(root, "p", 0), reference_integer(root, "m", 0),
                  reference_integer(root, "v", 1), reference_integer(root, "seq_splits", 1));

    lay.layers = reference_integer(root, "layers", 0);
    return lay;
}

/* The programs of a plan are those of the file, op by op. */
static inline void reference_compare(const struct sp_plan *plan, json_t *root)
{
    json_t *ranks = json_object_get(root, "ranks");

    assert_int_equal(json_array_size(ranks), plan->layout.stages);
    for (int s = 0; s < plan->layout.stages; s++) {
        json_t *ops = json_array_get(ranks, (size_t)s);

        assert_int_equal(json_array_size(ops), plan->programs[s].n);
        for (int k = 0; k < plan->programs[s].n; k++) {
            char text[SP_OP_TEXT];

            sp_op_print(&plan->programs[s].ops[k], plan->layout.slices > 1, text);
            assert_string_equal(text, json_string_value(json_array_get(ops, (size_t)k)));
        }
    }
}

#endif
