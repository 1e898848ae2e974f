/* Reads, writes and gathers the parameters of all stages. */
#ifndef SP_CHECKPOINT_H
#define SP_CHECKPOINT_H

#include "graphs/graph.h"
#include "model/files/weights.h"

/*
 * Sets the initial values of every local block: from `weights` if not NULL (checked already),
 * otherwise drawn from the seed. Gradients and moments become zero. 0 or -errno.
 */
int sp_checkpoint_init(struct sp_graph *g, const struct sp_st_file *weights);

/* The fields of a block that can be gathered. */
enum sp_field { SP_FIELD_W, SP_FIELD_G, SP_FIELD_M, SP_FIELD_V };

/*
 * Writes one field of every block to a safetensors file with the model's tensor names, gathered
 * on rank 0 one block at a time. All ranks call it. 0 or -errno on rank 0, 0 elsewhere.
 */
int sp_checkpoint_write(struct sp_graph *g, enum sp_field field, const char *path);

/* The same for a name in `dir` (rank 0's), in shards with an index if the file would have more than
 * shard_bytes (0: one file). On rank 0 `sums` gets the checksums of what was written, see
 * sp_st_writer_sum. */
int sp_checkpoint_write_in(struct sp_graph *g, enum sp_field field, const struct sp_dir *dir,
                           const char *name, uint64_t shard_bytes, json_t *sums);

/*
 * Copies one field of every block into the memory of rank 0 (4 bytes per parameter); any thread may
 * write the copy while the next steps run. All ranks call take; elsewhere *snapshot is NULL. 0 or
 * -errno.
 */
struct sp_snapshot;
int sp_snapshot_take(struct sp_graph *g, enum sp_field field, struct sp_snapshot **snapshot);
int sp_snapshot_write(const struct sp_snapshot *s, const struct sp_dir *dir, const char *name,
                      uint64_t shard_bytes, json_t *sums);
void sp_snapshot_free(struct sp_snapshot *s);

/* Reads one field of every local block from such a file. */
int sp_checkpoint_read(struct sp_graph *g, enum sp_field field, const struct sp_st_file *st);

/* Zeroes one field of every local block, between steps. */
void sp_checkpoint_clear(struct sp_graph *g, enum sp_field field);

/* Calls fn on rank 0 with every block's values in the order of the model; all ranks call it. */
typedef int (*sp_block_fn)(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n);
int sp_checkpoint_each(struct sp_graph *g, enum sp_field field, sp_block_fn fn, void *arg);

#endif
