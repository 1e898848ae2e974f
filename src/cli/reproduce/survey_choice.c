/*
 * The survey's table of which parallelism suits which task: tensor, pipeline and data parallelism of the layout with the
 * shortest step, of all in powers of two, with as little recomputation as fits. Pipelines run 1F1B, the replicas share the update out (ZeRO-1).
 */
#include "cli/reproduce/survey.h"
#include "cli/reproduce/run.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TENSOR = 64, MOST_STAGES = 16 };

struct choice {
    int tensor, stages, replicas;
    enum sp_recompute recompute;
    double step_s, memory_bytes;
    bool fits;
};

/* The task of a cell. */
struct task {
    const char *model;
    int devices, sequences, batch;
};

static int play(const struct task *task, struct choice *choice)
{
    struct sp_run_result r;
    struct sp_model model;
    struct sp_run run = {.machine = "h100-ib",
                         .schedule = "1f1b",
                         .model = &model,
                         .batch = task->batch,
                         .seq = 4096,
                         .stages = choice->stages,
                         .devices = choice->tensor,
                         .pipelines = choice->replicas,
                         .micro_batches = task->sequences / task->batch / choice->replicas,
                         .recompute = choice->recompute};
    int err = sp_model_load(task->model, &model);

    err = err ? err : sp_run(&run, &r);
    if (err)
        return err;
    choice->step_s = r.step_s;
    choice->memory_bytes = r.memory_bytes;
    choice->fits = r.fits;
    return 0;
}

/* With the least recomputation with which it fits, or with all. */
static int try(const struct task *task, struct choice *choice)
{
    static const enum sp_recompute modes[] = {SP_RECOMPUTE_NONE, SP_RECOMPUTE_NO_ATTENTION,
                                              SP_RECOMPUTE_FULL};
    int err = 0;

    choice->fits = false;
    for (size_t i = 0; !err && !choice->fits && i < sizeof modes / sizeof *modes; i++) {
        choice->recompute = modes[i];
        err = play(task, choice);
    }
    return err;
}

/* One that fits before one that does not; of those that do not, the one with fewer replicas, whose parameters are cut
 * more often; then the faster one. */
static bool is_better(const struct choice *a, const struct choice *b)
{
    if (a->fits != b->fits)
        return a->fits;
    if (!a->fits && a->replicas != b->replicas)
        return a->replicas < b->replicas;
    return a->step_s < b->step_s;
}

static int choose(const struct task *task, struct choice *best)
{
    *best = (struct choice){.step_s = INFINITY, .replicas = task->devices + 1};
    for (int tensor = 1; tensor <= MOST_TENSOR && tensor <= task->devices; tensor *= 2)
        for (int stages = 1; stages <= MOST_STAGES && tensor * stages <= task->devices;
             stages *= 2) {
            struct choice choice = {
                .tensor = tensor, .stages = stages, .replicas = task->devices / tensor / stages};
            int err;

            if (choice.replicas * task->batch > task->sequences)
                continue;
            err = try(task, &choice);
            if (err)
                return err;
            if (is_better(&choice, best))
                *best = choice;
        }
    return 0;
}

int sp_survey_choice(struct sp_cell *c)
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
    if (best.fits)
        sp_cell_note(c, "%.1f s a step, %.0f GB a GPU, recomputed: %s", best.step_s,
                     best.memory_bytes / 1e9, sp_recompute_name(best.recompute));
    else
        sp_cell_note(
            c, "none fits with 18 bytes a parameter: the fastest with one replica, %.0f GB a GPU",
            best.memory_bytes / 1e9);
    return 0;
}
