/* The built-in graph families, one file each: src/policies/families/. */
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

#endif
