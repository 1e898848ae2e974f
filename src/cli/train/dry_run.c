/*
 * As JSON, one object:
 *   schedule, data_parallel, context_parallel, tensor_parallel, zero, hardware
 *   auto              with --schedule auto, in words: "layout", the choice, and "reason"
 *   update            with --offload-optimizer and GPUs: "device" (cpu or gpu), "cpu_ms", "gpu_ms":
 *                     predicted on the stage that takes longest
 *   hardware_assumed  nobody asked for that machine, and no figure of it was measured here
 *   predicted_step_ms, predicted_bubble
 *   stages[]          {parameters_bytes (weights and gradients), optimizer_bytes (two moments),
 *                     activations_bytes, workspace_bytes, buffer_bytes: as the log has them after
 *                     as many steps; bytes_sent: of a step, to other processes; each stage counts
 *                     as a process of its own unless a launcher started several}
 *   tiers[]           of each stage, as `show` has them: where the activations of a step wait
 */
#include "cli/print.h"
#include "cli/train/train.h"
#include "offload/host_memory.h"
#include "plan/cost/op_times.h"
#include "plan/memory.h"
#include "plan/offload/offload.h"
#include "plan/slices.h"
#include "policies/families/ownership.h"
#include "sp_error.h"
#include "sp_text.h"
#include "sp_utf8.h"
#include "train/start/auto.h"
#include "train/start/device.h"
#include "train/start/machine.h"
#include "transport/launcher.h"
#include "train/start/memory.h"
#include <stdlib.h>
#include <string.h>

static const double MiB = 1024 * 1024;

static struct sp_tier_bytes tiers_of(const struct sp_trainer *t, int stage)
{
    return sp_offload_tiers(&t->plan, &t->shape, t->recompute, t->every, stage);
}

/* Prints what waits for its backward on each tier; nothing if all is kept. */
static void print_tiers(const struct sp_trainer *t)
{
    const char *tier = sp_machine_is_cpu(&t->machine) ? "on disk" : "in main memory";

    if (!sp_train_offloads(t) && !t->plan.parking)
        return;
    printf("of activations, in a step:\n"
           "stage   kept MiB   computed again   on other stages   %s\n",
           tier);
    for (int s = 0; s < t->plan.layout.stages; s++) {
        struct sp_tier_bytes b = tiers_of(t, s);

        printf("%5d %10.2f %16.2f %17.2f %*.2f\n", s, (double)b.kept / MiB,
               (double)b.recomputed / MiB, (double)b.parked / MiB, (int)strlen(tier) + 2,
               (double)b.evicted / MiB);
    }
}

static void print_stages(const struct sp_trainer *t, const struct sp_memory *m,
                         const struct sp_count *sent)
{
    printf("stage  layers  rank   parameters+optimizer MiB   activations MiB   workspace MiB\n");
    for (int s = 0; s < t->plan.layout.stages; s++) {
        int layers = sp_stage_layers(&t->plan, t->model.layers, s);

        printf("%5d %7d %5d %26.2f %17.2f %15.2f\n", s, layers, sp_stage_rank(&t->place, s),
               (double)m[s].states / MiB, (double)m[s].activations / MiB,
               (double)m[s].workspace / MiB);
    }
    print_tiers(t);
    printf("sent a step, MiB a stage:");
    for (int s = 0; s < t->plan.layout.stages; s++)
        printf(" %.4g", (double)sent[s].sent / MiB);
    printf("\n");
}

/* Says whether the stages fit: one on each device of a machine that was named, or all of them in
 * this machine's memory, as train would run them. */
static void print_room(const struct sp_trainer *t, const struct sp_memory *m)
{
    const double GiB = 1024.0 * MiB;
    bool here =
        !t->place.gpus && (sp_train_machine_is_assumed(t) || sp_machine_is_cpu(&t->machine));
    struct sp_memory_limit has = {t->machine.memory_bytes, "a device of it"};
    int64_t needs = 0;
    int fullest = 0;

    if (here && t->world.size > t->world.node_size)
        return;
    for (int s = 0; s < t->plan.layout.stages; s++) {
        int64_t stage = sp_memory_sum(&m[s]);

        if (stage > needs || here) {
            needs = here ? needs + stage : stage;
            fullest = s;
        }
    }
    if (here)
        has = sp_host_memory_has(1);
    if (here)
        printf("memory: all stages need %.2f GiB", (double)needs / GiB);
    else
        printf("memory: stage %d, the fullest, needs %.2f GiB", fullest, (double)needs / GiB);
    printf(", %s has %.2f: %s\n", has.origin, (double)has.bytes / GiB,
           needs <= has.bytes ? "fits" : "does not fit");
}

/* Says that the machine whose times are predicted is only described; a file may have any
 * figures. */
