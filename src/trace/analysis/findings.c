#include "trace/analysis/findings.h"
#include "trace/analysis/causes.h"
#include "trace/analysis/replay.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
    const struct sp_waits *w;
    const char *unit; /* of times, " ms" */
    double *compute;  /* [units] for a replay */
    double *usual;    /* [units] medians */
    double *part;     /* [ops] */
    double *of_stage; /* [stages] */
    double *of_link;  /* [processes][processes] NULL: too many */
};

/* The name of an op in a text. */
static const char *name(const struct sp_waits *w, int op, char text[SP_OP_TEXT])
{
    return sp_timeline_name(w->t, op, text);
}

static int largest(const double *v, int n)
{
    int at = 0;

    for (int i = 1; i < n; i++)
        at = v[i] > v[at] ? i : at;
    return at;
}

/* Sets of_stage to one part of the step; returns the stage with most of it. */
static int sum_stages(struct search *f, enum sp_part_of_step part)
{
    for (int s = 0; s < f->w->t->stages; s++)
        f->of_stage[s] = f->w->stage[s][part];
    return largest(f->of_stage, f->w->t->stages);
}

static int gain_of(const struct search *f, const struct sp_replay *how, double all, double *gain)
{
    double makespan;
    int err = sp_replay(f->w, how, &makespan);

    *gain = err ? 0 : fmax(0, all - makespan);
    return err;
}

/* ---- descriptions of causes ------------------------------------------------------------------ */

/* Describes the stage that computes longest, because of its number of layers or the time of
 * each. */
static void tell_stages(struct search *f, struct sp_finding *out)
{
    const struct sp_timeline *t = f->w->t;
    double layers = 0, per_layer = 0, mean = 0;
    const struct sp_timeline_stage *st;
    int s;

    for (s = 0; s < t->stages; s++) {
        mean += f->of_stage[s] / t->stages;
        layers += t->stage[s].layers;
        per_layer += t->stage[s].layers ? f->of_stage[s] / t->stage[s].layers / t->stages : 0;
    }
    out->stage = s = largest(f->of_stage, t->stages);
    st = &t->stage[s];
    if (st->layers &&
        (double)st->layers * t->stages / layers >= f->of_stage[s] / st->layers / per_layer &&
        (double)st->layers * t->stages > layers)
        snprintf(out->text, sizeof out->text,
                 "the partition is uneven: stage %d has %d of %.0f layers and computes for %.4g%s, "
                 "the mean of the stages is %.4g",
                 s, st->layers, layers, f->of_stage[s], f->unit, mean);
    else
        snprintf(out->text, sizeof out->text,
                 "stage %d is slow: it computes for %.4g%s, the mean of the stages is %.4g", s,
                 f->of_stage[s], f->unit, mean);
}

static void tell_ops(struct search *f, struct sp_finding *out)
{
    int most = 0;
    char text[SP_OP_TEXT];
    const struct sp_unit_of_step *u;

    for (int k = 1; k < f->w->n; k++)
        if (f->w->unit[k].compute - f->usual[k] > f->w->unit[most].compute - f->usual[most])
            most = k;
    u = &f->w->unit[most];
    out->stage = f->w->t->op[u->op].stage;
    snprintf(out->text, sizeof out->text,
             "ops take longer than others of their kind: %s on stage %d %.4g%s, usual are %.4g",
             name(f->w, u->op, text), out->stage, u->compute, f->unit, f->usual[most]);
}

/* Describes the link whose messages were waited for longest. */
static void tell_messages(struct search *f, struct sp_finding *out)
{
    const struct sp_timeline *t = f->w->t;
    int from = 0, to = 0, n = 0;
    double bytes = 0, time = 0, most = -1;

    for (int k = 0; k < f->w->n; k++) {
        const struct sp_unit_of_step *u = &f->w->unit[k];
        const struct sp_timeline_message *m = &t->message[u->message < 0 ? 0 : u->message];
        double *sum;

        if (u->message < 0 || !f->of_link)
            continue;
        sum = &f->of_link[t->stage[m->from].rank * t->processes + t->stage[m->to].rank];
        *sum += u->before[SP_STEP_MESSAGE] + u->before[SP_STEP_INTERFACE];
        if (*sum > most) {
            most = *sum;
            from = m->from;
            to = m->to;
        }
    }
    for (int i = 0; i < t->n_messages; i++) {
        const struct sp_timeline_message *m = &t->message[i];

        if (t->stage[m->from].rank != t->stage[from].rank ||
            t->stage[m->to].rank != t->stage[to].rank || !sp_timeline_crosses(t, m))
            continue;
        n++;
        bytes += (double)m->bytes;
        time += m->arrived - m->sent;
    }
    out->stage = from;
    if (!n)
        snprintf(out->text, sizeof out->text, "messages are on their way for long");
    else
        snprintf(out->text, sizeof out->text,
                 "messages are on their way for long: most from rank %d to rank %d, %d messages of "
                 "%.4g KiB, %.4g%s each",
                 t->stage[from].rank, t->stage[to].rank, n, bytes / n / 1024, time / n, f->unit);
}

