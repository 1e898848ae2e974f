/*
 * How many layers each global stage takes: as --partition lists them, balanced by the times of a layer, or as schedule
 * adapipe chooses, which also chooses what each layer recomputes, for --memory-limit. Estimated times serve until the
 * model was measured.
 */
#include "train/start/phases.h"
#include "offload/host_memory.h"
#include "plan/adapipe.h"
#include "plan/memory.h"
#include "plan/partition.h"
#include "plan/profile.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/times.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include "transport/transport.h"
#include <stdlib.h>
#include <string.h>

bool sp_train_is_adapipe(const struct sp_trainer *t)
{
    return !strcmp(t->plan.def->name, "adapipe");
}

static bool is_balanced(const struct sp_trainer *t)
{
    return !strcmp(t->cfg.partition, "balanced");
}

/* ---- the times of a layer ----------------------------------------------------------------- */

int sp_train_check_profile(const struct sp_trainer *t)
{
    const double GiB = 1024.0 * 1024 * 1024;
    struct sp_memory_limit has = sp_host_memory_has(1);
    int64_t needs = sp_profile_bytes(&t->shape);

    if (t->cfg.dry_run || needs <= has.bytes)
        return 0;
    return sp_error(EINVAL,
                    "measuring two layers takes %.2f GiB, %s has room for %.2f; give a list of "
                    "layers instead",
                    (double)needs / GiB, has.origin, (double)has.bytes / GiB);
}

int sp_train_measure(struct sp_trainer *t, int batch, int seq, struct sp_layer_costs *costs)
{
    const struct sp_train_config *a = &t->cfg;
    struct sp_shape shape;
    struct sp_graph_config like = {
        .sink = sp_starpu_sink(),
        .params = &t->params,
        .shape = &shape,
        .ready = strcmp(a->scheduler, "strict") != 0,
        .seed = t->seed,
    };

    sp_shape_init(&shape, &t->model, batch, seq, 1);
    sp_shape_cut(&shape, a->mlp_chunk, a->logit_rows);
    shape.dtype = (enum sp_dtype)a->dtype;
    return sp_profile_layers(&like, &t->place, costs);
}

/* ---- balanced ----------------------------------------------------------------------------- */

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

/* Says what was balanced, and what it gains. */
static void say(struct sp_trainer *t, const struct sp_layer_costs *c, double comm_us,
                const int *counts)
{
    int globals = sp_globals(&t->plan.layout), first;
    int *even = calloc((size_t)globals, sizeof *even);
    char *list = malloc(12 * (size_t)globals + 1), *at = list, gain[128] = "";
    double before, after;

    SP_NEED(list && even, "no memory for a partition of %d stages", globals);
    for (int g = 0; g < globals; g++)
        sp_partition(t->model.layers, globals, g, &first, &even[g]);
    before = step_us(t, c, comm_us, even);
    after = step_us(t, c, comm_us, counts);
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
    free(even);
}

/* ---- adapipe ------------------------------------------------------------------------------ */

/* Chooses counts[stages] and, after them, the layers' modes. */
static int choose_layers(struct sp_trainer *t, const struct sp_layer_costs *costs, int *row,
                         struct sp_adapipe_figures *figures)
{
    const struct sp_layout *lay = &t->plan.layout;
    struct sp_adapipe in = {.stages = lay->stages,
                            .layers = t->model.layers,
                            .micro_batches = lay->micro_batches,
                            .costs = *costs};
    unsigned char *mode = calloc((size_t)t->model.layers, 1);
    int err;

    if (!mode)
        return sp_error(ENOMEM, "no memory for the modes of %d layers", t->model.layers);
    err = sp_adapipe_memory_of(&t->shape, lay->stages, (int64_t)t->cfg.layout.memory_limit,
                               &in.memory);
    err = err ? err : sp_adapipe_plan(&in, &t->plan, &t->shape, row, mode, figures);
    for (int l = 0; !err && l < t->model.layers; l++)
        row[lay->stages + l] = mode[l];
    free(mode);
    return err;
}

/* Prints a letter for each layer: none, selective, no attention again, full. */
static void say_layers(const struct sp_trainer *t, const int *row,
                       const struct sp_adapipe_figures *f)
{
    int stages = t->plan.layout.stages, layers = t->model.layers, l = 0;
    char *text = malloc((size_t)(stages + layers) + 1), *at = text;

    if (!text)
        return;
    for (int s = 0; s < stages; s++) {
        *at++ = ' ';
        for (int k = 0; k < row[s]; k++)
            *at++ = sp_recompute_letter((enum sp_recompute)row[stages + l++]);
    }
    *at = '\0';
    sp_train_say(t,
                 "adapipe, of measured times: layers%s (- keeps all, s recomputes norms and "
                 "activations, a all but attention, f everything); expected step %.2f ms, at most "
                 "%.2f MiB a stage",
                 text, f->makespan_us / 1e3, (double)f->peak_bytes / 1048576);
    free(text);
}