static const char *origin(const struct sp_trainer *t)
{
    if (sp_train_machine_is_assumed(t))
        return " (described, not measured here: starpipe calibrate measures this machine)";
    for (int i = 0; t->cfg.hardware && sp_machine_name_at(i); i++)
        if (!strcmp(t->cfg.hardware, sp_machine_name_at(i)))
            return " (described, not measured here)";
    return "";
}

/* The ways in which the stage that takes longest may update evicted state; false: there are none. */
static bool find_update(const struct sp_trainer *t, struct sp_update_ways *slowest)
{
    const struct sp_op_terms terms = {.machine = &t->machine, .devices = 1};

    *slowest = (struct sp_update_ways){.on_gpu = 0};
    for (int s = 0; s < t->plan.layout.stages; s++) {
        struct sp_update_ways w = sp_update_ways(&t->plan, &t->shape, &terms, s);

        *slowest = w.on_gpu > slowest->on_gpu ? w : *slowest;
    }
    return t->plan.states_evicted && sp_train_plans_gpus(t) && !sp_machine_is_cpu(&t->machine);
}

static void print_update(const struct sp_trainer *t)
{
    bool slower =
        !t->plan.updates_on_cores && t->cfg.layout.optimizer_device == SP_TRAIN_UPDATE_AUTO;
    struct sp_update_ways w;

    if (!find_update(t, &w))
        return;
    slower = slower && w.on_cores < w.on_gpu;
    printf("update on cores %.4g ms (gradients down %.4g, AdamW %.4g, weights up %.4g), on the GPU "
           "%.4g (state %.4g each way): on %s%s\n",
           1e3 * w.on_cores, 1e3 * w.gradients, 1e3 * w.adamw, 1e3 * w.weights, 1e3 * w.on_gpu,
           1e3 * w.state, t->plan.updates_on_cores ? "cores" : "the GPU",
           !slower                          ? ""
           : sp_train_machine_is_assumed(t) ? ", nobody described this machine"
                                            : ", main memory has no room");
    printf("main memory: %.4g GB/s for a GPU; cores update as fast as it does from %.4g on\n",
           w.rate / 1e9, w.even / 1e9);
}

/* The same as JSON; NULL: there is no choice. */
static json_t *update_json(const struct sp_trainer *t)
{
    struct sp_update_ways w;

    return find_update(t, &w)
               ? json_pack("{s:s,s:f,s:f}", "device", t->plan.updates_on_cores ? "cpu" : "gpu",
                           "cpu_ms", 1e3 * w.on_cores, "gpu_ms", 1e3 * w.on_gpu)
               : NULL;
}

static void print_text(const struct sp_trainer *t, const struct sp_prediction *p,
                       const struct sp_memory *m, const struct sp_count *sent)
{
    static const char *const shared[] = {"", ", that share out the update",
                                         ", that share out the update and gradients",
                                         ", that share out update, gradients and weights"};
    const struct sp_layout_args *l = &t->cfg.layout;
    char text[256];

    printf("%s, %.1f M parameters; schedule %s, %s x %s, %s of %d x %d "
           "tokens\n",
           t->model.name, (double)sp_model_parameters(&t->model) / 1e6, t->plan.def->name,
           SP_COUNT(l->stages, "stage"), SP_COUNT(t->plan.layout.chunks, "chunk"),
           SP_COUNT(l->micro_batches, "micro-batch"), l->micro_batch_size, l->seq);
    if (t->cfg.groups.data_parallel > 1)
        printf("%d pipelines side by side, each with %s of its own%s\n",
               t->cfg.groups.data_parallel, SP_COUNT(l->micro_batches, "micro-batch"),
               shared[t->shape.zero]);
    if (t->cfg.groups.context_parallel > 1)
        printf("%d processes a stage share the tokens of sequences%s\n",
               t->cfg.groups.context_parallel,
               t->shape.ring == 1      ? " and the heads of attention"
               : t->shape.ulysses == 1 ? ", whose keys and values pass them"
                                       : ", whose keys and values pass groups that share heads");
    if (t->cfg.groups.tensor_parallel > 1)
        printf("%d processes a stage share heads, MLP and vocabulary%s\n",
               t->cfg.groups.tensor_parallel,
               t->shape.sequence ? ", and the tokens of all else" : "");
    printf("%s; this one: %s of %s, %s\n", SP_COUNT(t->world.size, "process"),
           SP_COUNT(t->place.workers, "worker"), SP_COUNT(t->place.threads, "thread"),
           t->place.bound ? "bound to cores" : "not bound");
    if (t->plan.layout.slices > 1) {
        sp_slices_text(&t->plan, l->seq, text, sizeof text);
        printf("slices of %s tokens\n", text);
    }
    printf("predicted on %s%s: step %.4g ms, bubble %.1f %%, %.4g tokens/s\n", t->machine.name,
           origin(t), p->step_ms, 100 * p->times.bubble_ratio,
           1e3 * (double)sp_train_step_tokens(t) / p->step_ms);
    print_stages(t, m, sent);
    print_room(t, m);
    if (sp_train_offloads(t))
        sp_print_offload(t);
    print_update(t);
    printf("verified: %s, %s; nothing was submitted\n", SP_COUNT(sp_plan_ops(&t->plan), "op"),
           SP_COUNT(p->times.messages, "message"));
}

