/*
 * The collectives of the sharded family: weights that a worker gathers from their owners, and
 * gradients that it scatters to them. Owners sum those of all workers in the order of the
 * backwards, in any process.
 */
#ifndef SP_GRAPH_SHARDS_H
#define SP_GRAPH_SHARDS_H

#include "policies/lowering/action.h"
#include "graphs/weights/zero.h"
#include "policies/families/sharded/shards.h"

/* Units of the sharded family: the blocks of a chunk, or of embedding and head, gathered on a
 * worker. */

/* Consecutive blocks, and their handles in the form that layers take. */
struct sp_gathered_unit {
    int n;
    struct sp_gathered *block; /* [n] */
    struct sp_tensor **handle; /* [n] NULL: the model has no such block */
};

struct sp_unit_block {
    enum sp_block_kind kind;
    int layer; /* -1 outside the layers */
};

/* The number of blocks of a chunk, and the i-th one; false: the model has no such block. */
int sp_unit_blocks(const struct sp_graph *g, int chunk);
bool sp_unit_block(const struct sp_graph *g, int chunk, int i, struct sp_unit_block *block);

/* Allocates buffers for a chunk on a stage, all zeros. 0, -ENOMEM, or -EINVAL after one line: a
 * block is too large. */
int sp_unit_create(struct sp_graph *g, struct sp_stage *st, struct sp_gathered_unit *unit,
                   int chunk, size_t elem);
void sp_unit_destroy(struct sp_gathered_unit *unit);

/* Switches a unit to gathered blocks and inserts the tasks that clear it. */
void sp_unit_clear(struct sp_graph *g, const struct sp_task_context *ctx,
                   struct sp_gathered_unit *unit, int chunk);

/* A part of a gradient that an owner has to add. */
struct sp_shard_part {
    struct sp_block *block;
    struct sp_tensor *handle;
    const struct sp_gathered_unit *unit; /* the unit of the part; NULL: a received buffer */
    int index;                           /* the op that it comes from, in the program */
};

enum { SP_SHARD_GRADIENTS = 3 };

struct sp_shards {
    struct sp_gathered_unit weights[2], gradients[SP_SHARD_GRADIENTS]; /* sized for the largest
                                                                        * chunk */
    unsigned char *weights_of; /* [ops] which `weights` an op computes with */
    int gradient;              /* which `gradients` are in use */
    int next;                  /* next op to run */
    struct sp_gathered_unit end_weights, end_gradients; /* [SP_BLOCK_KINDS] */
    struct sp_shard_part *parts;                        /* to be added, in order */
    int n_parts, cap_parts;
};

/* Allocates st->shards with buffers for gathered embedding and head, and their gradients: 0,
 * -ENOMEM, or -EINVAL after one line. Destroy frees all of st->shards, if there is any. */
int sp_shards_create(struct sp_graph *g, struct sp_stage *st);
void sp_shards_destroy(struct sp_stage *st);

/* Does a gather or scatter of a worker: the worker's half, or what this process does for
 * another's. */
void sp_shards_collective(struct sp_graph *g, const struct sp_action *a);

/* Adds the parts that a stage received from ops up to `index`; those of later ops wait. */
void sp_shards_add(struct sp_stage *st, struct sp_task_context ctx, int index);

/* Takes the next unit of gradients for a chunk and clears it; it last held those of three units
 * ago. */
void sp_shards_take_gradients(struct sp_graph *g, struct sp_stage *st,
                              const struct sp_task_context *ctx, int chunk);

#endif
