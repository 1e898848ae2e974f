/*
 * HelixPipe (Zhang et al. 2025) on its two clusters: eight nodes of eight GPUs, a node a stage,
 * with Megatron's tensor and sequence parallelism inside.
 *
 * The baselines are Megatron-LM's: their messages block (run.h). HelixPipe's messages do not block;
 * its two-fold schedule exists to hide them.
 */
#include "cli/reproduce/helixpipe.h"
#include "plan/cost/part_times.h"
#include <errno.h>
#include <math.h>
#include <string.h>

enum { NODE = 8 }; /* GPUs of a stage */

const char *const sp_helixpipe_systems[] = {"1f1b", "zb1p", "adapipe", "helix"};

int sp_helixpipe_run(const struct sp_helixpipe_setting *setting, const char *schedule,
                     struct sp_run *run)
{
    bool helix = !strncmp(schedule, "helix", 5);

    *run = (struct sp_run){.machine = setting->machine,
                           .schedule = schedule,
                           .batch = 1,
                           .seq = setting->seq,
                           .stages = setting->stages,
                           .devices = NODE,
                           .micro_batches = 2 * setting->stages,
                           .recompute = helix ? SP_RECOMPUTE_NO_ATTENTION : SP_RECOMPUTE_NONE,
                           .blocking = !helix,
                           .attention = setting->attention};
    return sp_model_load(setting->model, &run->model);
}

struct sp_helixpipe_setting sp_helixpipe_setting_of(const struct sp_cell *c)
{
    return (struct sp_helixpipe_setting){.machine = sp_cell_text(c, "machine", "h20-ib"),
                                         .model = sp_cell_text(c, "model", "gpt3-3b"),
                                         .seq = sp_cell_int(c, "seq", 131072),
                                         .stages = sp_cell_int(c, "stages", 8)};
}

int sp_helixpipe_rates(const struct sp_helixpipe_setting *setting,
                       double rates[SP_HELIXPIPE_SYSTEMS])
{
    int err = 0;

    for (int i = 0; !err && i < SP_HELIXPIPE_SYSTEMS; i++) {
        struct sp_run_result r;
        struct sp_run run;

        err = sp_helixpipe_run(setting, sp_helixpipe_systems[i], &run);
        err = err ? err : sp_run(&run, &r);
        rates[i] = !err && r.fits ? sp_run_rate(&run, &r) : 0;
    }
    return err;
}

static int best_baseline(const double rates[SP_HELIXPIPE_SYSTEMS])
{
    int best = 0;

    for (int i = 1; i < SP_HELIXPIPE_BASELINES; i++)
        best = rates[i] > rates[best] ? i : best;
    return best;
}

double sp_helixpipe_speedup(const double rates[SP_HELIXPIPE_SYSTEMS])
{
    double best = rates[best_baseline(rates)], helix = rates[SP_HELIXPIPE_BASELINES];

    return best > 0 && helix > 0 ? 100 * (helix / best - 1) : NAN;
}

int sp_helixpipe_memory(const struct sp_helixpipe_setting *setting, const char *schedule,
                        double *bytes)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = sp_helixpipe_run(setting, schedule, &run);

    memset(bytes, 0, (size_t)setting->stages * sizeof *bytes);
    run.memory_only = true;
    run.stage_bytes = bytes;
    return err ? err : sp_run(&run, &r);
}

/* Megatron's heads of 128 elements, on a single GPU, as in the figure. */
int sp_helixpipe_shares(int seq, double share[SP_HELIXPIPE_PARTS])
{
    const struct sp_machine *machine = sp_machine_named("a800-ib");
    struct sp_part_times t;
    struct sp_model model;
    struct sp_shape sh;
    double forward, backward;

    if (!machine || sp_model_load("gpt3-7b", &model))
        return -EINVAL;
    sh = sp_bf16_shape(&model, 1, seq, 1);
    sp_part_times(machine, 1, &sh, &t);
    share[0] = t.pre;
    share[1] = t.attention;
    share[2] = t.post;
    share[3] = t.pre_input + t.qkv_weight;
    share[4] = t.attention_input;
    share[5] = t.post_input + t.post_weight;
    forward = share[0] + share[1] + share[2];
    backward = share[3] + share[4] + share[5];
    for (int i = 0; i < SP_HELIXPIPE_PARTS; i++)
        share[i] /= i < SP_HELIXPIPE_PARTS / 2 ? forward : backward;
    return 0;
}