/* The choice of --schedule auto in words; NULL: the layout was given. */
static json_t *choice_json(const struct sp_trainer *t)
{
    char name[SP_AUTO_TEXT], reason[SP_AUTO_TEXT];

    if (!t->choice)
        return NULL;
    sp_auto_choice_name(&t->choice->chosen, name);
    sp_auto_choice_reason(&t->choice->chosen, t->choice->step_ms, reason);
    return json_pack("{s:o,s:o}", "layout", sp_utf8_json(name), "reason", sp_utf8_json(reason));
}

static int print_json(const struct sp_trainer *t, const struct sp_prediction *p,
                      const struct sp_memory *m, const struct sp_count *made,
                      const struct sp_count *sent)
{
    json_t *stages = json_array(), *tiers = json_array(), *root;

    for (int s = 0; s < t->plan.layout.stages; s++) {
        int64_t optimizer = sp_memory_optimizer(&t->plan, &t->shape, s);

        json_array_append_new(tiers, sp_tiers_json(tiers_of(t, s)));
        json_array_append_new(stages, json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "parameters_bytes",
                                                (json_int_t)(m[s].states - optimizer),
                                                "optimizer_bytes", (json_int_t)optimizer,
                                                "activations_bytes", (json_int_t)m[s].activations,
                                                "workspace_bytes", (json_int_t)m[s].workspace,
                                                "buffer_bytes", (json_int_t)made[s].buffers,
                                                "bytes_sent", (json_int_t)sent[s].sent));
    }
    root = json_pack("{s:s,s:o*,s:o*,s:i,s:i,s:i,s:i,s:o,s:b,s:f,s:f,s:o,s:o}", "schedule",
                     t->plan.def->name, "auto", choice_json(t), "update", update_json(t),
                     "data_parallel", t->cfg.groups.data_parallel, "context_parallel",
                     t->cfg.groups.context_parallel, "tensor_parallel",
                     t->cfg.groups.tensor_parallel, "zero", t->cfg.groups.zero, "hardware",
                     sp_utf8_json(t->machine.name), "hardware_assumed",
                     sp_train_machine_is_assumed(t), "predicted_step_ms", p->step_ms,
                     "predicted_bubble", p->times.bubble_ratio, "stages", stages, "tiers", tiers);
    return sp_json_print(root, 0, stdout) ? sp_error(EIO, "train: the prediction cannot be written")
                                          : 0;
}

/* Counts for the processes that were launched. If there is only this one, it counts messages as
 * if each stage had a process, and buffers too if stages are groups, because one process cannot
 * run those. */
static int count_stages(const struct sp_trainer *t, struct sp_count *made, struct sp_count *sent)
{
    bool alone = sp_launcher_find().size <= 1;
    int processes = sp_train_pipeline_size(t), stages = t->place.stages;
    int err = sp_train_count(t, alone ? stages : processes, sent);

    if (err || t->cfg.format != SP_TRAIN_JSON) /* the text does not print `made` */
        return err;
    if (alone && t->place.pipelines == 1 && stages > 1)
        return sp_train_count(t, 1, made);
    memcpy(made, sent, (size_t)stages * sizeof *made);
    return 0;
}

int sp_dry_run(const struct sp_trainer *t)
{
    size_t stages = (size_t)t->place.stages;
    struct sp_count *made = calloc(2 * stages, sizeof *made), *sent;
    struct sp_prediction prediction;
    struct sp_memory *m;
    int err;

    SP_NEED(made, "train: no memory to count buffers");
    sent = made + stages;
    err = count_stages(t, made, sent);
    if (!err && sp_train_predict(t, &prediction))
        err = sp_error(ENOMEM, "train: no memory to simulate %d ops", sp_plan_ops(&t->plan));
    if (err) {
        free(made);
        return err;
    }
    m = sp_train_memory(t);
    if (!m)
        err = -EINVAL;
    else if (t->cfg.format == SP_TRAIN_JSON)
        err = print_json(t, &prediction, m, made, sent);
    else
        print_text(t, &prediction, m, sent);
    free(m);
    sp_prediction_destroy(&prediction);
    free(made);
    return err;
}
