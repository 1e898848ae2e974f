#include "train/start/memory.h"
#include "plan/memory.h"
#include "train/config.h"
#include "offload/host_memory.h"
#include "train/start/phases.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Memory for sampling: weights as products read them, a second copy of the largest block while
 * it is read in, the keys and values of all positions, and a forward. */
static void add_inference(const struct sp_trainer *t, struct sp_memory *m)
{
    int64_t elem = (int64_t)sp_shape_elem(&t->shape);
    uint64_t largest = 0;

    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        uint64_t n = sp_block_elements(&t->model, (enum sp_block_kind)kind);

        largest = n > largest ? n : largest;
    }
    m->states = (int64_t)sp_model_parameters(&t->model) * elem + 4 * (int64_t)largest;
    m->activations = (int64_t)t->model.layers * t->cfg.layout.seq * t->shape.kv_width * elem;
}

static int take_memory(const struct sp_trainer *t, struct sp_memory *m)
{
    int err = 0;

    if (sp_train_offloads(t) && !t->cfg.inference)
        memcpy(m, t->offload.memory, (size_t)t->plan.layout.stages * sizeof *m);
    else
        err = sp_memory_of_plan(&t->plan, &t->shape, t->recompute, t->every, m);
    if (!err && t->cfg.inference)
        add_inference(t, m);
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
        .ready = a->scheduler == SP_TRAIN_READY,
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
    return RUNTIME_BYTES + stack * (OTHER_THREADS + t->place.workers * t->place.threads);
}

/* Sums the bytes that the stages of a process, or of all processes of a node, hold: states and
 * activations of each, workspace of those that work at once. 0 or -EINVAL. */
static int sum_memory(const struct sp_trainer *t, int first, int count, struct sp_memory *sum)
{
    struct sp_memory *all = sp_train_memory(t);

    *sum = (struct sp_memory){0};
    if (!all)
        return -EINVAL;
    for (const struct sp_memory *m = all + first; m < all + first + count; m++) {
        sum->states += m->states;
        sum->activations += m->activations;
        sum->workspace = m->workspace > sum->workspace ? m->workspace : sum->workspace;
    }
    free(all);
    return 0;
}

/* The unit of the sizes in one line. */
struct unit {
    double bytes;
    const char *name;
};

static struct unit unit_for(int64_t bytes)
{
    const int64_t GiB = 1 << 30;

    return bytes < GiB ? (struct unit){1 << 20, "MiB"} : (struct unit){1 << 30, "GiB"};
}

/* Bytes of copies of the whole model's parameters and moments, on rank 0. */
static int64_t copied_bytes(const struct sp_trainer *t)
{
    return t->cfg.save_async ? 12 * (int64_t)sp_model_parameters(&t->model) : 0;
}

/* The part of a line that names the copies; empty: there are none. */
static const char *show_copies(int64_t copies, struct unit unit, char text[64])
{
    text[0] = '\0';
    if (copies)
        snprintf(text, 64, ", copies for --save-async %.1f", (double)copies / unit.bytes);
    return text;
}

/* Even without a limit, a process cannot have more memory than the machine. */
static int check_machine(const struct sp_trainer *t)
{
    int64_t copies = t->world.rank ? 0 : copied_bytes(t), needs;
    struct sp_memory_limit has;
    struct sp_host_memory host;
    struct sp_memory m;
    struct unit unit;
    char copied[64];

    if (sum_memory(t, t->place.first_local, t->place.n_local, &m))
        return -EINVAL;
    needs = sp_memory_sum(&m) + copies;
    unit = unit_for(needs);
    sp_host_memory_read("", &host);
    if (host.process.bytes < INT64_MAX) {
        host.process.bytes -= runtime_bytes(t);
        host.process.bytes = host.process.bytes > 0 ? host.process.bytes : 0;
    }
    has = sp_host_memory_share(&host, 1);
    if (needs <= has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "stages %d to %d need %.1f %s (parameters and optimizer %.1f, activations "
                    "%.1f, workspace %.1f%s), %s has room for %.1f; try %s--recompute, shorter "
                    "sequences, fewer micro-batches, or more machines",
                    t->place.first_local, t->place.first_local + t->place.n_local - 1,
                    (double)needs / unit.bytes, unit.name, (double)m.states / unit.bytes,
                    (double)m.activations / unit.bytes, (double)m.workspace / unit.bytes,
                    show_copies(copies, unit, copied), has.origin, (double)has.bytes / unit.bytes,
                    copies ? "no --save-async, " : "");
}

/* The processes of a machine together cannot have more either; checked if all of the run's are
 * on it. */
static int check_node(const struct sp_trainer *t)
{
    double pipelines = sp_train_pipelines(t), needs;
    int64_t copies = copied_bytes(t);
    struct sp_memory_limit has;
    struct sp_host_memory host;
    struct sp_memory m;
    struct unit unit;
    char copied[64];

    if (t->world.size == 1 || t->world.node_size < t->world.size)
        return 0;
    if (sum_memory(t, 0, t->plan.layout.stages, &m))
        return -EINVAL;
    needs = pipelines * (double)sp_memory_sum(&m) + (double)copies;
    unit = unit_for((int64_t)needs);
    sp_host_memory_read("", &host);
    host.process.bytes = INT64_MAX;
    has = sp_host_memory_share(&host, 1);
    if (needs <= (double)has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "the %d processes of this machine need %.1f %s%s, %s has room for %.1f; try "
                    "%s--recompute, shorter sequences, fewer micro-batches, or more machines",
                    t->world.size, needs / unit.bytes, unit.name, show_copies(copies, unit, copied),
                    has.origin, (double)has.bytes / unit.bytes, copies ? "no --save-async, " : "");
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
