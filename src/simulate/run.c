#define _GNU_SOURCE /* dladdr */
#include "simulate/run.h"
#include "config.h"
#include "sinks/starpu/sink.h"
#include "transport/transport.h"
#include <errno.h>
#ifdef HAVE_SIMGRID
#include "graphs/create.h"
#include "graphs/step.h"
#include "offload/host_memory.h"
#include "policies/simulation/costs.h"
#include "simulate/network.h"
#include "simulate/platform.h"
#include "sp_error.h"
#include "starpipe/order.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct run {
    const struct sp_simulation *s;
    struct sp_platform platform;
    int members, ranks, n_graphs; /* members: of a stage */
    struct sp_graph *graphs;      /* [ranks], each like that of a process of its own */
    double second;                /* simulated seconds of a unit of the costs */
    double stretch;               /* simulated time over the machine's time */
    double began_us;
    struct sp_simulated *out;
};

bool sp_can_simulate(void)
{
    return true;
}

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Scales the longest op to a thousand seconds, so that the microseconds that StarPU's workers take
 * to wake up do not matter. */
static double choose_second(const struct sp_simulation *s)
{
    double longest = 0;

    for (int stage = 0; stage < s->plan->layout.stages; stage++)
        for (int k = 0; k < s->plan->programs[stage].n; k++)
            longest = fmax(longest,
                           sp_op_cost(s->plan, s->costs, stage, &s->plan->programs[stage].ops[k]));
    return longest > 0 ? 1000 / longest : 1000;
}

static int start_starpu(const struct run *r)
{
    struct starpu_conf conf;

    starpu_conf_init(&conf);
    conf.precedence_over_environment_variables = 1;
    conf.ncpus = r->ranks;
    conf.ncuda = conf.nopencl = conf.nhip = 0;
    conf.sched_policy = &sp_order_strict;
    conf.catch_signals = 0;
    if (sp_transport_start(&conf))
        return sp_error(ENODEV, "simulate: StarPU did not start");
    if ((int)starpu_cpu_worker_get_count() != r->ranks) {
        sp_transport_stop();
        return sp_error(ENODEV, "simulate: StarPU started %u workers for %d devices",
                        starpu_cpu_worker_get_count(), r->ranks);
    }
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    return 0;
}

/* ---- the graphs -------------------------------------------------------------------------------- */

static int set_times(const struct run *r, struct sp_graph *g, int stage)
{
    const struct sp_simulation *s = r->s;
    const struct sp_program *prog = &s->plan->programs[stage];
    struct sp_op_time *times = calloc((size_t)prog->n, sizeof *times);

    if (!times)
        return sp_error(ENOMEM, "simulate: no memory for %d ops", prog->n);
    for (int k = 0; k < prog->n; k++) {
        double us = 1e6 * r->second * sp_op_cost(s->plan, s->costs, stage, &prog->ops[k]);

        times[k].share = s->share;
        if (k > 0 && prog->ops[k - 1].overlap)
            times[k].leads = &times[k - 1];
        (times[k].leads ? times[k].leads : &times[k])->us += us;
    }
    for (int turn = 0; turn < 2; turn++)
        g->stages[0].meter[turn].times = times;
    return 0;
}

/* Creates the graph of a stage's member: rank stage * members + member. */
static int create_graph(struct run *r, int rank)
{
    const struct sp_simulation *s = r->s;
    struct sp_graph *g = &r->graphs[rank];
    int stage = rank / r->members;
    const struct sp_graph_config cfg = {
        .sink = sp_starpu_sink(),
        .params = s->params,
        .plan = s->plan,
        .shape = s->shape,
        .recompute = s->recompute,
        .every = s->every,
        .window = sp_plan_ops(s->plan) + 1, /* tasks run only after all are submitted */
    };
    const struct sp_placement place = {
        .world = {.rank = rank, .size = r->ranks, .node_size = 1},
        .pipelines = r->members,
        .pipeline = rank % r->members,
        .stages = s->plan->layout.stages,
        .n_local = 1,
        .first_local = stage,
        .workers = 1,
        .first_worker = rank,
        .threads = 1,
        .cores = 1,
    };
    int err;

    sp_sim_network_act_as(rank);
    err = sp_graph_create(&cfg, &place, g);
    r->n_graphs = rank + 1;
    return err ? err : set_times(r, g, stage);
}

