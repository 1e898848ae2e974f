/* A step's time split by cause: replays of its ops, each with one cause more than the one before. */
#include "plan/expected.h"
#include "plan/replay.h"
#include "sp_error.h"
#include "policies/simulation/times.h"
#include <math.h>
#include <stdlib.h>

/* What a replay needs of every op, by the number that its family gives it. */
struct split {
    const struct sp_plan *plan;
    const struct sp_step_report *report;
    size_t ids;
    double *memory;
    double *usual_ms, *usual_part; /* medians of the op's kind */
    double *core_ms, *ms, *held_ms,
        *part;     /* of the op: with a core, by the clock, with the runtime */
    double *delay; /* of its messages */
    int *worker;   /* [stages] the first stage of its worker */
};

/* ---- ops of one kind -------------------------------------------------------------------------- */

struct of_kind {
    int id, index;
    uint64_t kind[2];
    double value;
};

static void set_kind(const struct sp_plan *plan, int stage, int index, struct of_kind *k)
{
    const struct sp_op *op = &plan->programs[stage].ops[index];

    k->index = index;
    k->id = plan->family->id(&plan->layout, stage, op);
    k->kind[0] = (uint64_t)op->pass << 32 | (uint64_t)op->part << 24 | op->slice;
    k->kind[1] = (uint64_t)(uint32_t)op->chunk << 1 |
                 (plan->deferred && op->pass == SP_B && plan->deferred[k->id]);
}

static int compare_kinds(const struct of_kind *a, const struct of_kind *b)
{
    for (int i = 0; i < 2; i++)
        if (a->kind[i] != b->kind[i])
            return a->kind[i] < b->kind[i] ? -1 : 1;
    return 0;
}

static int compare(const void *x, const void *y)
{
    const struct of_kind *a = x, *b = y;
    int kinds = compare_kinds(a, b);

    return kinds ? kinds : a->value != b->value ? (a->value < b->value ? -1 : 1) : 0;
}

/* usual[id] = the median of value[id] over the ops of the same kind and stage. */
static void medians(const struct sp_plan *plan, int stage, const double *value, struct of_kind *ops,
                    double *usual)
{
    int n = plan->programs[stage].n;

    for (int i = 0; i < n; i++) {
        set_kind(plan, stage, i, &ops[i]);
        ops[i].value = value[ops[i].id];
    }
    qsort(ops, (size_t)n, sizeof *ops, compare);
    for (int first = 0, end; first < n; first = end) {
        double median;

        for (end = first + 1; end < n && !compare_kinds(&ops[first], &ops[end]);)
            end++;
        median = (ops[(first + end - 1) / 2].value + ops[(first + end) / 2].value) / 2;
        for (int i = first; i < end; i++)
            usual[ops[i].id] = median;
    }
}

/* ---- what a report says of each op ------------------------------------------------------------ */

/* After which part of its time, or that of the pair that it begins or ends, an op had written what
 * others wait for. */
static double part_until_output(const struct sp_program *prog, const struct sp_op_record *ops,
                                int i)
{
    int first = prog->ops[i].overlap ? i : i > 0 && prog->ops[i - 1].overlap ? i - 1 : i;
    int last = prog->ops[first].overlap && first + 1 < prog->n ? first + 1 : first;
    double out = ops[i].out_us > 0 ? ops[i].out_us : ops[i].end_us;
    double start = fmin(ops[first].start_us, ops[last].start_us);
    double end = fmax(ops[first].end_us, ops[last].end_us);

    return end > start ? fmin(1, (out - start) / (end - start)) : 1;
}

static int read_ops(struct split *s)
{
    int stages = s->plan->layout.stages, most = 1;
    struct of_kind *ops;

    for (int k = 0; k < stages; k++)
        most = s->plan->programs[k].n > most ? s->plan->programs[k].n : most;
    ops = malloc((size_t)most * sizeof *ops);
    if (!ops)
        return -ENOMEM;
    for (int k = 0; k < stages; k++) {
        const struct sp_op_record *r = s->report->stages[k].ops;

        for (int i = 0; i < s->plan->programs[k].n; i++) {
            int id = s->plan->family->id(&s->plan->layout, k, &s->plan->programs[k].ops[i]);

            s->core_ms[id] = 1e-3 * fmax(0, r[i].busy_us - r[i].core_wait_us);
            s->ms[id] = 1e-3 * r[i].busy_us;
            s->held_ms[id] = 1e-3 * r[i].held_us;
            s->part[id] = part_until_output(&s->plan->programs[k], r, i);
        }
        medians(s->plan, k, s->core_ms, ops, s->usual_ms);
        medians(s->plan, k, s->part, ops, s->usual_part);
    }
    free(ops);
    return 0;
}

