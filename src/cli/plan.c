/*
 * starpipe plan: which schedule, and which layout, for a model on a machine; without running.
 *
 * As JSON, one object: model, hardware, nodes, dtype, seq, sequences (of a step), and layouts[], the best first:
 *   command              that trains with it
 *   trains               whether train runs it; otherwise it is simulated only
 *   fits                 into the memory of devices and nodes
 *   schedule, stages, devices (of a stage), tensor_parallel, context_parallel (whose product they are),
 *   micro_batches, micro_batch_size, chunks, slices, recompute, offload
 *   step_ms, tokens_per_s (of a device), bubble_ratio, stall_ms, memory_bytes (of the fullest device),
 *   host_bytes (of the fullest node, of what left)
 */
#include "cli/commands.h"
#include "cli/options.h"
#include "model/model.h"
#include "plan/search/search.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "sp_figure.h"
#include "sp_text.h"
#include "sp_utf8.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64, COMMAND = 512 };

struct args {
    struct sp_layout_args layout;
    int nodes, devices, top, dtype;
    const char *hardware;
    int group;
    bool json, schedule_set, batch_set;
};

static int parse(int argc, char **argv, struct args *a)
{
    const struct sp_option options[] = {
        {"model", SP_OPT_STRING, &a->layout.model, "PRESET|DIR", "the model", 0, 0, 0, 0, 0},
        {"seq", SP_OPT_INT, &a->layout.seq, "S", "tokens of a sequence", 1, 1 << 30, 0, 0, 0},
        {"micro-batches", SP_OPT_INT, &a->layout.micro_batches, "M",
         "micro-batches of a step (with --micro-batch-size B: M x B sequences, however they are "
         "cut)",
         1, SP_MAX_SIZE, 0, 0, 0},
        {"micro-batch-size", SP_OPT_INT, &a->layout.micro_batch_size, "B",
         "sequences of a micro-batch (default: any up to 8)", 1, 1 << 20, 0, &a->batch_set, 0},
        {"hardware", SP_OPT_STRING, &a->hardware, "NAME|FILE.json",
         "the machine, named or described in a file", 0, 0, 0, 0, 0},
        {"nodes", SP_OPT_INT, &a->nodes, "N", "its nodes", 1, 4096, 0, 0, 0},
        {"stages", SP_OPT_INT, &a->layout.stages, "P", "pipeline stages (0: any)", 0, 1 << 16, 0, 0,
         0},
        {"devices", SP_OPT_INT, &a->devices, "T", "devices of a stage (0: any)", 0, 64, 0, 0, 0},
        {"group", SP_OPT_CHOICE, &a->group, 0,
         "what the devices of a stage share: parameters, the tokens of sequences, or any grid of "
         "both",
         0, 0, "tensor|context|both", 0, 0},
        {"schedule", SP_OPT_STRING, &a->layout.schedule, "NAME[:key=value,...]",
         "the schedule (default: all)", 0, 0, 0, &a->schedule_set, 0},
        {"chunks", SP_OPT_INT, &a->layout.chunks, "V",
         "chunks per stage (0: what the schedule wants)", 0, 1 << 16, 0, 0, 0},
        {"slices", SP_OPT_INT, &a->layout.slices, "N", "slices of a sequence (0: any)", 0,
         SP_MAX_SLICES, 0, 0, 0},
        {"partition-slices", SP_OPT_STRING, &a->layout.partition_slices, "HOW",
         "length, flops, dp, or the tokens of each", 0, 0, 0, 0, 0},
        {"recompute", SP_OPT_STRING, &a->layout.recompute, "HOW",
         "none, selective, no-attention, full, every=K (default: the least that fits)", 0, 0, 0, 0,
         0},
        {"offload", SP_OPT_STRING, &a->layout.offload, "HOW",
         "none, full, adaptive (default: adaptive where nothing else fits)", 0, 0, 0, 0, 0},
        {"memory-limit", SP_OPT_SIZE, &a->layout.memory_limit, "BYTES",
         "memory of a device (default: the machine's)", 0, 0, 0, 0, 0},
        {"dtype", SP_OPT_CHOICE, &a->dtype, 0, "type of activations, and of weights in products", 0,
         0, "f32|bf16", 0, 0},
        {"plugin", SP_OPT_PLUGIN, &a->layout.plugin, "FILE.so,...", SP_PLUGIN_HELP, 0, 0, 0, 0, 0},
        {"top", SP_OPT_INT, &a->top, "K", "layouts to print", 1, MOST, 0, 0, 0},
        {"json", SP_OPT_FLAG, &a->json, 0, "one JSON object", 0, 0, 0, 0, 0},
        {0},
    };

    return sp_options_parse(options,
                            "Finds the fastest layout of a model on a machine, without running it.",
                            argc, argv);
}

