/*
 * WeiPipe (Lin et al. 2025): Llama-like models on nodes of eight A800 with 10 Gb/s Ethernet between
 * them.
 *
 * All cells share these settings, most of which the paper's own tables imply: one pipeline over all
 * GPUs; 64 sequences a GPU and step; a small vocabulary (the last stage of 1F1B is as fast as the
 * others, which with 32000 tokens it would not be); element-wise kernels that move ten times the
 * bytes of ours (from FSDP's cells of table 4, which also give the machines' attention rate). The
 * systems:
 *
 *   1F1B, ZB1, ZB2   Megatron-LM's: messages block (run.h). 1F1B recomputes all; ZB's numbers are
 *                    those of runs without recomputation.
 *   FSDP             ZeRO-3 of DeepSpeed (systems.h): nothing of its communication is hidden
 *   WeiPipe          all messages beside computation, as the paper passes them around (run.h)
 */
#include "cli/reproduce/weipipe.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct sp_weipipe_setting usual = {
    .machine = "a800-nvlink-eth",
    .model = "llama-h1024",
    .layers = 32,
    .batch = 1,
    .seq = 4096,
    .devices = 16,
    .sequences = 64,
    .assumed = {.vocabulary = 1024, .unfused = 10},
};

struct sp_weipipe_setting sp_weipipe_setting_of(const struct sp_cell *c)
{
    struct sp_weipipe_setting setting = usual;

    setting.machine = sp_cell_text(c, "machine", usual.machine);
    setting.model = sp_cell_text(c, "model", usual.model);
    setting.layers = sp_cell_int(c, "layers", usual.layers);
    setting.batch = sp_cell_int(c, "micro_batch_size", usual.batch);
    setting.seq = sp_cell_int(c, "seq", usual.seq);
    setting.devices = sp_cell_int(c, "stages", usual.devices);
    return setting;
}

struct sp_weipipe_setting sp_weipipe_row(int row)
{
    static const char *const models[] = {"llama-h1024", "llama-h2048", "llama-h4096"};
    struct sp_weipipe_setting setting = usual;

    setting.model = models[row / 3];
    setting.seq = 4096 << row % 3;
    setting.batch = 16 >> row % 3;
    return setting;
}

/* Results of runs. Its text has all in which a run may differ from others. */
static struct played {
    char run[128];
    struct sp_run_result result;
} played[1024];
static int n_played;

static int play_once(const struct sp_weipipe_setting *setting, const struct sp_run *run,
                     struct sp_run_result *result)
{
    char text[sizeof played->run];
    int err;

    snprintf(text, sizeof text, "%s %s %s %d %d %d %d %d %d %d %g %d %g %d", run->machine,
             setting->model, run->schedule, run->model.layers, run->model.vocab, run->batch,
             run->seq, run->stages, run->micro_batches, run->blocking, run->waits,
             run->ring_as_published, run->unfused, run->memory_only);
    for (int i = 0; i < n_played; i++)
        if (!strcmp(played[i].run, text)) {
            *result = played[i].result;
            return 0;
        }
    err = strcmp(run->schedule, "fsdp") ? sp_run(run, result) : sp_zero3(run, result);
    if (err || n_played == sizeof played / sizeof *played)
        return err;
    memcpy(played[n_played].run, text, sizeof text);
    played[n_played++].result = *result;
    return 0;
}

int sp_weipipe_run(const struct sp_weipipe_setting *setting, const char *schedule,
                   struct sp_run *run, struct sp_run_result *result)
{
    bool zero_bubble = !strncmp(schedule, "zb", 2), megatron = !strcmp(schedule, "1f1b");
    int batch = setting->batch, err;

    if (zero_bubble && batch > 1) /* as in the captions of tables 2 to 4 */
        batch = setting->seq > 4096 ? 1 : 4;
    *run = (struct sp_run){.machine = setting->machine,
                           .schedule = schedule,
                           .batch = batch,
                           .seq = setting->seq,
                           .stages = setting->devices,
                           .devices = 1,
                           .micro_batches = setting->sequences * setting->devices / batch,
                           .recompute = zero_bubble ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_FULL,
                           .blocking = (zero_bubble || megatron) && !setting->assumed.buffered,
                           .waits = zero_bubble ? setting->assumed.waits : 0,
                           .ring_as_published =
                               !strcmp(schedule, "weipipe") && !setting->assumed.own_ring,
                           .unfused = setting->assumed.unfused,
                           .memory_only = setting->memory_only};
    err = sp_model_load(setting->model, &run->model);
    run->model.layers = setting->layers;
    run->model.vocab = setting->assumed.vocabulary;
    return err ? err : play_once(setting, run, result);
}

int sp_weipipe_rate(const struct sp_weipipe_setting *setting, const char *schedule, double *rate)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = sp_weipipe_run(setting, schedule, &run, &r);

    *rate = !err && r.fits ? sp_run_rate(&run, &r) : 0;
    return err;
}

/* Plays the run of a cell. */
static int play_cell(const struct sp_cell *c, bool memory_only, struct sp_run *run,
                     struct sp_run_result *r)
{
    struct sp_weipipe_setting setting = sp_weipipe_setting_of(c);