int sp_helixpipe_lost(const struct sp_helixpipe_setting *setting, double *percent, bool fits[2])
{
    struct sp_run_result with, without;
    struct sp_run run;
    int err = sp_helixpipe_run(setting, "helix", &run);

    err = err ? err : sp_run(&run, &with);
    run.recompute = SP_RECOMPUTE_NONE;
    err = err ? err : sp_run(&run, &without);
    if (err)
        return err;
    *percent = 100 * (1 - without.step_s / with.step_s);
    fits[0] = without.fits;
    fits[1] = with.fits;
    return 0;
}

/* ---- figures 8 and 11: throughput */

/* Speedup of HelixPipe over the best of its baselines that fits. */
static int figure_8(struct sp_cell *c)
{
    const struct sp_helixpipe_setting setting = sp_helixpipe_setting_of(c);
    double rates[SP_HELIXPIPE_SYSTEMS];
    int err = sp_helixpipe_rates(&setting, rates);

    if (err)
        return err;
    if (isnan(sp_helixpipe_speedup(rates))) {
        sp_cell_note(c, "HelixPipe or all baselines do not fit");
    } else {
        sp_cell_set(c, sp_helixpipe_speedup(rates));
        sp_cell_note(c, "over %s", sp_helixpipe_systems[best_baseline(rates)]);
    }
    return 0;
}

/* The throughput that recomputation costs HelixPipe. */
static int figure_11(struct sp_cell *c)
{
    const struct sp_helixpipe_setting setting = sp_helixpipe_setting_of(c);
    bool fits[2];
    double percent;
    int err = sp_helixpipe_lost(&setting, &percent, fits);

    if (!err)
        sp_cell_set(c, percent);
    return err;
}

/* ---- figure 9: a message beside what hides it */

static int figure_9(struct sp_cell *c)
{
    const struct sp_helixpipe_setting setting = sp_helixpipe_setting_of(c);
    const struct sp_machine *machine = sp_machine_named(setting.machine);
    struct sp_part_times t;
    struct sp_shape sh;
    struct sp_run run;
    double interfaces, bytes;

    if (!machine || sp_helixpipe_run(&setting, "helix", &run))
        return -EINVAL;
    sh = sp_bf16_shape(&run.model, run.batch, run.seq, 1);
    sp_part_times(machine, run.devices, &sh, &t);
    interfaces = (double)machine->devices_per_node / machine->network.shared_by;
    bytes = 2.0 * sh.rows * sh.model.hidden * (double)sp_shape_elem(&sh);
    sp_cell_set(c, t.attention / sp_link_s(&machine->network, bytes / interfaces));
    return 0;
}

/* ---- figures 4 and 10, table 2: activations */

int sp_helixpipe_activations(const struct sp_cell *c, const char *model, const char *schedule,
                             double *bytes, double *bsh)
{
    bool helix = !strncmp(schedule, "helix", 5);
    struct sp_theory t = {.schedule = schedule,
                          .stages = sp_cell_int(c, "stages", 8),
                          .micro_batches =
                              sp_cell_int(c, "micro_batches", 2 * sp_cell_int(c, "stages", 8)),
                          .recompute = helix ? SP_RECOMPUTE_NO_ATTENTION : SP_RECOMPUTE_NONE};
    struct sp_model m;
    struct sp_shape sh;
    int err = sp_model_load(sp_cell_text(c, "model", model), &m);

    if (err)
        return err;
    t.layers = m.layers = sp_cell_int(c, "layers", m.layers);
    sh = sp_bf16_shape(&m, sp_cell_int(c, "micro_batch_size", 1), sp_cell_int(c, "seq", 16384),
                       t.micro_batches);
    err = sp_theory_activations(&t, &sh, sp_cell_int(c, "stage", 0), bytes);
    *bsh = *bytes / ((double)sp_shape_elem(&sh) * sh.rows * m.hidden);
    return err;
}

/* GiB of a GPU, or bsh numbers if the cell names no model. */
static int table_2_memory(struct sp_cell *c)
{
    double bytes = 0, bsh = 0;
    int err =
        sp_helixpipe_activations(c, "gpt3-7b", sp_cell_text(c, "schedule", "1f1b"), &bytes, &bsh);

    sp_cell_set(c, sp_cell_text(c, "model", NULL)
                       ? bytes / sp_cell_int(c, "devices_per_stage", 8) / (1 << 30)
                       : bsh);
    return err;
}

static int figure_4(struct sp_cell *c)
{
    int err = table_2_memory(c);

    sp_cell_note(c, "in GiB, as equation 2 has it");
    return err;
}

/* ---- table 3 */

