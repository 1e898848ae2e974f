/*
 * The collectives of the sharded family: weights that a worker gathers from their owners, and
 * gradients that it scatters to them. Owners sum those of all workers in the order of the
 * backwards, in any process.
 */
#ifndef SP_GRAPH_SHARDS_H
#define SP_GRAPH_SHARDS_H

#include "graphs/families/gathered_unit.h"
#include "policies/lowering/action.h"

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
