/*
 * How the devices of a stage divide the tensors of a model (tensor parallelism: Shoeybi et al. 2019,
 * "Megatron-LM", section 3, which also divides the vocabulary):
 *
 *   by rows, the output   queries, keys and values (whole heads), up and gate, their biases;
 *                         tables of tokens and positions, head
 *   by columns, the input output of attention, down: each device has a term of every sum
 *   replicated            norms, biases of the output and of down
 *
 * If there are fewer heads of keys and values than devices, each is on as many devices that follow
 * each other (sp_key_copies), those of the queries that attend to it.
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

/* The devices that have the same head of keys and values; 1: no two have. */
static inline int sp_key_copies(const struct sp_model *m, int devices)
{
    return devices > m->kv_heads ? devices / m->kv_heads : 1;
}

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
    SP_RANGES_KEYS,   /* keys and values that sp_key_copies devices have the same of, if more than
                       * one; on each the gradients count only its own queries. They are not
                       * SP_RANGES_SAME, even if all devices have them */
};

/* Writes the ranges of that kind in a block of each part to out[SP_BLOCK_RANGES]; returns how
 * many. */
int sp_block_ranges(const struct sp_model *whole, int devices, enum sp_block_kind kind,
                    enum sp_range_kind what, bool tokens, struct sp_block_range *out);

/* Cuts n ranges to elements `first` .. `first`+count-1 and counts from there; returns how many are
 * left. */
int sp_ranges_clip(struct sp_block_range *range, int n, size_t first, size_t count);

static inline size_t sp_ranges_sum(const struct sp_block_range *range, int n)
{
    size_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += range[i].n;
    return sum;
}

#endif