static int print_json(const struct args *a, const struct sp_search *want, const struct sp_found *f,
                      int n)
{
    json_t *list = json_array(), *root;
    int ret = 0;

    for (int i = 0; i < n; i++) {
        char command[COMMAND];
        json_t *one;

        sp_found_command(want, &f[i], a->layout.model, command, sizeof command);
        one = json_pack("{s:o,s:b,s:b,s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:s}", "command",
                        sp_utf8_json(command), "trains", f[i].trains, "fits", f[i].fits, "schedule",
                        sp_utf8_json(f[i].schedule), "stages", f[i].stages, "devices",
                        f[i].devices * f[i].context, "micro_batches", f[i].micro_batches,
                        "micro_batch_size", f[i].batch, "chunks", f[i].chunks, "slices",
                        f[i].slices, "recompute", sp_recompute_name(f[i].recompute), "offload",
                        sp_offload_name(f[i].offload));
        json_object_update_new(one, json_pack("{s:i,s:i}", "tensor_parallel", f[i].devices,
                                              "context_parallel", f[i].context));
        json_object_set_new(one, "vocabulary_parallel", json_boolean(f[i].vocabulary));
        json_object_update_new(
            one, json_pack("{s:f,s:f,s:f,s:f,s:I,s:I}", "step_ms", f[i].step_ms, "tokens_per_s",
                           f[i].tokens_per_s, "bubble_ratio", sp_figure(f[i].bubble, SP_FIGURE_ALL),
                           "stall_ms", sp_figure(f[i].stall_ms, SP_FIGURE_ALL), "memory_bytes",
                           (json_int_t)f[i].memory, "host_bytes", (json_int_t)f[i].host));
        json_array_append_new(list, one);
    }
    root = json_pack("{s:o,s:o,s:i,s:s,s:i,s:i,s:o}", "model", sp_utf8_json(a->layout.model),
                     "hardware", sp_utf8_json(want->machine->name), "nodes", want->nodes, "dtype",
                     sp_dtype_name(want->dtype), "seq", want->seq, "sequences", want->sequences,
                     "layouts", list);
    if (!root || json_dumpf(root, stdout, JSON_INDENT(1)) || putchar('\n') == EOF)
        ret = 1;
    if (!root)
        sp_error(ENOMEM, "plan: no memory for the layouts of %s", a->layout.model);
    json_decref(root);
    return ret;
}

/* The first that train runs; NULL: none. */
static const struct sp_found *recommended(const struct sp_found *f, int n)
{
    for (int i = 0; i < n; i++)
        if (f[i].fits && f[i].trains)
            return &f[i];
    return NULL;
}

static void print_row(const struct sp_found *f)
{
    char devices[24];

    snprintf(devices, sizeof devices, f->context > 1 ? "%dx%d" : "%d", f->devices, f->context);
    printf("%-18s %6d %4s %5d %3d %3d %5d  %-12s %-8s %10.4g %9.4g %8.1f %10.2f%s%s\n", f->schedule,
           f->stages, devices, f->micro_batches, f->batch, f->chunks, f->slices,
           sp_recompute_name(f->recompute), sp_offload_name(f->offload), f->step_ms,
           f->tokens_per_s, sp_figure(100 * f->bubble, 1), (double)f->memory / (1 << 30),
           f->vocabulary ? "  vocabulary-parallel" : "",
           !f->fits     ? "  does not fit"
           : !f->trains ? "  simulated only"
                        : "");
}

static void print_text(const struct args *a, const struct sp_search *want, const struct sp_found *f,
                       int n)
{
    const struct sp_found *best = recommended(f, n);
    char command[COMMAND], model[SP_TEXT_SHOWN];

    printf("%s, %d sequences of %d tokens a step in %s, on %d x %d devices of %s\n",
           sp_text_show(a->layout.model, model, sizeof model), want->sequences, want->seq,
           sp_dtype_name(want->dtype), want->nodes, want->machine->devices_per_node,
           want->machine->name);
    printf("schedule           stages  dev     m   b   v     n  recompute    offload     step ms  "
           "tok/s/dev bubble %%  GiB a device\n");
    for (int i = 0; i < n && i < a->top; i++)
        print_row(&f[i]);
    if (best) {
        sp_found_command(want, best, a->layout.model, command, sizeof command);
        printf("recommended: %s\n", command);
    } else if (f[0].fits) {
        printf("train runs none of these: it cannot share heads, MLP or tokens among so many "
               "devices, or not with this schedule%s\n",
               want->group == SP_SEARCH_TENSOR ? "; --group both shares tokens, too" : "");
    } else {
        printf("nothing fits: the first one needs least; try --nodes, shorter sequences, or "
               "--recompute full\n");
    }
}

