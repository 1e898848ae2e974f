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
#include "cli/reproduce/systems.h"
#include "cli/reproduce/theory.h"
#include "cli/reproduce/weipipe.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SEQUENCES_A_DEVICE = 64 };

const struct sp_weipipe_assumptions sp_weipipe_assumed = {.vocabulary = 1024, .unfused = 10};

struct sp_weipipe_setting sp_weipipe_setting_of(const struct sp_cell *c)
{
    return (struct sp_weipipe_setting){
        .machine = sp_cell_text(c, "machine", "a800-nvlink-eth"),
        .model = sp_cell_text(c, "model", "llama-h1024"),
        .layers = sp_cell_int(c, "layers", 32),
        .batch = sp_cell_int(c, "micro_batch_size", 1),
        .seq = sp_cell_int(c, "seq", 4096),
        .devices = sp_cell_int(c, "stages", 16),
        .sequences = SEQUENCES_A_DEVICE,
        .assumed = sp_weipipe_assumed,
    };
}

struct sp_weipipe_setting sp_weipipe_row(const struct sp_cell *c, int row)
{
    static const char *const models[] = {"llama-h1024", "llama-h2048", "llama-h4096"};
    static const struct {
        int seq, batch;
    } lengths[] = {{4096, 16}, {8192, 8}, {16384, 4}};
    struct sp_weipipe_setting setting = sp_weipipe_setting_of(c);

    setting.model = models[row / 3];
    setting.seq = lengths[row % 3].seq;
    setting.batch = lengths[row % 3].batch;
    return setting;
}

/* Results of runs, with every setting of the run that matters, so that no run is simulated
 * twice. */
static struct played {
    struct sp_run run;
    char machine[32], schedule[32];
    int layers, hidden, vocab;
    struct sp_run_result result;
} played[1024];
static int n_played;

static bool is_same(const struct played *p, const struct sp_run *run)
{
    return !strcmp(p->machine, run->machine) && !strcmp(p->schedule, run->schedule) &&
           p->layers == run->model->layers && p->hidden == run->model->hidden &&
           p->vocab == run->model->vocab && p->run.batch == run->batch && p->run.seq == run->seq &&
           p->run.stages == run->stages && p->run.micro_batches == run->micro_batches &&
           p->run.recompute == run->recompute && p->run.blocking == run->blocking &&
           p->run.waits == run->waits && p->run.ring_as_published == run->ring_as_published &&
           p->run.unfused == run->unfused && p->run.memory_only == run->memory_only;
}

static int play_once(const struct sp_run *run, struct sp_run_result *result)
{
    struct played *p = &played[n_played];
    int err;

    for (int i = 0; i < n_played; i++)
        if (is_same(&played[i], run)) {
            *result = played[i].result;
            return 0;
        }
    err = strcmp(run->schedule, "fsdp") ? sp_run(run, result) : sp_zero3(run, result);
    if (err || n_played == sizeof played / sizeof *played)
        return err;
    *p = (struct played){.run = *run,
                         .layers = run->model->layers,
                         .hidden = run->model->hidden,
                         .vocab = run->model->vocab,
                         .result = *result};
    snprintf(p->machine, sizeof p->machine, "%s", run->machine);
    snprintf(p->schedule, sizeof p->schedule, "%s", run->schedule);
    n_played++;
    return 0;
}

int sp_weipipe_run(const struct sp_weipipe_setting *setting, const char *schedule,
                   struct sp_run *run, struct sp_run_result *result)
{
    static struct sp_model model;
    bool zero_bubble = !strncmp(schedule, "zb", 2), megatron = !strcmp(schedule, "1f1b");
    int batch = setting->batch;
    int err = sp_model_load(setting->model, &model);

    if (err)
        return err;
    if (zero_bubble && batch > 1) /* as in the captions of tables 2 to 4 */
        batch = setting->seq > 4096 ? 1 : 4;
    model.layers = setting->layers;
    model.vocab = setting->assumed.vocabulary;
    *run = (struct sp_run){.machine = setting->machine,
                           .schedule = schedule,
                           .model = &model,
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
    return play_once(run, result);
}

int sp_weipipe_rate(const struct sp_weipipe_setting *setting, const char *schedule, double *rate)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = sp_weipipe_run(setting, schedule, &run, &r);

    *rate = !err && r.fits ? sp_run_rate(&run, &r) : 0;
    return err;
}

static int throughput(struct sp_cell *c)
{
    const struct sp_weipipe_setting setting = sp_weipipe_setting_of(c);
    struct sp_run_result r;
    struct sp_run run;
    int err = sp_weipipe_run(&setting, sp_cell_text(c, "schedule", "1f1b"), &run, &r);

    if (err)
        return err;
    sp_cell_set(c, sp_run_rate(&run, &r) / (strncmp(c->unit, "kilo", 4) ? 1 : 1000));
    if (!r.fits)
        c->simulated.kind = SP_VALUE_OOM;
    sp_cell_note(c, "%.1f GB", r.memory_bytes / 1e9);
    return 0;
}

static int memory(struct sp_cell *c)
{
    struct sp_weipipe_setting setting = sp_weipipe_setting_of(c);
    struct sp_run_result r;
    struct sp_run run;
    int err;

    setting.memory_only = true;
    err = sp_weipipe_run(&setting, sp_cell_text(c, "schedule", "1f1b"), &run, &r);

    if (err)
        return err;
    sp_cell_set(c, r.memory_bytes / 1e9);
    if (!r.fits) {
        c->simulated.kind = SP_VALUE_OOM;
        sp_cell_note(c, "%.1f GB", r.memory_bytes / 1e9);
    }
    return 0;
}

/* Speedup of WeiPipe over another system, the best pipeline or the best of all, if they fit; 0:
 * none fits. */
static int speedup_over(const struct sp_weipipe_setting *setting, const char *over, double *percent)
{
    static const char *const others[] = {"1f1b", "zb1p", "zb2p", "fsdp"};
    bool all = !strcmp(over, "best other"), pipelines = !strcmp(over, "best pipeline");
    struct sp_run_result r;
    struct sp_run run;
    double best = 0;
    int err = 0;

    for (int i = 0; !err && i < 4; i++) {
        if (!all && !(pipelines && i < 3) && strcmp(over, others[i]))
            continue;
        err = sp_weipipe_run(setting, others[i], &run, &r);
        if (!err && r.fits && sp_run_rate(&run, &r) > best)
            best = sp_run_rate(&run, &r);
    }
    err = err ? err : sp_weipipe_run(setting, "weipipe", &run, &r);
    *percent = !err && best > 0 && r.fits ? 100 * (sp_run_rate(&run, &r) / best - 1) : NAN;
    return err;
}

/* The least or the most among the rows of table 2. */
static int speedup_range(struct sp_cell *c)
{
    bool least = !strcmp(c->column, "least");
    double end = NAN;

    for (int i = 0; i < SP_WEIPIPE_ROWS; i++) {
        const struct sp_weipipe_setting setting = sp_weipipe_row(c, i);
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
