#include "trace/timeline/pictures.h"
#include "plan/predict.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add_bars(const struct sp_timeline *t, struct sp_gantt *g)
{
    int err = 0;

    for (int i = 0; !err && i < t->n_ops; i++) {
        const struct sp_timeline_op *op = &t->op[i];
        struct sp_bar bar = {.start = op->start,
                             .end = op->end,
                             .stage = op->stage,
                             .kind = sp_gantt_kind(&op->op),
                             .mb = op->op.mb,
                             .chunk = sp_gantt_shade(&op->op),
                             .joined = op->op.overlap,
                             .exchange = op->exchange,
                             .live = op->alive,
                             .after = op->after};

        sp_gantt_label(&op->op, t->slices, bar.label);
        sp_timeline_name(t, i, bar.name);
        err = sp_gantt_add(g, &bar);
    }
    return err;
}

/* A message and its place in the order in which pictures have them. */
struct drawn {
    int place, message;
};

static int by_place(const void *one, const void *other)
{
    const struct drawn *a = one, *b = other;

    return a->place != b->place ? a->place - b->place : a->message - b->message;
}

/* Adds messages by receiver, in the order of its ops, messages without a reader last. */
static int add_messages(const struct sp_timeline *t, struct sp_gantt *g)
{
    struct drawn *drawn = malloc(((size_t)t->n_messages + 1) * sizeof *drawn);
    int n = 0, err = drawn ? 0 : -ENOMEM;

    for (int i = 0; !err && i < t->n_messages; i++) {
        const struct sp_timeline_message *m = &t->message[i];
        int reader = m->reader >= 0 ? m->reader : t->first_op[m->to + 1];

        if (sp_timeline_crosses(t, m) && m->arrived > m->sent)
            drawn[n++] = (struct drawn){reader + m->to, i};
    }
    if (!err)
        qsort(drawn, (size_t)n, sizeof *drawn, by_place);
    for (int k = 0; !err && k < n; k++) {
        const struct sp_timeline_message *m = &t->message[drawn[k].message];
        struct sp_gantt_message out = {
            .sent = m->sent, .arrived = m->arrived, .from = m->from, .to = m->to};

        if (m->writer >= 0)
            sp_timeline_name(t, m->writer, out.name);
        else
            snprintf(out.name, sizeof out.name, "%s", m->tensor);
        err = sp_gantt_add_message(g, &out);
    }
    free(drawn);
    return err;
}

/* Sorts so that the moves of a stage's tensor follow each other. */
static int by_tensor(const void *one, const void *other)
{
    const struct sp_timeline_message *a = *(const struct sp_timeline_message *const *)one;
    const struct sp_timeline_message *b = *(const struct sp_timeline_message *const *)other;
    int order = a->from - b->from;

    order = order ? order : strcmp(a->tensor, b->tensor);
    return order ? order : (a->arrived > b->arrived) - (a->arrived < b->arrived);
}

/* A tensor is evicted from the end of its EVICT to the end of its FETCH. A fetch without an
 * eviction in this step only streams keys of earlier slices through. */
static int add_away(const struct sp_timeline *t, struct sp_gantt *g)
{
    const struct sp_timeline_message **move = malloc(((size_t)t->n_messages + 1) * sizeof *move);
    int n = 0, err = move ? 0 : -ENOMEM;

    for (int i = 0; !err && i < t->n_messages; i++)
        if (sp_timeline_is_move(&t->message[i]))
            move[n++] = &t->message[i];
    if (!err)
        qsort(move, (size_t)n, sizeof *move, by_tensor);
    for (int i = 0; !err && i + 1 < n; i++) {
        const struct sp_timeline_message *left = move[i], *back = move[i + 1];

        if (left->kind == SP_ACTION_EVICT && back->kind == SP_ACTION_FETCH &&
            left->from == back->from && left->bytes == back->bytes &&
            !strcmp(left->tensor, back->tensor))
            err = sp_gantt_add_evicted(g, &(struct sp_gantt_evicted){.stage = left->from,
                                                                     .from = left->arrived,
                                                                     .until = back->arrived,
                                                                     .bytes = left->bytes});
    }
    free(move);
    return err;
}

int sp_gantt_of_timeline(const struct sp_timeline *t, struct sp_gantt *g)
{
    int err = sp_gantt_create(t->stages, g);

    if (err)
        return err;
    g->unit = *t->unit ? "ms" : "";
    g->end = t->span;
    g->parts = t->parts;
    g->share = t->share;
    g->uneven = t->source == SP_TIMELINE_MEASURED;
    for (int s = 0; s < t->stages; s++) {
        const struct sp_timeline_stage *st = &t->stage[s];

        g->idle_percent[s] = 100 * st->bubble;
        if (!st->peak_bytes) {
            sp_gantt_note_peak(g, s, st->peak);
            continue;
        }
        sp_gantt_bytes(st->peak_bytes, g->note[s]);
        g->notes = "MiB, GiB: activations at their highest";
    }
    err = add_bars(t, g);
    if (!err)
        sp_gantt_shorten_labels(g);
    err = err ? err : add_messages(t, g);
    err = err ? err : add_away(t, g);
    if (err)
        sp_gantt_destroy(g);
    return err;
}

