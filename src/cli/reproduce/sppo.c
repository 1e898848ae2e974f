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
#include "policies/families/multiplexed/multiplex.h"
#include "policies/plan_create.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GiB = 1 << 30;

int sp_sppo_model(const struct sp_cell *c, struct sp_model *model)
{
    int err = sp_model_load(sp_cell_text(c, "model", "gpt3-7b"), model);

    model->positions = 1;
    return err;
}

const struct sp_machine *sp_sppo_machine(const struct sp_cell *c)
{
    return sp_machine_named(sp_cell_text(c, "machine", "a100-sppo"));
}

int sp_sppo_shape(const struct sp_cell *c, int seq, struct sp_shape *sh)
{
    struct sp_model model;
    int err = sp_sppo_model(c, &model);

    if (err)
        return err;
    *sh = sp_bf16_shape(&model, 1, seq, 1);
    return 0;
}

/* ---- table 2, section 2: sizes */

/* Bytes of the activations of all layers, and of the model with its optimizer. */
static int find_sizes(const struct sp_cell *c, double *activations, double *states)
{
    const int tokens = 65536; /* measured, then scaled to the cell's: all is proportional */
    struct sp_shape sh;
    int err = sp_sppo_shape(c, tokens, &sh);

    if (err)
        return err;
    *activations = sp_layer_kept_bytes(&sh, SP_RECOMPUTE_NONE) * sh.model.layers *
                   sp_cell_int(c, "seq", 0) / tokens;
    *states = 18.0 * (double)sp_model_parameters(&sh.model);
    return 0;
}

static int table_2(struct sp_cell *c)
{
    double activations, states;
    int err = find_sizes(c, &activations, &states);

    if (err)
        return err;
    if (!strncmp(c->column, "model", 5)) {
        sp_cell_set(c, states / 1e9);
        sp_cell_note(c, "18 bytes a parameter");
    } else if (!strncmp(c->column, "activation", 10)) {
        sp_cell_set(c, activations / GiB);
        sp_cell_note(c, "16bsh numbers a layer, as the rows of 7B and 65B have them");
    } else {
        sp_cell_set(c, ceil((activations + states) / (80 * GiB)));
        sp_cell_note(c, "that hold both, in GPUs of 80 GiB");
    }
    return 0;
}

static int section_2(struct sp_cell *c)
{
    double activations, states;
    int err = find_sizes(c, &activations, &states);

    if (err)
        return err;
    if (!strcmp(c->column, "activation memory"))
        sp_cell_set(c, activations / (strcmp(c->unit, "TB") ? 1024 * GiB : 1e12));
    else if (!strncmp(c->column, "GPUs", 4))
        sp_cell_set(c, ceil(activations / 80e9));
    else
        sp_cell_note(c, "what else is in the 80 GB is not said: one layer at 128K is 16 GiB");
    return 0;
}

/* ---- table 3: who computes which slices */

static int table_3(struct sp_cell *c)
{
    struct sp_layout lay = {.stages = sp_cell_int(c, "stages", 4),
                            .micro_batches = 1,
                            .slices = sp_cell_int(c, "slices", 8),
                            .layers = sp_cell_int(c, "stages", 4),
                            .options = ""};
    const char *row = c->row;
    enum sp_phase phase = *row == 'L' ? SP_LEFT : *row == 'R' ? SP_RIGHT : SP_STEADY;
    bool range = strstr(row, "Range") != NULL;
    int stage = sp_cell_int(c, "stage", 0), n = 0, stages = 0;
    struct sp_plan plan;

    if (sp_plan_create("sppo:multiplex", &lay, &plan))
        return -EINVAL;
    for (int k = 0; k < lay.slices; k++) {
        int first, last;

        if (sp_slice_phase(&plan.layout, stage, k) != phase)
            continue;
        sp_slice_stages(&plan.layout, stage, k, &first, &last);
        stages = last - first + 1;
        n++;
    }
    sp_cell_set(c, range ? stages : n);
    sp_plan_destroy(&plan);
    return 0;
}

/* ---- figure 5: slices of equal operations */

void sp_sppo_slices(const struct sp_model *model, int seq, int n, int *len)
{
    struct sp_slice_costs flops;
    struct sp_shape sh;

    sp_shape_init(&sh, model, 1, seq, 1);
    flops = sp_slice_flops(&sh);
    flops.pair *= 2;
    sp_slices_by_flops(&flops, seq, n, len);
}

