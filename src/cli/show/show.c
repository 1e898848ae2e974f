/*
 * starpipe show: prints the programs of one schedule with list-simulated times, without running it.
 */
#include "cli/commands.h"
#include "cli/result.h"
#include "cli/show/show.h"
#include "cli/step_options.h"
#include "model/model.h"
#include "plan/cost/layer_costs.h"
#include "plan/predict.h"
#include "plan/offload/offload.h"
#include "plan/partition.h"
#include "plan/slices.h"
#include "policies/lowering/lowering.h"
#include "policies/lowering/parking_choice.h"
#include "sp_error.h"
#include "policies/plan_create.h"
#include "policies/registry.h"
#include "policies/simulation/listsim.h"
#include "train/groups.h"
#include "train/layout_auto.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct args {
    struct sp_layout_args layout;
    struct sp_group_args groups;
    int layers, width, dtype;
    bool color, actions, dtype_set;
    const char *cost, *vary, *partition;
    int scheduler, window;
    bool window_set;
    struct sp_hardware_args hardware;
    struct sp_result result;
    const struct sp_machine *machine; /* of --hardware, if its times are shown; or NULL */
};

static int parse_options(int argc, char **argv, struct args *a)
{
    struct sp_option options[] = {
        SP_LAYOUT_OPTIONS(a->layout),
        SP_GROUP_OPTIONS(a->groups),
        SP_LAYERS_OPTION(a->layers, "layers of the model (0: unknown)"),
        SP_COST_OPTION(a->cost, "costs of a stage (default 1), or pre=,attn=,post=,backward= of a "
                                "layer (1, 3, 2, 2 where ops are parts of layers); comm=: how long "
                                "a message is on its way; wire=: how long it occupies its sender "
                                "and its receiver; head=: the head of one, beside its stage's (0)"),
        SP_HARDWARE_OPTIONS(
            a->hardware, SP_TOPIC_DEVICES,
            "with --model: the machine whose times are simulated (default " SP_MACHINE_DEFAULT ")"),
        SP_DTYPE_OPTION(a->dtype, &a->dtype_set),
        SP_OPTION("partition", STRING, a->partition,
                  .help =
                      "layers of each stage and chunk: even, by the machine's times, or 3,2,2,1",
                  .topic = SP_TOPIC_SCHEDULE, .arg = "even|balanced|LIST"),
        SP_OPTION(
            "scheduler", CHOICE, a->scheduler,
            .help = "how stages follow their programs: ready shows what they run if they overtake",
            .topic = SP_TOPIC_SCHEDULE, .choices = "strict|ready"),
        SP_OPTION(
            "window", INT, a->window,
            .help =
                "with --scheduler ready: unfinished ops that a stage chooses from (0: default, 6)",
            .topic = SP_TOPIC_ADVANCED, .arg = "N", .max = 1000000, .given = &a->window_set),
        SP_OPTION(
            "vary", STRING, a->vary,
            .help =
                "ops that take other times than planned: at random, within so much of them or of "
                "such a deviation; a stage T times slower, or the link from stage K to the next",
            .topic = SP_TOPIC_SCHEDULE, .arg = "uniform=..,lognormal=..,seed=N,stage=KxT,link=KxT"),
        SP_OPTION("actions", FLAG, a->actions,
                  .help =
                      "also the lowered program: what each stage runs, sends, receives and frees",
                  .topic = SP_TOPIC_OUTPUT),
        SP_RESULT_OPTIONS(a->result, "text|json|csv|svg|html|picture|perfetto"),

        SP_OPTION("width", INT, a->width, .help = "columns of the text (0: those of the terminal)",
                  .topic = SP_TOPIC_OUTPUT, .arg = "N", .max = 10000),
        SP_OPTION("color", FLAG, a->color, .help = "colours in the text", .topic = SP_TOPIC_OUTPUT),
        {0},
    };

    sp_layout_auto_watch(options, &a->layout.kept);
    return sp_options_parse(options, "Shows the order of a schedule, its bubble and its memory.",
                            argc, argv);
}

static bool chooses_recompute(const struct sp_layout_args *l)
{
    return l->recompute && sp_recompute_is_auto(l->recompute);
}

