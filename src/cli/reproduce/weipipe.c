/*
 * WeiPipe (Lin et al. 2025): Llama-like models on nodes of eight A800 with 10 Gb/s Ethernet between them.
 *
 * What every cell has in common, most of which the paper's own tables imply: one pipeline over all GPUs; 64
 * sequences a GPU and step; a small vocabulary (the last stage of 1F1B is as fast as the others, which with
 * 32000 tokens it would not be); element-wise kernels that move ten times the bytes of ours (FSDP's cells of
 * table 4, of which the attention rate of the machines is too). The systems:
 *
 *   1F1B, ZB1, ZB2   Megatron-LM's: messages block (run.h). 1F1B recomputes all; ZB's numbers are those of
 *                    runs without recomputation.
 *   FSDP             ZeRO-3 of DeepSpeed (systems.h): nothing of its communication is hidden
 *   WeiPipe          all messages beside computation, as the paper passes them around (ring.h)
 */
#include "cli/reproduce/paper.h"
#include "cli/reproduce/run.h"
#include "cli/reproduce/systems.h"
#include "cli/reproduce/theory.h"
#include "plan/simulation/step_messages.h"
#include "policies/plan_create.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SEQUENCES_A_DEVICE = 64, VOCABULARY = 1024 };

static int run_of(const struct sp_cell *c, const char *schedule, struct sp_model *model,
                  struct sp_run *run)
{
    bool zero_bubble = !strncmp(schedule, "zb", 2);
    int err = sp_model_load(sp_cell_text(c, "model", "llama-h1024"), model);

    model->layers = sp_cell_int(c, "layers", model->layers);
    model->vocab = VOCABULARY;
    *run = (struct sp_run){.machine = sp_cell_text(c, "machine", "a800-nvlink-eth"),
                           .schedule = schedule,
                           .model = model,
                           .batch = sp_cell_int(c, "micro_batch_size", 1),
                           .seq = sp_cell_int(c, "seq", 4096),
                           .stages = sp_cell_int(c, "stages", 16),
                           .devices = 1,
                           .recompute = zero_bubble ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_FULL,
                           .blocking = zero_bubble || !strcmp(schedule, "1f1b"),
                           .ring_as_published = !strcmp(schedule, "weipipe"),
                           .unfused = 10};
    run->micro_batches = SEQUENCES_A_DEVICE * run->stages / run->batch;
    return err;
}

static int simulate(const struct sp_cell *c, const char *schedule, struct sp_run *run,
                    struct sp_run_result *r)
{
    static struct sp_model model;
    int err = run_of(c, schedule, &model, run);

    if (err)
        return err;
    return strcmp(schedule, "fsdp") ? sp_run(run, r) : sp_zero3(run, r);
}

static int throughput(struct sp_cell *c)
{
    struct sp_run_result r;
    struct sp_run run;
    int err = simulate(c, sp_cell_text(c, "schedule", "1f1b"), &run, &r);

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
    struct sp_run_result r;
    struct sp_run run;
    int err = simulate(c, sp_cell_text(c, "schedule", "1f1b"), &run, &r);

    if (err)
        return err;
    sp_cell_set(c, r.memory_bytes / 1e9);
    if (!r.fits) {
        c->simulated.kind = SP_VALUE_OOM;
        sp_cell_note(c, "%.1f GB", r.memory_bytes / 1e9);
    }
    return 0;
}

/* WeiPipe over another system, or over the best of all that fit. */
static int speedup(struct sp_cell *c)
{
    static const char *const others[] = {"1f1b", "zb1p", "zb2p", "fsdp"};
    const char *over = sp_cell_text(c, "over", "1f1b");
    struct sp_run_result r;
    struct sp_run run;
    double best = 0;
    int err = 0;

    if (!strcmp(sp_cell_text(c, "of", ""), "table3"))
        json_object_set_new(c->config, "machine", json_string("a800-pcie-eth"));
    for (int i = 0; !err && i < 4; i++) {
        if (strcmp(over, "best other") && strcmp(over, others[i]))
            continue;
        err = simulate(c, others[i], &run, &r);
        if (!err && r.fits && sp_run_rate(&run, &r) > best)
            best = sp_run_rate(&run, &r);
    }
    err = err ? err : simulate(c, "weipipe", &run, &r);
    if (!err && best > 0)
        sp_cell_set(c, 100 * (sp_run_rate(&run, &r) / best - 1));
    return err;
}

/* ---- figure 5: by its own units ---------------------------------------------------------------- */

/* Activations of the fullest stage, in those of a micro-batch in the whole model. */
static int figure_5(struct sp_cell *c)
{
    struct sp_theory t = {.schedule = sp_cell_text(c, "schedule", "1f1b"),
                          .stages = 4,
                          .micro_batches = sp_cell_int(c, "micro_batches", 12),
                          .layers = 32};
    struct sp_theory_result r;
    int err = sp_theory_run(&t, &r);

    if (!err) {
        /* a stage of 1F1B has 1/p of the model; p of them are in flight */
        sp_cell_set(c, r.peak / t.stages);
        sp_cell_note(c, "on %d stages, which the paper does not say", t.stages);
    }
    return err;
}

/* Numbers that a worker of the ring passes on in a turn, weights twice and gradients, a layer, in H^2. */
static int figure_5_communication(struct sp_cell *c)
{
    struct sp_layout lay = {
        .stages = 4, .micro_batches = 12, .slices = 1, .layers = 32, .options = ""};
    struct sp_step_messages messages;
    double numbers[SP_TENSOR_KINDS] = {0}, sum = 0;
    struct sp_model model;
    struct sp_shape sh;
    struct sp_plan plan;
    int err = sp_model_load("llama-h4096", &model);

    err = err ? err : sp_plan_create("weipipe", &lay, &plan);
    if (err)
        return err;
    sp_shape_init(&sh, &model, 1, 4096, lay.micro_batches, 0, 0); /* in f32, as gradients are */
    err = sp_step_messages_create(&plan, &sh, &messages);
    for (int i = 0; !err && i < messages.n; i++)
        if (messages.message[i].reader >= 0)
            numbers[messages.message[i].tensor.kind] =
                (double)messages.message[i].bytes / sizeof(float);
    if (!err) {
        sum = numbers[SP_TENSOR_W] + numbers[SP_TENSOR_WB] + numbers[SP_TENSOR_D];
        sp_cell_set(c, sum / (lay.layers / lay.stages) / ((double)model.hidden * model.hidden));
        sp_step_messages_destroy(&messages);
    }
    sp_plan_destroy(&plan);
    return err;
}

static const struct sp_experiment experiments[] = {
    {"table2", throughput},
    {"table2-memory", memory},
    {"table2-speedup", speedup},
    {"table3", throughput},
    {"table3-speedup", speedup},
    {"table4", throughput},
    {"figure5", figure_5},
    {"figure5-communication", figure_5_communication},
    {0},
};

const struct sp_paper sp_paper_weipipe = {.name = "weipipe", .experiments = experiments};
