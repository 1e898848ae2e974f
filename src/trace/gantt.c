#include "trace/gantt.h"
#include "policies/simulation/times.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int sp_gantt_create(int stages, struct sp_gantt *g)
{
    struct sp_gantt new = {.unit = "", .stages = stages, .chunks = 1, .share = 1};

    new.idle_percent = malloc((size_t)stages * sizeof *new.idle_percent);
    new.note = calloc((size_t)stages, sizeof *new.note);
    if (!new.idle_percent || !new.note) {
        sp_gantt_destroy(&new);
        return -ENOMEM;
    }
    for (int s = 0; s < stages; s++)
        new.idle_percent[s] = -1;
    *g = new;
    return 0;
}

void sp_gantt_destroy(struct sp_gantt *g)
{
    free(g->bars);
    free(g->messages);
    free(g->idle_percent);
    free(g->note);
    free(g->row);
    *g = (struct sp_gantt){0};
}

int sp_gantt_add(struct sp_gantt *g, const struct sp_bar *bar)
{
    struct sp_bar *last;

    if (g->n == g->cap) {
        int cap = g->cap ? 2 * g->cap : 256;
        struct sp_bar *bars = realloc(g->bars, (size_t)cap * sizeof *bars);

        if (!bars)
            return -ENOMEM;
        g->bars = bars;
        g->cap = cap;
    }
    last = g->n ? &g->bars[g->n - 1] : NULL;
    g->bars[g->n] = *bar;
    if (last && last->joined && last->stage == bar->stage && bar->start < last->end) {
        last->lane = 1;
        g->bars[g->n].lane = 2;
    }
    g->n++;
    return 0;
}

int sp_gantt_add_message(struct sp_gantt *g, const struct sp_gantt_message *message)
{
    struct sp_gantt_message *last;

    if (g->n_messages == g->cap_messages) {
        int cap = g->cap_messages ? 2 * g->cap_messages : 256;
        struct sp_gantt_message *more = realloc(g->messages, (size_t)cap * sizeof *more);

        if (!more)
            return -ENOMEM;
        g->messages = more;
        g->cap_messages = cap;
    }
    last = &g->messages[g->n_messages++];
    *last = *message;
    last->arrived = fmax(last->arrived, last->sent);
    return 0;
}

double sp_gantt_tick(double length, int most)
{
    double step;

    if (!(length > 0) || most < 1)
        return 1;
    step = pow(10, floor(log10(length / most)));
    while (length / step > most * (1 + 1e-9)) {
        double lead = step / pow(10, floor(log10(step) + 1e-9));

        step *= lead > 1.5 && lead < 3 ? 2.5 : 2;
    }
    return step;
}

void sp_gantt_set_live(struct sp_gantt *g, const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_bar *bar = g->bars;

    g->chunks = plan->family->parts ? lay->layers : lay->chunks;
    g->parts = plan->family->parts;
    g->share = sp_activation_share(plan->family, lay);
    for (int s = 0; s < lay->stages; s++) {
        int live = 0;

        for (int k = 0; k < plan->programs[s].n && bar < g->bars + g->n; k++, bar++) {
            const struct sp_op *op = &plan->programs[s].ops[k];
            int id = plan->deferred ? plan->family->id(lay, s, op) : -1;
            bool kept = op->pass == SP_B && id >= 0 && plan->deferred[id];

            live += op->pass == SP_F && op->part != SP_HEAD;
            bar->live = live;
            live -= op->pass == SP_W || (op->pass == SP_B && op->part != SP_HEAD && !kept);
            bar->after = live;
        }
    }
}

enum sp_bar_kind sp_gantt_kind(const struct sp_op *op)
{
    static const enum sp_bar_kind kinds[] = {
        [SP_F] = SP_BAR_F, [SP_B] = SP_BAR_B, [SP_W] = SP_BAR_W, [SP_R] = SP_BAR_R};

    return op->part == SP_UPDATE ? SP_BAR_U : kinds[op->pass];
}

int sp_gantt_shade(const struct sp_op *op)
{
    return op->part == SP_CHUNK ? op->chunk : op->part == SP_ATTN;
}

void sp_gantt_label(const struct sp_op *op, int slices, int chunks, char text[SP_OP_TEXT])
{
    char full[SP_OP_TEXT];
    const char *number;

    sp_op_print(op, slices > 1, full);
    number = full + strcspn(full, "0123456789");
    if (op->part != SP_CHUNK)
        number = full;
    snprintf(text, SP_OP_TEXT, "%s", number);
    if (op->part == SP_CHUNK && chunks == 1)
        text[strcspn(text, ".")] = 0;
}

int sp_gantt_from_times(const struct sp_plan *plan, const struct sp_times *times,
                        struct sp_gantt *g)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_gantt new;
    int ret = sp_gantt_create(lay->stages, &new), used;

    if (ret)
        return ret;
    used = snprintf(new.title, sizeof new.title, "%s%s%s · %d stage%s · %d micro-batch%s",
                    plan->def->name, *lay->options ? ":" : "", lay->options, lay->stages,
                    lay->stages > 1 ? "s" : "", lay->micro_batches,
                    lay->micro_batches > 1 ? "es" : "");
    if (lay->chunks > 1 && used < (int)sizeof new.title)
        used += snprintf(new.title + used, sizeof new.title - (size_t)used, " · %d chunks",
                         lay->chunks);
    if (lay->slices > 1 && used < (int)sizeof new.title)
        snprintf(new.title + used, sizeof new.title - (size_t)used, " · %d slices", lay->slices);
    snprintf(new.subtitle, sizeof new.subtitle, "expected: makespan %.6g, bubble %.1f %%",
             times->makespan, 100 * times->bubble_ratio);
    new.end = times->makespan;
    for (int s = 0; s < lay->stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op *op = &plan->programs[s].ops[k];
            struct sp_bar bar = {.start = times->start[s][k],
                                 .end = times->end[s][k],
                                 .stage = s,
                                 .kind = sp_gantt_kind(op),
                                 .mb = op->mb,
                                 .chunk = sp_gantt_shade(op),
                                 .joined = op->overlap};

            sp_gantt_label(op, lay->slices, lay->chunks, bar.label);
            sp_op_print(op, lay->slices > 1, bar.name);
            ret = sp_gantt_add(&new, &bar);
            if (ret) {
                sp_gantt_destroy(&new);
                return ret;
            }
        }
        new.idle_percent[s] = times->makespan > 0 ? 100 * times->idle[s] / times->makespan : 0;
        snprintf(new.note[s], sizeof new.note[s], "peak %d", times->peak_live[s]);
    }
    sp_gantt_set_live(&new, plan);
    *g = new;
    return 0;
}