static void destroy_graphs(struct run *r)
{
    for (int rank = 0; rank < r->n_graphs; rank++) {
        struct sp_graph *g = &r->graphs[rank];

        if (g->stages)
            free(g->stages[0].meter[0].times);
        sp_graph_destroy(g);
    }
    free(r->graphs);
}

/* ---- the step ------------------------------------------------------------------------------------ */

static double resident_bytes(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_SELF, &usage) ? 0 : 1024.0 * (double)usage.ru_maxrss;
}

/*
 * All tasks of a step exist at once, ten kilobytes each. The memory of the first process's tasks
 * predicts that of all. Submitted tasks cannot be withdrawn, so if it is too much, the program
 * ends.
 */
static void check_memory(const struct run *r, double before)
{
    const double GiB = 1024.0 * 1024 * 1024;
    double wanted = before + (resident_bytes() - before) * r->ranks;
    struct sp_memory_limit has = sp_host_memory_has(1);

    if (wanted < (double)has.bytes)
        return;
    sp_error(EINVAL,
             "simulate: the tasks of the step take about %.1f GiB, %s has room for %.1f; take "
             "fewer micro-batches, slices, layers or devices of a stage",
             wanted / GiB, has.origin, (double)has.bytes / GiB);
    _exit(2);
}

/* Workers pause until everything is submitted, because only then the tasks of each op are
 * counted. */
static int play(struct run *r, struct sp_simulated *out)
{
    double start = seconds_now(), before = resident_bytes(), submitted;

    starpu_pause();
    for (int rank = 0; rank < r->ranks; rank++) {
        sp_sim_network_act_as(rank);
        sp_step_begin(&r->graphs[rank], NULL, 0);
        sp_step_rest(&r->graphs[rank], NULL, false);
        if (rank == 0)
            check_memory(r, before);
    }
    submitted = seconds_now();
    r->began_us = starpu_timing_now();
    starpu_resume();
    sp_transport_wait_all();
    out->submit_s = submitted - start;
    out->run_s = seconds_now() - submitted;
    if (sp_sim_network_unmatched())
        return sp_error(EPROTO, "simulate: internal: %ld messages have one end only",
                        sp_sim_network_unmatched());
    return 0;
}

static double units(const struct run *r, double us)
{
    return us / 1e6 / r->second;
}

/* A moment of the step for a report, in which a unit is 1000 us; 0 (not known) stays 0. */
static double moment(const struct run *r, double us)
{
    return us > 0 ? 1e3 * units(r, us - r->began_us) : 0;
}

/* Fills in the report of a stage as a run would. */
static void take_report(const struct run *r, const struct sp_graph *g, const struct sp_meter *meter,
                        struct sp_stage_report *out)
{
    const struct sp_message_log *log = &g->stages[0].log[g->turn];

    out->worker = g->stages[0].worker;
    out->bytes_sent = (double)g->stages[0].bytes_sent[g->turn];
    out->peak_bytes = (double)meter->peak_bytes;
    for (int k = 0; k < out->n_ops; k++) {
        const struct sp_op_record *from = &meter->ops[k];
        struct sp_op_record *op = &out->ops[k];

        op->start_us = moment(r, from->start_us);
        op->end_us = moment(r, from->end_us);
        op->busy_us = 1e3 * units(r, from->busy_us);
        op->exchange_us = 1e3 * units(r, from->exchange_us);
        op->out_us = moment(r, from->out_us);
        op->ready_us = moment(r, from->ready_us);
        op->arrived_us = moment(r, from->arrived_us);
        out->busy_us += op->busy_us;
    }
    out->n_messages = log->n;
    for (int i = 0; i < log->n; i++)
        out->messages[i] = (struct sp_message_end){
            log->record[i].number, log->record[i].sends, moment(r, log->record[i].times.ready_us),
            moment(r, log->record[i].times.begun_us), moment(r, log->record[i].times.ended_us)};
}

