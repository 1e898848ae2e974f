#include "plan/memory.h"
#include "graphs/count.h"
#include "policies/families/activations.h"
#include "policies/families/layerwise/layerwise.h"
#include "policies/lowering/pipelines.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>

struct parameters {
    const struct sp_plan *plan;
    const struct sp_shape *shape;
    int64_t last[SP_STATES_AROUND]; /* elements of the last blocks that it updates, and the most */
    int64_t around;                 /* of so many blocks in a row */
    int64_t held, updated;          /* elements in all, and those that this process updates */
    int64_t weights, gradients;     /* those that it keeps of these */
    struct sp_shared_parameters shared;
};

static int add_parameters(void *arg, enum sp_block_kind kind, int layer)
{
    struct parameters *p = arg;
    uint64_t held = sp_block_held(p->plan, &p->shape->held, kind), first, updated;
    int64_t around = 0;

    sp_pipelines_part(held, 0, p->shape->zero ? p->shape->pipelines : 1, &first, &updated);
    for (int i = SP_STATES_AROUND - 1; i > 0; i--)
        p->last[i] = p->last[i - 1];
    p->last[0] = (int64_t)updated;
    for (int i = 0; i < SP_STATES_AROUND; i++)
        around += p->last[i];
    p->around = around > p->around ? around : p->around;
    p->held += (int64_t)held;
    p->updated += (int64_t)updated;
    p->shared.weights += sp_shape_shards_weights(p->shape, layer) ? 0 : (int64_t)held;
    p->shared.gradients += sp_shape_shards_gradients(p->shape, layer) ? 0 : (int64_t)held;
    p->weights += (int64_t)(sp_shape_shards_weights(p->shape, layer) ? updated : held);
    p->gradients += (int64_t)(sp_shape_shards_gradients(p->shape, layer) ? updated : held);
    return 0;
}

static struct parameters parameters_of(const struct sp_plan *plan, const struct sp_shape *sh,
                                       int stage)
{
    struct parameters p = {.plan = plan, .shape = sh};

    sp_stage_each_block(plan, &sh->held, stage, add_parameters, &p);
    return p;
}

/* Elements whose optimizer's state is in the memory of the device at once. */
static int64_t optimized(const struct sp_plan *plan, const struct parameters *p)
{
    if (plan->updates_on_cores)
        return 0;
    return plan->states_evicted ? p->around : p->updated;
}

/* Counts weights as products read them, in all versions, with gradients; and two moments, with f32
 * weights if the others are not f32. */
int64_t sp_memory_states(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct parameters p = parameters_of(plan, sh, stage);
    int64_t f32 = sizeof(float), elem = (int64_t)sp_shape_elem(sh);
    int64_t optimizer = 2 * f32 + (sh->dtype == SP_F32 ? 0 : f32);

    return elem * p.weights + f32 * p.gradients + optimizer * optimized(plan, &p) +
           (sp_weight_versions(plan, stage) - 1) * elem * p.held +
           (plan->states_twice ? (elem + f32 + optimizer) * p.updated : 0);
}

int64_t sp_memory_parameters(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    return parameters_of(plan, sh, stage).held;
}

int64_t sp_memory_updated(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    return parameters_of(plan, sh, stage).updated;
}

struct sp_shared_parameters sp_memory_shared(const struct sp_plan *plan, const struct sp_shape *sh,
                                             int stage)
{
    return parameters_of(plan, sh, stage).shared;
}

int64_t sp_memory_optimizer(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    struct parameters p = parameters_of(plan, sh, stage);

    return 2 * (int64_t)sizeof(float) * optimized(plan, &p) * (plan->states_twice ? 2 : 1);
}

int64_t sp_memory_evicted_states(const struct sp_plan *plan, const struct sp_shape *sh, int stage)
{
    int64_t each = (sh->dtype == SP_F32 ? 2 : 3) * (int64_t)sizeof(float);

    if (plan->updates_on_cores) /* with copies of gradients and weights */
        each += (int64_t)sizeof(float) + (int64_t)sp_shape_elem(sh);
    return plan->states_evicted ? each * sp_memory_updated(plan, sh, stage) : 0;
}

int64_t sp_memory_tokens(const struct sp_shape *sh)
{
    return 2 * (int64_t)sizeof(int32_t) * sp_shape_shares(sh) * sh->rows;
}

int64_t sp_memory_least(const struct sp_plan *plan, const struct sp_shape *sh,
                        enum sp_recompute recompute, int every, int stage)
{
    return sp_memory_states(plan, sh, stage) + sp_stash_peak(plan, sh, recompute, every, stage);
}

/* ---- counted --------------------------------------------------------------------------------- */

static struct sp_placement place_of(const struct sp_plan *plan, const struct sp_shape *sh,
                                    int processes)
{
    return (struct sp_placement){.stages = plan->layout.stages,
                                 .pipelines = sh->pipelines * sh->tensor,
                                 .world.size = processes * sh->pipelines * sh->tensor};
}

/* Counts with `processes` processes in each pipeline. */
static int count(const struct sp_graph_config *cfg, const struct sp_shape *sh, int processes,
                 struct sp_count *counted)
{
    const struct sp_placement place = place_of(cfg->plan, sh, processes);
    const struct sp_count_steps steps = {.n = SP_COUNT_STEADY + 1};

    return sp_count_stages(cfg, &place, processes, &steps, counted);
}

/* Buffers depend on the number of processes. The rest of a stage's memory is its own, so it is
 * counted with one process a stage. */
static int count_both(const struct sp_graph_config *cfg, const struct sp_shape *sh, int processes,
                      struct sp_count *counted)
{
    int stages = cfg->plan->layout.stages, err = count(cfg, sh, stages, counted);
    struct sp_count *made;