static int figure_5(struct sp_cell *c)
{
    enum { MOST = 64 };
    const struct sp_machine *machine = sp_sppo_machine(c);
    int n = sp_cell_int(c, "slices", 8), k = sp_cell_int(c, "slice", 0), len[MOST];
    int seq = sp_cell_int(c, "seq", 131072);
    struct sp_model model;
    double activations, states, bytes;

    if (!machine || sp_sppo_model(c, &model) || find_sizes(c, &activations, &states) || n > MOST)
        return -EINVAL;
    sp_sppo_slices(&model, seq, n, len);
    /* keys and values, 2 of 16 parts, stay for later slices */
    bytes = activations * 14 / 16 * len[k] / seq / sp_cell_int(c, "devices", 64);
    if (!strncmp(c->column, "transfer", 8))
        sp_cell_set(c, 1e3 * bytes / (machine->copy.to_host / machine->copy.shared_by));
    else
        sp_cell_set(c, bytes / 1e9);
    sp_cell_note(c, "keys and values stay; on %d GPUs, which the paper does not say",
                 sp_cell_int(c, "devices", 64));
    return 0;
}

/* ---- figure 7: how long a slice should be */

double sp_sppo_layer_s(const struct sp_machine *machine, int devices, const struct sp_shape *sh,
                       int tokens)
{
    double sum = 0;

    for (int first = 0; first < sh->seq; first += tokens) {
        struct sp_part_times t;
        struct sp_shape part;

        sp_shape_slice(sh, first, tokens, &part);
        sp_part_times(machine, devices, &part, &t);
        sum += sp_layer_forward_s(&t);
    }
    return sum;
}

static int figure_7(struct sp_cell *c)
{
    enum { LENGTHS = 9, SHORTEST = 256 };
    const struct sp_machine *machine = sp_sppo_machine(c);
    bool lower = !strncmp(c->column, "lower", 5);
    const double stages = 4;
    struct sp_shape sh;
    double t[LENGTHS], best = INFINITY;
    int end = 0;

    if (!machine || sp_sppo_shape(c, sp_cell_int(c, "seq", 131072), &sh))
        return -EINVAL;
    for (int i = 0; i < LENGTHS; i++) { /* on one device, with the bubble of four stages */
        double n = (double)sh.seq / (SHORTEST << i);

        t[i] = sp_sppo_layer_s(machine, 1, &sh, SHORTEST << i) * (n + stages - 1) / n;
        best = fmin(best, t[i]);
    }
    for (int i = 0; i < LENGTHS; i++)
        if (t[i] <= 1.1 * best && (!lower || !end))
            end = SHORTEST << i;
    sp_cell_set(c, end);
    sp_cell_note(c, "within a tenth of the best, on four stages");
    return 0;
}

/* ---- figure 8, at the rates of the machine, and unit costs */

/* The most that forwards keep on a device, in units of what a stage keeps of the shortest slice. */
static int figure_8(struct sp_cell *c)
{
    enum { MOST = 64 };
    bool full = !strcmp(sp_cell_text(c, "offload", "full"), "full");
    double activations, states, unit;
    struct sp_run_result r;
    struct sp_run run;
    int len[MOST];
    int err = sp_sppo_run(c, "sppo", full ? SP_OFFLOAD_FULL : SP_OFFLOAD_ADAPTIVE, &run);

    run.hides_all = true;
    err = err ? err : find_sizes(c, &activations, &states);
    err = err ? err : sp_sppo_play(&run, &r);
    if (err)
        return err;
    sp_sppo_slices(&run.model, run.seq, run.slices, len);
    unit = activations / run.stages / run.devices * len[run.slices - 1] / run.seq;
    sp_cell_set(c, r.kept_bytes / unit);
    sp_cell_note(c,
                 "unit: the shortest slice, assumed, %.1f of which are the longest; here a layer's "
                 "tensors have left when the next slice comes to the layer",
                 (double)len[0] / len[run.slices - 1]);
    return 0;
}

static int section_3(struct sp_cell *c)
{
    struct sp_theory t = {.schedule = "sppo",
                          .stages = sp_cell_int(c, "stages", 4),
                          .micro_batches = 1,
                          .slices = sp_cell_int(c, "slices", 16),
                          .layers = sp_cell_int(c, "stages", 4)};
    struct sp_theory_result r;
    int err = sp_theory_run(&t, &r);

    if (!err)
        sp_cell_set(c, r.bubble / (1 - r.bubble));
    return err;
}

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
    {"table2", table_2},
    {"section2", section_2},
    {"section2-recomputation", sp_sppo_recomputation},
    {"section5", sp_sppo_section_5},
    {"figure2", figure_2},
    {"table3", table_3},
    {"table4", table_4},
    {"figure5", figure_5},
    {"figure7", figure_7},
    {"section3.3", section_3},
    {"figure8", figure_8},
    {"figure10", sp_sppo_figure_10},
    {"figure10-longest", sp_sppo_figure_10_longest},
    {"figure10-speedup", sp_sppo_speedup},
    {"figure11", sp_sppo_speedup},
    {"figure12", sp_sppo_figure_12},
    {0},
};

const struct sp_paper sp_paper_sppo = {
    .name = "sppo", .experiments = experiments, .claims = sp_sppo_claims};
