/*
 * Reproduced papers: the simulation must get these results of each paper right. All constants are
 * those of the named machines; none is tuned for a cell.
 */
#include "../policies/common.h"
#include "cli/reproduce/paper.h"
#include "cli/reproduce/run.h"
#include "policies/plan_create.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void run(const struct sp_paper *which, struct sp_paper *paper)
{
    *paper = *which;
    assert_int_equal(sp_paper_run(paper, false), 0);
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

/* Checks that all cells of an experiment are within a fraction `most` of the published figures. */
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

static const struct sp_cell *cell_of(const struct sp_paper *paper, const char *id, const char *row,
                                     const char *column)
{
    for (int i = 0; i < paper->n; i++)
        if (is_of(&paper->cells[i], id) && !strcmp(paper->cells[i].row, row) &&
            !strcmp(paper->cells[i].column, column))
            return &paper->cells[i];
    fail_msg("no cell %s, %s, %s", id, row, column);
    return NULL;
}

TEST(helixpipe_is_ahead_by_what_it_says)
{
    struct sp_paper paper;
    int cells = 0;

    run(&sp_paper_helixpipe, &paper);
    assert_int_equal(paper.summary.claims, 19);
    assert_int_equal(paper.summary.claims_right, 13);
    for (int i = 0; i < paper.n; i++) {
        const struct sp_cell *c = &paper.cells[i];

        if (!is_of(c, "figure8") || sp_cell_is_claim(c))
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
    all_within(&paper, "section4.5", 0.12);
    sp_paper_destroy(&paper);
}

static bool is_throughput(const struct sp_cell *c)
{
    return is_of(c, "table2") || is_of(c, "table3") || is_of(c, "table4");
}

/* True if the simulation agrees with the paper on whether the cell is the fastest of its row. */
static bool is_placed_right(const struct sp_paper *paper, const struct sp_cell *c)
{
    bool published = true, simulated = true;

    for (int i = 0; i < paper->n; i++) {
        const struct sp_cell *other = &paper->cells[i];

        if (other->experiment != c->experiment || strcmp(other->row, c->row))
            continue;
        published &= sp_value_worth(c->published) >= sp_value_worth(other->published);
        simulated &= sp_value_worth(c->simulated) >= sp_value_worth(other->simulated);
    }
    return published == simulated;
}

TEST(weipipe_wins_where_it_did)
{
    int cells = 0, right = 0, winners = 0, first = 0;
    struct sp_paper paper;

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
    all_within(&paper, "section2", 0);
    assert_int_equal(paper.summary.claims_right, 7);
    assert_true(sp_cell_error(cell_of(&paper, "figure5-communication", "sent in the steady phase",
                                      "WeiPipe-Interleave")) < 0.01);
    assert_true(sp_cell_error(cell_of(&paper, "figure5-communication",
                                      "operations a chunk sent, over WeiPipe-Naive",
                                      "WeiPipe-Interleave")) < 0.03);
    assert_true(sp_cell_error(cell_of(&paper, "figure5-communication", "chunks sent an operation",
                                      "WZB1")) < 0.1);
    sp_paper_destroy(&paper);
}

TEST(sppo_gains_what_recomputation_costs)
{
    struct sp_paper paper;
    const struct sp_cell *c;

    run(&sp_paper_sppo, &paper);
    all_within(&paper, "table3", 0);
    all_within(&paper, "figure5", 0.2);
    all_within(&paper, "section3.3", 1e-6);
    all_within(&paper, "figure10-speedup", 0.2);
    all_within(&paper, "figure10-longest", 0.35);
    assert_int_equal(paper.summary.verdicts, 8);
    assert_int_equal(paper.summary.verdicts_right, 8);
    assert_int_equal(paper.summary.claims_right, 6);
    for (int i = 0; i < paper.n; i++) {
        c = &paper.cells[i];
        if (is_of(c, "figure10-speedup") || is_of(c, "figure11"))
            printf("  %s, %s: published %.2f, simulated %.2f %s\n", c->row, c->column,
                   c->published.number, c->simulated.number, c->note);
    }
    c = cell_of(&paper, "figure11", "GPT-65B, 640K", "multiplexed partitioning");
    assert_true(sp_cell_error(c) < 0.15);
    /* a range leaves out what does not fit */
    c = cell_of(&paper, "figure10-speedup", "GPT-7B, 512K to 896K", "most");
    assert_non_null(strstr(c->note, "left out, does not fit: gpt3-7b with 896K"));
    /* full offloading is compared with none, and cannot be faster */
    c = cell_of(&paper, "figure11", "GPT-13B, 512K", "full offloading");
    assert_true(c->simulated.number > 0.9 && c->simulated.number <= 1);
    /* the other reading of a cell: a stage of two is idle half of the time */
    c = cell_of(&paper, "figure10-speedup", "GPT-65B, 640K", "exact");
    assert_non_null(strstr(c->note, "over SP 64, PP 2; sequences a step: 1; with 32, 1.4"));
    /* with 32 heads, more GPUs cannot divide a sequence further */
    c = cell_of(&paper, "figure12", "Megatron-Tuned", "128 GPUs");
    assert_non_null(strstr(c->note, "SP 32, PP 4"));
    assert_true(c->simulated.number > 1 && c->simulated.number < 2.13);
    sp_paper_destroy(&paper);
}

TEST(survey_counts_as_the_list_simulation)
{
    struct sp_paper paper;

    run(&sp_paper_survey, &paper);
    all_within(&paper, "gpipe-bubble", 0.03); /* one printed cell is wrong by 2 % */
    all_within(&paper, "naive-bubble", 1e-9);
    all_within(&paper, "activations", 1e-9);
    all_within(&paper, "communication-volume", 1e-9);
    all_within(&paper, "interleaved", 0.03);
    all_within(&paper, "best", 0.05);
    /* of four tasks two have the layout of the table, one of them because nothing else fits */
    assert_int_equal(paper.summary.winners, 4);
    assert_int_equal(paper.summary.winners_right, 2);
    for (int i = 0; i < 3; i++) {
        static const char *const columns[] = {"TP", "PP", "DP"};
        static const int layout[] = {8, 8, 16};
        const struct sp_cell *c = cell_of(&paper, "choice", "405B on 1024 GPUs", columns[i]);

        assert_true(c->simulated.number == layout[i]);
        assert_true(sp_cell_error(c) < 0); /* a choice is the same or another */
        assert_non_null(strstr(c->note, "66 GB a GPU"));
    }
    sp_paper_destroy(&paper);
}

/* Two stages and a model whose messages take longer than its ops: the time of a micro-batch if
 * messages block. */
TEST(blocking_messages_are_exposed_twice)
{
    struct sp_run run = {.machine = "a800-nvlink-eth",
                         .schedule = "1f1b",
                         .batch = 1,
                         .seq = 16384,
                         .stages = 2,
                         .devices = 8,
                         .blocking = true};
    struct sp_run_result few, many;
    double message, compute, apart, twice;

    assert_int_equal(sp_model_load("llama-h1024", &run.model), 0);
    message = 2.0 * run.batch * run.seq * run.model.hidden /
              sp_machine_named(run.machine)->network.bandwidth;
    run.micro_batches = 16;
    assert_int_equal(sp_run(&run, &few), 0);
    run.micro_batches = 48;
    assert_int_equal(sp_run(&run, &many), 0);
    apart = (many.step_s - few.step_s) / 32; /* of a micro-batch in the steady phase */
    run.waits = 2; /* each end waits twice as long: two exposures more a micro-batch */
    assert_int_equal(sp_run(&run, &many), 0);
    run.micro_batches = 16;
    assert_int_equal(sp_run(&run, &few), 0);
    twice = (many.step_s - few.step_s) / 32;
    run.micro_batches = 48;
    run.blocking = false;
    run.stages = 1;
    assert_int_equal(sp_run(&run, &many), 0);
    compute = many.step_s / 48 / 2; /* half of the layers */
    printf("  a micro-batch %.1f ms: computation %.1f, message %.1f\n", 1e3 * apart, 1e3 * compute,
           1e3 * message);
    assert_true(apart > 0.95 * (compute + 2 * message));
    assert_true(fabs(twice - apart - 2 * message) < 0.02 * message);
    assert_true(apart < 1.15 * (compute + 2 * message)); /* the head is on one of the stages */
}

/* In each turn a worker sends the next one weights twice and gradients once, and nothing else. */
TEST(ring_carries_what_is_used)
{
    struct sp_layout lay = {
        .stages = 4, .micro_batches = 16, .slices = 1, .layers = 8, .options = ""};
    struct sp_step_messages messages;
    double bytes = 0, turn;
    struct sp_model model;
    struct sp_shape sh;
    struct sp_plan plan;

    assert_int_equal(sp_model_load("llama-h1024", &model), 0);
    model.layers = lay.layers;
    assert_int_equal(sp_plan_create("weipipe", &lay, &plan), 0);
    sp_shape_init(&sh, &model, 1, 4096, lay.micro_batches);
    sh.dtype = SP_BF16;
    assert_int_equal(sp_step_messages_create(&plan, &sh, &messages), 0);
    sp_ring_as_published(&plan, &messages);
    for (int i = 0; i < messages.n; i++)
        if (messages.message[i].from == 1 && messages.message[i].to == 2)
            bytes += (double)messages.message[i].bytes;
    turn = 36.0 * model.hidden * model.hidden * 2 * lay.layers /
           lay.stages; /* section 4 of the paper */
    printf("  %.1f MB in %d turns of %.1f MB\n", bytes / 1e6, lay.micro_batches, turn / 1e6);
    assert_true(fabs(bytes / (lay.micro_batches * turn) - 1) < 0.02);
    sp_step_messages_destroy(&messages);
    sp_plan_destroy(&plan);
}

TEST(errors_are_of_ratios_and_bounds)
{
    struct sp_cell c = {.what = "speedup",
                        .unit = "% over the other",
                        .published = {SP_VALUE_NUMBER, 25},
                        .simulated = {SP_VALUE_NUMBER, 0}};

    assert_true(fabs(sp_cell_error(&c) - 0.2) < 1e-12);
    c.what = "memory";
    c.unit = "GB";
    c.relation = "at least";
    assert_true(fabs(sp_cell_error(&c) - 1) < 1e-12);
    c.simulated.number = 26;
    assert_true(sp_cell_error(&c) == 0);
    c.what = "claim";
    assert_true(sp_cell_error(&c) < 0);
    c.what = "memory";
    c.simulated.kind = SP_VALUE_OOM;
    assert_true(sp_cell_error(&c) < 0);
}