/* Refuses layout options that the list simulation could not honour. */
static int check_options(const struct args *a)
{
    static const struct sp_layout_args like = SP_LAYOUT_ARGS_DEFAULT;
    const struct sp_layout_args *l = &a->layout;
    enum sp_offload_mode offload;
    int ulysses;

    if (strcmp(l->offload, "none") && (!l->model || a->cost))
        return sp_error(EINVAL,
                        "show: --offload %s: what may leave memory, and how long that takes, is "
                        "the model's and the machine's; give --model and leave out --cost",
                        l->offload);
    if (sp_parse_offload("show", l, &offload) ||
        sp_parse_context_method("show", &a->groups, &ulysses))
        return -EINVAL;
    if (chooses_recompute(l) && (!l->model || a->cost || !l->memory_limit))
        return sp_error(EINVAL,
                        "show: --recompute auto chooses for a limit of memory, on a machine: give "
                        "--memory-limit and --model, and leave out --cost");
    if (chooses_recompute(l) && (strcmp(l->offload, "none") || l->offload_peers))
        return sp_error(EINVAL, "show: --recompute auto: leave out --offload, or see train "
                                "--dry-run");
    if (l->memory_limit && !l->model)
        return sp_error(EINVAL, "show: --memory-limit: an order has micro-batches, not bytes; give "
                                "--model too");
    if (sp_step_check_hardware("show", l, &a->hardware, a->cost))
        return -EINVAL;
    if (!l->model && (l->seq != like.seq || l->micro_batch_size != like.micro_batch_size))
        return sp_error(EINVAL,
                        "show: --%s: an order does not depend on it, sizes of tensors do; give "
                        "--model too",
                        l->seq != like.seq ? "seq" : "micro-batch-size");
    if (!l->model && sp_groups_pipelines(&a->groups) > 1)
        return sp_error(EINVAL,
                        "show: --%s: an order does not depend on it, what a stage computes, sends "
                        "and holds does; give --model too",
                        a->groups.data_parallel > 1      ? "data-parallel"
                        : a->groups.context_parallel > 1 ? "context-parallel"
                                                         : "tensor-parallel");
    if ((a->width || a->color) && a->result.format != SP_SHOW_TEXT)
        return sp_error(EINVAL, "show: --%s is for --format text", a->width ? "width" : "color");
    if (a->actions && a->result.format != SP_SHOW_TEXT && a->result.format != SP_SHOW_JSON)
        return sp_error(EINVAL, "show: --actions is for --format text and json");
    if (a->window_set && !a->scheduler)
        return sp_error(EINVAL, "show: --window says how far stages look ahead; give --scheduler "
                                "ready too");
    if (a->dtype_set && !l->model)
        return sp_error(EINVAL, "show: --dtype says how large tensors are; give --model too");
    return 0;
}

/* Finds the layers by --layers or --model; 0: unknown. */
static int find_layers(const struct args *a, struct sp_model *model, int *layers)
{
    *layers = a->layers;
    if (!a->layout.model)
        return 0;
    if (sp_model_load(a->layout.model, model))
        return -EINVAL;
    if (a->layers && a->layers != model->layers)
        return sp_error(EINVAL, "show: --layers %d, but %s has %d; leave --layers out", a->layers,
                        model->name, model->layers);
    *layers = model->layers;
    return 0;
}

/* --hardware names the machine whose times a model's ops take. */
static int find_machine(struct args *a)
{
    static struct sp_machine machine;

    if (!a->layout.model || a->cost)
        return 0;
    a->machine = &machine;
    return sp_step_machine(&a->hardware, (enum sp_dtype)a->dtype, &machine);
}

/* --schedule auto. */
static int find_layout(struct args *a, const struct sp_model *model)
{
    const struct sp_step_auto how = {.command = "show",
                                     .machine = a->machine,
                                     .model = a->layout.model ? model : NULL,
                                     .dtype = (enum sp_dtype)a->dtype,
                                     .says = a->result.format == SP_SHOW_TEXT && !a->result.output};

    if (sp_layout_is_auto(&a->layout) && strcmp(a->partition, "even"))
        return sp_error(EINVAL,
                        "show: --partition %s: --schedule auto chooses among even layers; give "
                        "--schedule NAME, or leave --partition out",
                        a->partition);
    return sp_step_choose(&how, &a->layout, &a->groups);
}

/* --slices auto. */
static int find_slices(struct args *a, const struct sp_model *model)
{
    if (!a->layout.slices && !a->layout.model)
        return sp_error(
            EINVAL, "show: --slices auto: how many depends on the model; give --model and --seq");
    return sp_step_slices("show", &a->layout, a->machine, model, (enum sp_dtype)a->dtype);
}

static struct sp_shape shape_of(const struct args *a, const struct sp_model *model)
{
    const struct sp_layout_args *l = &a->layout;
    struct sp_shape shape;

