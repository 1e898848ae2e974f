/*
 * How layers are dealt out to chunks, and who holds which parameters. Pure: the graph, the planner and
 * the tests share it.
 */
#ifndef SP_OWNERSHIP_H
#define SP_OWNERSHIP_H

#include "model/params.h"
#include "policies/plan.h"

/* Layers first .. first+count-1 of a global stage: L split evenly, the first ones take the rest. */
void sp_partition(int layers, int parts, int part, int *first, int *count);

/* The global stage whose layers an op of a stage works on, by the chunk that it names. */
int sp_chunk_global(const struct sp_plan *plan, int stage, int chunk);

/* First layer and count of a chunk of a stage. */
void sp_chunk_layers(const struct sp_plan *plan, int layers, int stage, int chunk, int *first,
                     int *count);

/* Chunks that the ops of a stage name: 0 .. that - 1. */
int sp_chunks_of(const struct sp_plan *plan);

/* The i-th of the global stages whose parameters a stage keeps, -1 past the last; where ops are parts of
 * layers, of its blocks. */
int sp_stage_owned(const struct sp_plan *plan, int stage, int i);

/* Layers of a stage; where ops are parts of layers, its blocks that end one. */
int sp_stage_layers(const struct sp_plan *plan, int layers, int stage);

/* Layers of the largest chunk of a stage. */
int sp_most_layers(const struct sp_plan *plan, int layers, int stage);

/* Layers of chunk c of a model cut into `parts`, as the plan says. */
void sp_part_layers(const struct sp_plan *plan, int layers, int parts, int c, int *first,
                    int *count);

/*
 * What is in flight on the stages of a layerwise plan, by chunk, micro-batch and slice; where slices are
 * shared out, of all stages together by global stage, micro-batch and part: how many, and which. The
 * parts of a micro-batch follow each other.
 */
int sp_activations_count(const struct sp_plan *plan);
int sp_activations_index(const struct sp_plan *plan, int chunk, int mb, int slice);
/* Of what an op works on; where parts of layers are ops, of each part. */
int sp_activations_of_op(const struct sp_plan *plan, int stage, const struct sp_op *op);

/* Whether a stage begins (`last`: ends) the model for the micro-batches that do so there. */
bool sp_is_end_stage(const struct sp_plan *plan, int stage, bool last);
/* For families where every stage does. */
bool sp_every_stage(const struct sp_layout *lay, int stage, bool last);

/* What the devices of a stage may share (SP_GROUP_...): all there is; and of a plan. */
int sp_all_groups(const struct sp_layout *lay);
int sp_plan_groups(const struct sp_plan *plan);

/* Slices, or parts of them, of a global stage. */
int sp_slices_of(const struct sp_plan *plan, int global);

/*
 * Calls fn for every parameter block that a stage holds, each once: what its first chunk may begin
 * with (tables), its layers, what its last chunk may end in (final norm, head). The stages of both
 * ends hold a tied table. Stops at the first error of fn and returns it.
 */
int sp_stage_each_block(const struct sp_plan *plan, const struct sp_model *m, int stage,
                        sp_stage_block_fn fn, void *arg);

/* The same for embedding, final norm and head. */
int sp_stream_ends(const struct sp_model *m, sp_stage_block_fn fn, void *arg);

/* The tables of embedding and head. */
int sp_stream_tables(const struct sp_model *m, sp_stage_block_fn fn, void *arg);

/* Whether every stage holds a part of such blocks; and whether some stage has them whole while a step runs. */
bool sp_block_is_sharded(const struct sp_plan *plan, enum sp_block_kind kind);
bool sp_block_is_gathered(const struct sp_plan *plan, enum sp_block_kind kind);

/*
 * Elements of a block that a stage holding it keeps: all of them, or, where the family is sharded, a
 * P-th, rounded up to a multiple of 8, or to rows of the vocabulary: what goes beyond the end of the block is zero.
 * Stage s has those from sp_block_first on.
 */
uint64_t sp_block_held(const struct sp_plan *plan, const struct sp_model *m,
                       enum sp_block_kind kind);
uint64_t sp_block_first(const struct sp_plan *plan, const struct sp_model *m,
                        enum sp_block_kind kind, int stage);

/*
 * The stages that hold a block, in ascending order; returns how many. More than one: replicas,
 * whose gradients are summed (tied tables of both ends; the two pipes of a bidirectional plan).
 * Where a block is sharded, or every stage has one (weight-ring: embedding and head), the first stage alone.
 */
#define SP_MAX_OWNERS 4
int sp_block_owners(const struct sp_plan *plan, const struct sp_model *m, enum sp_block_kind kind,
                    int layer, int stages[SP_MAX_OWNERS]);

#endif