/* ---- the phases ------------------------------------------------------------------------------ */

/* Counts[globals] of layers, then for adapipe the modes of all layers; as integers that ranks can share. NULL after one
 * line. */
static int *new_row(const struct sp_trainer *t, size_t *bytes)
{
    int globals = sp_globals(&t->plan.layout);
    int *row;

    *bytes = ((size_t)globals + (size_t)t->model.layers) * sizeof *row;
    row = calloc(1, *bytes);
    if (!row)
        sp_error(ENOMEM, "no memory for the layers of %d stages", globals);
    return row;
}

/* Takes a row over into the plan. */
static int apply(struct sp_trainer *t, const int *row)
{
    int layers = t->model.layers, err = sp_plan_partition(&t->plan, row);

    if (err || !sp_train_is_adapipe(t))
        return err;
    if (!t->plan.recompute)
        t->plan.recompute = calloc((size_t)layers, 1);
    if (!t->plan.recompute)
        return sp_error(ENOMEM, "no memory for the modes of %d layers", layers);
    for (int l = 0; l < layers; l++)
        t->plan.recompute[l] = (unsigned char)row[t->plan.layout.stages + l];
    return 0;
}

static int check_partition(const struct sp_trainer *t)
{
    const char *partition = t->cfg.partition;
    bool even = !strcmp(partition, "even");

    if (sp_train_is_adapipe(t) && !even)
        return sp_error(EINVAL, "train: schedule adapipe deals the layers out itself; leave "
                                "--partition out");
    if (sp_train_is_adapipe(t) && strcmp(t->cfg.layout.recompute, "none"))
        return sp_error(EINVAL, "train: schedule adapipe chooses what is recomputed; leave "
                                "--recompute out and give --memory-limit");
    if (!even && !is_balanced(t) && !sp_partition_is_list(partition))
        return sp_error(EINVAL,
                        "train: --partition %s: want even, balanced or the layers of each stage, "
                        "as 3,2,2,1",
                        partition);
    return 0;
}

int sp_train_partition_early(struct sp_trainer *t)
{
    struct sp_layer_costs costs;
    int *row, err = check_partition(t);
    size_t bytes;

    if (err || (!strcmp(t->cfg.partition, "even") && !sp_train_is_adapipe(t)))
        return err;
    row = new_row(t, &bytes);
    if (!row)
        return -ENOMEM;
    if (sp_partition_is_list(t->cfg.partition)) {
        err =
            sp_partition_parse(t->cfg.partition, t->model.layers, sp_globals(&t->plan.layout), row);
    } else {
        sp_layer_costs_estimate(&t->machine, &t->shape, &costs);
        err = sp_train_check_profile(t);
        if (!err)
            err = sp_train_is_adapipe(t) ? choose_layers(t, &costs, row, NULL)
                                         : balance(t, &costs, true, row);
    }
    err = err ? err : apply(t, row);
    free(row);
    return err;
}

/* On rank 0: chooses once more, at measured times, and says what it chose. */
static int choose_measured(struct sp_trainer *t, const struct sp_layer_costs *costs, double comm_us,
                           int *row)
{
    struct sp_adapipe_figures figures;
    int err;

    if (sp_train_is_adapipe(t)) {
        err = choose_layers(t, costs, row, &figures);
        if (!err)
            say_layers(t, row, &figures);
    } else {
        err = balance(t, costs, false, row);
        if (!err)
            say(t, costs, comm_us, row);
    }
    return err;
}

int sp_train_partition_measured(struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->cfg.layout;
    size_t bytes, message = (size_t)l->micro_batch_size * (size_t)l->seq * (size_t)t->model.hidden *
                            sp_dtype_bytes(t->cfg.dtype);
    struct sp_layer_costs costs;
    double comm_us = 0;
    int *row, err = 0;

    if (!sp_train_is_adapipe(t) && !is_balanced(t))
        return 0;
    row = new_row(t, &bytes);
    if (!row)
        return -ENOMEM;
    if (t->world.rank == 0)
        err = sp_train_measure(t, l->micro_batch_size, l->seq, &costs);
    /* with an error the run ends: the abort tells the other ranks */
    if (!err && is_balanced(t))
        comm_us = sp_profile_comm_us(&t->world, 1, message);
    if (!err && t->world.rank == 0)
        err = choose_measured(t, &costs, comm_us, row);
    if (!err) {
        sp_transport_share(row, bytes);
        err = apply(t, row);
    }
    if (!err && is_balanced(t))
        err = sp_memory_check(&t->plan, &t->shape, t->recompute, t->every, l->memory_limit);
    free(row);
    return err;
}
