#include "policies/families/families.h"
#include <string.h>

static const struct sp_family *const families[] = {
    &sp_family_layerwise, &sp_family_bidirectional,      &sp_family_subsequence,
    &sp_family_aligned,   &sp_family_attention_parallel, &sp_family_weight_ring,
    &sp_family_sharded,   &sp_family_stashing,           &sp_family_double_buffered};

const struct sp_family *sp_family_at(int i)
{
    return i >= 0 && (size_t)i < sizeof families / sizeof *families ? families[i] : NULL;
}

const struct sp_family *sp_family_find(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (!strcmp(families[i]->name, name))
            return families[i];
    }
    return NULL;
}
