/*
 * A graph family as the engine sees it: how an op of a stage becomes tasks. The other half,
 * src/policies/families/family.h, says which ops there are.
 */
#ifndef SP_GRAPH_FAMILY_H
#define SP_GRAPH_FAMILY_H

#include "graphs/graph.h"
#include "policies/lowering/action.h"

struct sp_graph_family {
    /* Room for what is in flight, on all local stages: 0 or -ENOMEM. */
    int (*create)(struct sp_graph *g);
    void (*destroy)(struct sp_graph *g);

    /* Before the first op of a step is submitted, after the last one; NULL: nothing to do. */
    void (*begin)(struct sp_graph *g);
    void (*end)(struct sp_graph *g);

    /* Submits the tasks of an op of a local stage, or of a leg of it, and of the one it overlaps with: reads what the
     * stage has in its store, puts there what others read. */
    void (*run)(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

    /* GATHER and SCATTER of any stage, those of other processes included; NULL: there are none. */
    void (*collective)(struct sp_graph *g, const struct sp_action *a);

    /* Makes a tensor that a stage is to send and does not have yet; NULL: there is none such. */
    void (*make)(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

    /* Undoes forwards whose tasks have ended: frees what they left. All processes call it. NULL: not
     * available. */
    void (*discard)(struct sp_graph *g);
};

extern const struct sp_graph_family sp_graph_layerwise; /* and bidirectional, subsequence */
extern const struct sp_graph_family
    sp_graph_vocabulary; /* those whose stages share the vocabulary */
extern const struct sp_graph_family sp_graph_aligned;
extern const struct sp_graph_family sp_graph_multiplexed;
extern const struct sp_graph_family sp_graph_attention_parallel;
extern const struct sp_graph_family sp_graph_weight_ring;
extern const struct sp_graph_family sp_graph_sharded;
extern const struct sp_graph_family sp_graph_stashing;

/* The half of the engine of a family. */
const struct sp_graph_family *sp_graph_family_of(const struct sp_family *family);

#endif
