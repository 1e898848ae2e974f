#include "graphs/families/family.h"
#include "policies/families/family.h"

const struct sp_graph_family *sp_graph_family_of(const struct sp_family *family)
{
    const struct sp_family_facts *is = &family->facts;

    return family->insert_ops     ? &sp_graph_vocabulary
           : family->shared       ? &sp_graph_multiplexed
           : is->parts            ? &sp_graph_attention_parallel
           : is->sharded          ? &sp_graph_sharded
           : is->shares_attention ? &sp_graph_aligned
           : is->stashes          ? &sp_graph_stashing
           : is->names_global     ? &sp_graph_weight_ring
                                  : &sp_graph_layerwise;
}
