/*
 * starpipe simulate: runs a step of training in virtual time, the graph of `train` under
 * StarPU-SimGrid.
 */
#include "simulate/run.h"
#include "cli/commands.h"
#include "cli/print.h"
#include "cli/record.h"
#include "cli/result.h"
#include "cli/step_options.h"
#include "config.h"
#include "model/files/dir.h"
#include "plan/predict.h"
#include "plan/slices.h"
#include "policies/families/families.h"
#include "policies/plan_create.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include "trace/timeline/timeline.h"
#include "trace/timeline/pictures.h"
#include "train/groups.h"
#include "train/layout_auto.h"
#include "train/start/outputs.h"
#include <string.h>

struct args {
    struct sp_layout_args layout;
    struct sp_group_args groups;
    int layers, dtype, share;
    struct sp_result result;
    const char *cost, *link, *trace;
    struct sp_hardware_args hardware;
};

static int parse_options(int argc, char **argv, struct args *a)
{
    struct sp_option options[] = {
        SP_LAYOUT_OPTIONS(a->layout),
        SP_GROUP_OPTIONS(a->groups),
        SP_LAYERS_OPTION(a->layers, "layers of a small model, without --model (0: two a chunk)"),
        SP_COST_OPTION(a->cost, "costs of a stage (default 1), or pre=,attn=,post=,backward= of a "
                                "layer (1, 3, 2, 2 where ops are parts of layers); comm=: latency "
                                "of messages; wire=: how long a whole micro-batch's boundary "
                                "occupies its sender and its receiver; head=: the head of one (0)"),
        SP_HARDWARE_OPTIONS(a->hardware, SP_TOPIC_DEVICES,
                            "with --model, without --cost: the machine (default " SP_MACHINE_DEFAULT
                            ")"),
        SP_OPTION("share", CHOICE, a->share,
                  .help =
                      "how the tasks of an op share its cost: as if it were one, as in the list "
                      "simulation, or by their FLOPs",
                  .topic = SP_TOPIC_ADVANCED, .choices = "whole|flops"),
        SP_OPTION("link", STRING, a->link,
                  .help =
                      "changes links, in the unit of the costs (ms on a machine) and in bytes: "
                      "devices= of a "
                      "node, latency=, bandwidth=, duplex=full|half, shared_by= (devices of an "
                      "interface), "
                      "each for links inside a node with node_ before it; sharing=queued|fair|free",
                  .topic = SP_TOPIC_ADVANCED, .arg = "latency=..,bandwidth=.."),
        SP_DTYPE_OPTION(a->dtype, NULL),
        SP_RESULT_OPTIONS(a->result, "text|json"),
        SP_OPTION("trace", STRING, a->trace,
                  .help =
                      "writes the record of the step there, trace.json, that of the prediction, "
                      "predicted.json, and pictures",
                  .topic = SP_TOPIC_OUTPUT, .arg = "DIR"),
        {0},
    };

    sp_layout_auto_watch(options, &a->layout.kept);
    return sp_options_parse(
        options, "Simulates a step: the graph of train, in virtual time on described links.", argc,
        argv);
}

static int check_options(const struct args *a)
{
    const struct sp_layout_args *l = &a->layout;
    int ulysses;

    if (sp_parse_context_method("simulate", &a->groups, &ulysses))
        return -EINVAL;
    if (strcmp(l->offload, "none") || l->offload_keys)
        return sp_error(EINVAL,
                        "simulate: --offload%s%s: copies to slower memory are not simulated",
                        l->offload_keys ? "-keys" : " ", l->offload_keys ? "" : l->offload);
    if (l->offload_optimizer)
        return sp_error(EINVAL, "simulate: --offload-optimizer: copies to slower memory are not "
                                "simulated");
    if (l->memory_limit)
        return sp_error(EINVAL, "simulate: --memory-limit has no effect: simulated memory has no "
                                "end; 'train --dry-run' takes it");
    if (l->partition_slices && (!l->model || a->cost))
        return sp_error(EINVAL,
                        "simulate: --partition-slices %s: what a slice takes depends on the model; "
                        "give --model and leave out --cost",
                        l->partition_slices);
    if (l->model && a->layers)
        return sp_error(EINVAL, "simulate: --layers is for a small model; leave it or --model out");
    if (sp_step_check_hardware("simulate", l, &a->hardware, a->cost))
        return -EINVAL;
    return a->trace ? sp_output_try_dir(a->trace) : 0;
}

