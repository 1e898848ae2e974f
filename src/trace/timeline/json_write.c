#include "trace/escape.h"
#include "trace/timeline/json.h"
#include "trace/timeline/tracks.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    const struct sp_timeline *t;
    struct sp_tracks tracks;
    FILE *out;
    bool begun; /* an event was written */
};

/* Converts a time of the record to microseconds, rounded to whole nanoseconds as viewers count. */
static double us(double time)
{
    return round(1e6 * time) / 1e3;
}

/* Writes the start and duration of a slice. It ends a nanosecond early, so that rounding never
 * makes it reach into the next one. The exact times are in args. */
static void slice(FILE *out, double start, double end)
{
    double length = us(end) - us(start) - 0.001;

    fprintf(out, ",\"ts\":%.15g,\"dur\":%.3f", us(start), fmax(0, length));
}

/* ---- pieces of JSON -------------------------------------------------------------------------- */

/* Writes the beginning of an event. */
static void __attribute__((format(printf, 2, 3))) event(struct writer *w, const char *format, ...)
{
    va_list ap;

    fputs(w->begun ? ",\n{" : "\n{", w->out);
    w->begun = true;
    va_start(ap, format);
    vfprintf(w->out, format, ap);
    va_end(ap);
}

static void text(FILE *out, const char *key, const char *value)
{
    fprintf(out, ",\"%s\":", key);
    sp_escape_json(value, out);
}

/* Writes a number, or nothing if it is unknown. */
static void number(FILE *out, const char *key, double value)
{
    if (isfinite(value))
        fprintf(out, ",\"%s\":%.15g", key, value);
}

static void place_of_op(FILE *out, const char *key, const struct sp_timeline *t, int op)
{
    if (op >= 0)
        fprintf(out, ",\"%s\":[%d,%d]", key, t->op[op].stage, t->op[op].index);
}

/* ---- tracks ---------------------------------------------------------------------------------- */

/* Process ids: ranks from 1 on, then that of links. Thread ids: tracks from 1 on. */
static int pid_of(const struct writer *w, int track)
{
    const struct sp_track *k = &w->tracks.track[track];

    switch (k->kind) {
    case SP_TRACK_LINK:
        return w->t->processes + 1;
    case SP_TRACK_MEMORY:
        return k->a + 1;
    default:
        return w->t->stage[k->a].rank + 1;
    }
}

static void name(struct writer *w, const char *what, int pid, int tid, const char *value)
{
    event(w, "\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what, pid,
          tid);
    sp_escape_json(value, w->out);
    fputs("}}", w->out);
}

static void sort(struct writer *w, const char *what, int pid, int tid, int place)
{
    event(w, "\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
          what, pid, tid, place);
}

