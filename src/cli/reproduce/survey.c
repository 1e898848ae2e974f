/*
 * The survey: bubbles and activations at unit costs, sizes of messages, savings by recomputation.
 * The survey derives all of it in theory, without a machine; only the cost of recomputation is
 * taken from an H100 here.
 */
#include "cli/reproduce/paper.h"
#include "cli/reproduce/run.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct sp_theory theory_of(const struct sp_cell *c)
{
    return (struct sp_theory){.schedule = sp_cell_text(c, "schedule", "1f1b"),
                              .stages = sp_cell_int(c, "stages", 8),
                              .micro_batches = sp_cell_int(c, "micro_batches", 1),
                              .chunks = sp_cell_int(c, "chunks", 0)};
}

static bool is_column(const struct sp_cell *c, const char *name)
{
    return !strncmp(c->column, name, strlen(name));
}

/* Schedules with one chunk a stage refuse to take more. */
static int play_theory(struct sp_theory *t, struct sp_theory_result *r)
{
    if (strcmp(t->schedule, "interleaved"))
        t->chunks = 0;
    return sp_theory_run(t, r);
}

static int bubble(struct sp_cell *c)
{
    struct sp_theory t = theory_of(c);
    struct sp_theory_result r;
    int err = play_theory(&t, &r);

    if (err)
        return err;
    sp_cell_set(c, 100 * r.bubble);
    if (!strcmp(t.schedule, "interleaved") || !strcmp(t.schedule, "dualpipe")) {
        /* the survey's formula divides idle time by work, not by the whole time */
        sp_cell_set(c, 100 * r.bubble / (1 - r.bubble));
        sp_cell_note(c, "of the work, as its formula has it; %.1f %% of the time", 100 * r.bubble);
    }
    return 0;
}

static int peak(struct sp_cell *c)
{
    struct sp_theory t = theory_of(c);
    struct sp_theory_result r, over;
    int err = play_theory(&t, &r);

    if (err)
        return err;
    sp_cell_set(c, r.peak);
    if (sp_cell_text(c, "over", NULL)) {
        t.schedule = sp_cell_text(c, "over", "gpipe");
        err = play_theory(&t, &over);
        sp_cell_set(c, over.peak / r.peak);
    }
    return err;
}

/* Messages of a step, compared with those of 1F1B. */
static int messages(struct sp_cell *c)
{
    struct sp_theory t = theory_of(c), plain = t;
    struct sp_theory_result r, one;
    int err = play_theory(&t, &r);

    plain.schedule = "1f1b";
    err = err ? err : play_theory(&plain, &one);
    if (!err)
        sp_cell_set(c, (double)r.messages / one.messages);
    return err;
}

static int interleaved(struct sp_cell *c)
{
    if (is_column(c, "Bubble"))
        return bubble(c);
    if (is_column(c, "Peak"))
        return peak(c);
    if (is_column(c, "Comm"))
        return messages(c);
    sp_cell_note(c, "the survey names neither the machine nor the model of this gain");
    return 0;
}

static int communication_volume(struct sp_cell *c)
{
    struct sp_theory t = {.schedule = "1f1b", .stages = 8, .micro_batches = 4};
    struct sp_theory_result r;
    int err;

    if (is_column(c, "all-reduces of"))
        sp_cell_set(c, SP_TENSOR_PARALLEL_SUMS * sp_cell_int(c, "layers", 80));
    else if (is_column(c, "all-reduces a layer"))
        sp_cell_set(c, SP_TENSOR_PARALLEL_SUMS);
    else {
        err = sp_theory_run(&t, &r);
        if (err)
            return err;
        /* half of them are gradients */
        sp_cell_set(c, (double)r.messages / 2 / t.micro_batches /
                           (is_column(c, "point-to-point a") ? t.stages - 1 : 1));
    }
    return 0;
}