    sp_shape_init(&shape, model, l->micro_batch_size, l->seq, l->micro_batches);
    sp_shape_cut(&shape, 0, sp_machine_head_rows(a->machine, model));
    shape.dtype = (enum sp_dtype)a->dtype;
    sp_groups_shape(&a->groups, &a->layout, &shape);
    return shape;
}

static int check_members(const struct args *a, const struct sp_model *model,
                         const struct sp_plan *plan)
{
    struct sp_shape shape;

    if (!a->layout.model)
        return 0;
    shape = shape_of(a, model);
    return sp_plan_check_members("show", a->layout.schedule, plan, model, &shape);
}

/* --partition-slices: the time of a slice depends on the model and on --seq. With a machine's
 * times, sequences are cut as a run would cut them. */
static int cut_sequences(const struct args *a, const struct sp_model *model, struct sp_plan *plan)
{
    const struct sp_layout_args *l = &a->layout;
    struct sp_shape shape;

    if (!l->partition_slices && (!l->model || a->cost || plan->layout.slices == 1))
        return 0;
    if (plan->layout.slices == 1)
        return sp_error(EINVAL, "show: --partition-slices %s without --slices N",
                        l->partition_slices);
    if (!l->model)
        return sp_error(EINVAL,
                        "show: --partition-slices %s: what a slice takes depends on the model; "
                        "give --model and --seq",
                        l->partition_slices);
    shape = shape_of(a, model);
    return sp_plan_cut(plan, &shape, l->partition_slices, a->machine);
}

static int terminal_columns(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col >= 40)
        return size.ws_col;
    return 120;
}

/* Reads --recompute, or the schedule's default. With auto, layers keep all until it has chosen. */
static int find_recompute(const struct args *a, struct sp_recompute_option *recompute)
{
    *recompute = (struct sp_recompute_option){SP_RECOMPUTE_NONE, 1};
    if (chooses_recompute(&a->layout))
        return 0;
    return sp_parse_recompute(
        "show", sp_schedule_recompute(a->layout.schedule, a->layout.recompute), recompute);
}

/* Balances the layers by the machine's times. */
static int balance(const struct args *a, const struct sp_model *model, const struct sp_plan *plan,
                   int *counts)
{
    struct sp_shape shape = shape_of(a, model);
    struct sp_recompute_option recompute;

    if (find_recompute(a, &recompute))
        return -EINVAL;
    return sp_partition_on_machine(plan, &shape, a->machine, shape.pipelines * shape.tensor,
                                   recompute.mode, counts);
}

/* --partition. */
static int deal_layers(const struct args *a, const struct sp_model *model, struct sp_plan *plan)
{
    bool balanced = !strcmp(a->partition, "balanced");
    int globals = sp_globals(&plan->layout), err, *counts;

    if (!strcmp(a->partition, "even"))
        return 0;
    if (!balanced && !sp_partition_is_list(a->partition))
        return sp_error(EINVAL,
                        "show: --partition %s: want even, balanced or the layers of each stage, as "
                        "3,2,2,1",
                        a->partition);
    if (!a->machine)
        return sp_error(EINVAL,
                        "show: --partition %s: an order does not depend on it, what stages take "
                        "and hold does; give --model, and leave out --cost",
                        a->partition);
    if (!sp_schedule_deals_layers(a->layout.schedule) &&
        plan->family->facts.layers != SP_LAYERS_ALIKE)
        return sp_error(EINVAL, "show: --partition %s: %s deals the layers out by itself; use even",
                        a->partition, a->layout.schedule);
    counts = calloc((size_t)globals, sizeof *counts);
    if (!counts)
        return sp_error(ENOMEM, "no memory for a partition of %d stages", globals);
    err = balanced ? balance(a, model, plan, counts)
                   : sp_partition_parse(a->partition, model->layers, globals, counts);
    err = err ? err : sp_plan_partition(plan, counts);
    free(counts);
    return err;
}

/* The bytes that a stage sends and holds depend on the model. Sets show->shape, which stays NULL
 * without one. */
static int find_shape(const struct args *a, const struct sp_model *model, struct sp_plan *plan,
                      struct sp_shape *shape, struct sp_show *show)
{
    const struct sp_layout_args *l = &a->layout;

