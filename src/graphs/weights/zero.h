/*
 * ZeRO (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
 * Models", section 5): data-parallel pipelines have the same weights, so each keeps the
 * optimizer's state of one part of every block only, and updates that part (--zero 1).
 *
 *   a step begins           gather: the parts of the weights, from the pipelines that updated them
 *   a gradient is complete  scatter: its parts, to the pipelines that update them, which add up
 *                           (step.c)
 *
 * With D pipelines and P parameters, a pipeline sends (D - 1)/D P elements of gradients in a step,
 * and as many of weights. Ops read gathered weights and add to gathered gradients; from a scatter
 * to the next gather a block is used in parts.
 *
 * A pipeline keeps only its part, its shard, of the gradients of layers too (--zero 2), and of their
 * weights (--zero 3). Whole layers, or the blocks that an op on a part of a layer uses, come and go
 * with the ops of a stage:
 *
 *   an op comes to a layer  the weights of that layer are there, and those of the next one that the
 *                           stage uses are gathered; the layer gets a gradient of zeros
 *   it leaves the layer     the weights are dropped. Once weight gradients are computed, the parts of
 *                           the gradient leave to their pipelines, which add them to their shards
 *                           when they leave the next layer
 *
 * A step adds up the gradients of a micro-batch over all pipelines first, --zero 1 those of a pipeline
 * over all micro-batches: they differ by rounding. A gradient whose weight gradients have an op of
 * their own stays until those of all its backwards are computed. With M micro-batches and N elements
 * of a layer, a pipeline sends (D - 1)/D N M gradients, and as many weights for each pass. Embedding
 * and head are shared as with --zero 1.
 */
#ifndef SP_ZERO_H
#define SP_ZERO_H

#include "graphs/graph.h"

enum { SP_SHARED_W, SP_SHARED_G };

/*
 * Creates weights and gradient of a block whose first and n are set, switched to parts; this
 * pipeline's part becomes the block's state, and first and n describe that part from then on. 0, or
 * -errno after one line.
 */
int sp_zero_create(struct sp_graph *g, struct sp_block *b);
void sp_zero_destroy(struct sp_block *b);

/* Switches to the parts, because the block's state is used next; no effect without ZeRO. */
void sp_zero_cut(struct sp_block *b);

/* Gathers the weights of this process's blocks and clears their gradients, for ops to use, except
 * those of which it keeps shards. */
void sp_zero_begin(struct sp_graph *g);

/* Allocates st->zero, with buffers for whole layers: 0, or -errno after one line. No effect below
 * --zero 2. */
int sp_zero_stage_create(struct sp_graph *g, struct sp_stage *st);
void sp_zero_stage_destroy(struct sp_stage *st);

/* Shards for an op on layers of another stage, each [layers][SP_LAYER_BLOCKS]; `w` and `gradient` are
 * the whole ones, which the op uses (struct sp_op_ctx). Without shards, `shard` is
 * `w` and `sum` is `gradient`. */
struct sp_zero_shards {
    struct sp_tensor **w, **gradient, **shard, **sum;
};

/*
 * For layer i of an op's chunk. Gather makes its weights whole, and sends for those of the layer that
 * the stage uses after it; drop forgets them. Take gives it a gradient, of zeros unless the stage has
 * one that waits for weight gradients; scatter sends the parts of that away. No effect on what is
 * whole all the time.
 */
struct sp_op_ctx;
void sp_zero_gather(struct sp_op_ctx *c, int i);
void sp_zero_drop(struct sp_op_ctx *c, int i);
void sp_zero_take_gradient(struct sp_op_ctx *c, int i);
void sp_zero_scatter(struct sp_op_ctx *c, int i);

/*
 * The same for one block of a layer, if ops use parts of layers; then no parts of its gradient may be
 * left to add when it is scattered. `shard` and `sum` are this pipeline's part of the weights and of
 * the gradient, perhaps those of another stage's block; ahead, NULL: it did not come yet.
 * sp_zero_weights and sp_zero_gradient are the whole ones.
 */
void sp_zero_gather_block(struct sp_op_ctx *c, enum sp_block_kind kind, int layer,
                          struct sp_tensor *shard);
void sp_zero_gather_ahead(struct sp_op_ctx *c, enum sp_block_kind kind, int layer,
                          struct sp_tensor *shard);
void sp_zero_drop_block(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);
void sp_zero_take_block_gradient(struct sp_op_ctx *c, enum sp_block_kind kind, int layer);
void sp_zero_scatter_block(struct sp_op_ctx *c, enum sp_block_kind kind, int layer,
                           struct sp_tensor *sum);
struct sp_tensor *sp_zero_weights(const struct sp_stage *st, enum sp_block_kind kind, int layer);
struct sp_tensor *sp_zero_gradient(const struct sp_stage *st, enum sp_block_kind kind, int layer);

/* Adds the parts of gradients that a stage has received. */
void sp_zero_add(struct sp_stage *st, const struct sp_task_context *ctx);

/* Drops what is gathered for ops that were undone. */
void sp_zero_discard(struct sp_graph *g);

/*
 * A parameter block in one buffer that is registered as a whole and as the parts that stages or
 * pipelines hold. At any time either the whole or the parts are in use; the sink switches between
 * the two views without a copy.
 */

struct sp_gathered {
    struct sp_tensor *whole; /* n elements */
    struct sp_tensor **part; /* [parts] n / parts elements, the first n % parts of them one more */
    int parts;
    bool cut;
    void *memory;
};

/* n is at least the number of parts. The buffer starts as zeros. 0 or -ENOMEM. */
int sp_gathered_create(struct sp_sink *s, struct sp_gathered *w, size_t n, int parts,
                       size_t elem_bytes);
/* Waits for the tasks that use it. */
void sp_gathered_destroy(struct sp_gathered *w);

/* Switch to the parts, or to the whole; no effect if that is the current view. */
void sp_gathered_cut(struct sp_gathered *w);
void sp_gathered_join(struct sp_gathered *w);

size_t sp_gathered_bytes(const struct sp_gathered *w);

/* Sends `own`, this pipeline's part of the weights t of a block, to all others, and receives the parts
 * of the others into `to`, which is in parts. */
void sp_zero_share_weights(struct sp_graph *g, struct sp_stage *st, const struct sp_tensor_id *t,
                           struct sp_tensor *own, const struct sp_gathered *to, int64_t tag);

#endif
