/*
 * How the devices of a stage divide the tensors of a model (tensor parallelism: Shoeybi et al. 2019,
 * "Megatron-LM", section 3, which also divides the vocabulary):
 *
 *   by rows, the output   queries, keys and values (whole heads), up and gate, their biases;
 *                         tables of tokens and positions, head
 *   by columns, the input output of attention, down: each device has a term of every sum
 *   replicated            norms, biases of the output and of down
 *
 * The part of a device is laid out as a model of its own, with a t-th of the heads, the MLP, the
 * vocabulary and the position table.
 */
#ifndef SP_TENSOR_PARTS_H
#define SP_TENSOR_PARTS_H

#include "model/params.h"

/* The model that each of so many devices has. All have the same number of rows of a table; the last
 * one's rows past the end of the table are zero. */
void sp_model_divide(const struct sp_model *m, int devices, struct sp_model *part);

/* True if heads, MLP and tables can be divided so; else why[n] names the one that cannot. */
bool sp_model_is_divisible(const struct sp_model *m, int devices, char *why, size_t n);

/* Rows of the vocabulary that each device has, including rows past its end. */
int sp_vocabulary_rows(const struct sp_model *m, int devices);

/* The *count rows of the vocabulary, from *first on, that device `member` has without padding; at
 * least one. */
void sp_vocabulary_part(const struct sp_model *m, int devices, int member, int *first, int *count);

/* A block of a model that devices divide: `whole` lists the tensors of the model, `part` those of each
 * device (sp_model_divide). */
struct sp_divided_block {
    const struct sp_params *whole, *part;
    enum sp_block_kind kind;
    int layer;
};

/* Copies one device's part (sp_block_elements of the part) out of a whole block; and back into it,
 * leaving its other elements alone. */
void sp_block_take_part(const struct sp_divided_block *b, int member, const float *whole,
                        float *part);
void sp_block_put_part(const struct sp_divided_block *b, int member, const float *part,
                       float *whole);

/* Elements of a block of a part, in ascending order. */
struct sp_block_range {
    size_t first, n;
};
enum { SP_BLOCK_RANGES = 8 }; /* of a block, at most */

enum sp_range_kind {
    SP_RANGES_SAME,   /* tensors that all devices have the same of */
    SP_RANGES_SUMMED, /* those of them whose gradients on a device count only its own tokens or
                       * heads. `tokens`: devices share tokens where they do not share heads */
};

/* Counts the SP_RANGES_SUMMED elements among `first` .. `first`+n-1 of a part's block. */
uint64_t sp_block_summed(const struct sp_model *part, enum sp_block_kind kind, bool tokens,
                         uint64_t first, uint64_t n);

/* Writes the ranges of that kind to out[SP_BLOCK_RANGES]; returns how many. */
int sp_block_ranges(const struct sp_divided_block *b, enum sp_range_kind what, bool tokens,
                    struct sp_block_range *out);

#endif
