/*
 * The JSON form, one object:
 *   schedule, model, stages, micro_batches, chunks, slices, layers
 *   members                  processes of a stage; of each stage the first one is shown
 *   ranks[stage][k]          ops in issue order, "F3.0"
 *   times[stage][k]          [start, end] of ranks[stage][k]: of its first task, of its last
 *   makespan, bubble_ratio   until all members are done; idle of all stages / (stages x makespan)
 *   predicted_makespan       the makespan that show predicts
 *   summed                   until all members' gradients are summed and the last message arrived
 *   unit                     of times: "ms", or "" if times are in units of the costs
 *   span[stage], busy[stage], idle[stage]   last end - first start; in tasks; makespan - busy
 *   peak_bytes[stage]        stashed activations, as the tasks counted them
 *   bytes_sent[stage]        of messages
 *   messages                 [from, to, bytes, ready, arrived] in the order in which they arrived;
 *                            member m of stage s is number s x members + m
 *   tasks                    of ops, of all members
 *   submit_s, run_s          seconds to submit and to simulate
 *   resident_bytes           the most memory that it took
 */
#include "cli/simulate/print.h"
#include "cli/record.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include "trace/timeline/timeline.h"
#include "trace/timeline/pictures.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

/* Says when the gradients of a stage's members and of all pipelines are summed, after the ops. */
static void sums_text(const struct sp_simulate_print *p)
{
    const struct sp_prediction *told = p->prediction;

    printf("gradients  summed after %.6g%s", p->simulated->step, p->unit[0] ? " ms" : "");
    if (told->step_ms > 0)
        printf("; show predicts %.6g", told->step_ms - told->update_ms);
    printf("\nmembers    %d of each stage; of each the first one is shown\n",
           p->simulated->members);
}

int sp_simulate_text(const struct sp_simulate_print *p)
{
    const struct sp_simulated *r = p->simulated;
    const struct sp_times *t = &r->times;
    struct sp_gantt g;

    if (sp_gantt_from_times(p->plan, t, &g))
        return sp_error(ENOMEM, "simulate: no memory for a picture of %d ops",
                        sp_plan_ops(p->plan));
    sp_gantt_text(&g, 120, false, stdout);
    sp_gantt_destroy(&g);
    printf("\nschedule   %s: %s\n", p->plan->def->name, p->plan->def->summary);
    printf("model      %s\n", p->model);
    printf("makespan   %.6g%s, bubble %.2f %%; show predicts %.6g, ratio %.6f\n", t->makespan,
           p->unit[0] ? " ms" : "", 100 * t->bubble_ratio, p->listed->makespan,
           t->makespan / p->listed->makespan);
    if (r->members > 1)
        sums_text(p);
    printf("simulated  %ld tasks, %ld messages in %.2f + %.2f s, %.0f MiB\n", r->tasks,
           r->n_messages, r->submit_s, r->run_s, (double)r->resident_bytes / 1048576);
    printf("\nstage %10s %10s %10s %8s %12s %12s\n", "busy", "span", "idle", "bubble", "stash MiB",
           "sent MiB");
    for (int s = 0; s < p->plan->layout.stages; s++)
        printf("%5d %10.6g %10.6g %10.6g %6.2f %% %12.2f %12.2f\n", s, r->busy[s], t->span[s],
               t->idle[s], t->makespan > 0 ? 100 * t->idle[s] / t->makespan : 0,
               (double)r->peak_bytes[s] / 1048576, r->bytes_sent[s] / 1048576);
    return 0;
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static json_t *reals(const double *v, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_real(v[i]));
    return list;
}

static void add_programs(const struct sp_simulate_print *p, json_t *root)
{
    json_t *ranks = json_array(), *times = json_array();

    for (int s = 0; s < p->plan->layout.stages; s++) {
        json_t *ops = json_array(), *when = json_array();

        for (int k = 0; k < p->plan->programs[s].n; k++) {
            char text[SP_OP_TEXT];

            sp_op_print(&p->plan->programs[s].ops[k], p->plan->layout.slices > 1, text);
            json_array_append_new(ops, json_string(text));
            json_array_append_new(when, json_pack("[f,f]", p->simulated->times.start[s][k],
                                                  p->simulated->times.end[s][k]));
        }
        json_array_append_new(ranks, ops);
        json_array_append_new(times, when);
    }
    json_object_set_new(root, "ranks", ranks);
    json_object_set_new(root, "times", times);
}

