/* The tables of one typical step: its time and its memory. */
#include "cli/train/train.h"
#include "cli/train/progress.h"
#include "trace/analysis/causes.h"
#include "trace/timeline/pictures.h"
#include "sp_figure.h"
#include "train/run/step.h"
#include "train/start/device.h"
#include "train/start/machine.h"
#include "train/start/memory.h"
#include <math.h>
#include <stdlib.h>

static const double MiB = 1024 * 1024;

enum { COLUMNS = 100 };

static void print_headline(const struct sp_trainer *t, const struct sp_typical *typical,
                           const struct sp_causes *causes)
{
    struct sp_prediction predicted;
    double least, median, most;

    sp_typical_range(typical, &least, &median, &most);
    printf(
        "step %d, typical of the last %d (%.1f ms; %.1f to %.1f): bubble %.1f %% measured, %.1f %% "
        "expected of %s\n",
        typical->kept[sp_typical_best(typical)].step + 1, typical->n, t->report.step_us / 1e3,
        least / 1e3, most / 1e3, sp_figure(100 * sp_train_bubble(t), 1),
        sp_figure(100 * causes->bubble[SP_CAUSE_SCHEDULE], 1), t->plan.def->name);
    if (sp_train_machine_is_assumed(t) || sp_train_predict(t, &predicted))
        return;
    printf("predicted on %s: %.1f ms, bubble %.1f %%\n", t->machine.name, predicted.step_ms,
           100 * predicted.times.bubble_ratio);
    sp_prediction_destroy(&predicted);
}

/* The CPU time of the threads that poll for messages, which the stages' figures do not include. */
static void print_polling(const struct sp_trainer *t)
{
    double sum = 0, most = 0;

    for (int s = 0; s < t->place.stages; s++) {
        if (s > 0 && sp_stage_rank(&t->place, s) == sp_stage_rank(&t->place, s - 1))
            continue;
        sum += t->report.stages[s].polling_us;
        most = fmax(most, t->report.stages[s].polling_us);
    }
    printf(
        "threads polling for messages: %.1f ms of CPU in all, at most %.0f %% of a core each; not "
        "part of the figures of the stages\n",
        sum / 1e3, t->report.step_us > 0 ? 100 * most / t->report.step_us : 0);
}

static void print_device_bytes(const struct sp_trainer *t)
{
    double planned = (double)sp_train_gpu_bytes(t) / MiB;

    printf("process of stage 0: %.1f MiB on %s at the highest, %.1f planned, of which %.1f for the "
           "kernels' workspaces\n",
           t->report.stages[0].device_bytes / MiB, t->place.gpus > 1 ? "its GPUs" : "its GPU",
           planned, planned - (double)sp_train_planned_bytes(t) / MiB);
}

static void print_stages(const struct sp_trainer *t)
{
    printf(
        "stage   busy ms   bubble %%   waits for messages ms   peak activations MiB (planned)\n");
    for (int s = 0; s < t->place.stages; s++) {
        const struct sp_stage_report *r = &t->report.stages[s];
        int64_t planned = sp_train_offloads(t)
                              ? t->offload.evictions[s].peak_kept
                              : sp_stash_peak(&t->plan, &t->graph.shape, t->recompute, t->every, s);

        printf("%5d %9.1f %10.1f %23.1f %22.2f (%.2f)\n", s, r->busy_us / 1e3,
               100 * r->bubble_ratio, r->comm_wait_us / 1e3, r->peak_bytes / MiB,
               (double)planned / MiB);
    }
}

static void draw_step(const struct sp_timeline *step)
{
    bool terminal = sp_progress_on_terminal();
    struct sp_gantt g = {0};

    if (!sp_gantt_of_timeline(step, &g)) {
        sp_gantt_text(&g, sp_progress_columns(COLUMNS), terminal && !getenv("NO_COLOR"), stdout);
    }
    sp_gantt_destroy(&g);
}

void sp_print_summary(const struct sp_trainer *t, const struct sp_typical *typical,
                      const struct sp_report *step)
{
    print_headline(t, typical, &step->causes);
    sp_causes_print(&step->waits, &step->causes, stdout);
    sp_waits_print(&step->waits, stdout);
    if (t->cfg.post_validation)
        printf("post-validation: %d of %d steps were undone to clip their gradients\n",
               t->rollbacks, t->cfg.steps - t->first_step);
    if (t->place.gpus)
        print_device_bytes(t);
    else if (!t->place.bound)
        printf("(more stages than cores on this machine: what the runtime and messages take is "
               "waiting for a core, too)\n");
    if (t->world.size > 1)
        print_polling(t);
    print_stages(t);
    if (sp_train_offloads(t))
        sp_print_offloaded(t);
    draw_step(step->t);
}
