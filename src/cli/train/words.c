#include "cli/train/words.h"
#include "kernels/backend.h"
#include "plan/memory.h"
#include "sp_error.h"
#include "sp_text.h"
#include "train/checkpoint/resume.h"
#include "train/start/machine.h"
#include "train/start/memory.h"
#include <math.h>
#include <stdio.h>

static const double MiB = 1024 * 1024;

enum { LONG_EVALUATION = 1000 }; /* steps */

void sp_print_warnings(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    if (t->data.files && t->data.tokens <= (size_t)a->layout.seq)
        sp_warn("%s has %zu tokens, a sequence %d: it wraps around",
                a->tokens ? a->tokens : a->data, t->data.tokens, a->layout.seq);
    if (a->data && t->model.vocab > 256)
        sp_warn(
            "--data gives byte tokens 0..255, the vocabulary of %s is %d: most of it will never "
            "be seen; --tokens takes a tokenized file",
            t->model.name, t->model.vocab);
    if (a->eval && !a->eval_tokens && t->eval_steps > LONG_EVALUATION)
        sp_warn(
            "--eval %s: an evaluation of all its tokens takes as long as %d steps; --eval-tokens "
            "N takes its first ones",
            a->eval, t->eval_steps);
    if (a->resume && t->first_step >= a->steps)
        sp_warn("%s has run %d steps already, --steps is %d", a->resume, t->first_step, a->steps);
    if (a->threads > t->place.cores && !t->place.gpus)
        sp_warn("--threads %d: this process has %d core%s, which its threads take turns on",
                a->threads, t->place.cores, t->place.cores > 1 ? "s" : "");
    sp_train_tell_changes(t);
    if (a->dtype == SP_BF16 && !t->place.gpus && sp_cpu_bf16_unit() == SP_BF16_THROUGH_F32)
        sp_warn(
            "--dtype bf16: this CPU multiplies no bf16 (or the products are a CBLAS's): through "
            "f32, products take about 1.1 times as long as f32's");
}

void sp_print_weights(const struct sp_trainer *t)
{
    const struct sp_st_file *weights = &t->weights;
    const char *model = t->cfg.layout.model;
    char shown[SP_TEXT_SHOWN];

    if (t->cfg.resume)
        return;
    if (weights->n_shards > 1)
        printf("initial weights: %s, %d shards\n", sp_text_show(weights->path, shown, sizeof shown),
               weights->n_shards);
    else if (weights->n_shards)
        printf("initial weights: %s\n", sp_text_show(weights->path, shown, sizeof shown));
    else
        printf("initial weights: random, seed %llu (%s %s)\n", (unsigned long long)t->seed,
               sp_text_show(model, shown, sizeof shown),
               sp_model_is_preset(model) ? "is a preset" : "has a config.json and no weights");
    fflush(stdout);
}

static void print_ratios(const struct sp_trainer *t, int stage)
{
    const struct sp_layout *lay = &t->plan.layout;
    int shown = lay->slices < 16 ? lay->slices : 16;

    for (int k = 0; k < shown; k++) {
        double ratio = sp_offload_ratio(&t->plan, &t->offload.evictions[stage], stage, k);

        if (ratio >= 0)
            printf(" %.0f %%", 100 * ratio);
        else
            printf(" stays"); /* its backward comes next */
    }
    printf("%s\n", shown < lay->slices ? " ..." : "");
}

/* How many slices' keys and values leave, of whatever layers and micro-batches. */
static int slices_away(const struct sp_trainer *t, int stage)
{
    const struct sp_eviction_plan *a = &t->offload.evictions[stage];
    const struct sp_program *prog = &t->plan.programs[stage];
    int n = 0;

    for (int i = 0, g = 0; i < prog->n; i++) {
        if (!sp_op_keeps_layers(&prog->ops[i]))
            continue;
        n += prog->ops[i].mb == 0 && prog->ops[i].chunk == 0 &&
             a->units[a->groups[g].first].keys > 0;
        g++;
    }
    return n;
}

static void print_keys(const struct sp_trainer *t, int stage)
{
    const struct sp_eviction_plan *a = &t->offload.evictions[stage];

    if (a->visits_in)
        printf("stage %d: keys and values of %d slices leave too, and are read by later slices: "
               "%.2f MiB out, %.2f MiB back\n",
               stage, slices_away(t, stage), (double)a->visits_out / MiB,
               (double)a->visits_in / MiB);
}

void sp_print_offload(const struct sp_trainer *t)
{
    printf("offload %s", t->cfg.layout.offload);
    if (t->cfg.dry_run && t->offloads == SP_OFFLOAD_ADAPTIVE && !t->cfg.layout.memory_limit)
        printf(" at most, as the disk is measured when a run starts");
    if (t->rates.write > 0)
        printf(" to %s, which writes %.2f and reads %.2f GB/s",
               t->place.gpus ? "main memory" : t->cfg.offload_dir, t->rates.write / 1e9,
               t->rates.read / 1e9);
    else
        printf(": activations leave %s after their forward and return for their backward",
               t->place.gpus ? "the GPU" : "memory");
    printf("\nstage   stays in memory MiB   leaves in a step MiB   of what %s keeps, leaves\n",
           t->plan.layout.slices > 1 ? "each slice" : "a micro-batch");
    for (int s = 0; s < t->offload.stages; s++) {
        const struct sp_eviction_plan *a = &t->offload.evictions[s];

        printf("%5d %21.2f %22.2f  ", s, (double)sp_memory_sum(&t->offload.memory[s]) / MiB,
               (double)sp_eviction_plan_bytes(a) / MiB);
        print_ratios(t, s);
    }
    for (int s = 0; s < t->offload.stages; s++)
        print_keys(t, s);
}

void sp_print_offloaded(const struct sp_trainer *t)
{
    double io = 0, stalls = 0, left = 0, returned = 0;
    struct sp_prediction predicted;

    if (sp_train_predict(t, &predicted))
        return;
    printf("stage   offloaded MiB   brought back MiB   stalls ms (expected)\n");
    for (int s = 0; s < t->offload.stages; s++) {
        const struct sp_stage_report *r = &t->report.stages[s];

        printf("%5d %15.2f %18.2f %11.1f (%.1f)\n", s, r->left_bytes / MiB, r->returned_bytes / MiB,
               r->stall_us / 1e3, predicted.when.stalled[s]);
        io += r->transfer_us;
        stalls += r->stall_us;
        left += r->left_bytes;
        returned += r->returned_bytes;
    }
    sp_prediction_destroy(&predicted);
    if (io > 0)
        printf("disk: %.0f MiB out, %.0f MiB back in %.1f ms of the last step, %.0f %% of it under "
               "computation\n",
               left / MiB, returned / MiB, io / 1e3, 100 * fmax(0, 1 - stalls / io));
    if (t->place.gpus)
        return;
    printf("process of stage 0: %.1f MiB planned, %.1f MiB of buffers at their highest; resident "
           "memory at most %.1f MiB, %.1f MiB of it before the model\n",
           (double)sp_train_planned_bytes(t) / MiB, t->report.stages[0].buffers_bytes / MiB,
           t->report.stages[0].resident_bytes / MiB, (double)t->resident_before / MiB);
}
