/* The built-in graph families, a folder each: FAMILY/FAMILY.c says which ops there are and, if there
 * is no FAMILY/actions.c, what travels between them. */
#ifndef SP_FAMILIES_H
#define SP_FAMILIES_H

#include "policies/families/family.h"

extern const struct sp_family sp_family_layerwise;
extern const struct sp_family sp_family_bidirectional;
extern const struct sp_family sp_family_subsequence;
extern const struct sp_family sp_family_aligned;
extern const struct sp_family sp_family_multiplexed;
extern const struct sp_family sp_family_attention_parallel;
extern const struct sp_family sp_family_weight_ring;
extern const struct sp_family sp_family_sharded;
extern const struct sp_family sp_family_stashing;
extern const struct sp_family sp_family_double_buffered;
/* The families whose stages share the vocabulary are in families/vocabulary/vocabulary.h. */

const struct sp_family *sp_family_find(const char *name);
/* The i-th family, NULL past the end. */
const struct sp_family *sp_family_at(int i);

void sp_multiplexed_lower(struct sp_lowering *l, int i);
void sp_multiplexed_lower_end(struct sp_lowering *l);
int sp_attention_parallel_lower_begin(struct sp_lowering *l);
void sp_attention_parallel_lower(struct sp_lowering *l, int i);
void sp_attention_parallel_lower_end(struct sp_lowering *l);

#endif