/* ---- the step to simulate */

struct subject {
    struct sp_model model;
    struct sp_shape shape;
    struct sp_params params;
    struct sp_plan plan;
    const struct sp_machine *machine; /* whose times its ops take; NULL: times come from costs */
    struct sp_costs costs;
    struct sp_recompute_option recompute;
};

/* Layers of a small model: two in every chunk, or in every stage if ops are parts of layers. */
static int small_layers(const struct args *a, struct sp_layout *lay, int *layers)
{
    const struct sp_schedule_def *def = sp_schedule_find(a->layout.schedule);
    const struct sp_family *family = def ? sp_family_find(def->family) : NULL;
    struct sp_plan plan;
    int err;

    *layers = a->layers;
    if (a->layers)
        return 0;
    if (family && family->facts.parts) {
        *layers = 2 * a->layout.stages;
        return 0;
    }
    err = sp_plan_create(a->layout.schedule, lay, &plan);
    if (err)
        return err;
    lay->chunks = plan.layout.chunks;
    *layers = 2 * lay->chunks * (plan.family->facts.one_line ? 1 : plan.layout.stages);
    sp_plan_destroy(&plan);
    return 0;
}

static int find_model(const struct args *a, struct sp_layout *lay, struct sp_model *model)
{
    int err = sp_model_load(a->layout.model ? a->layout.model : "gpt-tiny", model);

    if (err || a->layout.model)
        return err;
    err = small_layers(a, lay, &model->layers);
    snprintf(model->name, sizeof model->name, "a small model of %d layers", model->layers);
    return err;
}

/* Reads --recompute or the schedule's default, as train does. */
static int find_recompute(struct args *a, struct subject *s)
{
    a->layout.recompute = sp_schedule_recompute(a->layout.schedule, a->layout.recompute);
    return sp_parse_recompute("simulate", a->layout.recompute, &s->recompute);
}

static int check_plan(const struct args *a, const struct subject *s)
{
    const struct sp_train_wish wish = {
        .recompute = s->recompute.mode, .recompute_text = a->layout.recompute, .partition = "even"};

    return sp_plan_refuse(&s->plan, &wish) ? -EINVAL
                                           : sp_plan_check_members("simulate", a->layout.schedule,
                                                                   &s->plan, &s->model, &s->shape);
}

/* Creates the plan; a searched order is created again at the plan's costs. */
static int create_plan(const struct args *a, struct sp_layout *lay, struct subject *s)
{
    int err = sp_plan_create(a->layout.schedule, lay, &s->plan);

    if (err)
        return err;
    err = sp_step_costs("simulate", &a->layout, a->cost, &s->plan, &s->costs);
    if (!err && s->plan.def->emit_all) {
        sp_plan_destroy(&s->plan);
        lay->costs = &s->costs;
        return sp_plan_create(a->layout.schedule, lay, &s->plan);
    }
    if (err)
        sp_plan_destroy(&s->plan);
    return err;
}

static void find_shape(const struct args *a, struct subject *s)
{
    struct sp_shape *shape = &s->shape;

    sp_shape_init(shape, &s->model, a->layout.micro_batch_size, a->layout.seq,
                  a->layout.micro_batches);
    sp_shape_cut(shape, 0, sp_machine_head_rows(s->machine, &s->model));
    shape->dtype = (enum sp_dtype)a->dtype;
    sp_groups_shape(&a->groups, &a->layout, shape);
}

static int find_machine(const struct args *a, struct subject *s)
{
    static struct sp_machine machine;

    s->machine = a->layout.model && !a->cost ? &machine : NULL;
    if (!s->machine)
        return 0;
    if (sp_step_machine(&a->hardware, (enum sp_dtype)a->dtype, &machine))
        return -EINVAL;
    return machine.kinds ? sp_error(EINVAL,
                                    "simulate: --hardware %s: links between nodes of "
                                    "several kinds are not simulated; show predicts them",
                                    a->hardware.name)
                         : 0;
}