    if (!l->model)
        return 0;
    if (sp_model_check_step(
            model, &(struct sp_step_size){l->seq, l->micro_batch_size, l->micro_batches}, "show: "))
        return -EINVAL;
    *shape = shape_of(a, model);
    show->shape = shape;
    if (find_recompute(a, &show->recompute))
        return -EINVAL;
    plan->processes = plan->layout.stages;
    plan->states_evicted = l->offload_optimizer;
    plan->updates_on_cores =
        a->machine && sp_update_is_on_cores(
                          plan, shape, &(struct sp_op_terms){.machine = a->machine, .devices = 1},
                          (enum sp_update_device)l->optimizer_device);
    if (!l->offload_peers)
        return 0;
    if (sp_parking_check("show", plan, shape))
        return -EINVAL;
    if (strcmp(l->offload, "none")) /* else it is chosen with what is evicted */
        return 0;
    return sp_parking_create(plan, shape, show->recompute.mode, show->recompute.every);
}

/* From so many ops on, messages cost more memory than their times are worth. */
enum { MANY_OPS = 2 * 1000000 };

/* Simulates with the costs of --cost, or unit costs. If messages wait for no port and are not
 * printed, the list simulation gives the same times in half the memory. */
static int simulate_costs(const struct sp_show *show, const struct sp_plan *plan,
                          struct sp_prediction *p)
{
    const struct sp_execution *execution = plan == show->plan ? show->execution : NULL;
    bool plain =
        show->plain && show->costs.wire <= 0 && !plan->family->lowers->run_deps && !execution;
    char why[256];

    if (!plain || sp_plan_ops(plan) <= MANY_OPS)
        return sp_predict_costs_of(plan, &show->costs, execution, p);
    p->costs = show->costs;
    return sp_listsim(plan, &p->costs, SP_PAIRED, &p->times, why, sizeof why);
}

int sp_show_simulate(const struct sp_show *show, const struct sp_plan *plan,
                     struct sp_prediction *p)
{
    struct sp_predict_request request = {.plan = plan,
                                         .shape = show->shape,
                                         .terms = {.machine = show->machine,
                                                   .devices = 1,
                                                   .recompute = show->recompute.mode,
                                                   .every = show->recompute.every},
                                         .exchanges = true};

    if (plan == show->plan)
        request.execution = show->execution;
    if (show->machine)
        request.tier = sp_offload_tier(show->machine, 1);
    *p = (struct sp_prediction){0};
    return show->machine ? sp_predict(&request, p) : simulate_costs(show, plan, p);
}

/* The effect of --vary and --scheduler on the step. With --scheduler, `plan` takes over the
 * order that its stages run. */
struct conduct {
    struct sp_variation variation;
    struct sp_ready_rule rule;
    struct sp_execution execution;
};

static int find_conduct(const struct args *a, struct sp_plan *plan, struct sp_show *show,
                        struct conduct *c)
{
    char why[160];

    *c = (struct conduct){0};
    if (a->vary) {
        if (sp_variation_parse("show", a->vary, plan->layout.stages, &c->variation))
            return -EINVAL;
        if (c->variation.link_by > 0 && !show->machine && show->costs.comm <= 0 &&
            show->costs.wire <= 0)
            return sp_error(EINVAL, "show: --vary: messages take no time on any link; give --cost "
                                    "comm= or --model");
        c->execution.variation = &c->variation;
    }
    if (a->scheduler) {
        if (sp_ready_check(plan, why, sizeof why))
            return sp_error(EINVAL, "show: --scheduler ready: %s; leave it out", why);
        c->rule = (struct sp_ready_rule){.shape = show->shape,
                                         .recompute = show->recompute.mode,
                                         .every = show->recompute.every,
                                         .window = a->window ? a->window : SP_READY_WINDOW};
        c->execution.ready = &c->rule;
        c->execution.ran = plan;
    }
    if (a->vary || a->scheduler)
        show->execution = &c->execution;
    show->vary = a->vary;
    return 0;
}

/* If stages may overtake, it also finds the makespan of the strict order, to compare. 0 or
 * -ENOMEM. */
static int simulate_plan(struct sp_show *show, struct conduct *c, const struct sp_plan *plan,
                         struct sp_prediction *p)
{
    const struct sp_ready_rule *ready = c->execution.ready;
    int err;

    if (ready) {
        c->execution.ready = NULL;
        err = sp_show_simulate(show, plan, p);
        c->execution.ready = ready;
        if (err)
            return err;
        show->strict_makespan = p->times.makespan;
        sp_prediction_destroy(p);
    }
    return sp_show_simulate(show, plan, p);
}

