/*
 * How layers are dealt out to chunks, and which stages hold which parameters. Pure: the graph, the
 * planner and the tests share it.
 */
#ifndef SP_OWNERSHIP_H
#define SP_OWNERSHIP_H

#include "model/params.h"
#include "policies/plan.h"

/* Layers first .. first+count-1 of a part: an even split, whose remainder goes to the first parts,
 * one each. */
void sp_partition(int layers, int parts, int part, int *first, int *count);

/* The global stage whose layers an op of a stage works on, from the chunk that it names. */
int sp_chunk_global(const struct sp_plan *plan, int stage, int chunk);

/* First layer and count of a chunk of a stage. */
void sp_chunk_layers(const struct sp_plan *plan, int layers, int stage, int chunk, int *first,
                     int *count);

/* Ops of a stage name chunks 0 .. that - 1. */
int sp_chunks_of(const struct sp_plan *plan);

/* The i-th of the global stages whose parameters a stage keeps, -1 past the last. If ops are parts
 * of layers: the i-th of its blocks. */
int sp_stage_owned(const struct sp_plan *plan, int stage, int i);

/* Layers of a stage; if ops are parts of layers, those of its blocks that end a layer. */
int sp_stage_layers(const struct sp_plan *plan, int layers, int stage);

/* Layers of the largest chunk of a stage. */
int sp_most_layers(const struct sp_plan *plan, int layers, int stage);

/* Layers of part c of a model cut into `parts`: the plan's own, if it has some, otherwise an even
 * split. */
void sp_part_layers(const struct sp_plan *plan, int layers, int parts, int c, int *first,
                    int *count);

/*
 * How many activations can be live on a stage of a layerwise plan, and the number of one, by chunk,
 * micro-batch and slice. If stages share slices, the numbers cover all stages together, by global
 * stage, micro-batch and part. The parts of a micro-batch have consecutive numbers.
 */
int sp_activations_count(const struct sp_plan *plan);
int sp_activations_index(const struct sp_plan *plan, int chunk, int mb, int slice);
/* The number for an op; if ops are parts of layers, each part has its own number. */
int sp_activations_of_op(const struct sp_plan *plan, int stage, const struct sp_op *op);

/* True if a stage begins (`last`: ends) the model for some micro-batches. */
bool sp_is_end_stage(const struct sp_plan *plan, int stage, bool last);

/* The SP_GROUP_... that the devices of a stage may share. */
int sp_plan_groups(const struct sp_plan *plan);

/* Slices, or parts of them, of a global stage. */
int sp_slices_of(const struct sp_plan *plan, int global);

/*
 * Calls fn once for every parameter block that a stage holds: the tables if one of its chunks
 * begins the model, its layers, the final norm and the head if one ends it. The stages of both ends
 * hold a tied table. Stops at the first error of fn and returns it.
 */
int sp_stage_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg);

/* True if every stage holds a part of such blocks; and true if some stage gathers them while a step
 * runs. */
bool sp_block_is_sharded(const struct sp_plan *plan, enum sp_block_kind kind);
bool sp_block_is_gathered(const struct sp_plan *plan, enum sp_block_kind kind);

/*
 * Elements of a block that a stage keeps if it holds the block: all of them, or in a sharded family
 * a P-th, rounded up to a multiple of 8 or to rows of the vocabulary. Elements past the end of the
 * block are zero. The elements of stage s begin at sp_block_first.
 */
uint64_t sp_block_held(const struct sp_plan *plan, const struct sp_model *m,
                       enum sp_block_kind kind);
uint64_t sp_block_first(const struct sp_plan *plan, const struct sp_model *m,
                        enum sp_block_kind kind, int stage);

/*
 * The stages that hold a block, in ascending order; returns how many. More than one are replicas,
 * whose gradients are summed (tied tables of both ends; the two pipes of a bidirectional plan). If
 * a block is sharded, or every stage has one (weight-ring: embedding and head), only the first.
 */
#define SP_MAX_OWNERS 4
int sp_block_owners(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind,
                    int layer, int stages[SP_MAX_OWNERS]);

#endif
