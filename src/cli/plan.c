/*
 * starpipe plan: how to lay out a long sequence on a cluster, without running: devices of a stage,
 * stages, slices.
 */
#include "cli/commands.h"
#include "cli/options.h"
#include "model/model.h"
#include "plan/solver.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "train/slices_auto.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

struct args {
    struct sp_layout_args layout;
    int nodes, per_node, top;
    double tflops, link, network, write, read;
    int dtype;
    bool json;
};

static int parse(int argc, char **argv, struct args *a)
{
    const struct sp_option options[] = {
        SP_LAYOUT_OPTIONS(a->layout),
        {"dtype", SP_OPT_CHOICE, &a->dtype, 0, "type of activations, and of weights in products", 0,
         0, "f32|bf16", 0},
        {"nodes", SP_OPT_INT, &a->nodes, "N", "nodes of the cluster", 1, 4096, 0, 0},
        {"per-node", SP_OPT_INT, &a->per_node, "D", "devices of a node", 1, 64, 0, 0},
        {"tflops", SP_OPT_DOUBLE, &a->tflops, "X",
         "what a device sustains, 10^12 operations a second", 1e-6, 1e9, 0, 0},
        {"link", SP_OPT_DOUBLE, &a->link, "X", "bandwidth between devices of a node, GB/s", 1e-6,
         1e9, 0, 0},
        {"network", SP_OPT_DOUBLE, &a->network, "X", "bandwidth between nodes, GB/s", 1e-6, 1e9, 0,
         0},
        {"tier-write", SP_OPT_DOUBLE, &a->write, "X",
         "bandwidth from a device to where activations are offloaded, GB/s", 1e-6, 1e9, 0, 0},
        {"tier-read", SP_OPT_DOUBLE, &a->read, "X", "bandwidth from there back to a device, GB/s",
         1e-6, 1e9, 0, 0},
        {"top", SP_OPT_INT, &a->top, "K", "layouts to print", 1, MOST, 0, 0},
        {"json", SP_OPT_FLAG, &a->json, 0, "one JSON object", 0, 0, 0, 0},
        {0},
    };

    return sp_options_parse(options,
                            "Finds devices of a stage, stages and slices for a long sequence (SPPO "
                            "section 6.1).",
                            argc, argv);
}

static int print_json(const struct args *a, const struct sp_solution *s, int n)
{
    json_t *list = json_array(), *root;
    int ret = 0;

    for (int i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:i,s:i,s:i,s:f,s:f,s:f,s:I,s:b}", "sp", s[i].sp, "pp",
                                        s[i].pp, "n", s[i].n, "step_s", s[i].step_s, "bubble_ratio",
                                        s[i].bubble, "stall_s", s[i].stall_s, "memory_bytes",
                                        (json_int_t)s[i].memory, "fits", s[i].fits));
    root = json_pack("{s:s,s:s,s:s,s:i,s:o}", "schedule", a->layout.schedule, "model",
                     a->layout.model, "dtype", sp_dtype_name((enum sp_dtype)a->dtype), "seq",
                     a->layout.seq, "layouts", list);
    if (!root || json_dumpf(root, stdout, JSON_INDENT(1)) || putchar('\n') == EOF)
        ret = 1;
    if (!root)
        sp_error(EINVAL, "plan: %s cannot be written as JSON: its name is no UTF-8",
                 a->layout.model);
    json_decref(root);
    return ret;
}

static void print_text(const struct args *a, const struct sp_solution *s, int n)
{
    const struct sp_layout_args *l = &a->layout;
    double tokens = (double)l->seq * l->micro_batch_size * l->micro_batches;

    printf(
        "%s, %d micro-batches of %d x %d tokens in %s, %s with --offload %s on %d x %d devices of "
        "%.4g TFLOP/s\n",
        l->model, l->micro_batches, l->micro_batch_size, l->seq,
        sp_dtype_name((enum sp_dtype)a->dtype), l->schedule, l->offload, a->nodes, a->per_node,
        a->tflops);
    printf("   SP    PP     N     step s   tokens/s  bubble %%  stall s  GiB a device\n");
    for (int i = 0; i < n; i++)
        printf("%5d %5d %5d %10.4g %10.4g %9.1f %8.3g %13.2f%s\n", s[i].sp, s[i].pp, s[i].n,
               s[i].step_s, tokens / s[i].step_s, 100 * s[i].bubble, s[i].stall_s,
               (double)s[i].memory / (1 << 30), s[i].fits ? "" : "  does not fit");
    if (!s[0].fits)
        printf("nothing fits: the first one needs least; try --offload, --recompute full, or more "
               "devices\n");
    else
        printf("recommended: --schedule %s --stages %d --slices %d, %d device%s a stage\n",
               l->schedule, s[0].pp, s[0].n, s[0].sp, s[0].sp > 1 ? "s" : "");
}

/* Where no layout could be tried: says why. 2. */
static int refuse_all(const struct args *a, const struct sp_model *model,
                      const struct sp_solver_request *want)
{
    if (sp_solver_layouts(want) > 0)
        sp_slices_refuse_parts("plan", want);
    else if (want->stages)
        sp_error(EINVAL,
                 "plan: %d nodes of %d devices do not make %d stages of equal size within nodes",
                 a->nodes, a->per_node, want->stages);
    else
        sp_error(
            EINVAL,
            "plan: %d nodes of %d devices are more than the %d layers of %s even with a stage a "
            "node; take fewer nodes",
            a->nodes, a->per_node, model->layers, model->name);
    return 2;
}

int sp_cmd_plan(int argc, char **argv)
{
    struct args a = {.layout = SP_LAYOUT_ARGS_DEFAULT,
                     .nodes = 1,
                     .per_node = 8,
                     .top = 8,
                     .tflops = 400,
                     .link = 400,
                     .network = 50,
                     .write = 25,
                     .read = 25};
    static struct sp_solution best[MOST];
    struct sp_solver_request want;
    struct sp_model model;
    int ret, n;

    a.layout.schedule = "sppo";
    a.layout.micro_batches = 1;
    a.layout.slices = 0;
    a.layout.seq = 65536;
    ret = parse(argc, argv, &a);
    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (!a.layout.model) {
        sp_error(EINVAL, "plan: which model? give --model PRESET or --model DIR");
        return 2;
    }
    if (sp_model_load(a.layout.model, &model) ||
        sp_slices_request("plan", &a.layout, &model, &want))
        return 2;
    want.dtype = (enum sp_dtype)a.dtype;
    want.cluster = (struct sp_cluster){.nodes = a.nodes,
                                       .per_node = a.per_node,
                                       .flops = 1e12 * a.tflops,
                                       .link = 1e9 * a.link,
                                       .network = 1e9 * a.network,
                                       .tier = {1e9 * a.write, 1e9 * a.read},
                                       .memory = (int64_t)a.layout.memory_limit,
                                       .task_s = 1e-5};
    n = sp_solve(&want, best, a.top);
    if (n < 0)
        return n == -EINVAL ? 2 : 1;
    if (n == 0)
        return refuse_all(&a, &model, &want);
    if (a.json)
        ret = print_json(&a, best, n);
    else
        print_text(&a, best, n);
    return ret;
}
