/* Makes the plan of a run: applies the settings to the schedule, and checks that they go with
 * its family. */
#include "train/start/phases.h"
#include "policies/lowering/parking_choice.h"
#include "plan/cost/layer_costs.h"
#include "plan/cost/op_times.h"
#include "plan/partition.h"
#include "policies/plan_create.h"
#include "policies/registry.h"
#include "plan/slices.h"
#include "sp_error.h"
#include "train/groups.h"
#include "train/slices_auto.h"
#include "train/start/device.h"
#include "train/start/machine.h"
#include "train/start/memory.h"
#include "transport/launcher.h"
#include <string.h>

/* Takes --recompute, or else the schedule's default. */
static int choose_recompute(struct sp_trainer *t)
{
    struct sp_train_config *a = &t->cfg;
    struct sp_recompute_option option;
    int err;

    a->layout.recompute = sp_schedule_recompute(a->layout.schedule, a->layout.recompute);
    err = sp_parse_recompute(
        "train", sp_recompute_is_auto(a->layout.recompute) ? "none" : a->layout.recompute, &option);
    if (err)
        return err;
    if (strchr(a->layout.recompute, ',')) /* a list; logs and refusals name its mode */
        a->layout.recompute = sp_recompute_name(option.mode);
    t->recompute = option.mode;
    t->every = option.every;
    return 0;
}

static int check_family(const struct sp_trainer *t)
{
    const struct sp_train_wish wish = {
        .recompute = t->recompute,
        .recompute_text = t->cfg.layout.recompute,
        .partition = t->cfg.partition,
        .post_validation = t->cfg.post_validation,
        .clips = t->cfg.clip > 0,
        .dumps = t->cfg.dump_grads != NULL,
        .tied = t->model.tied && t->plan.layout.stages > 1,
        .grouped = t->shape.pipelines * t->shape.tensor * t->shape.context > 1,
    };

    return sp_plan_refuse(&t->plan, &wish);
}

/* Takes --partition-slices. */
static int cut_sequences(struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->cfg.layout;
    int err;

    if (l->partition_slices && t->plan.layout.slices == 1)
        return sp_error(EINVAL, "train: --partition-slices %s without --slices N",
                        l->partition_slices);
    err = t->plan.layout.slices > 1
              ? sp_plan_cut(&t->plan, &t->shape, l->partition_slices, &t->machine)
              : 0;
    /* a dry run without a launcher has a process for each stage, as in plan and show */
    t->plan.processes = t->cfg.dry_run && sp_launcher_find().size <= 1 ? t->plan.layout.stages
                                                                       : sp_train_pipeline_size(t);
    return err;
}

/* Makes the plan whose stages hold at most `most` micro-batches; 0: as many as the schedule
 * wants. */
static int search(struct sp_trainer *t, struct sp_layout *layout, int most)
{
    int err;

    sp_plan_destroy(&t->plan);
    layout->memory = most;
    err = sp_plan_create(t->cfg.layout.schedule, layout, &t->plan);
    if (err)
        t->plan.def = NULL;
    return err;
}

/* If the order is searched (zb1p:auto) and needs more memory than --memory-limit, searches again
 * for stages that hold as many micro-batches as the limit has room for. */
static int fit(struct sp_trainer *t, struct sp_layout *layout)
{
    int low = 1, high = t->plan.layout.micro_batches, err = 0;

    if (!sp_layout_flag(&t->plan.layout, "auto") || sp_train_fits(t, &t->plan))
        return 0;
    /* even 1 micro-batch may not fit: then the memory check says so */
    while (low < high) {
        int middle = (low + high + 1) / 2;

        err = search(t, layout, middle);
        if (err)
            return err;
        if (sp_train_fits(t, &t->plan))
            low = middle;
        else
            high = middle - 1;
    }
    return search(t, layout, low);
}

static void take_sizes(struct sp_trainer *t)
{
    const struct sp_train_config *a = &t->cfg;

    t->cfg.logit_rows = sp_train_head_rows(t);
    sp_shape_init(&t->shape, &t->model, a->layout.micro_batch_size, a->layout.seq,
                  a->layout.micro_batches);
    sp_shape_cut(&t->shape, a->mlp_chunk, a->logit_rows);
    sp_groups_shape(&a->groups, &a->layout, &t->shape);
    t->shape.dtype = a->dtype;
}

