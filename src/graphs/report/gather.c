#include "graphs/report/report.h"
#include "graphs/offload/offload.h"
#include "graphs/step.h"
#include "sinks/starpu/sink.h"
#include "sinks/starpu/cuda.h"
#include "offload/disk.h"
#include "offload/host.h"
#include "sp_error.h"
#include "transport/transport.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Busy, idle and waiting times of a step, from the records of all stages. */

/* The number of units that may be evicted on a stage. */
static int units_of(const struct sp_graph *g, int stage)
{
    return g->cfg.evictions ? g->cfg.evictions[stage].n_units : 0;
}

/* The time when the last producer of an op on another stage ended. */
static double last_message(const struct sp_graph *g, const struct sp_step_report *r, int stage,
                           int index)
{
    const struct sp_plan *plan = g->cfg.plan;
    struct sp_dep deps[SP_MAX_DEPS];
    int n = sp_run_deps(plan, stage, &plan->programs[stage].ops[index], deps);
    double last = 0;

    for (int d = 0; d < n; d++)
        if (deps[d].stage != stage) {
            int at = sp_index_place(&g->places, plan, &deps[d]);

            const struct sp_op_record *from = &r->stages[deps[d].stage].ops[at];

            last = fmax(last, deps[d].beside ? from->start_us : from->end_us);
        }
    return last;
}

/* The first of the stages, consecutive ones, that share a worker with stage s. */
static int first_of_worker(const struct sp_graph *g, const struct sp_step_report *r, int s)
{
    while (s > 0 && sp_stage_rank(&g->place, s - 1) == sp_stage_rank(&g->place, s) &&
           r->stages[s - 1].worker == r->stages[s].worker)
        s--;
    return s;
}

/*
 * An op waits from the end of the previous op on its worker, of any stage and step, or from the
 * moment when it could have started, whichever is later.
 */
static void add_waits(const struct sp_graph *g, struct sp_step_report *r)
{
    for (int s = 0; s < g->place.stages; s++)
        r->stages[s].comm_wait_us = 0;
    for (int k = 0; k < g->lowering.n; k++) {
        int s = g->lowering.order[k].stage, i = g->lowering.order[k].index;
        const struct sp_op_record *op = &r->stages[s].ops[i];
        double *free_at = &g->free_at[first_of_worker(g, r, s)], ready = last_message(g, r, s, i);

        if (ready > 0 && op->start_us > fmax(ready, *free_at))
            r->stages[s].comm_wait_us += op->start_us - fmax(ready, *free_at);
        *free_at = fmax(*free_at, op->end_us); /* if two ops overlap, either may end last */
    }
}

/*
 * A stage is idle from the first op of all stages to the last one, unless it is busy. If steps
 * overlap, it counts from its own last op of the previous step to its own last op of this one: then
 * the times of all steps add up to that of the run.
 */
static void add_idle(struct sp_graph *g, struct sp_step_report *r, double first, double last)
{
    bool next_begun = g->turn != g->closing;

    for (int s = 0; s < g->place.stages; s++) {
        struct sp_stage_report *st = &r->stages[s];
        double from = g->begun_ahead ? g->ended[s] : first, own = 0;

        st->busy_us = st->core_wait_us = 0;
        for (int i = 0; i < st->n_ops; i++) {
            st->busy_us += st->ops[i].busy_us;
            st->core_wait_us += st->ops[i].core_wait_us;
            own = fmax(own, st->ops[i].end_us);
        }
        st->idle_us = fmax(0, (next_begun ? own : last) - from - st->busy_us);
        st->bubble_ratio =
            st->busy_us + st->idle_us > 0 ? st->idle_us / (st->busy_us + st->idle_us) : 0;
        g->ended[s] = own;
    }
    g->begun_ahead = next_begun;
}

/* Shifts a time; 0 means unknown and stays. */
static void shift_time(double *us, double first)
{
    if (*us > 0)
        *us -= first;
}

/* Makes all times of a stage relative to the first op. */
static void count_times_from(const struct sp_graph *g, int stage, double first,
                             struct sp_stage_report *s)
{
    for (int i = 0; i < s->n_ops; i++) {
        s->ops[i].start_us -= first;
        s->ops[i].end_us -= first;
        shift_time(&s->ops[i].out_us, first);
        shift_time(&s->ops[i].arrived_us, first);
        shift_time(&s->ops[i].submitted_us, first);
        shift_time(&s->ops[i].ready_us, first);
    }
    for (int i = 0; i < s->n_messages; i++) {
        shift_time(&s->messages[i].ready_us, first);
        shift_time(&s->messages[i].begun_us, first);
        shift_time(&s->messages[i].ended_us, first);
    }
    for (int u = 0; u < 2 * units_of(g, stage); u++)
        shift_time(&s->left_at_us[u], first);
}