static void write_tracks(struct writer *w)
{
    static const char *const forms[] = {[SP_TRACK_STAGE] = "stage %d",
                                        [SP_TRACK_LINK] = "rank %d to rank %d",
                                        [SP_TRACK_MEMORY] = "messages in memory",
                                        [SP_TRACK_EVICT] = "stage %d to the slower memory",
                                        [SP_TRACK_FETCH] = "stage %d from the slower memory"};

    for (int r = 0; r <= w->t->processes; r++) {
        char label[64];

        snprintf(label, sizeof label, r < w->t->processes ? "rank %d" : "links", r);
        name(w, "process_name", r + 1, 0, label);
        sort(w, "process_sort_index", r + 1, 0, r);
    }
    for (int i = 0; i < w->tracks.n; i++) {
        const struct sp_track *k = &w->tracks.track[i];
        char label[96];
        int n = snprintf(label, sizeof label, forms[k->kind], k->a, k->b);

        if (k->lane)
            snprintf(label + n, sizeof label - (size_t)n, " (beside, %d)", k->lane);
        name(w, "thread_name", pid_of(w, i), i + 1, label);
        sort(w, "thread_sort_index", pid_of(w, i), i + 1, 16 * k->a + 4 * (int)k->kind + k->lane);
    }
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void write_deps(struct writer *w, const struct sp_timeline_op *op)
{
    fputs(",\"waits_for\":[", w->out);
    for (int d = 0; d < op->deps; d++) {
        const struct sp_timeline_dep *dep = &w->t->dep[op->first_dep + d];
        const struct sp_timeline_op *from = &w->t->op[dep->op];

        fprintf(w->out, "%s[%d,%d,%d]", d ? "," : "", from->stage, from->index, dep->beside);
    }
    fputs("]", w->out);
}

static void write_op(struct writer *w, int i)
{
    static const char *const passes[] = {
        [SP_F] = "forward", [SP_B] = "backward", [SP_W] = "weight gradient", [SP_R] = "recompute"};
    const struct sp_timeline_op *op = &w->t->op[i];
    char label[SP_OP_TEXT];

    event(w, "\"ph\":\"X\",\"cat\":\"op\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d",
          sp_timeline_name(w->t, i, label), pid_of(w, w->tracks.of_op[i]), w->tracks.of_op[i] + 1);
    slice(w->out, op->start, op->end);
    fprintf(w->out,
            ",\"args\":{\"stage\":%d,\"index\":%d,\"turn\":%d,\"pass\":\"%s\",\"micro_batch\":%d,"
            "\"chunk\":%d,\"slice\":%d,\"overlap\":%d,\"split\":%d",
            op->stage, op->index, op->turn, passes[op->op.pass], op->op.mb, op->op.chunk,
            op->op.slice, op->op.overlap, op->split);
    number(w->out, "start", op->start);
    number(w->out, "end", op->end);
    number(w->out, "busy", op->busy);
    number(w->out, "core_wait", op->core_wait);
    number(w->out, "stall", op->stall);
    number(w->out, "late", op->late);
    number(w->out, "exchange", op->exchange);
    number(w->out, "out", op->out);
    number(w->out, "submitted", op->submitted);
    number(w->out, "ready", op->ready);
    number(w->out, "arrived", op->arrived);
    fprintf(w->out, ",\"alive\":%d,\"after\":%d,\"bytes\":%lld,\"bytes_after\":%lld", op->alive,
            op->after, (long long)op->bytes, (long long)op->bytes_after);
    write_deps(w, op);
    fputs("}}", w->out);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void write_message(struct writer *w, int i)
{
    const struct sp_timeline_message *m = &w->t->message[i];
    int track = w->tracks.of_message[i];

    event(w, "\"ph\":\"X\",\"cat\":\"message\",\"name\":");
    sp_escape_json(m->tensor, w->out);
    fprintf(w->out, ",\"pid\":%d,\"tid\":%d", pid_of(w, track), track + 1);
    slice(w->out, m->sent, m->arrived);
    fprintf(w->out,
            ",\"args\":{\"message\":%d,\"kind\":\"%s\",\"bytes\":%lld,\"from\":%d,\"to\":%d", i,
            sp_action_name(m->kind), (long long)m->bytes, m->from, m->to);
    text(w->out, "tensor", m->tensor);
    number(w->out, "ready", m->ready);
    number(w->out, "posted", m->posted);
    number(w->out, "begun", m->begun);
    number(w->out, "sent", m->sent);
    number(w->out, "arrived", m->arrived);
    place_of_op(w->out, "writer", w->t, m->writer);
    place_of_op(w->out, "reader", w->t, m->reader);
    fputs("}}", w->out);
}

static void flow(struct writer *w, char phase, int message, int track, double time)
{
    event(w,
          "\"ph\":\"%c\",\"cat\":\"message\",\"name\":\"message\",\"id\":%d,\"pid\":%d,"
          "\"tid\":%d,\"ts\":%.15g%s}",
          phase, message + 1, pid_of(w, track), track + 1, us(time),
          phase == 'f' ? ",\"bp\":\"e\"" : "");
}

/* Writes the flow from the op that sends to the op that waits, over the message if that takes time.
 * A flow event belongs to the slice of its track that it lies in, so it lies inside the op and not
 * on its end. */
static void write_flow(struct writer *w, int i)
{
    const struct sp_timeline_message *m = &w->t->message[i];
    int track = w->tracks.of_message[i];

    if (m->writer >= 0) {
        const struct sp_timeline_op *op = &w->t->op[m->writer];
        double last = op->start + 0.999 * (op->end - op->start);

        flow(w, 's', i, w->tracks.of_op[m->writer], fmax(op->start, fmin(m->ready, last)));
        if (m->arrived > m->sent && m->reader >= 0)
            flow(w, 't', i, track, m->sent);
    } else {
        flow(w, 's', i, track, m->sent);
    }
    if (m->reader >= 0)
        flow(w, 'f', i, w->tracks.of_op[m->reader], w->t->op[m->reader].start);
    else
        flow(w, 'f', i, track, m->sent);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Activations are added or freed. */
struct change {
    double time;
    int activations;
    int64_t bytes;
};

/* At equal times, frees come before additions. */
static int compare(const void *x, const void *y)
{
    const struct change *a = x, *b = y;

    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes) +
           2 * ((a->activations > b->activations) - (a->activations < b->activations));
}

static void write_counter(struct writer *w, int pid, const char *what, double time, long long value)
{
    event(w, "\"ph\":\"C\",\"name\":\"%s\",\"pid\":%d,\"ts\":%.15g,\"args\":{\"value\":%lld}}",
          what, pid, us(time), value);
}

/* Lists the changes of a stage by time; returns how many. */
static int list_changes(const struct sp_timeline *t, int stage, struct change *c)
{
    int n = 0, alive = 0;
    int64_t bytes = 0;

    for (int i = t->first_op[stage]; i < t->first_op[stage + 1]; i++) {
        const struct sp_timeline_op *op = &t->op[i];

        c[n++] = (struct change){op->start, op->alive - alive, op->bytes - bytes};
        c[n++] = (struct change){op->end, op->after - op->alive, op->bytes_after - op->bytes};
        alive = op->after;
        bytes = op->bytes_after;
    }
    for (int i = 0; i < t->n_messages; i++) {
        const struct sp_timeline_message *m = &t->message[i];

        if (m->from != stage || !sp_timeline_is_move(m))
            continue;
        c[n++] = m->kind == SP_ACTION_EVICT ? (struct change){m->arrived, 0, -m->bytes}
                                            : (struct change){m->sent, 0, m->bytes};
    }
    qsort(c, (size_t)n, sizeof *c, compare);
    return n;
}

static void write_stage_counters(struct writer *w, int stage, struct change *c)
{
    int n = list_changes(w->t, stage, c), pid = w->t->stage[stage].rank + 1;
    long long alive = 0, bytes = 0;
    char name_of[2][48];

    snprintf(name_of[0], sizeof name_of[0], "activations of stage %d", stage);
    snprintf(name_of[1], sizeof name_of[1], "stashed bytes of stage %d", stage);
    for (int i = 0; i < n; i++) {
        alive += c[i].activations;
        bytes += c[i].bytes;
        if (c[i].activations)
            write_counter(w, pid, name_of[0], c[i].time, alive);
        if (c[i].bytes)
            write_counter(w, pid, name_of[1], c[i].time, bytes);
    }
}

/* Counts the micro-batches alive: each from its first op to its last. */
static void write_micro_batches(struct writer *w, struct change *c)
{
    const struct sp_timeline *t = w->t;
    int m = t->micro_batches, n = 0;
    long long alive = 0;

    for (int i = 0; i < m; i++)
        c[2 * i] = c[2 * i + 1] = (struct change){.time = NAN};
    for (int i = 0; i < t->n_ops; i++) {
        int mb = t->op[i].op.mb;

        if (mb < 0 || mb >= m)
            continue;
        c[2 * mb].time = fmin(c[2 * mb].time, t->op[i].start);
        c[2 * mb + 1].time = fmax(c[2 * mb + 1].time, t->op[i].end);
    }
    for (int i = 0; i < 2 * m; i++)
        if (!isnan(c[i].time))
            c[n++] = (struct change){c[i].time, i % 2 ? -1 : 1, 0};
    qsort(c, (size_t)n, sizeof *c, compare);
    for (int i = 0; i < n; i++)
        write_counter(w, t->processes + 1, "micro-batches alive", c[i].time,
                      alive += c[i].activations);
}

static int write_counters(struct writer *w)
{
    const struct sp_timeline *t = w->t;
    size_t most = 2 * (size_t)(t->n_ops + t->micro_batches) + (size_t)t->n_messages + 1;
    struct change *c = calloc(most, sizeof *c);

    if (!c)
        return -ENOMEM;
    for (int s = 0; s < t->stages; s++)
        write_stage_counters(w, s, c);
    write_micro_batches(w, c);
    free(c);
    return 0;
}

/* ---- totals ---------------------------------------------------------------------------------- */

static void write_stage(const struct sp_timeline_stage *s, FILE *out)
{
    fprintf(out,
            "{\"rank\":%d,\"lane\":%d,\"layers\":%d,\"peak\":%d,\"bytes_sent\":%lld,"
            "\"peak_activation_bytes\":%lld,\"bytes_offloaded\":%lld,\"bytes_brought_back\":%lld",
            s->rank, s->lane, s->layers, s->peak, (long long)s->bytes_sent,
            (long long)s->peak_bytes, (long long)s->left, (long long)s->returned);
    number(out, "busy_ms", s->busy);
    number(out, "idle_ms", s->idle);
    number(out, "core_wait_ms", s->core_wait);
    number(out, "comm_wait_ms", s->comm_wait);
    number(out, "update_ms", s->update);
    number(out, "offload_stall_ms", s->stall);
    number(out, "bubble_ratio", s->bubble);
    fputs("}", out);
}

static void write_head(const struct sp_timeline *t, FILE *out)
{
    fputs("{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"format\":\"starpipe step 1\"", out);
    text(out, "source", sp_timeline_source_name(t->source));
    text(out, "unit", t->unit);
    text(out, "schedule", t->schedule);
    text(out, "model", t->model);
    text(out, "machine", t->machine);
    text(out, "options", t->options ? t->options : "");
    fprintf(out,
            ",\"step\":%d,\"first_step\":1,\"stages\":%d,\"micro_batches\":%d,\"chunks\":%d,"
            "\"slices\":%d,"
            "\"layers\":%d,\"processes\":%d,\"parts\":%d,\"overlaps\":%d",
            t->step, t->stages, t->micro_batches, t->chunks, t->slices, t->layers, t->processes,
            t->parts, t->overlaps);
    number(out, "share", t->share);
    number(out, "span_ms", t->span);
    number(out, "step_ms", t->length);
    number(out, "bubble_ratio", t->bubble);
    fputs(",\n\"stage\":[", out);
    for (int s = 0; s < t->stages; s++) {
        fputs(s ? ",\n" : "\n", out);
        write_stage(&t->stage[s], out);
    }
    fputs("]},\n\"traceEvents\":[", out);
}

int sp_timeline_write(const struct sp_timeline *t, FILE *out)
{
    struct writer w = {.t = t, .out = out};
    int err = sp_tracks_create(t, &w.tracks);

    if (err)
        return err;
    write_head(t, out);
    write_tracks(&w);
    for (int i = 0; i < t->n_ops; i++)
        write_op(&w, i);
    for (int i = 0; i < t->n_messages; i++) {
        write_message(&w, i);
        write_flow(&w, i);
    }
    err = write_counters(&w);
    fputs("\n]}\n", out);
    sp_tracks_destroy(&w.tracks);
    return err;
}
