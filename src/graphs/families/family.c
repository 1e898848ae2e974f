#include "graphs/families/family.h"
#include "policies/families/families.h"

const struct sp_graph_family *sp_graph_family_of(const struct sp_family *family)
{
    static const struct {
        const struct sp_family *family;
        const struct sp_graph_family *graph;
    } halves[] = {{&sp_family_layerwise, &sp_graph_layerwise},
                  {&sp_family_bidirectional, &sp_graph_layerwise},
                  {&sp_family_subsequence, &sp_graph_layerwise},
                  {&sp_family_aligned, &sp_graph_aligned},
                  {&sp_family_multiplexed, &sp_graph_multiplexed},
                  {&sp_family_attention_parallel, &sp_graph_attention_parallel},
                  {&sp_family_weight_ring, &sp_graph_weight_ring},
                  {&sp_family_sharded, &sp_graph_sharded},
                  {&sp_family_stashing, &sp_graph_stashing}};
    int i = 0;

    if (family->shares_vocabulary)
        return &sp_graph_vocabulary;
    while (halves[i].family != family)
        i++;
    return halves[i].graph;
}
