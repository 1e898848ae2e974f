#include "trace/timeline/pictures.h"
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

/* Pictures have them by who receives, in the order of its ops, those of no op last. */
static int add_messages(const struct sp_timeline *t, struct sp_gantt *g)
{
    int *first = calloc((size_t)t->n_ops + (size_t)t->stages + 2, sizeof *first), err = 0;
    int *order = malloc(((size_t)t->n_messages + 1) * sizeof *order), n = 0;

    if (!first || !order)
        err = -ENOMEM;
    for (int pass = 0; !err && pass < 2; pass++) {
        for (int i = 0; i < t->n_messages; i++) {
            const struct sp_timeline_message *m = &t->message[i];
            int place = m->reader >= 0 ? m->reader + m->to : t->first_op[m->to + 1] + m->to;

            if (!sp_timeline_crosses(t, m) || m->arrived <= m->sent)
                continue;
            if (pass)
                order[first[place]++] = i;
            else
                first[place + 1]++;
        }
        for (int k = 0; !pass && k < t->n_ops + t->stages; k++)
            first[k + 1] += first[k];
        n = first[t->n_ops + t->stages];
    }
    for (int k = 0; !err && k < n; k++) {
        const struct sp_timeline_message *m = &t->message[order[k]];
        struct sp_gantt_message drawn = {
            .sent = m->sent, .arrived = m->arrived, .from = m->from, .to = m->to};

        if (m->writer >= 0)
            sp_timeline_name(t, m->writer, drawn.name);
        else
            snprintf(drawn.name, sizeof drawn.name, "%s", m->tensor);
        err = sp_gantt_add_message(g, &drawn);
    }
    free(first);
    free(order);
    return err;
}

/* Moves of a stage's tensor one after the other. */
static int by_tensor(const void *one, const void *other)
{
    const struct sp_timeline_message *a = *(const struct sp_timeline_message *const *)one;
    const struct sp_timeline_message *b = *(const struct sp_timeline_message *const *)other;
    int order = a->from - b->from;

    order = order ? order : strcmp(a->tensor, b->tensor);
    return order ? order : (a->arrived > b->arrived) - (a->arrived < b->arrived);
}

/* A tensor is away from the end of its EVICT to the end of its FETCH. What is fetched and was not evicted in this step
 * only visits: keys of earlier slices. */
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