static int table_3(struct sp_cell *c)
{
    struct sp_model model;
    int err = sp_model_load(sp_cell_text(c, "model", "gpt3-3b"), &model);

    if (!err) {
        sp_cell_set(c, (double)sp_model_parameters(&model) / 1e9);
        sp_cell_note(c, "with %d tokens and %d positions", model.vocab, model.positions);
    }
    return err;
}

/* ---- figures 3, 6, 8 and 10, which have no numbers */

static int figure_3(struct sp_unpublished *out)
{
    static const char *const columns[] = {"pre-attention F", "attention F", "post-attention F",
                                          "pre-attention B", "attention B", "post-attention B"};
    static const struct {
        const char *row;
        int seq;
    } rows[] = {{"4k", 4096},   {"8k", 8192},   {"16k", 16384},
                {"32k", 32768}, {"64k", 65536}, {"128k", 131072}};
    int n = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double share[SP_HELIXPIPE_PARTS];
        int err = sp_helixpipe_shares(rows[i].seq, share);

        if (err)
            return err;
        for (int k = 0; k < SP_HELIXPIPE_PARTS; k++)
            out[n++] = (struct sp_unpublished){"figure3", rows[i].row, columns[k],
                                               "share of the layer's time", share[k]};
    }
    return n;
}

/* The makespan of the naive and of the two-fold schedule for several durations of a message. */
static int figure_6(struct sp_unpublished *out)
{
    static const struct {
        const char *row, *schedule;
        int stages, layers;
    } rows[] = {{"naive FILO, p=4, m=8, L=8", "helix:fold=1,tail=published", 4, 8},
                {"two-fold, p=4, m=8, L=8", "helix:fold=2,tail=published", 4, 8},
                {"naive FILO, p=8, m=16, L=32", "helix:fold=1,tail=published", 8, 32},
                {"two-fold, p=8, m=16, L=32", "helix:fold=2,tail=published", 8, 32}};
    static const char *const columns[] = {"comm 0", "comm 0.25", "comm 0.5", "comm 0.75", "comm 1"};
    int n = 0;

    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 5; k++) {
            struct sp_theory t = {.schedule = rows[i].schedule,
                                  .stages = rows[i].stages,
                                  .micro_batches = 2 * rows[i].stages,
                                  .layers = rows[i].layers,
                                  .costs = SP_HELIXPIPE_COSTS,
                                  .comm = 0.25 * k};
            struct sp_theory_result r;
            int err = sp_theory_run(&t, &r);

            if (err)
                return err;
            out[n++] = (struct sp_unpublished){"figure6", rows[i].row, columns[k],
                                               "forward of pre-attention", r.makespan};
        }
    return n;
}

/* Peak memory of a GPU of each stage, 3B with 128k: everything that a run holds. */
static int figure_10(struct sp_unpublished *out)
{
    static const char *const stages[] = {"stage 0", "stage 1", "stage 2", "stage 3",
                                         "stage 4", "stage 5", "stage 6", "stage 7"};
    enum { STAGES = sizeof stages / sizeof *stages };
    int n = 0;

    for (int i = 0; i < SP_HELIXPIPE_SYSTEMS; i++) {
        const struct sp_helixpipe_setting setting = {"h20-ib", "gpt3-3b", 131072, STAGES, 0};
        const char *schedule = sp_helixpipe_systems[i];
        double bytes[STAGES];
        int err = sp_helixpipe_memory(&setting, schedule, bytes);

        if (err)
            return err;
        for (int s = 0; s < STAGES; s++)
            out[n++] = (struct sp_unpublished){"figure10", schedule, stages[s], "GiB/GPU",
                                               bytes[s] / (1 << 30)};
    }
    return n;
}

static int unpublished(struct sp_unpublished *out)
{
    static int (*const figures[])(struct sp_unpublished *) = {figure_3, figure_6,
                                                              sp_helixpipe_figure_8, figure_10};
    int n = 0;

    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        int more = figures[i](out + n);

        if (more < 0)
            return more;
        n += more;
    }
    return n;
}

static const struct sp_experiment experiments[] = {
    {"figure4", figure_4},
    {"figure8", figure_8},
    {"figure9", figure_9},
    {"figure11", figure_11},
    {"table1", sp_helixpipe_table_1},
    {"table1-memory", sp_helixpipe_table_1_memory},
    {"table2", sp_helixpipe_table_2},
    {"table2-memory", table_2_memory},
    {"section4.5", sp_helixpipe_section_4},
    {"table3", table_3},
    {0},
};

const struct sp_paper sp_paper_helixpipe = {.name = "helixpipe",
                                            .experiments = experiments,
                                            .claims = sp_helixpipe_claims,
                                            .unpublished = unpublished,
                                            .assumptions = sp_helixpipe_vary};
