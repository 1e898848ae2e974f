/*
 * starpipe plan: finds a schedule and a layout for a model on a machine, without running anything.
 */
#include "cli/commands.h"
#include "cli/plan/progress.h"
#include "cli/plan/ranking.h"
#include "cli/result.h"
#include "cli/step_options.h"
#include "model/model.h"
#include "policies/plan_create.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "sp_text.h"
#include <stdio.h>
#include <string.h>

enum { TEXT, JSON, HTML, PICTURE }; /* of --format */
enum { BOTH_DTYPES = SP_DTYPES };   /* of --dtype, after the types themselves */

struct args {
    struct sp_layout_args layout;
    struct sp_group_args groups; /* 0: not given */
    int nodes, devices, top, dtype, group, reserve;
    struct sp_hardware_args hardware;
    struct sp_result result;
    bool schedule_set, batch_set, zero_set, group_set, reserve_set, nodes_set, simulated;
};

static int parse_options(int argc, char **argv, struct args *a)
{
    const struct sp_option options[] = {
        SP_OPTION("model", STRING, a->layout.model, .help = "the model", .topic = SP_TOPIC_EVERYDAY,
                  .arg = "PRESET|DIR"),
        SP_OPTION("seq", INT, a->layout.seq, .help = SP_SEQ_HELP, .topic = SP_TOPIC_MODEL,
                  .arg = "S", .min = 1, .max = 1 << 30),
        SP_OPTION(
            "micro-batches", INT, a->layout.micro_batches,
            .help = "micro-batches of a step (with --micro-batch-size B: M x B sequences, however "
                    "they are cut)",
            .topic = SP_TOPIC_MODEL, .arg = "M", .min = 1, .max = SP_MAX_SIZE),
        SP_OPTION("micro-batch-size", INT, a->layout.micro_batch_size,
                  .help = "sequences of a micro-batch (default: any up to 8)",
                  .topic = SP_TOPIC_MODEL, .arg = "B", .min = 1, .max = 1 << 20,
                  .given = &a->batch_set),
        SP_HARDWARE_OPTIONS(a->hardware, SP_TOPIC_EVERYDAY,
                            "the machine, named or described in a file"),
        SP_OPTION("nodes", INT, a->nodes,
                  .help = "its nodes (default: 1, or those that --hardware lists)",
                  .topic = SP_TOPIC_EVERYDAY, .arg = "N", .min = 1, .max = 4096,
                  .given = &a->nodes_set),
        SP_OPTION("stages", INT, a->layout.stages, .help = SP_STAGES_HELP " (0)",
                  .topic = SP_TOPIC_EVERYDAY, .arg = "P", .max = 1 << 16),
        SP_OPTION("tensor-parallel", INT, a->groups.tensor_parallel,
                  .help = "devices of each stage that share heads, MLP and vocabulary (0: any)",
                  .topic = SP_TOPIC_DEVICES, .arg = "T", .max = SP_MAX_SLICES),
        SP_OPTION("context-parallel", INT, a->groups.context_parallel,
                  .help = "devices of each stage that share the tokens of every sequence (0: any)",
                  .topic = SP_TOPIC_DEVICES, .arg = "C", .max = SP_MAX_SLICES),
        SP_OPTION("data-parallel", INT, a->groups.data_parallel,
                  .help = "pipelines side by side that share a step, each with --micro-batches of "
                          "its own (0: "
                          "any, which share --micro-batches)",
                  .topic = SP_TOPIC_DEVICES, .arg = "D", .max = SP_MAX_PIPELINES),
        SP_OPTION("zero", CHOICE, a->groups.zero,
                  .help = "what pipelines, and devices that share tokens, share out, as train does "
                          "(default: 0 or 1)",
                  .topic = SP_TOPIC_DEVICES, .choices = "0|1|2|3",
                  .wants = "data-parallel|context-parallel|devices", .given = &a->zero_set),
        SP_OPTION("devices", INT, a->devices,
                  .help = "devices of a stage, shared out as --group says (0: any)",
                  .topic = SP_TOPIC_DEVICES, .arg = "T", .max = 64),
        SP_OPTION(
            "group", CHOICE, a->group,
            .help =
                "what the devices of a stage share: parameters, the tokens of sequences, or any "
                "grid of both",
            .topic = SP_TOPIC_DEVICES, .choices = "tensor|context|both", .given = &a->group_set),
        SP_OPTION("schedule", STRING, a->layout.schedule, .help = "the schedule (default: all)",
                  .topic = SP_TOPIC_EVERYDAY, .arg = "NAME[:key=value,...]",
                  .given = &a->schedule_set),
        SP_OPTION("chunks", INT, a->layout.chunks,
                  .help = "chunks per stage (0: what the schedule wants)",
                  .topic = SP_TOPIC_SCHEDULE, .arg = "V", .max = 1 << 16),
        SP_OPTION("slices", INT, a->layout.slices, .help = "slices of a sequence (0: any)",
                  .topic = SP_TOPIC_SCHEDULE, .arg = "N", .max = SP_MAX_SLICES),
        SP_OPTION("partition-slices", STRING, a->layout.partition_slices,
                  .help = "length, flops, dp, or the tokens of each", .topic = SP_TOPIC_SCHEDULE,
                  .arg = "HOW"),
        SP_OPTION("recompute", STRING, a->layout.recompute,
                  .help =
                      "none, selective, no-attention, full, every=K (default: the least that fits)",
                  .topic = SP_TOPIC_MEMORY, .arg = "HOW"),
        SP_OPTION("offload", STRING, a->layout.offload,
                  .help = "none, full, adaptive (default: adaptive where nothing else fits)",
                  .topic = SP_TOPIC_MEMORY, .arg = "HOW"),
        SP_OPTION("offload-optimizer", FLAG, a->layout.offload_optimizer,
                  .help = "the optimizer's state moved out too", .topic = SP_TOPIC_MEMORY),
        SP_OPTION("optimizer-device", CHOICE, a->layout.optimizer_device,
                  .help = SP_OPTIMIZER_DEVICE_HELP, .topic = SP_TOPIC_MEMORY,
                  .choices = SP_OPTIMIZER_DEVICES, .wants = "offload-optimizer"),
        SP_OPTION("memory-limit", SIZE, a->layout.memory_limit,
                  .help = "memory of a device (default: the machine's, less --reserve)",
                  .topic = SP_TOPIC_MEMORY, .arg = "SIZE"),
        SP_OPTION("reserve", INT, a->reserve,
                  .help = "of a device's memory, for the runtime and the system",
                  .topic = SP_TOPIC_MEMORY, .arg = "PERCENT", .max = 90, .given = &a->reserve_set),
        SP_OPTION("dtype", CHOICE, a->dtype,
                  .help = SP_DTYPE_HELP "; or whichever of f32 and bf16 is faster",
                  .topic = SP_TOPIC_MODEL, .choices = SP_DTYPES_CHOICES "|both"),
        SP_OPTION("plugin", PLUGIN, a->layout.plugin, .help = SP_PLUGIN_HELP,
                  .topic = SP_TOPIC_SCHEDULE, .arg = SP_PLUGIN_ARG),
        SP_OPTION("top", INT, a->top,
                  .help = "layouts to print: the best of each grid and each schedule, then others",
                  .topic = SP_TOPIC_OUTPUT, .arg = "K", .min = 1, .max = SP_RANKING_MOST),
        SP_OPTION("simulated", FLAG, a->simulated,
                  .help = "layouts that train does not run, as well", .topic = SP_TOPIC_SCHEDULE),
        SP_RESULT_OPTIONS(a->result, "text|json|html|picture"),
        {0},
    };

    return sp_options_parse(options,
                            "Finds the fastest layout of a model on a machine, without running it.",
                            argc, argv);
}

