/* Shared by the tests of the orders. */
#ifndef SP_TESTS_POLICIES_H
#define SP_TESTS_POLICIES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "capture.h"
#include "groups.h"
#include "policies/plan.h"
#include "sp_error.h"
#include "policies/plan_create.h"
#include "policies/families/families.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline struct sp_layout layout(int p, int m)
{
    return (struct sp_layout){
        .stages = p, .micro_batches = m, .chunks = 1, .slices = 1, .options = ""};
}

static inline void make_plan_of(const char *schedule, struct sp_layout lay, struct sp_plan *plan)
{
    if (sp_plan_create(schedule, &lay, plan))
        fail_msg("%s p=%d m=%d v=%d n=%d L=%d is refused", schedule, lay.stages, lay.micro_batches,
                 lay.chunks, lay.slices, lay.layers);
}

static inline void make_plan(const char *schedule, int p, int m, struct sp_plan *plan)
{
    make_plan_of(schedule, layout(p, m), plan);
}

static inline struct sp_layout layout_of(int p, int m, int chunks, int slices)
{
    struct sp_layout lay = layout(p, m);

    lay.chunks = chunks;
    lay.slices = slices;
    return lay;
}

/* A plan is refused with one line that holds the text; returns it, valid until the next one. */
static inline const char *assert_no_plan(const char *schedule, struct sp_layout lay,
                                         const char *text)
{
    static struct capture c;
    struct sp_plan plan;
    int ret = CAPTURED(&c, sp_plan_create(schedule, &lay, &plan));
    const char *end = strchr(c.text, '\n');

    if (ret != -EINVAL || !strstr(c.text, text) || !end || end[1])
        fail_msg("%s p=%d m=%d v=%d n=%d L=%d: %d '%s', not '%s'", schedule, lay.stages,
                 lay.micro_batches, lay.chunks, lay.slices, lay.layers, ret, c.text, text);
    return c.text;
}

/* A layout that a schedule refuses with a line that holds the text. */
struct refusal {
    const char *schedule;
    struct sp_layout lay;
    const char *text;
};

#define assert_no_plans(table) assert_each_refused(table, sizeof(table) / sizeof *(table))

static inline void assert_each_refused(const struct refusal *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_no_plan(table[i].schedule, table[i].lay, table[i].text);
    print_message("%zu plans refused\n", n);
}

/* Sets the sizes that a refusal says to use; returns how many it names. */
static inline int follow_advice(const char *line, struct sp_layout *lay)
{
    const struct {
        const char *option;
        int *value;
    } sizes[] = {{"--stages ", &lay->stages},
                 {"--micro-batches ", &lay->micro_batches},
                 {"--chunks ", &lay->chunks},
                 {"--slices ", &lay->slices}};
    const char *use = strstr(line, "use --");
    int named = 0;

    for (size_t i = 0; use && i < sizeof sizes / sizeof *sizes; i++) {
        const char *option = strstr(use, sizes[i].option);

        if (option && sscanf(option + strlen(sizes[i].option), "%d", sizes[i].value) == 1)
            named++;
    }
    return named;
}

static inline void assert_same_programs(const struct sp_plan *a, const struct sp_plan *b)
{
    for (int s = 0; s < a->layout.stages; s++) {
        assert_int_equal(a->programs[s].n, b->programs[s].n);
        for (int k = 0; k < a->programs[s].n; k++) {
            const struct sp_op *x = &a->programs[s].ops[k], *y = &b->programs[s].ops[k];

            assert_true(x->pass == y->pass && x->part == y->part && x->mb == y->mb &&
                        x->chunk == y->chunk && x->slice == y->slice && x->overlap == y->overlap);
        }
    }
}

/* A model of odd sizes. */
static inline struct sp_model tiny(int layers, bool tied)
{
    return (struct sp_model){.arch = SP_ARCH_GPT2,
                             .layers = layers,
                             .hidden = 24,
                             .heads = 4,
                             .kv_heads = 4,
                             .head_dim = 6,
                             .mlp = 35,
                             .vocab = 61,
                             .positions = 64,
                             .tied = tied};
}

/* Makes a plan of the layerwise family from programs as text: a line per stage, ops separated by
 * blanks, '&' after an op that overlaps with the next. */
static inline void write_plan(struct sp_layout lay, const char *const *lines, struct sp_plan *plan)
{
    *plan = (struct sp_plan){.layout = lay, .family = sp_family_find("layerwise")};
    plan->programs = calloc((size_t)lay.stages, sizeof *plan->programs);
    assert_non_null(plan->programs);
    for (int s = 0; s < lay.stages; s++) {
        char text[512], *save = NULL;

        snprintf(text, sizeof text, "%s", lines[s]);
        for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
            size_t last = strlen(w) - 1;
            bool overlap = w[last] == '&';
            struct sp_op op;

            if (overlap)
                w[last] = 0;
            assert_int_equal(sp_op_parse(w, &op), 0);
            op.overlap = overlap;
            sp_program_add_op(&plan->programs[s], op);
        }
    }
    assert_int_equal(sp_plan_index(plan), 0);
}

/* Puts a plan written down on another placement. */
static inline void place_plan(struct sp_plan *plan, int pipes,
                              int (*place)(const struct sp_layout *lay, int stage, int chunk))
{
    char why[128];

    if (pipes > 1)
        plan->family = sp_family_find("bidirectional");
    assert_int_equal(sp_map_create(&plan->layout, pipes, place, NULL, &plan->map, why, sizeof why),
                     0);
    plan->layout.map = plan->map;
    assert_int_equal(sp_plan_index(plan), 0);
}

#endif