/* GPT-2 style layers of h = 8192, as many as the survey says; b = 1, s = 4096 in two bytes. */
static int shape_of(const struct sp_theory *t, struct sp_shape *sh)
{
    struct sp_model m;
    int err = sp_model_load("preset:gpt-65b", &m);

    if (err)
        return err;
    m.layers = t->layers;
    *sh = sp_bf16_shape(&m, 1, 4096, t->micro_batches);
    return 0;
}

static int activation_memory(struct sp_cell *c)
{
    struct sp_theory t = theory_of(c);
    struct sp_shape sh;
    double bytes = 0;
    int err;

    if (t.micro_batches == 1) { /* the survey does not say: enough for 1F1B to fill its stages */
        t.micro_batches = 2 * t.stages;
        json_object_set_new(c->config, "micro_batches", json_integer(t.micro_batches));
    }
    if (is_column(c, "In-Flight"))
        return peak(c);
    t.layers = sp_cell_int(c, "layers_per_stage", 10) * t.stages;
    err = shape_of(&t, &sh);
    err = err ? err : sp_theory_activations(&t, &sh, 0, &bytes);
    if (is_column(c, "Activation Memory of one")) {
        struct sp_theory_result r;

        err = err ? err : play_theory(&t, &r);
        if (!err)
            sp_cell_set(c, bytes / 1e9 / r.peak);
        sp_cell_note(c, "16bsh numbers a layer");
        return err;
    }
    sp_cell_set(c, bytes / 1e9);
    sp_cell_note(c, "16bsh numbers a layer; the table has a quarter of that");
    return err;
}

/* Memory saved and time added by full recomputation of all layers, in per cent. */
static int recomputed(double *saved, double *cost)
{
    const struct sp_machine *machine = sp_machine_named("h100-ib");
    struct sp_theory t = {.schedule = "1f1b", .stages = 8, .micro_batches = 32, .layers = 80};
    struct sp_part_times p;
    struct sp_shape sh;
    double all, kept;
    int err = machine ? shape_of(&t, &sh) : -1;

    err = err ? err : sp_theory_activations(&t, &sh, 0, &all);
    t.recompute = SP_RECOMPUTE_FULL;
    err = err ? err : sp_theory_activations(&t, &sh, 0, &kept);
    if (err)
        return err;
    sp_part_times(machine, 8, &sh, &p);
    *saved = 100 * (1 - kept / all);
    *cost = 100 * sp_layer_again_s(&p, SP_RECOMPUTE_FULL) /
            (sp_layer_forward_s(&p) + sp_layer_backward_s(&p));
    return 0;
}

static int checkpointing(struct sp_cell *c)
{
    const char *mode = sp_cell_text(c, "recompute", "none");
    double saved, cost, part = !strcmp(mode, "full") ? 1 : !strcmp(mode, "none") ? 0 : 0.5;
    int err = recomputed(&saved, &cost);

    if (err)
        return err;
    if (!strcmp(mode, "selective")) {
        sp_cell_note(c, "attention keeps no scores here: there is nothing of them to recompute");
        return 0;
    }
    sp_cell_set(c, part * (is_column(c, "Memory") ? saved : cost));
    if (part == 0.5)
        sp_cell_note(c, "every second layer is recomputed");
    return 0;
}

static int layout_405b(struct sp_cell *c)
{
    int stages = sp_cell_int(c, "stages", 8);

    if (is_column(c, "GPUs"))
        sp_cell_set(c, (double)sp_cell_int(c, "tensor_parallel", 1) * stages *
                           sp_cell_int(c, "data_parallel", 1));
    else if (is_column(c, "layers"))
        sp_cell_set(c, (double)sp_cell_int(c, "layers", 0) / stages);
    else
        sp_cell_note(c, "a choice of the survey, not a result");
    return 0;
}

