/*
 * Which units a worker of the sharded family gathers, and when. A unit is a chunk of layers; memory
 * holds two gathered units: the one that the current ops use, and the next one.
 */
#ifndef SP_SHARDS_H
#define SP_SHARDS_H

#include "policies/lowering/lowering.h"

/* struct sp_family: foreign, where worker i mod P keeps micro-batch i. */
bool sp_worker_foreign(const struct sp_layout *lay, int stage, const struct sp_op *op, char *why,
                       size_t n);

/* Embedding and head, in place of a chunk. */
enum { SP_SHARDS_ENDS = -1 };

/* A GATHER of a chunk's weights, or a SCATTER of its gradients, of a stage with all others, for or
 * after the op at `index` of its program. */
void sp_shards_lower(struct sp_lowering *l, enum sp_action_kind kind, int stage, int index,
                     int chunk);

/* True if op k is the first in a row of ops that use its unit. */
static inline int sp_shards_change(const struct sp_program *prog, int k)
{
    return k == 0 || prog->ops[k].chunk != prog->ops[k - 1].chunk;
}

/* The next op that uses another unit, which is gathered for it while op k runs. -1: there is none,
 * or the ops before k used that unit, so it is still gathered. Before op 0 its own unit is gathered
 * too. */
int sp_shards_prefetch(const struct sp_program *prog, int k);

/* True if op k, a backward, is the first (the second function: the last) in a row that adds to the
 * gradient of its unit. The gradient is scattered after the last. */
static inline int sp_shards_add_first(const struct sp_program *prog, int k)
{
    return sp_shards_change(prog, k) || prog->ops[k - 1].pass != SP_B;
}

static inline int sp_shards_add_last(const struct sp_program *prog, int k)
{
    return k + 1 == prog->n || sp_shards_change(prog, k + 1) || prog->ops[k + 1].pass != SP_B;
}

#endif