/* Computes `span_us`, and the times of every stage from its ops and messages; makes their times
 * relative to the step's first op. Runs on rank 0. */
static void add_times(struct sp_graph *g, struct sp_step_report *r)
{
    double first = INFINITY, last = 0;

    for (int s = 0; s < g->place.stages; s++)
        for (int i = 0; i < r->stages[s].n_ops; i++) {
            first = fmin(first, r->stages[s].ops[i].start_us);
            last = fmax(last, r->stages[s].ops[i].end_us);
        }
    r->span_us = last - first;
    add_waits(g, r);
    add_idle(g, r, first, last);
    for (int s = 0; s < g->place.stages; s++)
        count_times_from(g, s, first, &r->stages[s]);
}

/* A stage's report on the wire: this header, the records of its ops, those of its messages, two
 * times of each unit that may be evicted; all doubles. */
struct wire {
    double loss, sumsq, update_us, peak_bytes, live_bytes, pool_bytes, bytes_sent, left_bytes,
        returned_bytes, stall_us, transfer_us, buffers_bytes, resident_bytes, polling_us, worker,
        device_bytes, asks, messages, messages_sent;
};
struct wire_message {
    double number, sends, ready_us, begun_us, ended_us;
};
enum {
    WIRE_HEAD = sizeof(struct wire) / sizeof(double),
    WIRE_OP = sizeof(struct sp_op_record) / sizeof(double),
    WIRE_MESSAGE = sizeof(struct wire_message) / sizeof(double)
};

/* The sums that every rank needs, as doubles on the wire. */
struct shared {
    double loss, sumsq, asked;
};

static size_t wire_doubles(const struct sp_graph *g, int stage)
{
    return WIRE_HEAD + WIRE_OP * (size_t)g->cfg.plan->programs[stage].n +
           WIRE_MESSAGE * (size_t)g->records[stage] + 2 * (size_t)units_of(g, stage);
}

static int create_stage(const struct sp_graph *g, int stage, struct sp_stage_report *r)
{
    r->n_ops = g->cfg.plan->programs[stage].n;
    r->ops = calloc((size_t)r->n_ops, sizeof *r->ops);
    r->messages = calloc((size_t)g->records[stage] + 1, sizeof *r->messages);
    r->left_at_us = calloc(2 * (size_t)units_of(g, stage) + 1, sizeof *r->left_at_us);
    if (!r->ops || !r->messages || !r->left_at_us)
        return -ENOMEM;
    r->back_at_us = r->left_at_us + units_of(g, stage);
    return 0;
}

int sp_step_report_create(const struct sp_graph *g, struct sp_step_report *r)
{
    *r = (struct sp_step_report){0};
    r->stages = calloc((size_t)g->place.stages, sizeof *r->stages);
    if (!r->stages)
        return sp_error(ENOMEM, "out of memory for reports");
    for (int s = 0; s < g->place.stages; s++) {
        if (create_stage(g, s, &r->stages[s])) {
            sp_step_report_destroy(g, r);
            return sp_error(ENOMEM, "out of memory for reports");
        }
    }
    return 0;
}

void sp_step_report_destroy(const struct sp_graph *g, struct sp_step_report *r)
{
    sp_step_reports_free(r, g->place.stages);
}

void sp_step_reports_free(struct sp_step_report *r, int stages)
{
    for (int s = 0; r->stages && s < stages; s++) {
        free(r->stages[s].ops);
        free(r->stages[s].messages);
        free(r->stages[s].left_at_us);
    }
    free(r->stages);
    r->stages = NULL;
}

void sp_step_report_copy(const struct sp_graph *g, const struct sp_step_report *from,
                         struct sp_step_report *to)
{
    struct sp_stage_report *stages = to->stages;

    *to = *from;
    to->stages = stages;
    for (int s = 0; s < g->place.stages; s++) {
        const struct sp_stage_report *f = &from->stages[s];
        struct sp_stage_report own = stages[s];

        stages[s] = *f;
        stages[s].ops = own.ops;
        stages[s].messages = own.messages;
        stages[s].left_at_us = own.left_at_us;
        stages[s].back_at_us = own.back_at_us;
        memcpy(own.ops, f->ops, sizeof *own.ops * (size_t)f->n_ops);
        memcpy(own.messages, f->messages, sizeof *own.messages * (size_t)f->n_messages);
        memcpy(own.left_at_us, f->left_at_us, 2 * sizeof *own.left_at_us * (size_t)units_of(g, s));
    }
}

