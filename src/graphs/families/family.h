/*
 * A graph family as the engine sees it: how an op of a stage becomes tasks. The other half,
 * src/policies/families/family.h, says which ops there are.
 */
#ifndef SP_GRAPH_FAMILY_H
#define SP_GRAPH_FAMILY_H

#include "graphs/graph.h"
#include "policies/lowering/action.h"

struct sp_graph_family {
    /* Allocates the activations' records on all local stages: 0 or -ENOMEM. */
    int (*create)(struct sp_graph *g);
    void (*destroy)(struct sp_graph *g);

    /* Called before the first op of a step is submitted, and after the last one; NULL: nothing to
     * do. */
    void (*begin)(struct sp_graph *g);
    void (*end)(struct sp_graph *g);

    /* Submits the tasks of an op of a local stage, or of one part of the op, and of the op that
     * overlaps with it. Reads tensors from the stage's store, and puts there what other ops
     * read. */
    void (*run)(struct sp_graph *g, struct sp_stage *st, const struct sp_action *a);

    /* Does GATHER and SCATTER of any stage, also of other processes; NULL: there are none. */
    void (*collective)(struct sp_graph *g, const struct sp_action *a);

    /* Makes a tensor that a stage is to send and does not have yet; NULL: never needed. */
    void (*make)(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

    /* Does what a stage does with a tensor as soon as it has received it; NULL: nothing. */
    void (*received)(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *id);

    /* Undoes forwards whose tasks have ended, and frees what they left. All processes call it.
     * NULL: not available. */
    void (*discard)(struct sp_graph *g);

    /* Products add to the gradients of a stage's blocks, and do so before anything else does. */
    bool overwrites;
};

extern const struct sp_graph_family sp_graph_layerwise; /* and bidirectional, subsequence */
extern const struct sp_graph_family
    sp_graph_vocabulary; /* families whose stages split the vocabulary */
extern const struct sp_graph_family sp_graph_aligned;
extern const struct sp_graph_family sp_graph_multiplexed;
extern const struct sp_graph_family sp_graph_attention_parallel;
extern const struct sp_graph_family sp_graph_weight_ring;
extern const struct sp_graph_family sp_graph_sharded;
extern const struct sp_graph_family sp_graph_stashing;

/* The engine's half of a family. */
const struct sp_graph_family *sp_graph_family_of(const struct sp_family *family);

#endif
