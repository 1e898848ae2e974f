/* The built-in graph families, a folder each: which ops there are in FAMILY/FAMILY.c, what travels in
 * FAMILY/actions.c, what a stage holds for it in FAMILY/memory.c. */
#ifndef SP_FAMILIES_H
#define SP_FAMILIES_H

#include "policies/families/family.h"

extern const struct sp_family sp_family_layerwise;
extern const struct sp_family sp_family_bidirectional;
extern const struct sp_family sp_family_subsequence;
extern const struct sp_family sp_family_multiplexed;
extern const struct sp_family sp_family_attention_parallel;
extern const struct sp_family sp_family_weight_ring;
extern const struct sp_family sp_family_sharded;

struct sp_lowering;

void sp_layerwise_lower(struct sp_lowering *l, int i);
int sp_multiplexed_lower_begin(struct sp_lowering *l);
void sp_multiplexed_lower(struct sp_lowering *l, int i);
void sp_multiplexed_lower_end(struct sp_lowering *l);
int sp_attention_parallel_lower_begin(struct sp_lowering *l);
void sp_attention_parallel_lower(struct sp_lowering *l, int i);
int sp_weight_ring_lower_begin(struct sp_lowering *l);
void sp_weight_ring_lower(struct sp_lowering *l, int i);
void sp_weight_ring_lower_end(struct sp_lowering *l);
void sp_sharded_lower(struct sp_lowering *l, int i);
void sp_sharded_lower_end(struct sp_lowering *l);

#endif