static int check_options(const struct args *a, const struct sp_model *model)
{
    const struct sp_found *found = NULL;
    const struct sp_layout_args *l = &a->layout;
    const struct sp_schedule_def *def = l->schedule ? sp_schedule_find(l->schedule) : NULL;
    int pipelines = a->groups.data_parallel ? a->groups.data_parallel : 1;

    if (sp_model_check_step(
            model, &(struct sp_step_size){l->seq, l->micro_batch_size, l->micro_batches}, "plan: "))
        return -EINVAL;
    if (l->schedule && !def)
        return sp_schedule_refuse(l->schedule, (int)strcspn(l->schedule, ":"));
    if (def && strlen(l->schedule) >= sizeof found->schedule)
        return sp_error(EINVAL,
                        "plan: --schedule: %zu bytes of a name and its options, at most %zu",
                        strlen(l->schedule), sizeof found->schedule - 1);
    if (def && l->slices > 1 && !sp_schedule_takes_slices(l->schedule))
        return sp_error(EINVAL,
                        "plan: %s does not cut sequences into slices; sppo, seq1f1b, slimpipe, "
                        "terapipe and helix do",
                        l->schedule);
    if (a->reserve_set && l->memory_limit)
        return sp_error(EINVAL,
                        "plan: --memory-limit is all that a layout may take of a device; leave "
                        "--reserve out");
    if ((a->devices || a->group_set) && (a->groups.tensor_parallel || a->groups.context_parallel))
        return sp_error(
            EINVAL,
            "plan: --%s chooses --tensor-parallel and --context-parallel; leave it or these out",
            a->devices ? "devices" : "group");
    if (l->slices > l->seq)
        return sp_error(EINVAL, "plan: %d slices of a sequence of %d tokens", l->slices, l->seq);
    if ((int64_t)l->micro_batches * l->micro_batch_size > INT32_MAX / 2 / pipelines)
        return sp_error(EINVAL, "plan: a step of %d x %d x %d sequences is too long", pipelines,
                        l->micro_batches, l->micro_batch_size);
    return 0;
}

