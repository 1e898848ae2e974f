/* Units of the sharded family: the blocks of a chunk, or of embedding and head, gathered on a
 * worker. */
#ifndef SP_GATHERED_UNIT_H
#define SP_GATHERED_UNIT_H

#include "graphs/weights/gathered.h"
#include "graphs/graph.h"
#include "policies/families/sharded/shards.h"

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

#endif
