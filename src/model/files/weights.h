/* Blocks to and from Hugging Face weight files: names, transpositions, checks of shape. */
#ifndef SP_WEIGHTS_H
#define SP_WEIGHTS_H

#include "model/params.h"
#include "model/files/safetensors.h"

/*
 * Checks that `st` holds every tensor of the model with its shape (a name may lack the leading
 * "transformer." or "model."). Says which is missing or wrong, -EINVAL. A tensor the model has no
 * place for (a layer too many, a bias) is refused too, except buffers and the head of a tied model
 * if it has the values of the token embedding, or is stored in its place. So is one found under both its
 * names.
 */
int sp_weights_check(const struct sp_st_file *st, const struct sp_params *p);

/* After it: reads the `share`-th of `shares` of every tensor. -EINVAL after one line that names the first that
 * holds NaN or an infinity. */
int sp_weights_check_values(const struct sp_st_file *st, const struct sp_params *p, int share,
                            int shares);

/* Reads one block from the file into `w` (sp_block_elements floats). */
int sp_weights_read_block(const struct sp_st_file *st, const struct sp_params *p,
                          enum sp_block_kind kind, int layer, float *w);

/* In how many files a writer with this limit puts the model. */
int sp_weights_shards(const struct sp_params *p, uint64_t shard_bytes);

/* Declares every tensor of the model in a writer, in the order of sp_params. */
int sp_weights_declare(struct sp_st_writer *out, const struct sp_params *p);

/* Writes the data of one block; blocks must come in the order of the model. */
int sp_weights_write_block(struct sp_st_writer *out, const struct sp_params *p,
                           enum sp_block_kind kind, int layer, const float *w);

#endif