/* Says why no layout could be tried. Returns 2, the exit status. */
static int refuse_all(const struct args *a, const struct sp_search *want)
{
    int all = want->nodes * want->machine->devices_per_node;
    int pipelines = want->data ? want->data : 1, devices = all / pipelines;

    if (want->stages > want->model->layers)
        sp_error(EINVAL, "plan: %d stages are more than the %d layers of %s", want->stages,
                 want->model->layers, want->model->name);
    else if (!devices || all % pipelines)
        sp_error(EINVAL,
                 "plan: --data-parallel %d: there are %d devices, which so many pipelines cannot "
                 "share evenly",
                 want->data, all);
    else if (want->stages && (devices % want->stages || want->stages > devices))
        sp_error(EINVAL,
                 "plan: %d nodes of %d devices do not make %d stages of equal size within nodes",
                 want->nodes, want->machine->devices_per_node, want->stages);
    else
        sp_error(EINVAL,
                 "plan: no schedule that train runs takes %d micro-batches of %s on %d devices; "
                 "other --micro-batches or --stages, or --simulated, may do",
                 a->layout.micro_batches, want->model->name, devices);
    return 2;
}

/* Takes --nodes, unless the machine says how many nodes it has. */
static int take_nodes(const struct sp_machine *machine, struct args *a)
{
    int nodes = sp_machine_nodes(machine);

    if (nodes && a->nodes_set && a->nodes != nodes)
        return sp_error(EINVAL, "plan: --nodes %d: %s has %d; leave --nodes out", a->nodes,
                        machine->name, nodes);
    a->nodes = nodes ? nodes : a->nodes;
    return 0;
}