/* Packs the bytes evicted and fetched, and their cost. */
static void pack_moves(struct sp_graph *g, struct sp_stage *st, struct wire *w)
{
    struct sp_disk_traffic disk;
    double held = sp_worker_held_us(st->worker);

    if (!g->cfg.evictions && !g->cfg.plan->states_evicted)
        return;
    w->left_bytes = (double)(st->mover.moved.left + sp_states_sent(st));
    w->returned_bytes = (double)st->mover.moved.returned;
    st->mover.moved = (struct sp_moved){0}; /* the last update counts with the next step */
    w->stall_us = st->meter[g->closing].fetch_us;
    if (st == g->stages || st[-1].worker != st->worker)
        w->stall_us += held - st->held_us;
    st->held_us = held;
    w->buffers_bytes = (double)sp_host_peak();
    w->resident_bytes = (double)sp_host_most_resident();
    if (st != g->stages)
        return;
    disk = sp_disk_traffic(g->cfg.disk);
    w->transfer_us = disk.write_us + disk.read_us - g->moved_us;
    g->moved_us = disk.write_us + disk.read_us;
}

/* Packs a stage's messages, and when its units were evicted and asked back; returns the number of
 * messages. */
static int pack_transfers(const struct sp_graph *g, const struct sp_stage *st, double *out)
{
    const struct sp_message_log *log = &st->log[g->closing];
    struct wire_message *m = (struct wire_message *)out;
    double *units = out + WIRE_MESSAGE * (size_t)g->records[st->index];
    int n = units_of(g, st->index);

    for (int i = 0; i < log->n; i++) {
        const struct sp_message_record *r = &log->record[i];

        m[i] = (struct wire_message){r->number, r->sends, r->times.ready_us, r->times.begun_us,
                                     r->times.ended_us};
    }
    for (int u = 0; u < n; u++) {
        units[u] = st->moves[u].left_us;
        units[n + u] = st->moves[u].back_us;
    }
    return log->n;
}

/* Packs the measurements of a stage in the step that closes. */
static void pack(struct sp_graph *g, struct sp_stage *st, double polling_us, int asks, double *out)
{
    const struct sp_meter *meter = &st->meter[g->closing], *before = &st->meter[!g->closing];
    struct sp_tensor *sums = st->tally[g->closing];
    struct wire *w = (struct wire *)out;
    double *tally;

    tally = sp_tensor_acquire(sums, SP_READ);
    *w = (struct wire){
        .loss = tally[SP_TALLY_LOSS],
        .sumsq = tally[SP_TALLY_SUMSQ],
        .update_us = before->update_us + st->update_meter[!g->closing].update_us,
        .peak_bytes = (double)meter->peak_bytes,
        .live_bytes = (double)meter->live_bytes,
        .pool_bytes = (double)sp_stage_buffer_bytes(st),
        .bytes_sent = (double)st->bytes_sent[g->closing],
        .messages_sent = st->messages_sent[g->closing],
        .polling_us = polling_us,
        .worker = st->worker,
        .device_bytes = (double)sp_cuda_peak_bytes(),
        .asks = asks,
    };
    pack_moves(g, st, w);
    sp_tensor_release(sums);
    memcpy(out + WIRE_HEAD, meter->ops, sizeof *meter->ops * (size_t)meter->n_ops);
    w->messages = pack_transfers(g, st, out + WIRE_HEAD + WIRE_OP * (size_t)meter->n_ops);
}

static void unpack_transfers(const struct sp_graph *g, int stage, const double *in,
                             struct sp_stage_report *s)
{
    const struct wire_message *m = (const struct wire_message *)in;

    for (int i = 0; i < s->n_messages; i++)
        s->messages[i] = (struct sp_message_end){(int)m[i].number, m[i].sends != 0, m[i].ready_us,
                                                 m[i].begun_us, m[i].ended_us};
    memcpy(s->left_at_us, in + WIRE_MESSAGE * (size_t)g->records[stage],
           2 * sizeof *in * (size_t)units_of(g, stage));
}

