#include "cli/train/train.h"
#include "cli/train/progress.h"
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
    if (a->data && !t->tokenizer && t->model.vocab > 256)
        sp_warn(
            "--data gives byte tokens 0..255, the vocabulary of %s is %d: most of it will never "
            "be seen; a --model DIR with a tokenizer.json has tokens for it",
            t->model.name, t->model.vocab);
    if (t->model.dropout > 0)
        sp_warn("%s: its config.json asks for dropout of %g; it is trained without", t->model.name,
                t->model.dropout);
    if (a->eval && !a->eval_tokens && t->eval_steps > LONG_EVALUATION)
        sp_warn(
            "--eval %s: an evaluation of all its tokens takes as long as %d steps; --eval-tokens "
            "N takes its first ones",
            a->eval, t->eval_steps);
    if (a->resume && t->first_step >= a->steps)
        sp_warn("%s has run %s already, --steps is %d", a->resume, SP_COUNT(t->first_step, "step"),
                a->steps);
    if (a->threads > t->place.cores && !t->place.gpus)
        sp_warn("--threads %d: this process has %s, which its threads take turns on", a->threads,
                SP_COUNT(t->place.cores, "core"));
    sp_train_tell_changes(t);
    if (a->dtype == SP_FP8 && !t->place.gpus)
        sp_warn("--dtype fp8: a CPU multiplies no fp8: operands are rounded to it, and products "
                "take longer than bf16's");
    if (a->dtype == SP_BF16 && !t->place.gpus && sp_cpu_bf16_unit() == SP_BF16_THROUGH_F32)
        sp_warn(
            "--dtype bf16: this CPU multiplies no bf16 (or the products are a CBLAS's): through "
            "f32, products take about 1.1 times as long as f32's");
}

static void print_weights(const struct sp_trainer *t)
{
    const struct sp_st_file *weights = &t->weights;
    const char *model = t->cfg.layout.model;
    char shown[SP_TEXT_SHOWN];

    if (t->cfg.resume)
        printf("weights of %s", sp_text_show(t->resumed_dir.path, shown, sizeof shown));
    else if (weights->n_shards > 1)
        printf("initial weights: %s, %d shards", sp_text_show(weights->path, shown, sizeof shown),
               weights->n_shards);
    else if (weights->n_shards)
        printf("initial weights: %s", sp_text_show(weights->path, shown, sizeof shown));
    else
        printf("initial weights: random, seed %llu (%s %s)", (unsigned long long)t->seed,
               sp_text_show(model, shown, sizeof shown),
               sp_model_is_preset(model) ? "is a preset" : "has a config.json and no weights");
    printf("\n");
}

/* Prints the devices that the run uses, for a reader who knows the machine. */
static void print_devices(const struct sp_trainer *t)
{
    const struct sp_placement *p = &t->place;

    if (p->gpus)
        printf("%s", SP_COUNT(p->gpus, "GPU"));
    else
        printf("%s of %s", SP_COUNT(p->workers, "CPU worker"), SP_COUNT(p->threads, "thread"));
    if (t->world.size > 1)
        printf(" in each of %s", SP_COUNT(t->world.size, "process"));
}

static void print_groups(const struct sp_group_args *g)
{
    if (g->data_parallel > 1)
        printf(", %s side by side", SP_COUNT(g->data_parallel, "pipeline"));
    if (g->context_parallel > 1)
        printf(", %d-fold context parallel", g->context_parallel);
    if (g->tensor_parallel > 1)
        printf(", %d-fold tensor parallel", g->tensor_parallel);
}

/* Prints the size of text that was tokenized. */
static void print_tokens(const struct sp_trainer *t)
{
    const struct sp_data *d = &t->data;
    char shown[SP_TEXT_SHOWN];

    if (d->text_bytes)
        printf("data: %s, %zu tokens of %.2f bytes of text each\n",
               sp_text_show(t->cfg.data, shown, sizeof shown), d->tokens,
               (double)d->text_bytes / (double)d->tokens);
}

static void print_saves(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    char shown[SP_TEXT_SHOWN];

    if (!a->save) {
        printf("saves: nothing%s; --save DIR keeps the model\n",
               a->resume ? ": --data or an older step makes this a run of its own" : "");
        return;
    }
    printf("saves: %s, ", sp_text_show(a->save, shown, sizeof shown));
    if (a->save_every == 1)
        printf("after every step\n");
    else if (a->save_every)
        printf("every %d steps and at the end\n", a->save_every);
    else
        printf("at the end\n");
}

void sp_print_header(const struct sp_trainer *t)
{
    const struct sp_layout *lay = &t->plan.layout;
    const struct sp_layout_args *l = &t->cfg.layout;
    double parameters = (double)sp_model_parameters(&t->model);
    char model[SP_TEXT_SHOWN];

    printf("model: %s, %.3g %c parameters, %lld tokens a step; ",
           sp_text_show(t->model.name, model, sizeof model),
           parameters / (parameters < 1e9 ? 1e6 : 1e9), parameters < 1e9 ? 'M' : 'B',
           (long long)sp_train_step_tokens(t));
    print_weights(t);
    printf("plan: %s, %s on ", t->plan.def->name, SP_COUNT(lay->stages, "stage"));
    print_devices(t);
    print_groups(&t->cfg.groups);
    printf(", %s of %d x %d tokens, %s\n", SP_COUNT(l->micro_batches, "micro-batch"),
           l->micro_batch_size, l->seq, sp_dtype_name(t->cfg.dtype));
    print_tokens(t);
    print_saves(t);
    sp_progress_flush();
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

/* Number of slices whose keys and values are evicted; micro-batch 0 of the first chunk stands for
 * all. If stages share slices, a chunk is a stage's. */
static int slices_away(const struct sp_trainer *t, int stage)
{
    const struct sp_eviction_plan *a = &t->offload.evictions[stage];
    const struct sp_program *prog = &t->plan.programs[stage];
    bool shared = t->plan.family->shared;
    int n = 0;

    for (int i = 0, g = 0; i < prog->n; i++) {
        if (!sp_op_keeps_layers(&prog->ops[i]))
            continue;
        n += prog->ops[i].mb == 0 && prog->ops[i].chunk == (shared ? stage : 0) &&
             a->units[a->groups[g].first].keys > 0;
        g++;
    }
    return n;
}

static void print_keys(const struct sp_trainer *t, int stage)
{
    const struct sp_eviction_plan *a = &t->offload.evictions[stage];

    if (a->streamed_in)
        printf("stage %d: keys and values of %d slices leave too, and are read by later slices: "
               "%.2f MiB out, %.2f MiB back\n",
               stage, slices_away(t, stage), (double)a->streamed_out / MiB,
               (double)a->streamed_in / MiB);
}

static void print_parked(const struct sp_trainer *t)
{
    printf("on other stages in a step, MiB a stage:");
    for (int s = 0; s < t->offload.stages; s++)
        printf(" %.2f",
               (double)sp_offload_tiers(&t->plan, &t->shape, t->recompute, t->every, s).parked /
                   MiB);
    printf("\n");
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
    if (t->plan.parking && !t->cfg.dry_run)
        print_parked(t);
}

void sp_print_offloaded(const struct sp_trainer *t)
{
    double io = 0, stalls = 0, left = 0, returned = 0;
    struct sp_prediction predicted;

    if (sp_train_predict_again(t, &t->report, &predicted))
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