static int check(const struct args *a, const struct sp_model *model)
{
    const struct sp_layout_args *l = &a->layout;
    const struct sp_schedule_def *def = l->schedule ? sp_schedule_find(l->schedule) : NULL;

    if (sp_model_check_step(
            model, &(struct sp_step_size){l->seq, l->micro_batch_size, l->micro_batches}, "plan: "))
        return -EINVAL;
    if (l->schedule && !def)
        return sp_error(EINVAL, "plan: there is no schedule '%s'; starpipe list has them",
                        l->schedule);
    if (def && l->slices > 1 && !sp_schedule_takes_slices(l->schedule))
        return sp_error(
            EINVAL,
            "plan: %s does not cut sequences into slices; sppo, seq1f1b, slimpipe, terapipe and "
            "helix do",
            l->schedule);
    if (l->slices > l->seq)
        return sp_error(EINVAL, "plan: %d slices of a sequence of %d tokens", l->slices, l->seq);
    if ((int64_t)l->micro_batches * l->micro_batch_size > INT32_MAX / 2)
        return sp_error(EINVAL, "plan: a step of %d x %d sequences is too long", l->micro_batches,
                        l->micro_batch_size);
    return 0;
}

/* Where no layout could be tried: says why. 2. */
static int refuse_all(const struct args *a, const struct sp_search *want)
{
    int devices = want->nodes * want->machine->devices_per_node;

    if (want->stages > want->model->layers)
        sp_error(EINVAL, "plan: %d stages are more than the %d layers of %s", want->stages,
                 want->model->layers, want->model->name);
    else if (want->stages && (devices % want->stages || want->stages > devices))
        sp_error(EINVAL,
                 "plan: %d nodes of %d devices do not make %d stages of equal size within nodes",
                 want->nodes, want->machine->devices_per_node, want->stages);
    else
        sp_error(EINVAL,
                 "plan: no schedule takes %d micro-batches of %s on %d devices; other "
                 "--micro-batches or --stages may do",
                 a->layout.micro_batches, want->model->name, devices);
    return 2;
}

/* What was asked for, of the options. 0 or -EINVAL after one line. */
static int take(const struct args *a, const struct sp_model *model,
                const struct sp_machine *machine, struct sp_search *want)
{
    const struct sp_layout_args *l = &a->layout;
    struct sp_recompute_option recompute = {SP_RECOMPUTE_NONE, 1};

    *want = (struct sp_search){.schedule = l->schedule,
                               .model = model,
                               .dtype = (enum sp_dtype)a->dtype,
                               .seq = l->seq,
                               .sequences = l->micro_batches * l->micro_batch_size,
                               .batch = a->batch_set ? l->micro_batch_size : 0,
                               .stages = l->stages,
                               .devices = a->devices,
                               .group = (enum sp_search_group)a->group,
                               .chunks = l->chunks,
                               .slices = l->slices,
                               .cut = l->partition_slices,
                               .any_recompute = !l->recompute,
                               .any_offload = !l->offload,
                               .machine = machine,
                               .nodes = a->nodes,
                               .memory = (int64_t)l->memory_limit};
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
                     .dtype = SP_BF16,
                     .hardware = SP_MACHINE_DEFAULT};
    static struct sp_found best[MOST];
    static struct sp_machine machine;
    struct sp_search want;
    struct sp_model model;
    int ret = parse(argc, argv, &a), n;

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (!a.layout.model) {
        sp_error(EINVAL, "plan: which model? give --model PRESET or --model DIR");
        return 2;
    }
    if (sp_model_load(a.layout.model, &model) || check(&a, &model) ||
        sp_machine_load(a.hardware, &machine) || take(&a, &model, &machine, &want))
        return 2;
    n = sp_search(&want, best, MOST);
    if (n < 0)
        return n == -EINVAL ? 2 : 1;
    if (n == 0)
        return refuse_all(&a, &want);
    if (a.json)
        ret = print_json(&a, &want, best, n < a.top ? n : a.top);
    else
        print_text(&a, &want, best, n);
    return ret;
}
