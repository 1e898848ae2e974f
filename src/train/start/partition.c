/* --partition: gives each global stage its number of layers, from a list or from measured times. */
#include "train/start/phases.h"
#include "policies/families/activations.h"
#include "plan/memory.h"
#include "plan/partition.h"
#include "plan/profile.h"
#include "sp_error.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include "transport/transport.h"
#include <stdlib.h>
#include <string.h>

static bool is_balanced(const struct sp_trainer *t)
{
    return !strcmp(t->cfg.partition, "balanced");
}

/* ---- the balanced one ----------------------------------------------------------------- */

/* The memory of the stages with the counts that were asked for last. */
struct held {
    struct sp_trainer *t;
    int *counts;              /* [globals]; the first is 0 if nothing was asked yet */
    struct sp_memory *memory; /* [stages] */
};

static int64_t stage_bytes(void *arg, int stage, const int *counts)
{
    struct held *h = arg;
    struct sp_trainer *t = h->t;
    size_t bytes = (size_t)sp_globals(&t->plan.layout) * sizeof *counts;

    if (!h->counts[0] || memcmp(h->counts, counts, bytes)) {
        if (sp_plan_partition(&t->plan, counts))
            return INT64_MAX;
        if (sp_memory_of_plan(&t->plan, &t->shape, t->recompute, t->every, h->memory))
            return INT64_MAX;
        memcpy(h->counts, counts, bytes);
    }
    return sp_memory_sum(&h->memory[stage]);
}

/* Balances counts[globals] at these costs within --memory-limit: for the devices of stage 0, or
 * if `of_slowest` for the slowest ones. */
static int balance(struct sp_trainer *t, const struct sp_layer_costs *costs, bool of_slowest,
                   int *counts)
{
    int stages = t->plan.layout.stages, devices = t->shape.pipelines * t->shape.tensor, err;
    double *slow = calloc((size_t)stages, sizeof *slow);
    struct held held = {.t = t,
                        .counts = calloc((size_t)sp_globals(&t->plan.layout), sizeof *counts),
                        .memory = calloc((size_t)stages, sizeof *held.memory)};
    const struct sp_balance limits = {.slow = slow,
                                      .bytes = t->cfg.layout.memory_limit ? stage_bytes : NULL,
                                      .arg = &held,
                                      .limit_bytes = (int64_t)t->cfg.layout.memory_limit};

    SP_NEED(slow && held.counts && held.memory, "no memory to balance %d stages", stages);
    sp_layer_slowness(&t->machine, &t->shape, devices, stages, slow);
    for (int s = stages - 1; s >= 0 && !of_slowest; s--)
        slow[s] /= slow[0];
    err = sp_partition_at_costs(&t->plan, t->model.layers, costs, t->recompute, &limits, counts);
    free(slow);
    free(held.counts);
    free(held.memory);
    return err;
}

int sp_train_partition_early(struct sp_trainer *t)
{
    int globals = sp_globals(&t->plan.layout), err;
    struct sp_layer_costs costs;
    int *counts;

    if (sp_train_is_adapipe(t))
        return sp_train_adapipe_early(t);
    if (!strcmp(t->cfg.partition, "even"))
        return 0;
    if (!is_balanced(t) && !sp_partition_is_list(t->cfg.partition))
        return sp_error(EINVAL,
                        "train: --partition %s: want even, balanced or the layers of each stage, "
                        "as 3,2,2,1",
                        t->cfg.partition);
    counts = calloc((size_t)globals, sizeof *counts);
    if (!counts)
        return sp_error(ENOMEM, "no memory for a partition of %d stages", globals);
    if (is_balanced(t)) {
        sp_layer_costs_estimate(&t->machine, &t->shape, &costs);
        err = sp_train_check_profile(t);
        err = err ? err : balance(t, &costs, true, counts);
    } else {
        err = sp_partition_parse(t->cfg.partition, t->model.layers, globals, counts);
    }
    err = err ? err : sp_plan_partition(&t->plan, counts);
    free(counts);
    return err;
}

/* ---- measured ------------------------------------------------------------------------- */

/* The time of a step with counts[globals] if each stage had a core of its own; negative: no
 * memory. The plan keeps these counts. */
