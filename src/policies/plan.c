#include "policies/plan.h"
#include "policies/lowering/evictions.h"
#include "policies/lowering/parking.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

static void forget_order(struct sp_plan *plan)
{
    free(plan->order);
    plan->order = NULL;
}

int sp_plan_index(struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_op_source source = {.family = plan->family, .lay = lay, .programs = plan->programs};
    unsigned char *deferred = NULL;

    forget_order(plan);
    plan->paired = false;
    for (int s = 0; s < lay->stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++) {
            struct sp_op op = plan->programs[s].ops[k];
            int id;

            plan->paired |= op.overlap;
            if (op.pass != SP_W)
                continue;
            if (!deferred) {
                deferred = calloc((size_t)plan->family->ids(lay), 1);
                if (!deferred)
                    return sp_error(ENOMEM, "no memory for %d ops", plan->family->ids(lay));
            }
            op.pass = SP_B;
            id = plan->family->id(lay, s, &op);
            if (id >= 0)
                deferred[id] = 1;
        }
    }
    free(plan->deferred);
    plan->deferred = deferred;
    plan->split = deferred != NULL;
    source.deferred = deferred;
    sp_op_classes_destroy(&plan->classes);
    if (sp_op_classes_create(&source, &plan->classes))
        return sp_error(ENOMEM, "no memory for %d ops", sp_plan_ops(plan));
    return 0;
}

int sp_plan_partition(struct sp_plan *plan, const int *counts)
{
    int globals = sp_globals(&plan->layout);
    int *first;

    for (int g = 0; g < globals; g++)
        if (counts[g] == 0 && plan->family->facts.layers != SP_LAYERS_MAYBE_NONE)
            return sp_error(
                EINVAL,
                "partition: every stage of %s%s%s wants a layer, and part %d has none; give "
                "it 1 or more",
                plan->def->name, *plan->options ? ":" : "", plan->options, g);
    first = calloc((size_t)globals + 1, sizeof *first);
    if (!first)
        return sp_error(ENOMEM, "no memory for the layers of %d stages", globals);
    for (int g = 0; g < globals; g++)
        first[g + 1] = first[g] + counts[g];
    forget_order(plan);
    free(plan->first_layer);
    plan->first_layer = first;
    return 0;
}

int sp_plan_slices(struct sp_plan *plan, const int *len, const double *share)
{
    size_t n = (size_t)plan->layout.slices;
    int *first = calloc(n + 1, sizeof *first);
    double *copy = calloc(n, sizeof *copy);

    if (!first || !copy) {
        free(first);
        free(copy);
        return sp_error(ENOMEM, "no memory for %zu slices", n);
    }
    forget_order(plan);
    for (size_t k = 0; k < n; k++) {
        first[k + 1] = first[k] + len[k];
        copy[k] = share[k];
    }
    free(plan->first_token);
    free(plan->slice_share);
    plan->first_token = first;
    plan->slice_share = copy;
    return 0;
}

/* Returns NULL if `array` is NULL or there is no memory for the copy. */
static void *copy_of(const void *array, size_t bytes)
{
    void *copy = array ? malloc(bytes) : NULL;

    return copy ? memcpy(copy, array, bytes) : NULL;
}

int sp_plan_choose_like(struct sp_plan *plan, const struct sp_plan *from)
{
    size_t globals = (size_t)sp_globals(&plan->layout), slices = (size_t)plan->layout.slices;

    forget_order(plan);
    plan->first_layer = copy_of(from->first_layer, (globals + 1) * sizeof *plan->first_layer);
    plan->first_token = copy_of(from->first_token, (slices + 1) * sizeof *plan->first_token);
    plan->slice_share = copy_of(from->slice_share, slices * sizeof *plan->slice_share);
    plan->recompute = copy_of(from->recompute, (size_t)plan->layout.layers);
    plan->processes = from->processes;
    plan->states_twice = from->states_twice;
    plan->states_evicted = from->states_evicted;
    plan->updates_on_cores = from->updates_on_cores;
    if (plan->family->shared && plan->family->shared->cut_like(plan, from))
        return -ENOMEM;
    return !plan->first_layer == !from->first_layer && !plan->first_token == !from->first_token &&
                   !plan->slice_share == !from->slice_share && !plan->recompute == !from->recompute
               ? 0
               : -ENOMEM;
}

void sp_plan_slice_tokens(const struct sp_plan *plan, int seq, int k, int *first, int *len)
{
    int n = plan->layout.slices, each = seq / n, rest = seq % n;

    if (plan->first_token) {
        *first = plan->first_token[k];
        *len = plan->first_token[k + 1] - *first;
    } else { /* the first ones take the rest */
        *len = each + (k < rest);
        *first = k * each + (k < rest ? k : rest);
    }
}

void sp_plan_op_tokens(const struct sp_plan *plan, int seq, const struct sp_op *op, int *first,
                       int *len)
{
    if (plan->family->shared)
        plan->family->shared->part_tokens(plan, seq, op, first, len);
    else
        sp_plan_slice_tokens(plan, seq, op->slice, first, len);
}

int sp_plan_ops(const struct sp_plan *plan)
{
    int n = 0;

    for (int s = 0; s < plan->layout.stages; s++)
        n += plan->programs[s].n;
    return n;
}

int sp_run_deps(const struct sp_plan *plan, int stage, const struct sp_op *op,
                struct sp_dep out[SP_MAX_DEPS])
{
    const struct sp_family *family = plan->family;

    return family->lowers->run_deps ? family->lowers->run_deps(&plan->layout, stage, op, out)
                                    : family->deps(&plan->layout, stage, op, out);
}

int sp_refuse_post_validation(const struct sp_plan *plan)
{
    return sp_error(EINVAL, "train: --post-validation is not available for %s; leave it out",
                    plan->def->name);
}

int sp_plan_refuse(const struct sp_plan *plan, const struct sp_train_wish *wish)
{
    const struct sp_family *family = plan->family;
    int err = family->refuse ? family->refuse(plan, wish) : 0;

    if (err)
        return err;
    if (family->facts.layers == SP_LAYERS_DEALT && strcmp(wish->partition, "even"))
        return sp_error(EINVAL,
                        "train: --partition %s: %s deals the layers out by itself; use even",
                        wish->partition, plan->def->name);
    if (family->facts.layers == SP_LAYERS_ALIKE && !strcmp(wish->partition, "balanced"))
        return sp_error(
            EINVAL,
            "train: --partition balanced: every worker of %s computes all layers; use even or "
            "a list",
            plan->def->name);
    return wish->post_validation && !family->facts.post_validates ? sp_refuse_post_validation(plan)
                                                                  : 0;
}

void sp_programs_destroy(struct sp_program *programs, int stages)
{
    for (int s = 0; programs && s < stages; s++)
        sp_program_clear(&programs[s]);
    free(programs);
}

void sp_plan_destroy(struct sp_plan *plan)
{
    sp_programs_destroy(plan->programs, plan->layout.stages);
    forget_order(plan);
    sp_op_classes_destroy(&plan->classes);
    free(plan->deferred);
    free(plan->first_layer);
    free(plan->first_token);
    free(plan->slice_share);
    free(plan->recompute);
    sp_evictions_destroy(plan->evictions, plan->layout.stages);
    sp_parking_destroy(plan->parking);
    sp_map_destroy(plan->map);
    *plan = (struct sp_plan){.layout = plan->layout, .def = plan->def, .family = plan->family};
    plan->layout.map = NULL;
}