    setting.memory_only = memory_only;
    return sp_weipipe_run(&setting, sp_cell_text(c, "schedule", "1f1b"), run, r);
}

static void set_if_fits(struct sp_cell *c, double value, const struct sp_run_result *r)
{
    sp_cell_set(c, value);
    if (!r->fits)
        c->simulated.kind = SP_VALUE_OOM;
}

static int throughput(struct sp_cell *c)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = play_cell(c, false, &run, &r);

    if (err)
        return err;
    set_if_fits(c, sp_run_rate(&run, &r) / (strncmp(c->unit, "kilo", 4) ? 1 : 1000), &r);
    sp_cell_note(c, "%.1f GB", r.memory_bytes / 1e9);
    return 0;
}

static int memory(struct sp_cell *c)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = play_cell(c, true, &run, &r);

    if (err)
        return err;
    set_if_fits(c, r.memory_bytes / 1e9, &r);
    if (!r.fits)
        sp_cell_note(c, "%.1f GB", r.memory_bytes / 1e9);
    return 0;
}

/* Speedup of WeiPipe over another system, the best pipeline or the best of all, if they fit; NAN:
 * none fits. */
static int speedup_over(const struct sp_weipipe_setting *setting, const char *over, double *percent)
{
    static const char *const others[] = {"1f1b", "zb1p", "zb2p", "fsdp"};
    bool all = !strcmp(over, "best other"), pipelines = !strcmp(over, "best pipeline");
    double best = 0, rate;
    int err = 0;

    for (int i = 0; !err && i < 4; i++) {
        if (!all && !(pipelines && i < 3) && strcmp(over, others[i]))
            continue;
        err = sp_weipipe_rate(setting, others[i], &rate);
        best = fmax(best, rate);
    }
    err = err ? err : sp_weipipe_rate(setting, "weipipe", &rate);
    *percent = !err && best > 0 && rate > 0 ? 100 * (rate / best - 1) : NAN;
    return err;
}

/* The least or the most among the rows of table 2. */
static int speedup_range(struct sp_cell *c)
{
    bool least = !strcmp(c->column, "least");
    double end = NAN;

    for (int i = 0; i < SP_WEIPIPE_ROWS; i++) {
        const struct sp_weipipe_setting setting = sp_weipipe_row(i);
        double percent;
        int err = speedup_over(&setting, "best pipeline", &percent);

        if (err)
            return err;
        end = least ? fmin(end, percent) : fmax(end, percent);
    }
    sp_cell_set(c, end);
    sp_cell_note(c, "over the best pipeline that fits, of the rows of table 2");
    return 0;
}

static int speedup(struct sp_cell *c)
{
    struct sp_weipipe_setting setting = sp_weipipe_setting_of(c);
    double percent;
    int err;

    if (!strcmp(sp_cell_text(c, "over", ""), "best pipeline"))
        return speedup_range(c);
    if (!strcmp(sp_cell_text(c, "of", ""), "table3"))
        setting.machine = "a800-pcie-eth";
    err = speedup_over(&setting, sp_cell_text(c, "over", "1f1b"), &percent);
    if (!err && !isnan(percent))
        sp_cell_set(c, percent);
    else
        sp_cell_note(c, "WeiPipe or what it is over does not fit");
    return err;
}

/* ---- figure 5: by its own units */

/* Activations of the fullest stage, in units of a micro-batch's in the whole model. */
static int figure_5(struct sp_cell *c)
{
    struct sp_theory t = {.schedule = sp_cell_text(c, "schedule", "1f1b"),
                          .stages = 4,
                          .micro_batches = sp_cell_int(c, "micro_batches", 12),
                          .layers = 32};
    struct sp_theory_result r;
    int err = sp_theory_run(&t, &r);

    if (!err) {
        /* a stage of 1F1B has 1/p of the model, and p micro-batches are active on it */
        sp_cell_set(c, r.peak / t.stages);
        sp_cell_note(c, "on %d stages, which the paper does not say", t.stages);
    }
    return err;
}

/* Weights and gradients take two bytes, master weights and two moments four each. */
static int section_2(struct sp_cell *c)
{
    struct sp_model model;
    int err = sp_model_load(sp_cell_text(c, "model", "llama3-405b"), &model);

    if (!err)
        sp_cell_set(c, 16.0 * (double)sp_model_parameters(&model) / 1e9);
    sp_cell_note(c, "16 bytes a parameter");
    return err;
}

static const struct sp_experiment experiments[] = {
    {"section2", section_2},
    {"table2", throughput},
    {"table2-memory", memory},
    {"table2-speedup", speedup},
    {"table3", throughput},
    {"table3-speedup", speedup},
    {"table4", throughput},
    {"figure5", figure_5},
    {"figure5-communication", sp_weipipe_figure_5_communication},
    {0},
};

const struct sp_paper sp_paper_weipipe = {.name = "weipipe",
                                          .experiments = experiments,
                                          .claims = sp_weipipe_claims,
                                          .unpublished = sp_weipipe_figures_6_7,
                                          .assumptions = sp_weipipe_vary};