/* Finds the message that held up another one: it arrived when that one's interface became free. */
static int holder(const struct sp_timeline *t, const struct sp_timeline_message *m)
{
    int best = -1;

    for (int i = 0; i < t->n_messages; i++) {
        const struct sp_timeline_message *o = &t->message[i];

        if (o == m || !sp_timeline_crosses(t, o) || o->sent > m->sent || o->arrived <= m->ready ||
            (t->stage[o->from].rank != t->stage[m->from].rank &&
             t->stage[o->to].rank != t->stage[m->to].rank))
            continue;
        if (best < 0 || o->arrived - o->sent > t->message[best].arrived - t->message[best].sent)
            best = i;
    }
    return best;
}

static void tell_interface(struct search *f, struct sp_finding *out)
{
    const struct sp_timeline *t = f->w->t;
    int most = sum_stages(f, SP_STEP_INTERFACE), unit = -1, by;
    const struct sp_timeline_message *m;

    for (int k = 0; k < f->w->n; k++)
        if (f->w->unit[k].message >= 0 &&
            (unit < 0 ||
             f->w->unit[k].before[SP_STEP_INTERFACE] > f->w->unit[unit].before[SP_STEP_INTERFACE]))
            unit = k;
    out->stage = most;
    snprintf(out->text, sizeof out->text, "messages wait for interfaces that others have");
    if (unit < 0)
        return;
    m = &t->message[f->w->unit[unit].message];
    by = holder(t, m);
    out->stage = m->from;
    if (by >= 0)
        snprintf(out->text, sizeof out->text,
                 "messages wait for interfaces: %s from stage %d to stage %d for %.4g%s, behind %s "
                 "from stage %d to stage %d",
                 m->tensor, m->from, m->to, f->w->unit[unit].delay[SP_STEP_INTERFACE], f->unit,
                 t->message[by].tensor, t->message[by].from, t->message[by].to);
}

static double late(const struct sp_unit_of_step *u)
{
    return u->before[SP_STEP_SUBMISSION] + u->inside[SP_STEP_SUBMISSION];
}

static void tell_submission(struct search *f, struct sp_finding *out)
{
    const struct sp_waits *w = f->w;
    int most = 0;
    char text[SP_OP_TEXT];

    for (int k = 1; k < w->n; k++)
        if (late(&w->unit[k]) > late(&w->unit[most]))
            most = k;
    out->stage = w->t->op[w->unit[most].op].stage;
    snprintf(out->text, sizeof out->text,
             "ops are submitted late: tasks of %s on stage %d %.4g%s after they could have started",
             name(w, w->unit[most].op, text), out->stage, late(&w->unit[most]), f->unit);
}

static void tell_core(struct search *f, struct sp_finding *out)
{
    const struct sp_timeline *t = f->w->t;
    int s = sum_stages(f, SP_STEP_CORE), sharing = 0, other = s;

    for (int k = 0; k < t->stages; k++)
        if (t->stage[k].lane == t->stage[s].lane && t->stage[k].rank == t->stage[s].rank) {
            sharing++;
            other = k != s ? k : other;
        }
    out->stage = s;
    if (sharing > 1)
        snprintf(out->text, sizeof out->text,
                 "stages take turns on a worker: %d of them on that of stages %d and %d, which has "
                 "no core for stage %d for %.4g%s",
                 sharing, s < other ? s : other, s < other ? other : s, s, f->of_stage[s], f->unit);
    else
        snprintf(out->text, sizeof out->text,
                 "others have the cores: stage %d waits for one for %.4g%s", s, f->of_stage[s],
                 f->unit);
}

static void tell_offload(struct search *f, struct sp_finding *out)
{
    int s = out->stage = sum_stages(f, SP_STEP_OFFLOAD);
    const struct sp_timeline_stage *st = &f->w->t->stage[s];

    snprintf(out->text, sizeof out->text,
             "stage %d waits %.4g%s for tensors: %.4g MiB leave memory, %.4g MiB come back", s,
             f->of_stage[s], f->unit, (double)st->left / 1048576, (double)st->returned / 1048576);
}

static void tell_update(struct search *f, struct sp_finding *out)
{
    int s = out->stage = sum_stages(f, SP_STEP_UPDATE);

    snprintf(out->text, sizeof out->text, "norm and optimizer of stage %d take %.4g%s", s,
             f->of_stage[s], f->unit);
}

static void tell_engine(struct search *f, struct sp_finding *out)
{
    int s = out->stage = sum_stages(f, SP_STEP_ENGINE);

    snprintf(out->text, sizeof out->text,
             "tasks that could start wait for the runtime: %.4g%s on stage %d, %.4g of an op",
             f->of_stage[s], f->unit, s,
             f->of_stage[s] / (f->w->first_unit[s + 1] - f->w->first_unit[s]));
}

/* Each kind: its name, the part of the step that a replay leaves out to find its gain, and who
 * describes it. */
