/* Parts of the layerwise families that the families with a shared vocabulary use too
 * (families/vocabulary). */
#ifndef SP_FAMILY_LAYERWISE_H
#define SP_FAMILY_LAYERWISE_H

#include "policies/plan.h"

int sp_layerwise_place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                       struct sp_map **map, char *why, size_t n);
bool sp_layerwise_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                          size_t n);

/* The cost of an op's layers; and of the head, for the op's micro-batch or slice. */
double sp_layerwise_layers_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                                const struct sp_op *op);
double sp_layerwise_head_cost(const struct sp_plan *plan, const struct sp_costs *costs,
                              const struct sp_op *op);

/* The functions that the families share. They differ in pipes, in who computes whose slices, and in
 * order. */
#define SP_LAYERWISE_OPS                                                                           \
    .facts.prices_head = true, .facts.post_validates = true, .facts.by_layer = true,               \
    .id = sp_layerwise_id, .ids = sp_layerwise_ids, .foreign = sp_layerwise_foreign,               \
    .deps = sp_layerwise_deps, .required = sp_layerwise_required, .cost = sp_layerwise_cost,       \
    .again = sp_layerwise_again
#define SP_LAYERWISE                                                                               \
    .facts.layers = SP_LAYERS_MAYBE_NONE, .facts.pairs = true, .facts.groups = SP_GROUP_ALL,       \
    .lowers = &sp_layerwise_lowers, SP_LAYERWISE_OPS

extern const struct sp_lowerer sp_layerwise_lowers;
int sp_layerwise_id(const struct sp_layout *lay, int stage, const struct sp_op *op);
int sp_layerwise_ids(const struct sp_layout *lay);
int sp_layerwise_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                      struct sp_dep out[SP_MAX_DEPS]);
void sp_layerwise_required(const struct sp_layout *lay, sp_need_fn need, void *arg);
double sp_layerwise_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                         const struct sp_op *op);
double sp_layerwise_again(const struct sp_plan *plan, const struct sp_costs *costs,
                          const struct sp_op *op);

/* Three steps of the lowering: an op's receives, its sends, and the frees of tensors that it was the last to
 * read. */
void sp_layerwise_receive(struct sp_lowering *l, int stage, const struct sp_op *op, int index);
void sp_layerwise_send(struct sp_lowering *l, int stage, const struct sp_op *op, int index);
void sp_layerwise_release(struct sp_lowering *l, int stage, const struct sp_op *op);

/*
 * A REDUCE on each stage that holds a block, for every block that more than one stage holds
 * (ownership.h: sp_block_owners). The blocks come in the order of the model, in whatever order a
 * stage holds them: if processes took them in different orders, each could wait for a buffer that
 * the other's exchange frees. Nothing if the model is unknown.
 */
void sp_replicas_lower(struct sp_lowering *l);

/* Refuses options that need the gradient of a whole step, or one version of all weights. */
int sp_refuse_stashing(const struct sp_plan *plan, const struct sp_train_wish *wish);

/* Versions of its weights that a stage keeps: more than one if it updates them within a step. */
int sp_weight_versions(const struct sp_plan *plan, int stage);

#endif
