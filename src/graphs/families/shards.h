/*
 * What moves between the shards of the sharded family: weights that a worker gathers from their owners, and
 * gradients that it scatters to them. Owners add up those of all workers in the order of the backwards,
 * whatever the processes.
 */
#ifndef SP_GRAPH_SHARDS_H
#define SP_GRAPH_SHARDS_H

#include "graphs/families/gathered_unit.h"
#include "policies/lowering/action.h"

/* A part of a gradient that an owner is to add. */
struct sp_shard_part {
    struct sp_block *block;
    struct sp_tensor *handle;
    const struct sp_gathered_unit *unit; /* whose part it is, NULL: received into a buffer */
    int index;                           /* of the op in the program that it comes from */
};

enum { SP_SHARD_GRADIENTS = 3 };

struct sp_shards {
    struct sp_gathered_unit weights[2], gradients[SP_SHARD_GRADIENTS]; /* of the largest chunk */
    unsigned char *weights_of; /* [ops] which of them an op computes with */
    int gradient;              /* which is in use */
    int next;                  /* op to run */
    struct sp_gathered_unit end_weights, end_gradients; /* [SP_BLOCK_KINDS] */
    struct sp_shard_part *parts;                        /* to be added, in order */
    int n_parts, cap_parts;
};

/* Room on a stage for embedding and head, whole, and their gradients: st->shards. 0, -ENOMEM, or -EINVAL after one
 * line. And all of st->shards, if there is any, freed. */
int sp_shards_create(struct sp_graph *g, struct sp_stage *st);
void sp_shards_destroy(struct sp_stage *st);

/* A gather or scatter of a worker: its half of it, or what this process does for another's. */
void sp_shards_collective(struct sp_graph *g, const struct sp_action *a);

/* Adds the parts that came to a stage from ops up to `index`: those after them wait their turn. */
void sp_shards_add(struct sp_stage *st, struct sp_task_context ctx, int index);

/* Takes the next unit of gradients for a chunk, zeros: where those of three units before were. */
void sp_shards_take_gradients(struct sp_graph *g, struct sp_stage *st,
                              const struct sp_task_context *ctx, int chunk);

#endif