static const struct {
    const char *name;
    enum sp_part_of_step part;
    void (*tell)(struct search *f, struct sp_finding *out);
} kinds[SP_FINDINGS] = {
    [SP_FINDING_STAGES] = {"stages", SP_STEP_COMPUTE, tell_stages},
    [SP_FINDING_OPS] = {"ops", SP_STEP_COMPUTE, tell_ops},
    [SP_FINDING_MESSAGES] = {"messages", SP_STEP_MESSAGE, tell_messages},
    [SP_FINDING_INTERFACE] = {"interface", SP_STEP_INTERFACE, tell_interface},
    [SP_FINDING_OFFLOAD] = {"offload", SP_STEP_OFFLOAD, tell_offload},
    [SP_FINDING_SUBMISSION] = {"submission", SP_STEP_SUBMISSION, tell_submission},
    [SP_FINDING_CORE] = {"core", SP_STEP_CORE, tell_core},
    [SP_FINDING_ENGINE] = {"engine", SP_STEP_ENGINE, tell_engine},
    [SP_FINDING_UPDATE] = {"update", SP_STEP_UPDATE, tell_update},
};

/* ---- gains ----------------------------------------------------------------------------------- */

/* Scales the ops of each stage so that all stages compute equally long. */
static void even_out(struct search *f)
{
    const struct sp_waits *w = f->w;
    double mean = 0;

    for (int s = 0; s < w->t->stages; s++) {
        f->of_stage[s] = w->stage[s][SP_STEP_COMPUTE];
        mean += f->of_stage[s] / w->t->stages;
    }
    for (int k = 0; k < w->n; k++) {
        double own = f->of_stage[w->t->op[w->unit[k].op].stage];

        f->compute[k] = w->unit[k].compute * (own > 0 ? mean / own : 1);
    }
}

static int measure(struct search *f, double all, struct sp_finding *out)
{
    struct sp_replay how = {.with = SP_REPLAY_ALL};

    switch (out->kind) {
    case SP_FINDING_STAGES:
        even_out(f);
        how.compute = f->compute;
        break;
    case SP_FINDING_OPS:
        how.compute = f->usual;
        break;
    case SP_FINDING_UPDATE:
        out->gain = 0;
        for (int s = 0; s < f->w->t->stages; s++)
            out->gain = fmax(out->gain, f->w->stage[s][SP_STEP_UPDATE]);
        return 0;
    default:
        how.with &= ~(1u << kinds[out->kind].part);
        break;
    }
    return gain_of(f, &how, all, &out->gain);
}

static int compare(const void *x, const void *y)
{
    const struct sp_finding *a = x, *b = y;

    return a->gain != b->gain ? (a->gain > b->gain ? -1 : 1) : (int)a->kind - (int)b->kind;
}

int sp_findings_make(const struct sp_waits *w, struct sp_finding findings[SP_FINDINGS])
{
    const struct sp_timeline *t = w->t;
    size_t links = t->processes <= 1024 ? (size_t)t->processes * (size_t)t->processes : 0;
    size_t n = 2 * (size_t)w->n + (size_t)t->n_ops + (size_t)t->stages + links + 1;
    struct search f = {.w = w, .unit = *t->unit ? " ms" : "", .compute = calloc(n, sizeof(double))};
    struct sp_replay how = {.with = SP_REPLAY_ALL};
    double all;
    int err;

    if (!f.compute)
        return -ENOMEM;
    f.usual = f.compute + w->n;
    f.part = f.usual + w->n;
    f.of_stage = f.part + t->n_ops;
    f.of_link = links ? f.of_stage + t->stages : NULL;
    err = sp_causes_usual(w, f.usual, f.part);
    err = err ? err : sp_replay(w, &how, &all);
    for (int k = 0; !err && k < SP_FINDINGS; k++) {
        findings[k] = (struct sp_finding){.kind = (enum sp_finding_kind)k, .stage = -1};
        err = measure(&f, all, &findings[k]);
        if (!err)
            kinds[k].tell(&f, &findings[k]);
    }
    if (!err)
        qsort(findings, SP_FINDINGS, sizeof *findings, compare);
    free(f.compute);
    return err;
}

const char *sp_finding_name(enum sp_finding_kind kind)
{
    return kinds[kind].name;
}

/* ---- waits ----------------------------------------------------------------------------------- */

int sp_long_waits(const struct sp_waits *w, struct sp_long_wait longest[SP_LONG_WAITS])
{
    int n = 0;

    for (int s = 0; s < w->t->stages; s++) {
        double end = 0;

        for (int k = w->first_unit[s]; k < w->first_unit[s + 1]; k++) {
            const struct sp_unit_of_step *u = &w->unit[k];

            for (int i = 0; i < SP_STEP_PARTS; i++) {
                struct sp_long_wait wait = {u->op, (enum sp_part_of_step)i, u->before[i], end,
                                            u->producer};
                int at = n;

                if (wait.time <= 0)
                    continue;
                for (; at > 0 && longest[at - 1].time < wait.time; at--)
                    if (at < SP_LONG_WAITS)
                        longest[at] = longest[at - 1];
                if (at < SP_LONG_WAITS)
                    longest[at] = wait;
                n += n < SP_LONG_WAITS;
            }
            end = fmax(end, u->end);
        }
    }
    return n;
}