/* Returns when the last op of all members ended, and adds up their tasks. */
static double take_all(const struct run *r, struct sp_simulated *out)
{
    double last = 0;

    for (int rank = 0; rank < r->ranks; rank++) {
        struct sp_graph *g = &r->graphs[rank];
        const struct sp_meter *meter = sp_stage_meter(g, &g->stages[0]);

        for (int k = 0; k < meter->n_ops; k++) {
            last = fmax(last, meter->ops[k].end_us);
            out->tasks += meter->times[k].tasks;
        }
    }
    return units(r, last - r->began_us);
}

/* Takes the times of ops from the meter of the first member of each stage. */
static int take_times(const struct run *r, struct sp_simulated *out)
{
    const struct sp_plan *plan = r->s->plan;
    int stages = plan->layout.stages;
    size_t p = (size_t)stages;

    out->busy = calloc(p, sizeof *out->busy);
    out->peak_bytes = calloc(p, sizeof *out->peak_bytes);
    out->bytes_sent = calloc(p, sizeof *out->bytes_sent);
    if (!out->busy || !out->peak_bytes || !out->bytes_sent || sp_times_create(plan, &out->times))
        return sp_error(ENOMEM, "simulate: no memory for the times of %d stages", stages);
    if (sp_step_report_create(&r->graphs[0], &out->report))
        return -ENOMEM;
    out->stages = stages;
    out->members = r->members;
    for (int s = 0; s < stages; s++) {
        struct sp_graph *g = &r->graphs[s * r->members];
        const struct sp_meter *meter = sp_stage_meter(g, &g->stages[0]);

        out->peak_bytes[s] = meter->peak_bytes;
        out->bytes_sent[s] = (double)g->stages[0].bytes_sent[g->turn];
        take_report(r, g, meter, &out->report.stages[s]);
        for (int k = 0; k < plan->programs[s].n; k++) {
            const struct sp_op_record *op = &meter->ops[k];

            out->times.start[s][k] = units(r, op->start_us - r->began_us);
            out->times.end[s][k] = units(r, op->end_us - r->began_us);
            out->busy[s] += units(r, op->busy_us);
        }
    }
    out->times.makespan = take_all(r, out); /* of all members, not only the first ones */
    sp_times_summarize(plan, r->s->costs, &out->times);
    out->report.span_us = out->report.step_us = 1e3 * out->times.makespan;
    for (int s = 0; s < stages; s++) {
        struct sp_stage_report *stage = &out->report.stages[s];

        stage->idle_us = out->report.span_us - stage->busy_us;
        stage->bubble_ratio = stage->idle_us / out->report.span_us;
    }
    return 0;
}

static int take_messages(const struct run *r, struct sp_simulated *out)
{
    const struct sp_carried *c = sp_sim_network_carried(&out->n_messages);

    out->messages = calloc((size_t)out->n_messages + 1, sizeof *out->messages);
    if (!out->messages)
        return sp_error(ENOMEM, "simulate: no memory for %ld messages", out->n_messages);
    out->step = out->times.makespan;
    for (long i = 0; i < out->n_messages; i++) {
        out->messages[i] = (struct sp_sim_message){.from = c[i].from,
                                                   .to = c[i].to,
                                                   .bytes = c[i].bytes,
                                                   .ready = units(r, c[i].ready - r->began_us),
                                                   .arrived = units(r, c[i].arrived - r->began_us)};
        out->step = fmax(out->step, out->messages[i].arrived);
    }
    return 0;
}