    if (err || processes == stages)
        return err;
    made = calloc((size_t)stages, sizeof *made);
    SP_NEED(made, "no memory to count what %d stages hold", stages);
    err = count(cfg, sh, processes, made);
    for (int s = 0; !err && s < stages; s++) {
        counted[s].buffers = made[s].buffers;
        counted[s].sent = made[s].sent;
    }
    free(made);
    return err;
}

/* Counts all processes, or with evictions the buffers that they leave. */
static int count_plan(const struct sp_plan *plan, const struct sp_shape *sh,
                      const struct sp_graph_config *set, struct sp_count *counted)
{
    struct sp_params params = {.model = sh->whole};
    struct sp_plan plain = *plan;
    struct sp_graph_config cfg = *set;
    const struct sp_placement place = place_of(plan, sh, plan->layout.stages);
    int err = 0;

    plain.states_twice = plain.states_evicted = plain.updates_on_cores = false;
    plain.evictions = set->evictions ? plan->evictions : NULL;
    cfg.params = &params;
    cfg.plan = &plain;
    cfg.shape = sh;
    if (sh->tensor > 1)
        err = sp_params_create(&params.model, &params);
    if (!err && set->evictions)
        err = sp_count_by_actions(&cfg, &place, counted);
    else if (!err)
        err = count_both(&cfg, sh, plan->processes > 0 ? plan->processes : 1, counted);
    if (sh->tensor > 1)
        sp_params_destroy(&params);
    return err;
}

int sp_memory_count(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, struct sp_count *counted)
{
    const struct sp_graph_config set = {.recompute = recompute, .every = every};

    return count_plan(plan, sh, &set, counted);
}

/* Sets m[stages]. Buffers other than activations count as their peak if they are freed, or as all
 * that were made. */
static int memory_of(const struct sp_plan *plan, const struct sp_shape *sh,
                     const struct sp_graph_config *set, bool frees, struct sp_memory *m)
{
    int stages = plan->layout.stages, err;
    struct sp_count *counted = calloc((size_t)stages, sizeof *counted);
    struct sp_plan once = *plan;

    SP_NEED(counted, "no memory to count what %d stages hold", stages);
    once.states_twice = once.states_evicted = once.updates_on_cores = false;
    err = count_plan(plan, sh, set, counted);
    for (int s = 0; !err && s < stages; s++) {
        const struct sp_count *c = &counted[s];

        m[s] =
            (struct sp_memory){.states = sp_memory_states(plan, sh, s),
                               .activations = c->stashed,
                               .workspace = c->fixed - sp_memory_states(&once, sh, s) + c->scratch +
                                            (frees ? c->beside : c->buffers - c->stashed)};
    }
    free(counted);
    return err;
}

int sp_memory_of_plan(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *m)
{
    const struct sp_graph_config set = {.recompute = recompute, .every = every};

    return memory_of(plan, sh, &set, false, m);
}

int sp_memory_freed(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, struct sp_memory *m)
{
    const struct sp_graph_config set = {.recompute = recompute, .every = every};

    return memory_of(plan, sh, &set, true, m);
}

int sp_memory_evicted(const struct sp_plan *plan, const struct sp_eviction_plan *evictions,
                      const struct sp_shape *sh, enum sp_recompute recompute, int every,
                      struct sp_memory *m)
{
    const struct sp_graph_config set = {
        .recompute = recompute, .every = every, .evictions = evictions};

    return memory_of(plan, sh, &set, true, m);
}

/* ---- limits ---------------------------------------------------------------------------------- */

int sp_memory_fullest(const struct sp_plan *plan, const struct sp_shape *sh,
                      enum sp_recompute recompute, int every, struct sp_memory *fullest, int *stage)
{
    int stages = plan->layout.stages, most = 0, err;
    struct sp_memory *m = calloc((size_t)stages, sizeof *m);

    SP_NEED(m, "no memory for what %d stages hold", stages);
    err = sp_memory_of_plan(plan, sh, recompute, every, m);
    for (int s = 1; !err && s < stages; s++)
        if (sp_memory_sum(&m[s]) > sp_memory_sum(&m[most]))
            most = s;
    *fullest = m[most];
    if (stage)
        *stage = most;
    free(m);
    return err;
}

int sp_memory_check(const struct sp_plan *plan, const struct sp_shape *sh,
                    enum sp_recompute recompute, int every, uint64_t limit)
{
    const double MiB = 1024 * 1024;
    const int most = INT32_MAX / (sh->model.qk_norm ? sh->model.heads : 1); /* a head is a row */
    struct sp_memory worst;
    int stage, err;

    if ((int64_t)sh->batch * sh->seq > most)
        return sp_error(EINVAL, "%d sequences of %d tokens: a micro-batch has at most %d tokens",
                        sh->batch, sh->seq, most);
    if (!limit)
        return 0;
    err = sp_memory_fullest(plan, sh, recompute, every, &worst, &stage);
    if (err || (uint64_t)sp_memory_sum(&worst) <= limit)
        return err;
    return sp_error(
        EINVAL,
        "memory limit %.2f MiB: stage %d needs %.2f MiB (parameters and optimizer "
        "%.2f, activations %.2f, workspace %.2f); raise the limit%s",
        (double)limit / MiB, stage, ceil(100 * (double)sp_memory_sum(&worst) / MiB) / 100,
        (double)worst.states / MiB, (double)worst.activations / MiB, (double)worst.workspace / MiB,
        recompute == SP_RECOMPUTE_NONE ? " or try --recompute" : "");
}