static int communication_405b(struct sp_cell *c)
{
    double t = sp_cell_int(c, "tensor_parallel", 8);
    double tensor = 2.0 * sp_cell_int(c, "micro_batch_size", 1) * sp_cell_int(c, "seq", 0) *
                    sp_cell_int(c, "hidden", 0);
    struct sp_model m;
    int err = sp_model_load("preset:llama3-405b", &m);

    if (is_column(c, "per layer"))
        sp_cell_set(c, SP_TENSOR_PARALLEL_SUMS);
    else if (!is_column(c, "Volume"))
        sp_cell_set(c, 1);
    else if (!strncmp(c->row, "TP", 2)) {
        sp_cell_set(c, 2 * (t - 1) / t * tensor / 1e6);
        sp_cell_note(c, "what a device sends in a ring");
    } else if (!strncmp(c->row, "PP", 2))
        sp_cell_set(c, tensor / 1e6);
    else
        sp_cell_set(c, 2.0 * (double)sp_model_parameters(&m) / 1e9);
    return err;
}

static int facts(struct sp_cell *c)
{
    const double tensor = 2.0 * sp_cell_int(c, "micro_batch_size", 1) * sp_cell_int(c, "seq", 0) *
                          sp_cell_int(c, "hidden", 0);
    struct sp_model m;
    int err = sp_model_load("preset:llama3-405b", &m);

    if (is_column(c, "weights"))
        sp_cell_set(c, 2.0 * (double)sp_model_parameters(&m) / 1e9);
    else if (is_column(c, "embedding"))
        sp_cell_set(c, 2.0 * sp_cell_int(c, "vocabulary", 0) * sp_cell_int(c, "hidden", 0) / 1e9);
    else if (is_column(c, "32"))
        sp_cell_set(c, 32 * tensor / (1 << 30));
    else
        sp_cell_set(c, tensor / (1 << 20));
    return err;
}

/* Memory of a GPU of a stage of the 405B model. */
static int memory_budget(struct sp_cell *c)
{
    const double devices = sp_cell_int(c, "tensor_parallel", 8);
    struct sp_theory t = {.schedule = "1f1b",
                          .stages = sp_cell_int(c, "stages", 8),
                          .micro_batches = sp_cell_int(c, "micro_batches", 32)};
    struct sp_model m;
    struct sp_shape sh;
    double bytes = 0;
    int err = sp_model_load("preset:llama3-405b", &m);

    if (err)
        return err;
    if (is_column(c, "activations")) {
        t.layers = m.layers;
        sh = sp_bf16_shape(&m, 1, 4096, t.micro_batches);
        err = sp_theory_activations(&t, &sh, 0, &bytes);
        sp_cell_set(c, bytes / devices / 1e9);
        sp_cell_note(c, "of the first stage");
    } else if (is_column(c, "other"))
        sp_cell_note(c, "the chart's labels are lost: what it is for is not said");
    else {
        bool two = is_column(c, "optimizer");

        sp_cell_set(c, (two ? 4 : 2) * (double)sp_model_parameters(&m) / t.stages / devices / 1e9);
        sp_cell_note(c, "BF16%s; the chart's labels are lost", two ? ", two moments" : "");
    }
    return err;
}

/* The smallest bubble among the table's schedules, as a share of the whole time. */
static int best_bubble(struct sp_cell *c)
{
    static const char *const schedules[] = {"naive", "gpipe", "1f1b", "interleaved", "dualpipe"};
    const char *best = "";
    double least = 1;

    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        struct sp_theory t = theory_of(c);
        struct sp_theory_result r;
        int err;

        t.schedule = schedules[i];
        err = play_theory(&t, &r);
        if (err)
            return err;
        if (r.bubble < least) {
            least = r.bubble;
            best = schedules[i];
        }
    }
    sp_cell_set(c, 100 * least);
    sp_cell_note(c, "%s", best);
    return 0;
}

/* ---- which parallelism suits a task */

/*
 * Tensor, pipeline and data parallelism of the layout with the shortest step, of all in powers of
 * two, with as little recomputation as fits. Pipelines run 1F1B; the replicas share out the update
 * (ZeRO-1).
 */
enum { MOST_TENSOR = 64, MOST_STAGES = 16 };

struct choice {
    int tensor, stages, replicas;
    enum sp_recompute recompute;
    struct sp_run_result result;
};