static int simulate_and_print(const struct args *a, const struct sp_model *model,
                              struct sp_plan *plan)
{
    struct sp_lowering lowering = {0};
    struct sp_prediction prediction = {0};
    struct sp_offload offload = {0};
    struct conduct conduct;
    struct sp_shape shape;
    struct sp_show show = {.schedule = a->layout.schedule,
                           .model = a->layout.model ? model->name : "",
                           .plan = plan,
                           .machine = a->machine,
                           .columns = a->width ? a->width : terminal_columns(),
                           .color = a->color,
                           .plain = a->result.format == SP_SHOW_TEXT,
                           .actions = a->actions};
    int ret = find_shape(a, model, plan, &shape, &show);

    if (!ret && !show.machine)
        ret = sp_step_costs("show", &a->layout, a->cost, plan, &show.costs);
    if (!ret && show.shape)
        ret = sp_show_choose_recompute(&show, &a->layout, plan);
    if (!ret && show.shape)
        ret = sp_show_plan_memory(&show, &a->layout, plan, &offload);
    ret = ret ? ret : find_conduct(a, plan, &show, &conduct);
    if (!ret && (sp_listsim_buffers(plan, &show.buffers) ||
                 simulate_plan(&show, &conduct, plan, &prediction)))
        ret = sp_error(ENOMEM, "show: no memory to simulate %d ops", sp_plan_ops(plan));
    show.prediction = &prediction;
    ret = ret ? ret : sp_show_lower(&show, &lowering);
    ret = ret ? ret : sp_show_write(&show, (enum sp_show_format)a->result.format, a->result.output);
    if (lowering.order)
        sp_lowering_destroy(&lowering);
    sp_prediction_destroy(&prediction);
    sp_offload_destroy(&offload);
    return ret;
}

/* A searched order is found at the machine's costs, as a run finds it. */
static int create_on_machine(const struct args *a, const struct sp_model *model,
                             struct sp_layout *layout, struct sp_plan *plan)
{
    struct sp_recompute_option recompute;
    struct sp_shape shape = shape_of(a, model);
    struct sp_costs costs;
    int ret;

    if (!sp_schedule_is_searched(a->layout.schedule))
        return sp_plan_create(a->layout.schedule, layout, plan);
    if (find_recompute(a, &recompute))
        return -EINVAL;
    costs = sp_search_costs(a->machine, &shape, layout->stages, recompute.mode,
                            sp_schedule_tensors(a->layout.schedule));
    layout->costs = &costs;
    ret = sp_plan_create(a->layout.schedule, layout, plan);
    layout->costs = NULL;
    return ret;
}

/* Creates the plan. A searched order needs the costs, and --cost needs the sizes of a plan to be
 * read, so the plan is created twice, unless the costs are the default ones of the search. */
static int create_plan(const struct args *a, const struct sp_model *model, struct sp_layout *layout,
                       struct sp_plan *plan)
{
    struct sp_costs costs;
    int ret;

    if (a->machine)
        return create_on_machine(a, model, layout, plan);
    ret = sp_plan_create(a->layout.schedule, layout, plan);
    if (ret || !plan->def->emit_all)
        return ret;
    ret = sp_step_costs("show", &a->layout, a->cost, plan, &costs);
    if (!ret && !a->layout.recompute && costs.f == 1 && costs.b == 1 && costs.w == 1 &&
        costs.comm == 0 && costs.wire == 0)
        return 0;
    sp_plan_destroy(plan);
    if (ret)
        return ret;
    layout->costs = &costs;
    ret = sp_plan_create(a->layout.schedule, layout, plan);
    layout->costs = NULL;
    return ret;
}

int sp_cmd_show(int argc, char **argv)
{
    struct args a = {
        .layout = SP_LAYOUT_ARGS_DEFAULT, .groups = SP_GROUP_ARGS_DEFAULT, .partition = "even"};
    struct sp_layout layout;
    struct sp_model model;
    struct sp_plan plan;
    int ret = parse_options(argc, argv, &a), layers;

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (check_options(&a) || sp_show_check_output(a.result.output, &a.layout) ||
        find_layers(&a, &model, &layers) || find_machine(&a) || find_layout(&a, &model) ||
        find_slices(&a, &model))
        return 2;
    layout = sp_layout_of_args(&a.layout, layers);
    layout.lists_layers = sp_partition_is_list(a.partition);
    ret = create_plan(&a, &model, &layout, &plan);
    if (!ret) {
        ret = check_members(&a, &model, &plan);
        ret = ret ? ret : deal_layers(&a, &model, &plan);
        ret = ret ? ret : cut_sequences(&a, &model, &plan);
        ret = ret ? ret : simulate_and_print(&a, &model, &plan);
        sp_plan_destroy(&plan);
    }
    return ret == 0 ? 0 : ret == -EINVAL ? 2 : 1;
}
