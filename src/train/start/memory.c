#include "train/start/memory.h"
#include "graphs/inference/inference.h"
#include "plan/memory.h"
#include "train/config.h"
#include "offload/host_memory.h"
#include "train/start/phases.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Memory of a stage for sampling: weights as products read them, a second copy of the largest block
 * while it is read in, the keys and values of all positions, and a forward. */
static void add_inference(const struct sp_trainer *t, int stage, struct sp_memory *m)
{
    int64_t elem = (int64_t)sp_shape_elem(&t->shape), largest = 0;
    int stages = t->plan.layout.stages;

    m->states = m->activations = 0;
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        int64_t n = (int64_t)sp_block_elements(&t->model, (enum sp_block_kind)kind);
        bool in_layers = sp_block_is_of_layer((enum sp_block_kind)kind);

        for (int l = in_layers ? 0 : -1; l < (in_layers ? t->model.layers : 0); l++)
            if (sp_generator_holds(&t->model, stages, stage, (enum sp_block_kind)kind, l)) {
                m->states += n * elem;
                largest = n > largest ? n : largest;
            }
    }
    m->states += 4 * largest;
    for (int l = 0; l < t->model.layers; l++)
        if (sp_generator_stage(&t->model, stages, l) == stage)
            m->activations += (int64_t)t->cfg.layout.seq * t->shape.kv_width * elem;
}

static int take_memory(const struct sp_trainer *t, struct sp_memory *m)
{
    int err = 0;

    if (sp_train_offloads(t) && !t->cfg.inference)
        memcpy(m, t->offload.memory, (size_t)t->plan.layout.stages * sizeof *m);
    else
        err = sp_memory_of_plan(&t->plan, &t->shape, t->recompute, t->every, m);
    for (int s = 0; !err && t->cfg.inference && s < t->plan.layout.stages; s++)
        add_inference(t, s, &m[s]);
    return err;
}

struct sp_memory *sp_train_memory(const struct sp_trainer *t)
{
    struct sp_memory *m = calloc((size_t)t->plan.layout.stages, sizeof *m);

    SP_NEED(m, "no memory for what %d stages hold", t->plan.layout.stages);
    if (!take_memory(t, m))
        return m;
    free(m);
    return NULL;
}

bool sp_train_fits(const struct sp_trainer *t, const struct sp_plan *plan)
{
    uint64_t limit = t->cfg.layout.memory_limit;
    struct sp_memory most;

    if (!limit)
        return true;
    return !sp_memory_fullest(plan, &t->shape, t->recompute, t->every, &most, NULL) &&
           (uint64_t)sp_memory_sum(&most) <= limit;
}

int64_t sp_train_planned_bytes(const struct sp_trainer *t)
{
    struct sp_memory *m = sp_train_memory(t);
    int64_t sum = 0;

    for (int k = 0; m && k < t->place.n_local; k++)
        sum += sp_memory_sum(&m[t->place.first_local + k]);
    free(m);
    return sum;
}

struct sp_graph_config sp_train_graph_config(const struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    return (struct sp_graph_config){
        .params = &t->params,
        .plan = &t->plan,
        .shape = &t->shape,
        .separates = a->separator_set,
        .separator = a->separator,
        .recompute = t->recompute,
        .every = t->every,
        .ready = strcmp(a->scheduler, "strict") != 0,
        .window = a->window,
        .seed = t->seed,
        .evictions = t->offload.evictions,
        .tier = t->tier,
        .disk = t->disk,
    };
}

int sp_train_count(const struct sp_trainer *t, int processes, struct sp_count *count)
{
    const struct sp_train_config *a = &t->cfg;
    const struct sp_graph_config cfg = sp_train_graph_config(t);
    const struct sp_count_steps steps = {
        .n = a->steps - t->first_step, .ahead = a->post_validation, .clips = a->clip > 0};

    return sp_count_stages(&cfg, &t->place, processes, &steps, count);
}

/* ---- whether it fits ---------------------------------------------------------------------- */

/* Address space needed besides tensors: the stacks of workers, their teams and the threads of
 * StarPU, MPI and the program; and what the runtime maps. */
static int64_t runtime_bytes(const struct sp_trainer *t)
{
    enum { OTHER_THREADS = 6, STACK_BYTES = 8 << 20, RUNTIME_BYTES = 96 << 20 };
    int64_t stack = STACK_BYTES;
    struct rlimit limit;

    if (!getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur < (rlim_t)1 << 30)
        stack = (int64_t)limit.rlim_cur;
    return RUNTIME_BYTES +
           stack * (OTHER_THREADS + t->place.workers * t->place.threads + t->place.update_threads);
}