/* --schedule auto. Nothing may leave memory, because offloading is not simulated. */
static int choose_layout(struct args *a, struct subject *s)
{
    struct sp_step_auto how = {.command = "simulate",
                               .dtype = (enum sp_dtype)a->dtype,
                               .says = !a->result.format && !a->result.output};
    int err = 0;

    if (!sp_layout_is_auto(&a->layout))
        return 0;
    a->layout.kept.offload = true;
    if (a->layout.model && !a->cost) {
        err = sp_model_load(a->layout.model, &s->model);
        err = err ? err : find_machine(a, s);
        how.model = &s->model;
        how.machine = s->machine;
    }
    return err ? err : sp_step_choose(&how, &a->layout, &a->groups);
}

/* With a machine's times, cuts sequences as a run does. */
static int cut_sequences(const struct args *a, struct subject *s)
{
    return s->machine && s->plan.layout.slices > 1
               ? sp_plan_cut(&s->plan, &s->shape, a->layout.partition_slices, s->machine)
               : 0;
}

static int find_subject(struct args *a, struct subject *s)
{
    struct sp_layout lay;
    int err = choose_layout(a, s);

    if (err)
        return err;
    lay = sp_layout_of_args(&a->layout, 0);
    err = find_model(a, &lay, &s->model);
    err = err ? err : find_machine(a, s);
    lay.layers = s->model.layers;
    err = err ? err
              : sp_step_slices("simulate", &a->layout, s->machine, &s->model,
                               (enum sp_dtype)a->dtype);
    lay.slices = err ? 1 : a->layout.slices;
    err =
        err ? err
            : sp_model_check_step(&s->model,
                                  &(struct sp_step_size){a->layout.seq, a->layout.micro_batch_size,
                                                         a->layout.micro_batches},
                                  "simulate: ");
    if (!err)
        find_shape(a, s);
    err = err ? err : create_plan(a, &lay, s);
    if (err)
        return err;
    err = find_recompute(a, s);
    err = err ? err : cut_sequences(a, s);
    err = err ? err : check_plan(a, s);
    err = err ? err : sp_params_create(&s->model, &s->params);
    if (err)
        sp_plan_destroy(&s->plan);
    return err;
}

/* ---- what is printed, beside what show predicts of the same order */

/* A step that was simulated. */
struct outcome {
    const struct subject *subject;
    const char *schedule, *model;
    const char *unit;    /* of times: "ms", or "" for that of the costs */
    const char *machine; /* or "" */
    const struct sp_prediction *prediction;
    const struct sp_simulated *simulated;
};

/* Says when the gradients of a stage's members and of all pipelines are summed, after the ops. */
static void print_sums(const struct outcome *o)
{
    const struct sp_prediction *told = o->prediction;

    printf("gradients  summed after %.6g%s", o->simulated->step, o->unit[0] ? " ms" : "");
    if (told->step_ms > 0)
        printf("; show predicts %.6g", told->step_ms - told->update_ms);
    printf("\nmembers    %d of each stage; of each the first one is shown\n",
           o->simulated->members);
}

static int print_text(const struct outcome *o)
{
    const struct sp_simulated *r = o->simulated;
    const struct sp_times *t = &r->times;
    struct sp_gantt g;

    if (sp_gantt_from_times(&o->subject->plan, t, &g))
        return sp_error(ENOMEM, "simulate: no memory for a picture of %d ops",
                        sp_plan_ops(&o->subject->plan));
    sp_gantt_text(&g, 120, false, stdout);
    sp_gantt_destroy(&g);
    printf("\nschedule   %s: %s\n", o->subject->plan.def->name, o->subject->plan.def->summary);
    printf("model      %s\n", o->model);
    printf("makespan   %.6g%s, bubble %.2f %%; show predicts %.6g, ratio %.6f\n", t->makespan,
           o->unit[0] ? " ms" : "", 100 * t->bubble_ratio, o->prediction->times.makespan,
           t->makespan / o->prediction->times.makespan);
    if (r->members > 1)
        print_sums(o);
    printf("simulated  %ld tasks, %ld messages in %.2f + %.2f s, %.0f MiB\n", r->tasks,
           r->n_messages, r->submit_s, r->run_s, (double)r->resident_bytes / 1048576);
    printf("\nstage %10s %10s %10s %8s %12s %12s\n", "busy", "span", "idle", "bubble", "stash MiB",
           "sent MiB");
    for (int s = 0; s < o->subject->plan.layout.stages; s++)
        printf("%5d %10.6g %10.6g %10.6g %6.2f %% %12.2f %12.2f\n", s, r->busy[s], t->span[s],
               t->idle[s], t->makespan > 0 ? 100 * t->idle[s] / t->makespan : 0,
               (double)r->peak_bytes[s] / 1048576, r->bytes_sent[s] / 1048576);
    return 0;
}