/* How long an op's messages were on their way: from when the last of them could go until it came. */
static int read_messages(struct split *s, const int *process)
{
    const struct sp_plan *plan = s->plan;
    struct sp_index ix;
    int stage, index, err = sp_index_create(plan, &ix, &stage, &index);

    for (int k = 0; !err && k < plan->layout.stages; k++)
        for (int i = 0; i < plan->programs[k].n; i++) {
            struct sp_dep deps[SP_MAX_DEPS];
            int n = sp_run_deps(plan, k, &plan->programs[k].ops[i], deps);
            double sent = -1, arrived = s->report->stages[k].ops[i].arrived_us;

            for (int d = 0; d < n && arrived > 0; d++) {
                int at = sp_index_place(&ix, plan, &deps[d]);
                const struct sp_op_record *from;

                if (at < 0 || process[deps[d].stage] == process[k])
                    continue;
                from = &s->report->stages[deps[d].stage].ops[at];
                sent = fmax(sent, deps[d].beside     ? from->start_us
                                  : from->out_us > 0 ? from->out_us
                                                     : from->end_us);
            }
            if (sent >= 0)
                s->delay[plan->family->id(&plan->layout, k, &plan->programs[k].ops[i])] =
                    1e-3 * fmax(0, arrived - sent);
        }
    if (!err)
        sp_index_destroy(&ix);
    return err;
}

static int open_split(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct split *s)
{
    size_t ids = (size_t)plan->family->ids(&plan->layout);
    double **const arrays[] = {&s->usual_ms, &s->usual_part, &s->core_ms, &s->ms,
                               &s->held_ms,  &s->part,       &s->delay};
    const size_t n = sizeof arrays / sizeof *arrays;

    *s = (struct split){.plan = plan, .report = report, .ids = ids};
    s->memory = calloc(n * ids, sizeof *s->memory);
    s->worker = calloc((size_t)plan->layout.stages, sizeof *s->worker);
    for (size_t i = 0; s->memory && i < n; i++)
        *arrays[i] = s->memory + i * ids;
    return s->memory && s->worker ? read_ops(s) : -ENOMEM;
}

static int close_split(struct split *s, int err)
{
    free(s->memory);
    free(s->worker);
    return err == -ENOMEM ? sp_error(ENOMEM, "out of memory for measured costs") : err;
}

/* ---- the split -------------------------------------------------------------------------------- */

int sp_expected_times(const struct sp_plan *plan, const struct sp_step_report *report,
                      struct sp_times *times)
{
    struct split s;
    int err = open_split(plan, report, &s);

    if (!err) {
        struct sp_replay usual = {.ms = s.usual_ms, .part = s.usual_part};

        err = sp_replay_times(plan, &usual, times);
    }
    return close_split(&s, err);
}

/* The times of all stages in ms[ids], in the mean over the stages. */
static double mean_work(const struct split *s, const double *ms)
{
    double sum = 0;

    for (size_t i = 0; i < s->ids; i++)
        sum += ms[i];
    return sum / s->plan->layout.stages;
}

static int split_by_cause(const struct split *s, const int *process, struct sp_causes *c)
{
    struct {
        struct sp_replay replay;
        const double *work;
    } with[] = {
        [SP_CAUSE_SCHEDULE] = {{s->usual_ms, s->usual_part, NULL, NULL, NULL}, s->usual_ms},
        [SP_CAUSE_OPS] = {{s->core_ms, s->part, NULL, NULL, NULL}, s->core_ms},
        [SP_CAUSE_CORES] = {{s->ms, s->part, s->worker, NULL, NULL}, s->ms},
        [SP_CAUSE_RUNTIME] = {{s->held_ms, s->part, s->worker, NULL, NULL}, s->ms},
        [SP_CAUSE_MESSAGES] = {{s->held_ms, s->part, s->worker, s->delay, process}, s->ms},
    };
    double ms = 0, bubble = 0;

    for (int k = 0; k < SP_CAUSE_REST; k++) {
        struct sp_times times;
        int err = sp_replay_times(s->plan, &with[k].replay, &times);
        double now;

        if (err)
            return err;
        now = times.makespan > 0 ? 1 - mean_work(s, with[k].work) / times.makespan : 0;
        c->ms[k] = times.makespan - ms;
        c->bubble[k] = now - bubble;
        ms = times.makespan;
        bubble = now;
        sp_times_destroy(&times);
    }
    c->ms[SP_CAUSE_REST] = c->measured_ms - ms;
    c->bubble[SP_CAUSE_REST] = c->measured_bubble - bubble;
    return 0;
}

int sp_expected_causes(const struct sp_plan *plan, const struct sp_step_report *report,
                       const int *process, struct sp_causes *causes)
{
    int stages = plan->layout.stages, err;
    struct split s;

    *causes = (struct sp_causes){0};
    for (int k = 0; k < stages; k++) {
        const struct sp_stage_report *r = &report->stages[k];

        causes->measured_ms += 1e-3 * (r->busy_us + r->idle_us) / stages;
        causes->measured_bubble += r->bubble_ratio / stages;
    }
    err = open_split(plan, report, &s);
    for (int k = 0; !err && k < stages; k++) {
        int first = k;

        while (first > 0 && process[first - 1] == process[k] &&
               report->stages[first - 1].worker == report->stages[k].worker)
            first--;
        s.worker[k] = first;
    }
    err = err ? err : read_messages(&s, process);
    err = err ? err : split_by_cause(&s, process, causes);
    return close_split(&s, err);
}