/* The need of some stages, and how a line shows it. */
struct need {
    struct sp_memory
        sum;      /* states and activations of each stage, workspace of those that work at once */
    double bytes; /* of all pipelines, with the copies of --save-async on rank 0 */
    double unit;
    const char *unit_name;
    char copies[64];         /* ", copies for --save-async 1.5"; empty: there are none */
    const char *less_copies; /* advice */
};

/* Counts the need of `count` stages in each of `pipelines`. 0 or -EINVAL. */
static int count_need(const struct sp_trainer *t, int first, int count, int pipelines, bool copies,
                      struct need *n)
{
    const double GiB = 1 << 30, MiB = 1 << 20;
    double copied = copies && t->cfg.save_async ? 12.0 * (double)sp_model_parameters(&t->model) : 0;
    struct sp_memory *all = sp_train_memory(t);

    if (!all)
        return -EINVAL;
    *n = (struct need){.less_copies = copied > 0 ? "no --save-async, " : ""};
    for (const struct sp_memory *m = all + first; m < all + first + count; m++) {
        n->sum.states += m->states;
        n->sum.activations += m->activations;
        n->sum.workspace = m->workspace > n->sum.workspace ? m->workspace : n->sum.workspace;
    }
    free(all);
    n->bytes = pipelines * (double)sp_memory_sum(&n->sum) + copied;
    n->unit = n->bytes < GiB ? MiB : GiB;
    n->unit_name = n->bytes < GiB ? "MiB" : "GiB";
    if (copied > 0)
        snprintf(n->copies, sizeof n->copies, ", copies for --save-async %.1f", copied / n->unit);
    return 0;
}

/* Even without a limit, a process cannot have more memory than the machine. */
static int check_machine(const struct sp_trainer *t)
{
    int first = t->place.first_local, count = t->place.n_local;
    struct sp_memory_limit has;
    struct sp_host_memory host;
    struct need n;

    if (count_need(t, first, count, 1, t->world.rank == 0, &n))
        return -EINVAL;
    sp_host_memory_read("", &host);
    if (host.process.bytes < INT64_MAX) {
        host.process.bytes -= runtime_bytes(t);
        host.process.bytes = host.process.bytes > 0 ? host.process.bytes : 0;
    }
    has = sp_host_memory_share(&host, 1);
    if (n.bytes <= (double)has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "stages %d to %d need %.1f %s (parameters and optimizer %.1f, activations "
                    "%.1f, workspace %.1f%s), %s has room for %.1f; try %s--recompute, shorter "
                    "sequences, fewer micro-batches, or more machines",
                    first, first + count - 1, n.bytes / n.unit, n.unit_name,
                    (double)n.sum.states / n.unit, (double)n.sum.activations / n.unit,
                    (double)n.sum.workspace / n.unit, n.copies, has.origin,
                    (double)has.bytes / n.unit, n.less_copies);
}

/* The processes of a machine together cannot have more either; checked if all of the run's are
 * on it. */
static int check_node(const struct sp_trainer *t)
{
    struct sp_memory_limit has;
    struct sp_host_memory host;
    struct need n;

    if (t->world.size == 1 || t->world.node_size < t->world.size)
        return 0;
    if (count_need(t, 0, t->plan.layout.stages, sp_train_pipelines(t), true, &n))
        return -EINVAL;
    sp_host_memory_read("", &host);
    host.process.bytes = INT64_MAX;
    has = sp_host_memory_share(&host, 1);
    if (n.bytes <= (double)has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "the %d processes of this machine need %.1f %s%s, %s has room for %.1f; try "
                    "%s--recompute, shorter sequences, fewer micro-batches, or more machines",
                    t->world.size, n.bytes / n.unit, n.unit_name, n.copies, has.origin,
                    (double)has.bytes / n.unit, n.less_copies);
}

int sp_train_check_memory(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;
    int err;

    /* with --offload the plan itself keeps to the limit */
    err = sp_memory_check(&t->plan, &t->shape, t->recompute, t->every,
                          sp_train_offloads(t) ? 0 : a->layout.memory_limit);
    if (err || a->dry_run || t->place.gpus)
        return err;
    err = check_machine(t);
    return err ? err : check_node(t);
}