static void unpack(const double *in, struct sp_stage_report *s, struct shared *all)
{
    const struct wire *w = (const struct wire *)in;

    all->loss += w->loss;
    all->sumsq += w->sumsq;
    all->asked = (int)all->asked | (int)w->asks;
    s->update_us = w->update_us;
    s->peak_bytes = w->peak_bytes;
    s->live_bytes = w->live_bytes;
    s->pool_bytes = w->pool_bytes;
    s->bytes_sent = w->bytes_sent;
    s->messages_sent = (int)w->messages_sent;
    s->left_bytes = w->left_bytes;
    s->returned_bytes = w->returned_bytes;
    s->stall_us = w->stall_us;
    s->transfer_us = w->transfer_us;
    s->buffers_bytes = w->buffers_bytes;
    s->resident_bytes = w->resident_bytes;
    s->device_bytes = w->device_bytes;
    s->polling_us = w->polling_us;
    s->worker = (int)w->worker;
    s->n_messages = (int)w->messages;
    memcpy(s->ops, in + WIRE_HEAD, sizeof *s->ops * (size_t)s->n_ops);
}

/* Sends one vector of doubles from rank to rank, outside the graph. */
static void exchange(const struct sp_graph *g, double *data, size_t n, int from, int to,
                     int64_t tag)
{
    struct sp_tensor *t;

    if (from == to)
        return;
    t = sp_tensor_make_at(g->cfg.sink, data, n, sizeof *data, "report");
    if (g->place.world.rank == from)
        sp_tensor_send_wait(t, to, tag);
    else
        sp_tensor_receive_wait(t, from, tag);
    sp_tensor_unmake_at(t);
}

/* Adds on rank 0 the sums of another pipeline, whose first process is `rank`. The norms of ZeRO's
 * pipelines and of tensor-parallel members add up, because each has gradients of its own; the norms
 * of other pipelines are the same and are not added. */
static void add_pipeline(const struct sp_graph *g, int rank, struct shared *all)
{
    struct shared theirs = *all;
    bool own = g->shape.zero || rank < g->shape.tensor;

    exchange(g, (double *)&theirs, sizeof theirs / sizeof(double), rank, 0,
             sp_tag(g, SP_MSG_NORM, rank));
    if (g->place.world.rank == 0) {
        all->loss += theirs.loss;
        all->sumsq += own ? theirs.sumsq : 0;
        all->asked = (int)all->asked | (int)theirs.asked;
    }
}

void sp_report_gather(struct sp_graph *g, struct sp_step_report *report)
{
    const struct sp_world *world = &g->place.world;
    int root = g->place.pipeline; /* the first process of the pipeline */
    struct shared all = {0};
    double polling = sp_transport_polling_us();
    int asks = report->asks;

    sp_window_drain(g->window, g->closing); /* makes its records complete */
    for (int s = 0; s < g->place.stages; s++) {
        int owner = sp_stage_rank(&g->place, s);
        size_t n = wire_doubles(g, s);
        double *wire;

        if (world->rank != root && world->rank != owner)
            continue;
        wire = calloc(n, sizeof *wire);
        SP_NEED(wire, "out of memory for a report");
        if (world->rank == owner)
            pack(g, sp_graph_stage(g, s), polling - g->polled_us, asks, wire);
        exchange(g, wire, n, owner, root, sp_tag(g, SP_MSG_REPORT, s));
        unpack(wire, &report->stages[s], &all);
        unpack_transfers(g, s, wire + WIRE_HEAD + WIRE_OP * (size_t)report->stages[s].n_ops,
                         &report->stages[s]);
        free(wire);
    }
    for (int q = 1; q < g->place.pipelines; q++)
        if (world->rank == 0 || world->rank == q)
            add_pipeline(g, q, &all);
    for (int r = 1; r < world->size; r++)
        if (world->rank == 0 || world->rank == r)
            exchange(g, (double *)&all, sizeof all / sizeof(double), 0, r,
                     sp_tag(g, SP_MSG_NORM, r));
    g->polled_us = polling;
    report->asked = (int)all.asked;
    report->loss = all.loss * (double)g->shape.loss_scale / g->losses;
    report->grad_norm = sqrt(all.sumsq / g->losses);
    if (world->rank == 0)
        add_times(g, report);
}

/* ---- a step with its report ------------------------------------------------------------------ */

void sp_step_finish(struct sp_graph *g, struct sp_step_report *report)
{
    double now;

    sp_report_gather(g, report);
    now = g->cfg.sink->ops->now_us();
    report->step_us = now - g->finished_us;
    g->finished_us = now;
}

void sp_step_gradients(struct sp_graph *g, const struct sp_data *data, uint64_t k,
                       struct sp_step_report *report)
{
    sp_step_begin(g, data, k);
    sp_step_rest(g, NULL, false);
    g->cfg.sink->ops->wait();
    sp_step_finish(g, report);
}