/* The task of a cell. */
struct task {
    const char *model;
    int devices, sequences, batch;
};

/* Plays a layout with the least recomputation with which it fits, or with all. */
static int play_layout(const struct task *task, struct choice *choice)
{
    static const enum sp_recompute modes[] = {SP_RECOMPUTE_NONE, SP_RECOMPUTE_NO_ATTENTION,
                                              SP_RECOMPUTE_FULL};
    struct sp_run run = {.machine = "h100-ib",
                         .schedule = "1f1b",
                         .batch = task->batch,
                         .seq = 4096,
                         .stages = choice->stages,
                         .devices = choice->tensor,
                         .pipelines = choice->replicas,
                         .micro_batches = task->sequences / task->batch / choice->replicas};
    int err = sp_model_load(task->model, &run.model);

    for (size_t i = 0; !err && !choice->result.fits && i < sizeof modes / sizeof *modes; i++) {
        choice->recompute = run.recompute = modes[i];
        err = sp_run(&run, &choice->result);
    }
    return err;
}

/* One that fits before one that does not; of those that do not, the one with fewer replicas, whose
 * parameters are cut more often; then the faster one. */
static bool is_better(const struct choice *a, const struct choice *b)
{
    if (a->result.fits != b->result.fits)
        return a->result.fits;
    if (!a->result.fits && a->replicas != b->replicas)
        return a->replicas < b->replicas;
    return a->result.step_s < b->result.step_s;
}

static int choose(const struct task *task, struct choice *best)
{
    *best = (struct choice){.result.step_s = INFINITY, .replicas = task->devices + 1};
    for (int tensor = 1; tensor <= MOST_TENSOR && tensor <= task->devices; tensor *= 2)
        for (int stages = 1; stages <= MOST_STAGES && tensor * stages <= task->devices;
             stages *= 2) {
            struct choice one = {
                .tensor = tensor, .stages = stages, .replicas = task->devices / tensor / stages};
            int err;

            if (one.replicas * task->batch > task->sequences)
                continue;
            err = play_layout(task, &one);
            if (err)
                return err;
            if (is_better(&one, best))
                *best = one;
        }
    return 0;
}

static int choice(struct sp_cell *c)
{
    static struct choice best;
    static char of[64]; /* the row that it is of */
    const struct task task = {.model = sp_cell_text(c, "model", "preset:llama3-405b"),
                              .devices = sp_cell_int(c, "devices", 8),
                              .sequences = sp_cell_int(c, "global_batch", 16),
                              .batch = sp_cell_int(c, "micro_batch_size", 1)};
    int err = strcmp(of, c->row) ? choose(&task, &best) : 0;

    if (err)
        return err;
    snprintf(of, sizeof of, "%s", c->row);
    sp_cell_set(c, !strcmp(c->column, "TP")   ? best.tensor
                   : !strcmp(c->column, "PP") ? best.stages
                                              : best.replicas);
    if (best.result.fits)
        sp_cell_note(c, "%.1f s a step, %.0f GB a GPU, recomputed: %s", best.result.step_s,
                     best.result.memory_bytes / 1e9, sp_recompute_name(best.recompute));
    else
        sp_cell_note(
            c, "none fits with 18 bytes a parameter: the fastest with one replica, %.0f GB a GPU",
            best.result.memory_bytes / 1e9);
    return 0;
}

static const struct sp_experiment experiments[] = {
    {"communication-volume", communication_volume},
    {"naive-bubble", bubble},
    {"gpipe-bubble", bubble},
    {"activations", peak},
    {"interleaved", interleaved},
    {"activation-memory", activation_memory},
    {"memory-budget", memory_budget},
    {"checkpointing", checkpointing},
    {"layout-405b", layout_405b},
    {"communication-405b", communication_405b},
    {"choice", choice},
    {"summary", interleaved},
    {"best", best_bubble},
    {"facts", facts},
    {0},
};

const struct sp_paper sp_paper_survey = {.name = "survey", .experiments = experiments};