/* Refuses sizes that the model does not take. */
static int check_sizes(const struct sp_trainer *t)
{
    const struct sp_layout_args *l = &t->cfg.layout;
    int err = sp_model_check_step(
        &t->model, &(struct sp_step_size){l->seq, l->micro_batch_size, l->micro_batches}, "");

    if (err)
        return err;
    if (t->cfg.separator_set && t->cfg.separator >= t->model.vocab)
        return sp_error(EINVAL, "train: --document-separator %d: %s has tokens 0 to %d",
                        t->cfg.separator, t->model.name, t->model.vocab - 1);
    if (!t->cfg.dry_run && l->seq > t->model.positions)
        return sp_error(EINVAL,
                        "sequences of %d tokens, but the position table of %s has %d rows: longer "
                        "ones can only be planned; a model directory may have more n_positions",
                        l->seq, t->model.name, t->model.positions);
    if (l->slices > l->seq || l->slices > SP_MAX_SLICES)
        return sp_error(EINVAL, "%d slices of a sequence of %d tokens: there are at most %d",
                        l->slices, l->seq, l->seq < SP_MAX_SLICES ? l->seq : SP_MAX_SLICES);
    return 0;
}

/* Makes the plan, and checks that its family takes the settings. */
static int create(struct sp_trainer *t)
{
    struct sp_layout_args *l = &t->cfg.layout;
    struct sp_layout layout = sp_layout_of_args(l, t->model.layers);
    struct sp_costs costs;
    int err;

    layout.lists_layers = sp_partition_is_list(t->cfg.partition);
    if (sp_schedule_is_searched(l->schedule)) {
        /* costs from the description; the run measures later */
        costs = sp_search_costs(&t->machine, &t->shape, layout.stages, t->recompute,
                                sp_schedule_tensors(l->schedule));
        layout.costs = &costs;
    }
    err = sp_plan_create(l->schedule, &layout, &t->plan);
    err = err ? err : check_family(t);
    err = err ? err : sp_plan_check_members("train", l->schedule, &t->plan, &t->model, &t->shape);
    err = err ? err : cut_sequences(t);
    return err ? err : fit(t, &layout);
}

/* True if cores update for GPUs. `auto` trusts only a machine that somebody described or measured. */
static bool updates_on_cores(const struct sp_trainer *t)
{
    const struct sp_op_terms terms = {.machine = &t->machine, .devices = 1};
    int wanted = t->cfg.layout.optimizer_device;

    if (!t->plan.states_evicted || !sp_train_plans_gpus(t))
        return false;
    return wanted == SP_TRAIN_UPDATE_CPU ||
           (!sp_train_machine_is_assumed(t) &&
            sp_update_is_on_cores(&t->plan, &t->shape, &terms, (enum sp_update_device)wanted));
}

int sp_train_plan(struct sp_trainer *t)
{
    struct sp_layout_args *l = &t->cfg.layout;
    int err;

    take_sizes(t);
    err = sp_slices_auto("train", l, &t->model, t->cfg.dtype, &t->machine,
                         sp_slices_are_auto(l) ? sp_train_expect_gpus(t) : 0);
    if (!err) /* slices, and whether stages share them, determine how devices do */
        take_sizes(t);
    err = err ? err : check_sizes(t);
    err = err ? err : choose_recompute(t);
    err = err ? err : create(t);
    if (err)
        return err;
    /* a file determines them */
    l->stages = t->plan.layout.stages;
    l->micro_batches = t->plan.layout.micro_batches;
    take_sizes(t);
    if (l->offload_peers) {
        err = sp_parking_check("train", &t->plan, &t->shape);
        if (!err && t->cfg.post_validation)
            err =
                sp_error(EINVAL, "train: --offload-peers is not available with --post-validation, "
                                 "which may undo forwards; leave one of them out");
        if (!sp_train_offloads(t)) /* else it is chosen with what is evicted */
            err = err ? err : sp_parking_create(&t->plan, &t->shape, t->recompute, t->every);
        if (err)
            return err;
    }
    t->plan.states_evicted = l->offload_optimizer;
    t->plan.updates_on_cores = updates_on_cores(t);
    t->plan.states_twice = t->cfg.post_validation && t->cfg.clip > 0;
    return 0;
}
