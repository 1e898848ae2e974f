/* What a run says of itself while it goes on, and --dry-run instead: the JSON lines, the progress. */
#include "train/run/log_file.h"
#include "train/trainer.h"
#include "cli/train/progress.h"
#include "config.h"
#include "plan/memory.h"
#include "plan/slices.h"
#include "sp_error.h"
#include "transport/transport.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/costs.h"
#include "policies/simulation/times.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const double MiB = 1024 * 1024;

static int write_line(struct sp_trainer *t, json_t *line)
{
    int bad = !line || json_dumpf(line, t->log, JSON_COMPACT | JSON_REAL_PRECISION(10)) ||
              fputc('\n', t->log) == EOF || fflush(t->log);

    json_decref(line);
    return bad ? sp_error(EIO, "cannot write log %s", t->args.log) : 0;
}

static void starpu_version(char text[32])
{
    int major, minor, release;

    starpu_get_version(&major, &minor, &release);
    snprintf(text, 32, "%d.%d.%d", major, minor, release);
}

/* What leaves memory, as planned: of every stage. */
static json_t *offload_json(const struct sp_trainer *t)
{
    json_t *memory = json_array(), *leaving = json_array();

    for (int s = 0; s < t->offload.stages; s++) {
        json_array_append_new(memory, json_integer(sp_memory_sum(&t->offload.memory[s])));
        json_array_append_new(leaving, json_integer(t->offload.away[s].bytes));
    }
    return json_pack("{s:s,s:s,s:f,s:f,s:I,s:o,s:o}", "mode", t->args.layout.offload, "dir",
                     t->args.offload_dir, "bytes_written_per_s", t->rates.write, "bytes_read_per_s",
                     t->rates.read, "resident_before_bytes", (json_int_t)t->resident_before,
                     "planned_bytes", memory, "leaving_bytes", leaving);
}

int sp_train_log_plan(struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->args.layout;
    char starpu[32];
    json_t *line;
    int err;

    if (sp_train_offloads(t) && !t->world.rank)
        sp_train_print_offload(t);
    if (!t->args.log || t->world.rank)
        return 0;
    err = sp_log_open(t->args.log, t->args.resume ? t->first_step : SP_LOG_NEW, &t->log);
    if (err)
        return err;
    starpu_version(starpu);
    line = json_pack(
        "{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:i,s:i,s:i,s:I,s:{s:s,s:s,s:s}}",
        "plan", t->plan.def->name, "schedule", l->schedule, "family", t->plan.family->name, "model",
        t->model.name, "device", t->place.gpus ? "cuda" : "cpu", "dtype",
        sp_dtype_name(t->args.dtype), "parameters", (json_int_t)sp_model_parameters(&t->model),
        "stages", l->stages, "chunks", t->plan.layout.chunks, "slices", t->plan.layout.slices,
        "micro_batches", l->micro_batches, "micro_batch_size", l->micro_batch_size, "seq", l->seq,
        "recompute", l->recompute, "processes", t->world.size, "workers", t->place.workers,
        "threads", t->place.threads, "seed", (json_int_t)t->args.seed, "versions", "starpipe",
        PACKAGE_VERSION, "starpu", starpu, "transport", sp_transport_version());
    if (line && sp_train_offloads(t))
        json_object_set_new(line, "offload", offload_json(t));
    return write_line(t, line);
}

static double step_tokens(const struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->args.layout;

    return (double)l->micro_batches * l->micro_batch_size * l->seq;
}

static json_t *stage_json(const struct sp_stage_report *s)
{
    return json_pack(
        "{s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:f}", "busy_ms",
        s->busy_us / 1e3, "idle_ms", s->idle_us / 1e3, "comm_wait_ms", s->comm_wait_us / 1e3,
        "polling_ms", s->polling_us / 1e3, "bubble_ratio", s->bubble_ratio, "peak_activation_bytes",
        (json_int_t)s->peak_bytes, "live_activation_bytes", (json_int_t)s->live_bytes,
        "buffer_bytes", (json_int_t)s->pool_bytes, "bytes_sent", (json_int_t)s->bytes_sent,
        "bytes_offloaded", (json_int_t)s->left_bytes, "bytes_brought_back",
        (json_int_t)s->returned_bytes, "offload_stall_ms", s->stall_us / 1e3, "disk_ms",
        s->transfer_us / 1e3, "most_buffer_bytes", (json_int_t)s->buffers_bytes,
        "most_resident_bytes", (json_int_t)s->resident_bytes, "peak_device_bytes",
        (json_int_t)s->device_bytes, "core_wait_ms", s->core_wait_us / 1e3);
}

