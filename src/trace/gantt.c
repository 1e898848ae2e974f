#include "trace/gantt.h"
#include "sp_grow.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int sp_gantt_create(int stages, struct sp_gantt *g)
{
    struct sp_gantt new = {.unit = "", .notes = "", .stages = stages, .share = 1};

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
    free(g->evicted);
    free(g->idle_percent);
    free(g->note);
    free(g->row);
    *g = (struct sp_gantt){0};
}

int sp_gantt_add(struct sp_gantt *g, const struct sp_bar *bar)
{
    struct sp_bar *last;

    if (!sp_grow(&g->bars, (size_t)g->n + 1, &g->cap, sizeof *g->bars))
        return -ENOMEM;
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

    if (!sp_grow(&g->messages, (size_t)g->n_messages + 1, &g->cap_messages, sizeof *g->messages))
        return -ENOMEM;
    last = &g->messages[g->n_messages++];
    *last = *message;
    last->arrived = fmax(last->arrived, last->sent);
    return 0;
}

char *sp_gantt_bytes(int64_t bytes, char text[32])
{
    double mib = (double)bytes / (1 << 20);

    if (mib < 9999)
        snprintf(text, 32, "%.2f MiB", mib);
    else
        snprintf(text, 32, "%.1f GiB", mib / 1024);
    return text;
}

int sp_gantt_add_evicted(struct sp_gantt *g, const struct sp_gantt_evicted *evicted)
{
    if (!(evicted->until > evicted->from) || evicted->bytes <= 0)
        return 0;
    if (!sp_grow(&g->evicted, (size_t)g->n_away + 1, &g->cap_away, sizeof *g->evicted))
        return -ENOMEM;
    g->evicted[g->n_away++] = *evicted;
    return 0;
}

static int by_time(const void *one, const void *other)
{
    double a = ((const struct sp_gantt_step *)one)->at,
           b = ((const struct sp_gantt_step *)other)->at;

    return (a > b) - (a < b);
}

struct sp_gantt_step *sp_gantt_evicted_of(const struct sp_gantt *g, int stage, int *n)
{
    struct sp_gantt_step *step = malloc((2 * (size_t)g->n_away + 1) * sizeof *step);
    int64_t bytes = 0;
    int changes = 0;

    *n = 0;
    for (int i = 0; step && i < g->n_away; i++) {
        const struct sp_gantt_evicted *evicted = &g->evicted[i];

        if (evicted->stage != stage)
            continue;
        step[changes++] = (struct sp_gantt_step){evicted->from, evicted->bytes};
        step[changes++] = (struct sp_gantt_step){evicted->until, -evicted->bytes};
    }
    if (step)
        qsort(step, (size_t)changes, sizeof *step, by_time);
    /* simultaneous changes make one step */
    for (int i = 0; i < changes; i++) {
        bytes += step[i].bytes;
        if (i + 1 < changes && step[i + 1].at <= step[i].at)
            continue;
        step[(*n)++] = (struct sp_gantt_step){step[i].at, bytes};
    }
    if (!*n) {
        free(step);
        return NULL;
    }
    return step;
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

void sp_gantt_label(const struct sp_op *op, int slices, char text[SP_OP_TEXT])
{
    int used = 0;

    *text = 0;
    if (op->part == SP_UPDATE)
        return;
    used = snprintf(text, SP_OP_TEXT, "%d", op->mb);
    if (op->part != SP_HEAD)
        used += snprintf(text + used, SP_OP_TEXT - (size_t)used, ".%d", op->chunk);
    if (slices > 1)
        snprintf(text + used, SP_OP_TEXT - (size_t)used, "s%d", op->slice);
}

/* Cuts the text from `from` to just before `to`; NULL: all the rest. */
static void cut_out(char *from, const char *to)
{
    if (to)
        memmove(from, to, strlen(to) + 1);
    else
        *from = 0;
}

void sp_gantt_shorten_labels(struct sp_gantt *g)
{
    bool chunks = false, micro_batches = false, slices = true;

    for (int i = 0; i < g->n; i++) {
        const char *chunk = strchr(g->bars[i].label, '.');

        chunks |= chunk && atoi(chunk + 1) > 0;
        micro_batches |= g->bars[i].mb > 0;
        slices &= strchr(g->bars[i].label, 's') != NULL;
    }
    for (int i = 0; i < g->n; i++) {
        char *label = g->bars[i].label, *chunk = strchr(label, '.');

        if (chunk && !chunks)
            cut_out(chunk, strchr(label, 's'));
        if (!slices || chunks || micro_batches)
            continue;
        cut_out(label, strchr(label, 's'));
        g->bars[i].mb = atoi(label + 1);
    }
}

bool sp_gantt_shorten(char label[SP_OP_TEXT])
{
    char *last = strrchr(label, 's');

    last = last ? last : strrchr(label, '.');
    if (!last)
        return false;
    cut_out(last, last == label ? last + 1 : NULL); /* the 10 of "s10" says as much */
    return true;
}

void sp_gantt_note_peak(struct sp_gantt *g, int stage, int activations)
{
    snprintf(g->note[stage], sizeof g->note[stage], "peak %.4g", activations * g->share);
    g->notes = "peak: activations, in micro-batches on a whole stage";
}
