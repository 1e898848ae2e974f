/*
 * SPPO (Chen et al. 2025): one sequence in slices through a pipeline whose stages have eight or sixteen GPUs,
 * activations offloaded.
 *
 * What the paper is silent on and cells have in common: a step of Megatron-LM has 64 sequences, one a
 * micro-batch (with one it would be idle for (p-1)/p of the time, and no published speedup is that high);
 * SPPO computes one sequence after the other. Megatron-LM recomputes all, its messages block, and it keeps
 * the logits of a micro-batch with a copy in f32, in which loss and gradient are computed. "Tuned" it has as much sequence parallelism as
 * table 4 says. No table of positions. Slices are cut at equal operations with attention counted over the whole
 * square, as figure 5's are.
 */
#include "cli/reproduce/run.h"
#include "cli/reproduce/sppo.h"
#include "plan/slices.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MEGATRON_MICRO_BATCHES = 64, SLICES = 160 };

/* The lengths of a run's slices as text; lasts until the next call. */
static const char *cut_of(const struct sp_run *run)
{
    static char text[12 * SP_MAX_SLICES];
    int len[SP_MAX_SLICES], n = 0;

    if (run->slices < 2 || run->slices > SP_MAX_SLICES)
        return NULL;
    sp_sppo_slices(run->model, run->seq, run->slices, len);
    for (int i = 0; i < run->slices; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", i ? "," : "", len[i]);
    return text;
}

static int play(struct sp_run *run, struct sp_run_result *r)
{
    run->cut = cut_of(run);
    return sp_run(run, r);
}

static int sppo_of(const struct sp_cell *c, const char *schedule, enum sp_offload_mode mode,
                   struct sp_model *model, struct sp_run *run)
{
    *run = (struct sp_run){.machine = sp_cell_text(c, "machine", "a100-sppo"),
                           .schedule = schedule,
                           .model = model,
                           .batch = 1,
                           .seq = sp_cell_int(c, "seq", 524288),
                           .stages = sp_cell_int(c, "stages", 4),
                           .devices = sp_cell_int(c, "devices_per_stage", 8),
                           .micro_batches = 1,
                           .slices = sp_cell_int(c, "slices", SLICES),
                           .offload = mode};
    return sp_sppo_model(c, model);
}

static int megatron_of(const struct sp_cell *c, struct sp_model *model, struct sp_run *run)
{
    int err = sppo_of(c, "1f1b", SP_OFFLOAD_NONE, model, run);

    run->slices = 1;
    run->micro_batches = MEGATRON_MICRO_BATCHES;
    run->recompute = SP_RECOMPUTE_FULL;
    run->blocking = true;
    run->logit_bytes = 6;
    return err;
}

/* ---- speedups over Megatron-LM ------------------------------------------------------------------ */

static int ratio(const struct sp_cell *c, const char *schedule, enum sp_offload_mode mode,
                 double *out, bool *fit)
{
    struct sp_run_result ours, theirs;
    struct sp_model model;
    struct sp_run run;
    double rate;
    int err = sppo_of(c, schedule, mode, &model, &run);

    err = err ? err : play(&run, &ours);
    if (err)
        return err;
    rate = sp_run_rate(&run, &ours);
    err = megatron_of(c, &model, &run);
    err = err ? err : play(&run, &theirs);
    if (!err) {
        *out = rate / sp_run_rate(&run, &theirs);
        *fit = ours.fits && theirs.fits;
    }
    return err;
}

/* The least or most over the rows of table 4 in which Megatron-LM runs. */
static int over_rows(struct sp_cell *c)
{
    static const struct {
        int seq, slices;
    } rows[] = {{524288, 32}, {655360, 64}, {786432, 80}, {917504, 128}};
    bool least = !strcmp(c->column, "least"), fit;
    double end = least ? INFINITY : 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double r;
        int err;

        json_object_set_new(c->config, "seq", json_integer(rows[i].seq));
        json_object_set_new(c->config, "slices", json_integer(rows[i].slices));
        err = ratio(c, "sppo", SP_OFFLOAD_ADAPTIVE, &r, &fit);
        if (err)
            return err;
        end = least ? fmin(end, r) : fmax(end, r);
    }
    sp_cell_set(c, end);
    return 0;
}

static int speedup(struct sp_cell *c)
{
    double r;
    bool fit = false;
    int err;

    if (!strncmp(c->row, "GPT-7B", 6))
        return over_rows(c);
    if (!strcmp(c->row, "all")) {
        sp_cell_note(c, "of the cells above and of bars that the text does not state");
        return 0;
    }
    err = ratio(c, "sppo", SP_OFFLOAD_ADAPTIVE, &r, &fit);
    if (!err)
        sp_cell_set(c, r);
    sp_cell_note(c, "nothing that the paper states of SPPO would make it three times as fast");
    return err;
}