/*
 * One object:
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
static void add_stages(const struct outcome *o, json_t *root)
{
    const struct sp_simulated *r = o->simulated;
    int n = o->subject->plan.layout.stages;
    json_t *peaks = json_array();

    for (int s = 0; s < n; s++)
        json_array_append_new(peaks, json_integer(r->peak_bytes[s]));
    json_object_set_new(root, "span", sp_json_reals(r->times.span, n));
    json_object_set_new(root, "busy", sp_json_reals(r->busy, n));
    json_object_set_new(root, "idle", sp_json_reals(r->times.idle, n));
    json_object_set_new(root, "peak_bytes", peaks);
    json_object_set_new(root, "bytes_sent", sp_json_reals(r->bytes_sent, n));
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

static int print_json(const struct outcome *o)
{
    const struct sp_layout *lay = &o->subject->plan.layout;
    const struct sp_simulated *r = o->simulated;
    json_t *root = json_pack(
        "{s:o,s:o,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:f,s:f,s:f,s:I,s:f,s:f,s:I}", "schedule",
        sp_utf8_json(o->schedule), "model", sp_utf8_json(o->model), "unit", o->unit, "stages",
        lay->stages, "micro_batches", lay->micro_batches, "chunks", lay->chunks, "slices",
        lay->slices, "layers", lay->layers, "members", r->members, "makespan", r->times.makespan,
        "predicted_makespan", o->prediction->times.makespan, "bubble_ratio", r->times.bubble_ratio,
        "summed", r->step, "tasks", (json_int_t)r->tasks, "submit_s", r->submit_s, "run_s",
        r->run_s, "resident_bytes", (json_int_t)r->resident_bytes);

    if (!root)
        return sp_error(ENOMEM, "simulate: no memory for schedule %s", o->schedule);
    sp_json_add_programs(&o->subject->plan, &r->times, root);
    add_stages(o, root);
    add_messages(r, root);
    sp_json_print(root, 0, stdout);
    return 0;
}

/* ---- records and pictures */

/* Makes the records of the step as simulated and as predicted; each stage is a process. */
static int make_records(const struct outcome *o, struct sp_timeline t[2])
{
    const struct sp_timeline_terms terms = {.plan = &o->subject->plan,
                                            .shape = &o->subject->shape,
                                            .recompute = o->subject->recompute.mode,
                                            .every = o->subject->recompute.every};
    int err = sp_timeline_of_report(&terms, &o->simulated->report, &t[0]);

    err = err ? err : sp_timeline_of_prediction(&terms, o->prediction, &t[1]);
    t[0].source = SP_TIMELINE_SIMULATED;
    for (int i = 0; !err && i < 2; i++) {
        snprintf(t[i].unit, sizeof t[i].unit, "%s", o->unit);
        snprintf(t[i].model, sizeof t[i].model, "%s", o->model);
        snprintf(t[i].machine, sizeof t[i].machine, "%s", o->machine);
    }
    return err ? sp_error(-err, "simulate: no memory for the record of %d ops",
                          sp_plan_ops(&o->subject->plan))
               : 0;
}

/* Writes records and pictures of both into an existing directory. */
static int write_trace(const struct outcome *o, const char *dir)
{
    static const char *const what[] = {"simulated", "predicted"};
    static const char *const files[] = {"trace.json", "predicted.json"};
    struct sp_timeline t[2] = {0};
    struct sp_gantt g[2] = {0};
    int err = make_records(o, t);

    for (int i = 0; !err && i < 2; i++) {
        err = sp_record_write(&t[i], dir, files[i]);
        if (!err && sp_gantt_of_timeline(&t[i], &g[i]))
            err = sp_error(ENOMEM, "simulate: no memory for a picture of %d ops",
                           sp_plan_ops(&o->subject->plan));
        snprintf(g[i].title, sizeof g[i].title, "%s %s: %d stages, %d micro-batches",
                 o->subject->plan.def->name, what[i], o->subject->plan.layout.stages,
                 o->subject->plan.layout.micro_batches);
        snprintf(g[i].subtitle, sizeof g[i].subtitle, "%.6g%s; costs: %.128s", t[i].length,
                 *t[i].unit ? " ms" : "", o->machine);
    }
    err = err ? err : sp_record_pictures(o->subject->plan.def, g, what, dir);
    for (int i = 0; i < 2; i++) {
        sp_gantt_destroy(&g[i]);
        sp_timeline_destroy(&t[i]);
    }
    return err;
}