/* Turns the options into a search request. 0, or -EINVAL after one line. */
static int make_request(const struct args *a, const struct sp_model *model,
                        const struct sp_machine *machine, struct sp_search *want)
{
    const struct sp_layout_args *l = &a->layout;
    struct sp_recompute_option recompute = {SP_RECOMPUTE_NONE, 1};

    *want = (struct sp_search){.schedule = l->schedule,
                               .model = model,
                               .dtype = a->dtype == BOTH_DTYPES ? SP_BF16 : (enum sp_dtype)a->dtype,
                               .any_dtype = a->dtype == BOTH_DTYPES,
                               .seq = l->seq,
                               .sequences = l->micro_batches * l->micro_batch_size *
                                            (a->groups.data_parallel ? a->groups.data_parallel : 1),
                               .batch = a->batch_set ? l->micro_batch_size : 0,
                               .stages = l->stages,
                               .devices = a->devices,
                               .group = (enum sp_search_group)a->group,
                               .data = a->groups.data_parallel,
                               .tensor = a->groups.tensor_parallel,
                               .context = a->groups.context_parallel,
                               .zero = a->zero_set ? a->groups.zero : SP_SEARCH_ZERO,
                               .chunks = l->chunks,
                               .slices = l->slices,
                               .cut = l->partition_slices,
                               .any_recompute = !l->recompute,
                               .any_offload = !l->offload,
                               .states_evicted = l->offload_optimizer,
                               .optimizer = (enum sp_update_device)l->optimizer_device,
                               .machine = machine,
                               .nodes = a->nodes,
                               .memory = (int64_t)l->memory_limit,
                               .reserve = a->reserve / 100.0,
                               .simulated = a->simulated};
    if ((l->recompute && sp_parse_recompute("plan", l->recompute, &recompute)) ||
        (l->offload && sp_parse_offload("plan", l, &want->offload)))
        return -EINVAL;
    want->recompute = recompute.mode;
    want->every = recompute.every;
    return 0;
}

int sp_cmd_plan(int argc, char **argv)
{
    struct args a = {.layout = {.micro_batches = 64, .micro_batch_size = 1, .seq = 65536},
                     .nodes = 1,
                     .top = 12,
                     .group = SP_SEARCH_BOTH,
                     .reserve = 8,
                     .dtype = SP_BF16,
                     .hardware = {SP_MACHINE_DEFAULT, 0}};
    static int (*const print[])(const struct sp_ranking *,
                                FILE *) = {[TEXT] = sp_ranking_text,
                                           [JSON] = sp_ranking_json,
                                           [HTML] = sp_ranking_html,
                                           [PICTURE] = sp_ranking_picture};
    static struct sp_found found[SP_RANKING_MOST];
    static struct sp_machine machine, order[SP_MACHINE_ORDERS];
    struct sp_search want;
    struct sp_ranking r = {.want = &want};
    struct sp_model model;
    int ret = parse_options(argc, argv, &a), n;

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (!a.layout.model) {
        sp_error(EINVAL, "plan: which model? give --model PRESET or --model DIR");
        return 2;
    }
    if (sp_model_load(a.layout.model, &model) || check_options(&a, &model) ||
        sp_step_machine(&a.hardware, (enum sp_dtype)a.dtype, &machine) ||
        take_nodes(&machine, &a) || make_request(&a, &model, &machine, &want))
        return 2;
    want.order = order;
    want.orders = sp_machine_orders(&machine, order);
    r.names = (struct sp_found_names){
        .model = a.layout.model, .hardware = a.hardware.name, .plugin = a.layout.plugin};
    r.top = a.top;
    sp_plan_progress_begin(&want, &r);
    n = sp_search(&want, found, SP_RANKING_MOST,
                  a.result.format == HTML ? SP_RANKING_MOST : a.top); /* a page shows all */
    r.stopped = sp_plan_progress_end();
    if (n < 0)
        return n == -EINVAL ? 2 : 1;
    if (n == 0)
        return r.stopped ? 1 : refuse_all(&a, &want);
    if (sp_result_begin("plan", a.result.output, 0))
        return 1;
    sp_ranking_take(&r, found, n);
    return print[a.result.format](&r, stdout) ? 1 : 0;
}