static double step_us(struct sp_trainer *t, const struct sp_layer_costs *c, double comm_us,
                      const int *counts)
{
    const struct sp_layout *lay = &t->plan.layout;
    int globals = sp_globals(lay);
    double unit = (double)globals / lay->stages; /* costs are for a whole stage */
    double *f = calloc((size_t)globals, sizeof *f), *b = calloc((size_t)globals, sizeof *b);
    double *w = calloc((size_t)globals, sizeof *w);
    bool room = f && b && w;
    struct sp_costs costs = {
        .f = 1, .b = 1, .w = 1, .comm = comm_us, .scale_f = f, .scale_b = b, .scale_w = w};
    bool shared = t->plan.layout.vocabulary_parallel;
    struct sp_times times;
    char why[256];
    double us = -1;

    costs.head = shared ? c->head_us : 0;
    for (int g = 0; room && g < globals; g++) {
        f[g] = unit * (counts[g] * sp_layer_fwd_us(c) + (g ? 0 : c->embed_fwd_us));
        b[g] = unit * (counts[g] * (c->bwd_us + c->recompute_us[t->recompute]) +
                       (g == globals - 1 && !shared ? c->head_us : 0));
        w[g] = unit * (counts[g] * c->wgrad_us + (g ? 0 : c->embed_bwd_us));
    }
    if (room && !sp_plan_partition(&t->plan, counts) &&
        !sp_listsim(&t->plan, &costs, SP_PAIRED, &times, why, sizeof why)) {
        us = times.makespan;
        sp_times_destroy(&times);
    }
    free(f);
    free(b);
    free(w);
    return us;
}

static void say(struct sp_trainer *t, const struct sp_layer_costs *c, double comm_us,
                const int *even, const int *counts)
{
    double before = step_us(t, c, comm_us, even), after = step_us(t, c, comm_us, counts);
    int globals = sp_globals(&t->plan.layout);
    char *list = malloc(12 * (size_t)globals + 1), *at = list, gain[128] = "";

    if (!list)
        return;
    for (int g = 0; g < globals; g++)
        at += sprintf(at, "%s%d", g ? "," : "", counts[g]);
    if (before > 0 && after > 0)
        snprintf(gain, sizeof gain, "; expected step %.2f ms, %.2f if split evenly (%+.1f %%)",
                 after / 1e3, before / 1e3, 100 * (after - before) / before);
    sp_train_say(t,
                 "partition %s of measured times (us a micro-batch: embedding %.0f, layer %.0f, "
                 "head %.0f, message %.0f)%s",
                 list, c->embed_fwd_us + c->embed_bwd_us,
                 sp_layer_fwd_us(c) + sp_layer_bwd_us(c, t->recompute), c->head_us, comm_us, gain);
    free(list);
}

int sp_train_partition_measured(struct sp_trainer *t)
{
    int globals = sp_globals(&t->plan.layout), err = 0;
    size_t bytes = (size_t)t->cfg.layout.micro_batch_size * (size_t)t->cfg.layout.seq *
                   (size_t)t->model.hidden * sp_dtype_bytes(t->cfg.dtype);
    struct sp_layer_costs costs;
    double comm_us;
    int *counts;

    if (sp_train_is_adapipe(t))
        return sp_train_adapipe_measured(t);
    if (!is_balanced(t))
        return 0;
    counts = calloc(2 * (size_t)globals, sizeof *counts); /* balanced, even */
    if (!counts)
        return sp_error(ENOMEM, "no memory for a partition of %d stages", globals);
    if (t->world.rank == 0)
        err = sp_train_measure(t, t->cfg.layout.micro_batch_size, t->cfg.layout.seq, &costs);
    if (err)
        goto out; /* the run ends: the abort tells the other ranks */
    comm_us = sp_profile_comm_us(&t->world, 1, bytes);
    if (t->world.rank == 0) {
        for (int g = 0, first; g < globals; g++)
            sp_partition(t->model.layers, globals, g, &first, &counts[globals + g]);
        err = balance(t, &costs, false, counts);
        if (err)
            goto out;
        say(t, &costs, comm_us, counts + globals, counts);
    }
    sp_transport_share(counts, (size_t)globals * sizeof *counts);
    err = sp_plan_partition(&t->plan, counts);
    if (!err)
        err = sp_memory_check(&t->plan, &t->shape, t->recompute, t->every,
                              t->cfg.layout.memory_limit);
out:
    free(counts);
    return err;
}
