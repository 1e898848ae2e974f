/* cfg.log: what a run reports while it goes on, as JSON lines. */
#include "train/run/log.h"
#include "train/run/log_file.h"
#include "config.h"
#include "plan/memory.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include "train/start/machine.h"
#include "transport/transport.h"
#include "sinks/starpu/runtime.h"
#include <jansson.h>
#include <stdlib.h>

static int write_line(struct sp_trainer *t, json_t *line)
{
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    int err = text ? sp_log_write(t->log, t->cfg.log, text)
                   : sp_error(ENOMEM, "cannot write log %s: no memory for a line", t->cfg.log);

    free(text);
    json_decref(line);
    return err;
}

/* The evictions of every stage, as planned. */
static json_t *offload_json(const struct sp_trainer *t)
{
    json_t *memory = json_array(), *leaving = json_array(), *parked = json_array();

    for (int s = 0; s < t->offload.stages; s++) {
        json_array_append_new(memory, json_integer(sp_memory_sum(&t->offload.memory[s])));
        json_array_append_new(leaving, json_integer(t->offload.evictions[s].bytes));
        json_array_append_new(
            parked,
            json_integer(sp_offload_tiers(&t->plan, &t->shape, t->recompute, t->every, s).parked));
    }
    return json_pack("{s:s,s:o,s:f,s:f,s:I,s:o,s:o,s:o}", "mode", t->cfg.layout.offload, "dir",
                     sp_utf8_json(t->cfg.offload_dir), "bytes_written_per_s", t->rates.write,
                     "bytes_read_per_s", t->rates.read, "resident_before_bytes",
                     (json_int_t)t->resident_before, "planned_bytes", memory, "leaving_bytes",
                     leaving, "parked_bytes", parked);
}

int sp_train_log_open(struct sp_trainer *t)
{
    int err;

    if (!t->cfg.log || t->world.rank)
        return 0;
    err =
        sp_log_open(t->cfg.log, t->cfg.resume ? t->first_step : SP_LOG_NEW, &t->log_file, &t->log);
    return err ? err : sp_train_log_layout(t);
}

int sp_train_log_layout(struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->cfg.layout;
    struct sp_prediction predicted;
    char starpu[32];
    json_t *versions, *line;

    if (!t->log)
        return 0;
    sp_runtime_version(starpu);
    versions = json_pack("{s:s,s:s,s:s}", "starpipe", PACKAGE_VERSION, "starpu", starpu,
                         "transport", sp_transport_version());
    line = json_pack(
        "{s:s,s:i,s:o,s:s,s:o,s:s,s:s,s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,"
        "s:I,s:o}",
        "plan", t->plan.def->name, "first_step", 1, "schedule", sp_utf8_json(l->schedule), "family",
        t->plan.family->name, "model", sp_utf8_json(t->model.name), "device",
        t->place.gpus ? "cuda" : "cpu", "dtype", sp_dtype_name(t->cfg.dtype), "parameters",
        (json_int_t)sp_model_parameters(&t->model), "stages", l->stages, "chunks",
        t->plan.layout.chunks, "slices", t->plan.layout.slices, "micro_batches", l->micro_batches,
        "micro_batch_size", l->micro_batch_size, "seq", l->seq, "recompute", l->recompute,
        "data_parallel", t->cfg.groups.data_parallel, "context_parallel",
        t->cfg.groups.context_parallel, "tensor_parallel", t->cfg.groups.tensor_parallel, "zero",
        t->cfg.groups.zero, "processes", t->world.size, "workers", t->place.workers, "threads",
        t->place.threads, "seed", (json_int_t)t->seed, "versions", versions);
    if (line && sp_train_offloads(t))
        json_object_set_new(line, "offload", offload_json(t));
    if (line && !sp_train_predict(t, &predicted)) {
        json_object_update_new(
            line, json_pack("{s:o,s:b,s:f,s:f}", "hardware", sp_utf8_json(t->machine.name),
                            "hardware_assumed", sp_train_machine_is_assumed(t), "predicted_step_ms",
                            predicted.step_ms, "predicted_bubble", predicted.times.bubble_ratio));
        sp_prediction_destroy(&predicted);
    }
    return write_line(t, line);
}

static json_t *stage_json(const struct sp_stage_report *s)
{
    return json_pack(
        "{s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:i,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:f,s:f}", "busy_ms",
        s->busy_us / 1e3, "idle_ms", s->idle_us / 1e3, "comm_wait_ms", s->comm_wait_us / 1e3,
        "polling_ms", s->polling_us / 1e3, "bubble_ratio", s->bubble_ratio, "peak_activation_bytes",
        (json_int_t)s->peak_bytes, "live_activation_bytes", (json_int_t)s->live_bytes,
        "buffer_bytes", (json_int_t)s->pool_bytes, "bytes_sent", (json_int_t)s->bytes_sent,
        "messages_sent", s->messages_sent, "bytes_offloaded", (json_int_t)s->left_bytes,
        "bytes_brought_back", (json_int_t)s->returned_bytes, "offload_stall_ms", s->stall_us / 1e3,
        "disk_ms", s->transfer_us / 1e3, "most_buffer_bytes", (json_int_t)s->buffers_bytes,
        "most_resident_bytes", (json_int_t)s->resident_bytes, "peak_device_bytes",
        (json_int_t)s->device_bytes, "core_wait_ms", s->core_wait_us / 1e3, "update_ms",
        s->update_us / 1e3);
}

/* SP_SAMPLES: where in the data the samples of a step are, pipeline by pipeline. */
static json_t *samples_json(const struct sp_trainer *t, int step)
{
    json_t *places = json_array();
    int64_t n = sp_train_step_samples(t);

    for (int64_t i = 0; i < n; i++) {
        uint64_t place =
            sp_data_place(&t->data, (uint64_t)step * (uint64_t)n + (uint64_t)i, t->cfg.layout.seq);

        json_array_append_new(places, json_integer((json_int_t)place));
    }
    return places;
}

int sp_train_log_step(struct sp_trainer *t, int step, double lr)
{
    const struct sp_step_report *r = &t->report;
    double tokens = (double)sp_train_step_tokens(t);
    json_t *stages, *places;

    if (!t->log)
        return 0;
    stages = json_array();
    for (int s = 0; s < t->place.stages; s++)
        json_array_append_new(stages, stage_json(&r->stages[s]));
    places = getenv("SP_SAMPLES") ? samples_json(t, step) : NULL;
    return write_line(t, json_pack("{s:i,s:f,s:f,s:f,s:I,s:f,s:f,s:f,s:o*,s:o}", "step", step + 1,
                                   "loss", r->loss, "grad_norm", r->grad_norm, "lr", lr, "tokens",
                                   (json_int_t)tokens, "tokens_per_s", tokens / r->step_us * 1e6,
                                   "step_ms", r->step_us / 1e3, "span_ms", r->span_us / 1e3,
                                   "samples", places, "stages", stages));
}

int sp_train_log_eval(struct sp_trainer *t)
{
    return !t->log ? 0
                   : write_line(t, json_pack("{s:i,s:f,s:I,s:f}", "eval_step", t->done, "eval_loss",
                                             t->eval_loss, "eval_tokens",
                                             (json_int_t)t->eval_data.tokens - 1, "eval_ms",
                                             t->eval_ms));
}