/* Figure 11: each technique over Megatron-LM. */
static int technique(struct sp_cell *c)
{
    bool full = !strcmp(sp_cell_text(c, "offload", "adaptive"), "full"), fit = false;
    double r;
    int err = ratio(c, sp_cell_text(c, "schedule", "sppo"),
                    full ? SP_OFFLOAD_FULL : SP_OFFLOAD_ADAPTIVE, &r, &fit);

    if (!err)
        sp_cell_set(c, r);
    return err;
}

/* ---- what fits ------------------------------------------------------------------------------------ */

static int figure_10(struct sp_cell *c)
{
    struct sp_run_result r;
    struct sp_model model;
    struct sp_run run;
    int err;

    if (strcmp(sp_cell_text(c, "schedule", ""), "Megatron-LM")) {
        sp_cell_note(c, "a dash in table 4: no configuration of DeepSpeed-Ulysses is stated");
        return 0;
    }
    if (!strncmp(c->row, "GPT-65B", 7)) { /* of table 4 */
        json_object_set_new(c->config, "devices_per_stage", json_integer(16));
        json_object_set_new(c->config, "stages", json_integer(8));
    }
    err = megatron_of(c, &model, &run);
    err = err ? err : play(&run, &r);
    if (err)
        return err;
    sp_cell_set(c, sp_run_rate(&run, &r));
    if (!r.fits)
        c->simulated.kind = SP_VALUE_OOM;
    sp_cell_note(c, "%.1f GB", r.memory_bytes / 1e9);
    return 0;
}

static int fits(struct sp_run *run, int seq, bool *yes)
{
    struct sp_run_result r;
    int err;

    run->seq = seq;
    err = play(run, &r);
    *yes = r.fits;
    return err;
}

/* The longest sequence that fits, to 64K tokens. */
static int longest(struct sp_run *run, int *tokens)
{
    const int step = 65536;
    int low = 0, high = 256; /* 16M tokens */
    bool yes;

    run->memory_only = true;
    while (high - low > 1) {
        int middle = (low + high) / 2, err = fits(run, middle * step, &yes);

        if (err)
            return err;
        *(yes ? &low : &high) = middle;
    }
    *tokens = low * step;
    return 0;
}

static int longest_megatron(const struct sp_cell *c, int devices, int *tokens)
{
    struct sp_model model;
    struct sp_run run;
    int err = megatron_of(c, &model, &run);

    run.stages = 1;
    run.devices = devices;
    run.micro_batches = 1;
    return err ? err : longest(&run, tokens);
}

static int figure_12(struct sp_cell *c)
{
    int devices = sp_cell_int(c, "devices", 32), tokens = 0, base = 0, err;
    const char *schedule = sp_cell_text(c, "schedule", "sppo");
    struct sp_model model;
    struct sp_run run;

    if (!strcmp(schedule, "DeepSpeed-Ulysses")) {
        sp_cell_note(c, "no configuration of DeepSpeed-Ulysses with FPDT is stated");
        return 0;
    }
    err = longest_megatron(c, 32, &base);
    if (!err && !strcmp(schedule, "sppo")) {
        err = sppo_of(c, "sppo", SP_OFFLOAD_FULL, &model, &run);
        run.stages = devices / run.devices;
        err = err ? err : longest(&run, &tokens);
    } else if (!err)
        err = longest_megatron(c, devices, &tokens);
    if (!err)
        sp_cell_set(c, (double)tokens / base);
    sp_cell_note(c, "%dK tokens", tokens / 1024);
    return err;
}

/* ---- table 4 and figure 1 ---------------------------------------------------------------------------- */

/* The fewest slices, of those that the table has, with which a step is within a twentieth of the shortest. */
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
        struct sp_model model;
        struct sp_run run;
        int err = sppo_of(c, "sppo", SP_OFFLOAD_ADAPTIVE, &model, &run);

        run.slices = tried[i];
        err = err ? err : play(&run, &r);
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
    struct sp_model model;
    struct sp_run run;
    int err = sppo_of(c, "sppo", SP_OFFLOAD_ADAPTIVE, &model, &run);

    run.stages = sp_cell_int(c, "devices", 128) / run.devices;
    err = err ? err : play(&run, &r);
    if (!err)
        sp_cell_set(c, 1e9 / run.seq * r.step_s / 3600);
    return err;
}

static const struct sp_experiment experiments[] = {
    {"figure1", figure_1},
    {"table2", sp_sppo_table_2},
    {"section2", sp_sppo_section_2},
    {"table3", sp_sppo_table_3},
    {"table4", table_4},
    {"figure5", sp_sppo_figure_5},
    {"figure7", sp_sppo_figure_7},
    {"section3.3", sp_sppo_section_3},
    {"figure8", sp_sppo_figure_8},
    {"figure10", figure_10},
    {"figure10-speedup", speedup},
    {"figure11", technique},
    {"figure12", figure_12},
    {0},
};

const struct sp_paper sp_paper_sppo = {.name = "sppo", .experiments = experiments};