/* ---- list simulations ------------------------------------------------------------------------ */

static void set_titles(const struct sp_plan *plan, const struct sp_times *times, struct sp_gantt *g)
{
    const struct sp_layout *lay = &plan->layout;
    int used = snprintf(g->title, sizeof g->title, "%s%s%s · %d stage%s · %d micro-batch%s",
                        plan->def->name, *lay->options ? ":" : "", lay->options, lay->stages,
                        lay->stages > 1 ? "s" : "", lay->micro_batches,
                        lay->micro_batches > 1 ? "es" : "");

    if (lay->chunks > 1 && used < (int)sizeof g->title)
        used +=
            snprintf(g->title + used, sizeof g->title - (size_t)used, " · %d chunks", lay->chunks);
    if (lay->slices > 1 && used < (int)sizeof g->title)
        snprintf(g->title + used, sizeof g->title - (size_t)used, " · %d slices", lay->slices);
    snprintf(g->subtitle, sizeof g->subtitle, "makespan %.6g, bubble %.1f %%", times->makespan,
             100 * times->bubble_ratio);
}

int sp_gantt_from_times(const struct sp_plan *plan, const struct sp_times *times,
                        struct sp_gantt *g)
{
    const struct sp_timeline_terms terms = {.plan = plan, .every = 1};
    struct sp_timeline t;
    int err = sp_timeline_of_ops(&terms, 0, &t);

    if (err)
        return err;
    t.source = SP_TIMELINE_PREDICTED;
    t.span = times->makespan;
    for (int i = 0; i < t.n_ops; i++) {
        t.op[i].start = times->start[t.op[i].stage][t.op[i].index];
        t.op[i].end = times->end[t.op[i].stage][t.op[i].index];
    }
    for (int s = 0; s < t.stages; s++)
        t.stage[s].peak = times->peak_live[s];
    err = sp_gantt_of_timeline(&t, g);
    for (int s = 0; !err && s < t.stages; s++)
        g->idle_percent[s] = times->makespan > 0 ? 100 * times->idle[s] / times->makespan : 0;
    if (!err)
        set_titles(plan, times, g);
    sp_timeline_destroy(&t);
    return err;
}

/* Sets the exchanges of bars, which are the ops of the plan in order. */
static void set_exchanges(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_prediction *p)
{
    struct sp_bar *bar = g->bars;

    for (int s = 0; s < plan->layout.stages; s++)
        for (int k = 0; k < plan->programs[s].n; k++, bar++)
            bar->exchange = sp_prediction_exchange(plan, p, s, &plan->programs[s].ops[k]);
}

/* Adds tensors that a stage evicts and fetches again. Keys of earlier slices that are streamed
 * through have no eviction. */
static int add_evicted(struct sp_gantt *g, const struct sp_step_messages *messages,
                       const struct sp_message_times *when)
{
    int ret = 0;

    for (int i = 0; !ret && i < messages->n; i++) {
        const struct sp_step_message *m = &messages->message[i];

        if (m->kind == SP_ACTION_FETCH && m->before >= 0)
            ret =
                sp_gantt_add_evicted(g, &(struct sp_gantt_evicted){.stage = m->to,
                                                                   .from = when->arrived[m->before],
                                                                   .until = when->arrived[i],
                                                                   .bytes = m->bytes});
    }
    return ret;
}

int sp_gantt_add_messages(struct sp_gantt *g, const struct sp_plan *plan,
                          const struct sp_prediction *prediction)
{
    const struct sp_step_messages *messages = &prediction->messages;
    const struct sp_message_times *when = &prediction->when;
    int n, *order = sp_step_messages_by_reader(messages, plan, &n), ret = order ? 0 : -ENOMEM;

    set_exchanges(g, plan, prediction);
    for (int i = 0; !ret && i < n; i++) {
        const struct sp_step_message *m = &messages->message[order[i]];
        struct sp_gantt_message drawn = {.from = m->from,
                                         .to = m->to,
                                         .sent = when->sent[order[i]],
                                         .arrived = when->arrived[order[i]]};

        sp_step_message_print(plan, m, drawn.name);
        if (drawn.arrived > drawn.sent)
            ret = sp_gantt_add_message(g, &drawn);
    }
    free(order);
    return ret ? ret : add_evicted(g, messages, when);
}
