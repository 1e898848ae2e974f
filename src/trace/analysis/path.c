#include "trace/analysis/path.h"
#include "trace/analysis/replay.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The unit that used the worker before another one; -1: none. */
static int before_on_worker(const struct sp_waits *w, const struct sp_unit_of_step *u)
{
    const struct sp_timeline *t = w->t;
    int lane = t->stage[t->op[u->op].stage].lane, last = -1;

    for (int s = lane; s < t->stages; s++) {
        int k = t->stage[s].lane == lane ? sp_waits_last_before(w, s, u->start) : -1;

        if (k >= 0 && (last < 0 || w->unit[k].end > w->unit[last].end))
            last = k;
    }
    return last;
}

/* Adds the part of a unit until `until` to the path, in proportion from each kind of its time. */
static void take_unit(const struct sp_waits *w, int k, double until, struct sp_path *p)
{
    const struct sp_unit_of_step *u = &w->unit[k];
    double length = u->end - u->start, part = length > 0 ? fmin(1, (until - u->start) / length) : 0;

    for (int i = 0; i < SP_STEP_PARTS; i++)
        p->part[i] += part * u->inside[i];
    p->part[SP_STEP_COMPUTE] += part * u->compute;
    p->part[SP_STEP_CORE] += part * u->core;
    p->compute[w->t->op[u->op].stage] += part * u->compute;
    p->unit[p->n++] = k;
}

/* Adds the time between the last event that the unit waited for, at `from`, and its start. */
static void take_own_waits(const struct sp_unit_of_step *u, double from, struct sp_path *p)
{
    double left = fmax(0, u->start - from), late = fmin(left, u->late), offload;

    p->part[SP_STEP_SUBMISSION] += late;
    left -= late;
    offload = fmin(left, u->before[SP_STEP_OFFLOAD]);
    p->part[SP_STEP_OFFLOAD] += offload;
    p->part[SP_STEP_ENGINE] += left - offload;
}

/* Adds a message that was in transit for `time` after its producer. */
static void take_message(const struct sp_unit_of_step *u, double time, struct sp_path *p)
{
    double sum = 0;

    for (int i = 0; i < SP_STEP_PARTS; i++)
        sum += u->delay[i];
    for (int i = 0; sum > 0 && i < SP_STEP_PARTS; i++)
        p->part[i] += time * u->delay[i] / sum;
    if (sum <= 0)
        p->part[SP_STEP_MESSAGE] += time;
    p->messages += u->message >= 0;
}

static int last_unit(const struct sp_waits *w)
{
    int last = 0;

    for (int k = 1; k < w->n; k++)
        last = w->unit[k].end > w->unit[last].end ? k : last;
    return last;
}

/* Finds the unit before on the path, and until when the path is in it; -1: the path begins here. */
static int step_back(const struct sp_waits *w, const struct sp_unit_of_step *u, double *until,
                     struct sp_path *p)
{
    const struct sp_timeline *t = w->t;
    int before = before_on_worker(w, u);
    double lane = before >= 0 ? w->unit[before].end : 0, out = -INFINITY, there = -INFINITY;

    if (u->producer >= 0) {
        const struct sp_timeline_op *from = &t->op[u->producer];
        bool crosses = t->stage[from->stage].rank != t->stage[t->op[u->op].stage].rank;

        out = fmin(from->out, u->start);
        there = out;
        if (crosses && u->message >= 0)
            there = fmin(u->start, fmax(out, t->message[u->message].arrived));
    }
    if (u->producer >= 0 && there > lane && w->unit[w->of_op[u->producer]].start < u->start) {
        take_own_waits(u, there, p);
        if (there > out)
            take_message(u, there - out, p);
        *until = out;
        return w->of_op[u->producer];
    }
    take_own_waits(u, fmin(u->start, lane), p);
    *until = before >= 0 ? fmin(w->unit[before].end, u->start) : 0;
    return before;
}

int sp_path_find(const struct sp_waits *w, struct sp_path *p)
{
    int k = last_unit(w);
    double until = w->unit[k].end;

    *p = (struct sp_path){.compute = calloc((size_t)w->t->stages, sizeof *p->compute),
                          .unit = calloc((size_t)w->n + 1, sizeof *p->unit)};
    if (!p->compute || !p->unit) {
        sp_path_destroy(p);
        return -ENOMEM;
    }
    while (k >= 0 && p->n < w->n) {
        take_unit(w, k, until, p);
        k = step_back(w, &w->unit[k], &until, p);
    }
    for (int i = 0; i < p->n / 2; i++) {
        int other = p->unit[p->n - 1 - i];

        p->unit[p->n - 1 - i] = p->unit[i];
        p->unit[i] = other;
    }
    return 0;
}

void sp_path_destroy(struct sp_path *p)
{
    free(p->compute);
    free(p->unit);
    *p = (struct sp_path){0};
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Prints the stages of the path in turn; of many only the first and the last ones. */
static void print_stages(const struct sp_waits *w, const struct sp_path *p, FILE *out)
{
    enum { SHOWN = 6 };
    int hops = 0, all = 0, last = -1;

    for (int i = 0; i < p->n; i++) {
        int stage = w->t->op[w->unit[p->unit[i]].op].stage;

        all += stage != last;
        last = stage;
    }
    last = -1;
    for (int i = 0; i < p->n; i++) {
        int stage = w->t->op[w->unit[p->unit[i]].op].stage;

        if (stage == last)
            continue;
        last = stage;
        hops++;
        if (hops == SHOWN + 1 && all > 2 * SHOWN)
            fputs(", ...", out);
        if (hops <= SHOWN || hops > all - SHOWN || all <= 2 * SHOWN)
            fprintf(out, "%s%d", hops > 1 ? ", " : "", stage);
    }
}

void sp_path_print(const struct sp_waits *w, const struct sp_path *p, FILE *out)
{
    const struct sp_timeline *t = w->t;
    const char *unit = *t->unit ? " ms" : "";
    char first[SP_OP_TEXT], last[SP_OP_TEXT];
    int begin = w->unit[p->unit[0]].op, end = w->unit[p->unit[p->n - 1]].op;

    fprintf(out,
            "The critical path begins with %s on stage %d and ends with %s on stage %d. It has "
            "%d ops",
            sp_timeline_name(t, begin, first), t->op[begin].stage, sp_timeline_name(t, end, last),
            t->op[end].stage, p->n);
    if (p->messages)
        fprintf(out, " and %d message%s between processes", p->messages,
                p->messages > 1 ? "s" : "");
    fputs(", on stages ", out);
    print_stages(w, p, out);
    fprintf(out, ". Of its %.4g%s it computes for %.4g", t->span, unit, p->part[SP_STEP_COMPUTE]);
    for (int s = 0, n = 0; s < t->stages && t->stages <= 8; s++)
        if (p->compute[s] > 0)
            fprintf(out, "%sstage %d %.4g", n++ ? ", " : " (", s, p->compute[s]);
    fputs(t->stages <= 8 ? ")" : "", out);
    for (int i = SP_STEP_COMPUTE + 1; i < SP_STEP_PARTS; i++)
        if (p->part[i] > 0.001 * t->span)
            fprintf(out, ", waits %.4g for %s", p->part[i],
                    sp_part_of_step_words((enum sp_part_of_step)i));
    fputs(".\n", out);
}
