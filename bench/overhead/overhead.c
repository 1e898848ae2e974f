/*
 * Measures the overhead of the engine: 1F1B on two stages, two workers of one process, with empty
 * codelets.
 *
 *   empty      time of a step, and of a task on its worker: submission, dependencies, scheduling
 *   2 ms       every task spins 2 ms: how much longer the pipeline takes than its list simulation
 *              (floor: tasks x 2 ms in the order of the programs, nothing in between)
 *
 * usage: overhead [micro-batches [steps]]      (a tenth of the steps for the 2 ms tasks)
 */
#include "graphs/weights/checkpoint.h"
#include "graphs/step.h"
#include "overhead.h"
#include "starpipe/order.h"
#include "policies/plan_create.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include "graphs/create.h"
#include "sinks/starpu/sink.h"
#include <stdio.h>
#include <stdlib.h>

enum { STAGES = 2, LAYERS = 6 };

struct bench {
    struct sp_model model;
    struct sp_params params;
    struct sp_plan plan;
    struct sp_placement place;
    struct sp_graph graph;
    struct sp_step_report report;
    struct sp_data_file file;
    struct sp_data data;
};

/* The best of `steps`, in microseconds: span from the first op to the last, and wall clock. */
static void best(struct bench *b, int steps, double *span, double *step, double *update)
{
    struct sp_update hp = {.lr = 0, .bias1 = 1, .bias2 = 1, .factor = 1};

    *span = *step = *update = 1e30;
    for (int k = 0; k < steps; k++) {
        double gradients;

        sp_step_gradients(&b->graph, &b->data, 0, &b->report);
        gradients = b->report.step_us;
        sp_step_update(&b->graph, &hp, &b->report);
        if (gradients < *step) {
            *step = gradients;
            *span = b->report.span_us;
        }
        if (b->report.step_us - gradients < *update)
            *update = b->report.step_us - gradients;
    }
}

/* Makespan of the list simulation when every task takes `us`, and tasks of the busiest stage. */
static double floor_us(const struct bench *b, double us, int *tasks)
{
    double f[STAGES], bw[STAGES];
    struct sp_costs costs = {.f = us, .b = us, .w = 0, .scale_f = f, .scale_b = bw};
    struct sp_times times;
    char why[256];
    double makespan;

    for (int s = 0; s < STAGES; s++) {
        int first, layers;

        sp_partition(LAYERS, STAGES, s, &first, &layers);
        f[s] = 3 * layers + (s == 0);                      /* pre, attn, post; embed */
        bw[s] = 5 * layers + (s == 0) + (s == STAGES - 1); /* with weight gradients; head */
    }
    *tasks = (int)(f[0] + bw[0]) * b->plan.layout.micro_batches;
    if (sp_listsim(&b->plan, &costs, SP_UNBOUNDED, &times, why, sizeof why))
        exit(1);
    makespan = times.makespan;
    sp_times_destroy(&times);
    return makespan;
}

static void start(struct bench *b, int micro_batches)
{
    static const struct sp_world alone = {.size = 1, .node_size = 1};
    static const unsigned char text[] = "the quick brown fox jumps over the lazy dog";
    struct sp_layout layout = {.stages = STAGES,
                               .micro_batches = micro_batches,
                               .slices = 1,
                               .layers = LAYERS,
                               .options = ""};
    struct sp_shape shape;
    struct sp_graph_config cfg = {.sink = sp_starpu_sink(),
                                  .params = &b->params,
                                  .plan = &b->plan,
                                  .shape = &shape,
                                  .every = 1};
    struct starpu_conf conf;

    setenv("STARPU_WORKERS_NOBIND", "1", 0);
    setenv("STARPU_SILENT", "1", 0);
    if (sp_model_load("gpt-tiny", &b->model))
        exit(1);
    b->model.layers = LAYERS;
    sp_shape_init(&shape, &b->model, 1, 8, micro_batches);
    b->file = (struct sp_data_file){.bytes = text, .tokens = sizeof text, .width = 1};
    b->data = (struct sp_data){.file = &b->file, .files = 1, .tokens = sizeof text};
    starpu_conf_init(&conf);
    conf.precedence_over_environment_variables = 1;
    conf.ncpus = STAGES;
    conf.ncuda = 0;
    conf.sched_policy = &sp_order_strict;
    if (sp_params_create(&b->model, &b->params) || sp_plan_create("1f1b", &layout, &b->plan) ||
        sp_placement_init(&b->place, &alone, 1, STAGES, 1) || starpu_init(&conf))
        exit(1);
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    sp_placement_bind(&b->place);
    if (sp_graph_create(&cfg, &b->place, &b->graph) || sp_checkpoint_init(&b->graph, NULL) ||
        sp_step_report_create(&b->graph, &b->report))
        exit(1);
}

int main(int argc, char **argv)
{
    static struct bench b;
    double span, step, update, floor;
    int tasks, steps = argc > 2 ? atoi(argv[2]) : 60;

    start(&b, argc > 1 ? atoi(argv[1]) : 16);
    if (b.place.workers < STAGES)
        printf("only %d core: two workers share it, the figures mean nothing\n", b.place.workers);

    best(&b, steps, &span, &step, &update);
    floor_us(&b, 0, &tasks);
    printf("empty codelets: %.2f ms a step and %.2f ms its update, %d tasks on a worker: %.1f us a "
           "task\n",
           step / 1e3, update / 1e3, tasks, step / tasks);

    bench_spin_us = 2000;
    best(&b, 1 + steps / 10, &span, &step, &update);
    floor = floor_us(&b, bench_spin_us, &tasks);
    printf(
        "2 ms tasks: %.1f ms a step, %.1f ms from first op to last, list simulation %.1f ms: the "
        "engine adds %.2f %% (%.2f %% between the ops)\n",
        step / 1e3, span / 1e3, floor / 1e3, 100 * (step / floor - 1), 100 * (span / floor - 1));

    sp_step_report_destroy(&b.graph, &b.report);
    sp_graph_destroy(&b.graph);
    starpu_shutdown();
    sp_plan_destroy(&b.plan);
    sp_params_destroy(&b.params);
    return 0;
}