/* ---- the run */

static int print_outcome(const struct args *a, const struct outcome *o)
{
    int err = sp_result_begin("simulate", a->result.output, 0);

    err = err || !a->trace ? err : sp_dir_make(a->trace, NULL);
    if (!err && a->trace)
        err = write_trace(o, a->trace);
    if (!err)
        err = a->result.format ? print_json(o) : print_text(o);
    return err;
}

/* A boundary tensor of a whole micro-batch takes `wire` on the link, then `comm`. */
static struct sp_sim_machine links_of_costs(const struct args *a, const struct subject *s)
{
    struct sp_sim_machine m = sp_sim_machine_default;
    double elements = (double)a->layout.micro_batch_size * a->layout.seq * s->model.hidden;

    m.node.latency_s = s->costs.comm;
    if (s->costs.wire > 0)
        m.node.bandwidth =
            elements * (double)sp_dtype_bytes((enum sp_dtype)a->dtype) / s->costs.wire;
    return m;
}

/* Predicts the same step as `show` does, and finds the links. */
static int predict(const struct args *a, const struct subject *s, struct sp_prediction *p,
                   struct sp_sim_machine *links)
{
    const struct sp_predict_request request = {
        .plan = &s->plan,
        .shape = &s->shape,
        .terms = {.machine = s->machine,
                  .devices = 1,
                  .recompute = s->recompute.mode,
                  .every = s->recompute.every},
        .exchanges = true,
    };
    int err;

    if (s->machine) {
        *links = sp_sim_machine_of(s->machine);
        err = sp_predict(&request, p);
    } else {
        *links = links_of_costs(a, s);
        err = sp_predict_costs(&s->plan, &s->costs, p);
    }
    if (err)
        return sp_error(-err, "simulate: no memory to predict %d ops", sp_plan_ops(&s->plan));
    return a->link ? sp_sim_machine_parse(a->link, links) : 0;
}

static int simulate_step(const struct args *a, const struct subject *s)
{
    struct sp_simulation simulation = {
        .plan = &s->plan,
        .params = &s->params,
        .shape = &s->shape,
        .recompute = s->recompute.mode,
        .every = s->recompute.every,
        .share = (enum sp_share)a->share,
    };
    struct sp_prediction p = {0};
    struct sp_costs costs;
    struct sp_simulated simulated;
    int err = predict(a, s, &p, &simulation.machine);

    /* the simulated links carry what members of a stage send each other, so ops do not include
     * it */
    costs = p.costs;
    if (p.alone)
        costs.by_op = p.alone;
    simulation.costs = &costs;
    err = err ? err : sp_sim_run(&simulation, &simulated);
    if (!err) {
        const struct outcome o = {.subject = s,
                                  .schedule = a->layout.schedule,
                                  .model = s->model.name,
                                  .unit = a->layout.model && !a->cost ? "ms" : "",
                                  .machine = s->machine ? s->machine->name : "",
                                  .prediction = &p,
                                  .simulated = &simulated};

        err = print_outcome(a, &o);
        sp_simulated_destroy(&simulated);
    }
    sp_prediction_destroy(&p);
    return err;
}

int sp_cmd_simulate(int argc, char **argv)
{
    struct args a = {.layout = SP_LAYOUT_ARGS_DEFAULT, .groups = SP_GROUP_ARGS_DEFAULT};
    struct subject s;
    int err = parse_options(argc, argv, &a);

    if (err)
        return SP_OPTIONS_EXIT(err);
    if (!sp_can_simulate()) {
        sp_error(ENOSYS, "simulate: this program runs; './quickstart sim' builds "
                         "build-sim/starpipe-sim, which simulates");
        return 2;
    }
    if (check_options(&a))
        return 2;
    err = find_subject(&a, &s);
    if (!err) {
        err = simulate_step(&a, &s);
        sp_params_destroy(&s.params);
        sp_plan_destroy(&s.plan);
    }
    return err == 0 ? 0 : err == -EINVAL ? 2 : 1;
}