double sp_train_bubble(const struct sp_trainer *t)
{
    double sum = 0;

    for (int s = 0; s < t->place.stages; s++)
        sum += t->report.stages[s].bubble_ratio;
    return sum / t->place.stages;
}

static void progress(const struct sp_trainer *t, int step)
{
    const struct sp_train_args *a = &t->args;
    double done = step + 1 - t->first_step;
    struct sp_progress_step now = {
        .done = step + 1,
        .steps = a->steps,
        .loss = t->report.loss,
        .eval_loss = t->eval_loss,
        .tokens_per_s = step_tokens(t) / t->report.step_us * 1e6,
        .bubble = sp_train_bubble(t),
        .left_s = (sp_now_us() - t->started_us) / 1e6 / done * (a->steps - step - 1),
    };

    sp_progress_show((enum sp_progress)a->progress, &now, step == t->first_step);
}

int sp_train_log_step(struct sp_trainer *t, int step, double lr)
{
    const struct sp_step_report *r = &t->report;
    double tokens = step_tokens(t);
    json_t *stages;

    if (t->world.rank)
        return 0;
    progress(t, step);
    if (!t->log)
        return 0;
    stages = json_array();
    for (int s = 0; s < t->place.stages; s++)
        json_array_append_new(stages, stage_json(&r->stages[s]));
    return write_line(t, json_pack("{s:i,s:f,s:f,s:f,s:I,s:f,s:f,s:f,s:o}", "step", step, "loss",
                                   r->loss, "grad_norm", r->grad_norm, "lr", lr, "tokens",
                                   (json_int_t)tokens, "tokens_per_s", tokens / r->step_us * 1e6,
                                   "step_ms", r->step_us / 1e3, "span_ms", r->span_us / 1e3,
                                   "stages", stages));
}

int sp_train_log_eval(struct sp_trainer *t, int step, double ms)
{
    return !t->log ? 0
                   : write_line(t, json_pack("{s:i,s:f,s:I,s:f}", "eval_step", step, "eval_loss",
                                             t->eval_loss, "eval_tokens",
                                             (json_int_t)sp_train_eval_tokens(t), "eval_ms", ms));
}

/* What backwards compute again, where the parts of a layer take 1 : 3 : 2 as in sp_costs_unit. */
static void add_recompute(const struct sp_trainer *t, struct sp_costs *costs)
{
    bool attention = t->args.recompute == SP_RECOMPUTE_FULL;

    costs->parts.again = 1;
    costs->b += attention ? costs->f : costs->f / 2;
}

int sp_train_dry_run(struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->args.layout;
    struct sp_costs costs = sp_costs_unit;
    struct sp_times times;
    struct sp_shape shape;
    char why[256] = "";

    if (t->plan.layout.layers > 0 &&
        (t->args.recompute == SP_RECOMPUTE_FULL || t->args.recompute == SP_RECOMPUTE_NO_ATTENTION))
        add_recompute(t, &costs);
    if (sp_listsim(&t->plan, &costs, SP_PAIRED, &times, why, sizeof why))
        return sp_error(EINVAL, "%s", why);
    sp_train_shape(t, &shape);
    printf("%s, %.1f M parameters; schedule %s, %d stages x %d chunks, %d micro-batches of %d x %d "
           "tokens\n",
           t->model.name, (double)sp_model_parameters(&t->model) / 1e6, t->plan.def->name,
           l->stages, t->plan.layout.chunks, l->micro_batches, l->micro_batch_size, l->seq);
    printf("%d processes; this one: %d workers of %d threads, %s\n", t->world.size,
           t->place.workers, t->place.threads, t->place.bound ? "bound to cores" : "not bound");
    if (t->plan.layout.slices > 1) {
        sp_slices_text(&t->plan, l->seq, why, sizeof why);
        printf("slices of %s tokens\n", why);
    }
    printf("bubble %.1f %% when a backward takes two forwards%s\n", 100 * times.bubble_ratio,
           costs.parts.again > 0 ? " and what it computes again" : "");
    printf("stage  layers  rank   parameters+optimizer MiB   activations MiB   workspace MiB\n");
    for (int s = 0; s < l->stages; s++) {
        struct sp_memory m = sp_train_memory(t, &shape, s);
        int layers = sp_stage_layers(&t->plan, t->model.layers, s);

        printf("%5d %7d %5d %26.2f %17.2f %15.2f\n", s, layers, sp_stage_rank(&t->place, s),
               (double)m.states / MiB, (double)m.activations / MiB, (double)m.workspace / MiB);
    }
    if (sp_train_offloads(t))
        sp_train_print_offload(t);
    printf("verified: %d ops, %d messages; nothing was submitted\n", sp_plan_ops(&t->plan),
           times.messages);
    sp_times_destroy(&times);
    return 0;
}