static int run_step(struct run *r, struct sp_simulated *out)
{
    int err = 0;

    r->graphs = calloc((size_t)r->ranks, sizeof *r->graphs);
    if (!r->graphs)
        err = sp_error(ENOMEM, "simulate: no memory for %d graphs", r->ranks);
    for (int rank = 0; !err && rank < r->ranks; rank++)
        err = create_graph(r, rank);
    err = err ? err : play(r, out);
    err = err ? err : take_times(r, out);
    err = err ? err : take_messages(r, out);
    destroy_graphs(r);
    out->resident_bytes = (int64_t)resident_bytes();
    return err;
}

/* ---- SimGrid's own start, with its actors in place of threads -------------------------------------- */

/* The run, which a process makes once. */
static struct run *running;

/*
 * StarPU-SimGrid expects to be the program: its main() reads the platform and calls starpu_main()
 * as the first actor, on the host MAIN. Here only one command simulates, and only once it has made
 * its platform, so it calls that main() itself. StarPU's alternative, in starpu_init(), makes every
 * actor a thread and is some thirty times slower.
 */
__attribute__((visibility("default"))) int starpu_main(int argc, char **argv);

int starpu_main(int argc, char **argv)
{
    int err = start_starpu(running);

    (void)argc, (void)argv;
    sp_platform_destroy(&running->platform); /* already read; removed now, however the run ends */
    if (!err) {
        err = run_step(running, running->out);
        sp_transport_stop();
    }
    return err;
}

/* Returns the result of starpu_main when all actors have ended; or -ENOSYS after one line. */
static int run_actors(struct run *r)
{
    static char name[] = "starpipe-sim", log[] = "--log=root.threshold:warning";
    char *argv[] = {name, log, NULL};
    int (*start)(int, char **) = NULL;
    void *library = NULL;
    Dl_info info;

    if (dladdr((void *)(uintptr_t)starpu_init, &info) && info.dli_fname)
        library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library)
        *(void **)&start = dlsym(library, "main");
    if (!start)
        return sp_error(ENOSYS, "simulate: libstarpu has no main(): is it a shared library?");
    running = r;
    return start(2, argv);
}

int sp_sim_run(const struct sp_simulation *s, struct sp_simulated *out)
{
    struct run r = {.s = s, .members = s->shape->pipelines * s->shape->tensor, .out = out};
    int err;

    *out = (struct sp_simulated){0};
    r.ranks = s->plan->layout.stages * r.members;
    if (r.ranks > STARPU_MAXCPUS)
        return sp_error(EINVAL,
                        "simulate: %d stages of %d devices, this StarPU has at most %d workers",
                        r.ranks / r.members, r.members, STARPU_MAXCPUS);
    r.second = choose_second(s);
    r.stretch = r.second / s->machine.unit_s;
    err = sp_sim_network_create(&s->machine, r.ranks, r.members, r.stretch);
    if (err)
        return err;
    err = sp_platform_create(&r.platform, &s->machine, r.ranks, r.stretch);
    err = err ? err : run_actors(&r);
    sp_platform_destroy(&r.platform);
    sp_sim_network_destroy();
    if (err)
        sp_simulated_destroy(out);
    return err;
}

void sp_simulated_destroy(struct sp_simulated *r)
{
    sp_step_reports_free(&r->report, r->stages);
    sp_times_destroy(&r->times);
    free(r->busy);
    free(r->peak_bytes);
    free(r->bytes_sent);
    free(r->messages);
    *r = (struct sp_simulated){0};
}

#else /* a StarPU that runs rather than simulates */

bool sp_can_simulate(void)
{
    return false;
}

int sp_sim_run(const struct sp_simulation *s, struct sp_simulated *out)
{
    (void)s, (void)out;
    return -ENOSYS;
}

void sp_simulated_destroy(struct sp_simulated *r)
{
    (void)r;
}
#endif
