/*
 * The papers once more: what the simulation must get right of each, with the figures it gets. All constants
 * are those of the named machines; nothing here or there is set for a cell.
 */
#include "../policies/common.h"
#include "cli/reproduce/paper.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void run(const struct sp_paper *which, struct sp_paper *paper)
{
    *paper = *which;
    assert_int_equal(sp_paper_run(paper), 0);
    printf("%s: %d cells, %d simulated, ahead %d of %d, verdicts %d of %d, off by %.1f %%\n",
           paper->name, paper->n, paper->summary.simulated, paper->summary.winners_right,
           paper->summary.winners, paper->summary.verdicts_right, paper->summary.verdicts,
           100 * paper->summary.mean_error);
    for (int i = 0; i < paper->n; i++) /* what is not simulated says why */
        assert_true(paper->cells[i].simulated.kind != SP_VALUE_NONE || paper->cells[i].note[0]);
}

static bool is_of(const struct sp_cell *c, const char *id)
{
    return !strcmp(c->id, id);
}

/* All cells of an experiment are within a part of what was published. */
static int all_within(const struct sp_paper *paper, const char *id, double most)
{
    int n = 0;

    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *c = &paper->cells[i];

        if (!is_of(c, id))
            continue;
        if (sp_cell_error(c) > most)
            fail_msg("%s, %s, %s: published %g, simulated %g", id, c->row, c->column,
                     c->published.number, c->simulated.number);
        n++;
    }
    assert_true(n > 0);
    return n;
}

static void helixpipe_is_ahead_by_what_it_says(void **state)
{
    struct sp_paper paper;
    int cells = 0;

    (void)state;
    run(&sp_paper_helixpipe, &paper);
    for (int i = 0; i < paper.n; i++) {
        const struct sp_cell *c = &paper.cells[i];

        if (!is_of(c, "figure8"))
            continue;
        printf("  %s, %s: published %+.0f %%, simulated %+.1f %% %s\n", c->row, c->column,
               c->published.number, c->simulated.number, c->note);
        assert_true(c->simulated.number > 0);
        assert_true(fabs(c->simulated.number - c->published.number) <= 6);
        cells++;
    }
    assert_int_equal(cells, 6);
    all_within(&paper, "table2", 0.3); /* formulas of the two-fold schedule are upper bounds */
    all_within(&paper, "table2-memory", 0.07);
    all_within(&paper, "table1-memory", 0.01);
    all_within(&paper, "figure11", 0.1);
    sp_paper_destroy(&paper);
}

static bool is_throughput(const struct sp_cell *c)
{
    return is_of(c, "table2") || is_of(c, "table3") || is_of(c, "table4");
}

static double worth(struct sp_value v)
{
    return v.kind == SP_VALUE_NUMBER ? v.number : -1;
}

/* Whether the cell is the fastest of its row as much as it was published to be. */
static bool is_placed_right(const struct sp_paper *paper, const struct sp_cell *c)
{
    bool published = true, simulated = true;

    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *other = &paper->cells[i];

        if (other->experiment != c->experiment || strcmp(other->row, c->row))
            continue;
        published &= worth(c->published) >= worth(other->published);
        simulated &= worth(c->simulated) >= worth(other->simulated);
    }
    return published == simulated;
}

static void weipipe_wins_where_it_did(void **state)
{
    int cells = 0, right = 0, winners = 0, first = 0;
    struct sp_paper paper;

    (void)state;
    run(&sp_paper_weipipe, &paper);
    for (int i = 0; i < paper.n; i++) {
        const struct sp_cell *c = &paper.cells[i];
        bool placed;

        if (!is_throughput(c))
            continue;
        placed = is_placed_right(&paper, c);
        cells++;
        right +=
            placed && (c->published.kind == SP_VALUE_OOM) == (c->simulated.kind == SP_VALUE_OOM);
        if (is_of(c, "table2") && !strcmp(c->column, "WeiPipe")) {
            winners++;
            first += placed;
        }
    }
    printf("  winner and out of memory right in %d of %d cells of tables 2 to 4; WeiPipe first in "
           "%d of %d "
           "rows of table 2\n",
           right, cells, first, winners);
    assert_int_equal(cells, 105);
    assert_true(right >= 0.85 * cells);
    assert_int_equal(first, winners);
    all_within(&paper, "figure5", 0.01);
    all_within(&paper, "figure5-communication", 0.01);
    sp_paper_destroy(&paper);
}

static void sppo_gains_what_recomputation_costs(void **state)
{
    struct sp_paper paper;
    int cells = 0;

    (void)state;
    run(&sp_paper_sppo, &paper);
    all_within(&paper, "table3", 0);
    all_within(&paper, "figure5", 0.2);
    all_within(&paper, "section3.3", 1e-6);
    for (int i = 0; i < paper.n; i++) {
        const struct sp_cell *c = &paper.cells[i];

        /* those of 65B are not derivable from what the paper states: docs/fidelity.md */
        if (!is_of(c, "figure10-speedup") || c->simulated.kind != SP_VALUE_NUMBER)
            continue;
        printf("  %s, %s: published %.2f, simulated %.2f\n", c->row, c->column, c->published.number,
               c->simulated.number);
        assert_true(c->simulated.number > 1);
        if (strstr(c->row, "7B")) {
            assert_true(sp_cell_error(c) <= 0.15);
            cells++;
        }
    }
    assert_int_equal(cells, 2);
    assert_int_equal(paper.summary.verdicts_right, paper.summary.verdicts);
    sp_paper_destroy(&paper);
}

static void survey_counts_as_the_list_simulation(void **state)
{
    struct sp_paper paper;

    (void)state;
    run(&sp_paper_survey, &paper);
    all_within(&paper, "gpipe-bubble", 0.03); /* one printed cell is wrong by 2 % */
    all_within(&paper, "naive-bubble", 1e-9);
    all_within(&paper, "activations", 1e-9);
    all_within(&paper, "communication-volume", 1e-9);
    all_within(&paper, "interleaved", 0.03);
    sp_paper_destroy(&paper);
}

static void errors_are_of_ratios_and_bounds(void **state)
{
    struct sp_cell c = {.what = "speedup",
                        .unit = "% over the other",
                        .published = {SP_VALUE_NUMBER, 25},
                        .simulated = {SP_VALUE_NUMBER, 0}};

    (void)state;
    assert_true(fabs(sp_cell_error(&c) - 0.2) < 1e-12);
    c.what = "memory";
    c.unit = "GB";
    c.relation = "at least";
    assert_true(fabs(sp_cell_error(&c) - 1) < 1e-12);
    c.simulated.number = 26;
    assert_true(sp_cell_error(&c) == 0);
    c.simulated.kind = SP_VALUE_OOM;
    assert_true(sp_cell_error(&c) < 0);
}

TEST_GROUP(reproduce)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_of_ratios_and_bounds),
        cmocka_unit_test(helixpipe_is_ahead_by_what_it_says),
        cmocka_unit_test(weipipe_wins_where_it_did),
        cmocka_unit_test(sppo_gains_what_recomputation_costs),
        cmocka_unit_test(survey_counts_as_the_list_simulation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