static void add_stages(const struct sp_simulate_print *p, json_t *root)
{
    const struct sp_simulated *r = p->simulated;
    int n = p->plan->layout.stages;
    json_t *peaks = json_array();

    for (int s = 0; s < n; s++)
        json_array_append_new(peaks, json_integer(r->peak_bytes[s]));
    json_object_set_new(root, "span", reals(r->times.span, n));
    json_object_set_new(root, "busy", reals(r->busy, n));
    json_object_set_new(root, "idle", reals(r->times.idle, n));
    json_object_set_new(root, "peak_bytes", peaks);
    json_object_set_new(root, "bytes_sent", reals(r->bytes_sent, n));
}

static void add_messages(const struct sp_simulated *r, json_t *root)
{
    json_t *list = json_array();

    for (long i = 0; i < r->n_messages; i++) {
        const struct sp_sim_message *m = &r->messages[i];

        json_array_append_new(
            list, json_pack("[i,i,f,f,f]", m->from, m->to, m->bytes, m->ready, m->arrived));
    }
    json_object_set_new(root, "messages", list);
}

int sp_simulate_json(const struct sp_simulate_print *p)
{
    const struct sp_layout *lay = &p->plan->layout;
    const struct sp_simulated *r = p->simulated;
    json_t *root = json_pack(
        "{s:o,s:o,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:f,s:f,s:I,s:f,s:f,s:I}", "schedule",
        sp_utf8_json(p->schedule), "model", sp_utf8_json(p->model), "unit", p->unit, "stages",
        lay->stages, "micro_batches", lay->micro_batches, "chunks", lay->chunks, "slices",
        lay->slices, "layers", lay->layers, "members", r->members, "makespan", r->times.makespan,
        "predicted_makespan", p->listed->makespan, "bubble_ratio", r->times.bubble_ratio, "summed",
        r->step, "tasks", (json_int_t)r->tasks, "submit_s", r->submit_s, "run_s", r->run_s,
        "resident_bytes", (json_int_t)r->resident_bytes);

    if (!root)
        return sp_error(ENOMEM, "simulate: no memory for schedule %s", p->schedule);
    add_programs(p, root);
    add_stages(p, root);
    add_messages(r, root);
    if (json_dumpf(root, stdout, JSON_INDENT(1)) == 0)
        putchar('\n');
    json_decref(root);
    return 0;
}

/* ---- records and pictures -------------------------------------------------------------------------- */

/* Makes the records of the step as simulated and as predicted; each stage is a process. */
static int make_records(const struct sp_simulate_print *p, struct sp_timeline t[2])
{
    const struct sp_timeline_terms terms = {
        .plan = p->plan, .shape = p->shape, .recompute = p->recompute, .every = p->every};
    int err = sp_timeline_of_report(&terms, &p->simulated->report, &t[0]);

    err = err ? err : sp_timeline_of_prediction(&terms, p->prediction, &t[1]);
    t[0].source = SP_TIMELINE_SIMULATED;
    for (int i = 0; !err && i < 2; i++) {
        snprintf(t[i].unit, sizeof t[i].unit, "%s", p->unit);
        snprintf(t[i].model, sizeof t[i].model, "%s", p->model);
        snprintf(t[i].machine, sizeof t[i].machine, "%s", p->machine);
    }
    return err ? sp_error(-err, "simulate: no memory for the record of %d ops",
                          sp_plan_ops(p->plan))
               : 0;
}

int sp_simulate_trace(const struct sp_simulate_print *p, const char *dir)
{
    static const char *const what[] = {"simulated", "predicted"};
    static const char *const files[] = {"trace.json", "predicted.json"};
    struct sp_timeline t[2] = {0};
    struct sp_gantt g[2] = {0};
    int err = make_records(p, t);

    for (int i = 0; !err && i < 2; i++) {
        char name[32];

        err = sp_record_write(&t[i], dir, files[i]);
        if (!err && sp_gantt_of_timeline(&t[i], &g[i]))
            err = sp_error(ENOMEM, "simulate: no memory for a picture of %d ops",
                           sp_plan_ops(p->plan));
        snprintf(name, sizeof name, "%s.svg", what[i]);
        snprintf(g[i].title, sizeof g[i].title, "%s %s: %d stages, %d micro-batches",
                 p->plan->def->name, what[i], p->plan->layout.stages,
                 p->plan->layout.micro_batches);
        snprintf(g[i].subtitle, sizeof g[i].subtitle, "%.6g%s; costs: %.128s", t[i].length,
                 *t[i].unit ? " ms" : "", p->machine);
        err = err ? err : sp_record_svg(&g[i], dir, name);
    }
    err = err ? err : sp_record_page(p->plan->def, g, what[0], what[1], dir);
    for (int i = 0; i < 2; i++) {
        sp_gantt_destroy(&g[i]);
        sp_timeline_destroy(&t[i]);
    }
    return err;
}
