/*
 * SPPO (Chen et al. 2025): one sequence in slices through a pipeline whose stages have eight or
 * sixteen GPUs, activations offloaded.
 *
 * The paper leaves the following open; all cells assume it. SPPO computes one sequence after the
 * other. Megatron-LM uses the cell's layout and sequences a step, one a micro-batch; it recomputes
 * all, its messages block, and it keeps the logits of a micro-batch with a copy in f32, from which
 * it computes loss and gradient. There is no table of positions. Slices have equal operations if
 * attention counts the whole square, as in figure 5.
 */
#include "cli/reproduce/sppo.h"
#include "plan/slices.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SLICES = 160 };

/* The lengths of a run's slices as text; lasts until the next call. */
static const char *cut_of(const struct sp_run *run)
{
    static char text[12 * SP_MAX_SLICES];
    int len[SP_MAX_SLICES], n = 0;

    if (run->slices < 2 || run->slices > SP_MAX_SLICES)
        return NULL;
    sp_sppo_slices(&run->model, run->seq, run->slices, len);
    for (int i = 0; i < run->slices; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "", len[i]);
    return text;
}

int sp_sppo_play(struct sp_run *run, struct sp_run_result *r)
{
    run->cut = cut_of(run);
    return sp_run(run, r);
}

int sp_sppo_run(const struct sp_cell *c, const char *schedule, enum sp_offload_mode mode,
                struct sp_run *run)
{
    *run = (struct sp_run){.machine = sp_cell_text(c, "machine", "a100-sppo"),
                           .schedule = schedule,
                           .batch = 1,
                           .seq = sp_cell_int(c, "seq", 524288),
                           .stages = sp_cell_int(c, "stages", 4),
                           .devices = sp_cell_int(c, "devices_per_stage", 8),
                           .micro_batches = 1,
                           .slices = sp_cell_int(c, "slices", SLICES),
                           .offload = mode};
    return sp_sppo_model(c, &run->model);
}

int sp_sppo_megatron(const struct sp_cell *c, struct sp_run *run)
{
    int err = sp_sppo_run(c, "1f1b", SP_OFFLOAD_NONE, run);

    run->slices = 1;
    run->stages = sp_cell_int(c, "over_stages", run->stages);
    run->devices = sp_cell_int(c, "over_devices_per_stage", run->devices);
    run->micro_batches = sp_cell_int(c, "sequences", 1);
    run->recompute = SP_RECOMPUTE_FULL;
    run->blocking = true;
    run->logit_bytes = 6;
    return err;
}

/* ---- table 4 and figure 1 */

/* The fewest slices, among the table's, whose step is within a twentieth of the shortest. */
static int table_4(struct sp_cell *c)
{
    static const int tried[] = {16, 32, 48, 64, 80, 96, 128, 160};
    enum { TRIED = sizeof tried / sizeof *tried };
    double step[TRIED], best = INFINITY;

    if (strcmp(c->column, "N")) {
        sp_cell_note(c, "a choice of the paper, not a result");
        return 0;
    }
    for (int i = 0; i < TRIED; i++) {
        struct sp_run_result r;
        struct sp_run run;
        int err = sp_sppo_run(c, "sppo", SP_OFFLOAD_ADAPTIVE, &run);

        run.slices = tried[i];
        err = err ? err : sp_sppo_play(&run, &r);
        if (err)
            return err;
        step[i] = r.fits ? r.step_s : INFINITY;
        best = fmin(best, step[i]);
    }
    for (int i = TRIED - 1; i >= 0; i--)
        if (step[i] <= 1.05 * best)
            sp_cell_set(c, tried[i]);
    sp_cell_note(c, "the fewest with a step within 5 %% of the shortest");
    return 0;
}

static int figure_1(struct sp_cell *c)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = sp_sppo_run(c, "sppo", SP_OFFLOAD_ADAPTIVE, &run);

    run.stages = sp_cell_int(c, "devices", 128) / run.devices;
    err = err ? err : sp_sppo_play(&run, &r);
    if (!err)
        sp_cell_set(c, 1e9 / run.seq * r.step_s / 3600);
    return err;
}

static int figure_2(struct sp_cell *c)
{
    sp_cell_note(c, "a history of hardware: there is nothing to simulate");
    return 0;
}

static const struct sp_experiment experiments[] = {
    {"figure1", figure_1},
    {"table2", sp_sppo_table_2},
    {"section2", sp_sppo_section_2},
    {"section2-recomputation", sp_sppo_recomputation},
    {"section5", sp_sppo_section_5},
    {"figure2", figure_2},
    {"table3", sp_sppo_table_3},
    {"table4", table_4},
    {"figure5", sp_sppo_figure_5},
    {"figure7", sp_sppo_figure_7},
    {"section3.3", sp_sppo_section_3},
    {"figure8", sp_sppo_figure_8},
    {"figure10", sp_sppo_figure_10},
    {"figure10-longest", sp_sppo_figure_10_longest},
    {"figure10-speedup", sp_sppo_speedup},
    {"figure11", sp_sppo_speedup},
    {"figure12", sp_sppo_figure_12},
    {0},
};

const struct sp_paper sp_paper_sppo = {
    .name = "sppo", .experiments = experiments, .claims = sp_sppo_claims};
