/* Of the layerwise families, what the one that cuts the vocabulary over all stages shares (families/vocabulary). */
#ifndef SP_FAMILY_LAYERWISE_H
#define SP_FAMILY_LAYERWISE_H

#include "policies/plan.h"

int sp_layerwise_place(const struct sp_layout *lay, const struct sp_schedule_def *def,
                       struct sp_map **map, char *why, size_t n);
bool sp_layerwise_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                          size_t n);
int sp_layerwise_activations(const struct sp_layout *lay);
bool sp_layerwise_post_validates(const struct sp_layout *lay);

/* What the layers of an op cost; and the head, of the op's micro-batch or slice. */
double sp_layerwise_cost(const struct sp_plan *plan, const struct sp_costs *costs, int stage,
                         const struct sp_op *op);
double sp_layerwise_head_cost(const struct sp_plan *plan, const struct sp_costs *costs,
                              const struct sp_op *op);

/* Versions of its weights that a stage has: more than one where micro-batches update them. */
int sp_weight_versions(const struct sp_plan *plan, int stage);

#endif
