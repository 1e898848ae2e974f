/* The tiles of causal attention over key/value slices, shared by forward and backward. */
#ifndef SP_KERNELS_TILE_H
#define SP_KERNELS_TILE_H

#include "kernels/cpu/attention/attention_path.h"
#include "kernels/kernels.h"

/* Keys of one tile; a tile lies in one slice. */
struct sp_key_tile {
    int slice; /* j */
    int row;   /* first row in the slice */
    int pos;   /* first row in the sequence */
    int n;     /* rows, none of them after the last query */
};

/* Starts before the first tile. */
#define SP_KEY_TILE_START ((struct sp_key_tile){0, 0, 0, 0})

/* Keys of a tile: with what a unit of work has beside them, they stay in a core's L2. */
static inline int sp_keys_of_a_tile(const struct sp_attention *at)
{
    return at->head_dim <= 128 ? SP_KEY_TILE : SP_KEY_TILE / 2;
}

/* Moves to the next tile, all of whose keys are before `end`; false when there is none. */
static inline bool sp_key_tile_next(const struct sp_attention *at, int end, struct sp_key_tile *k)
{
    int most = sp_keys_of_a_tile(at);

    k->row += k->n;
    k->pos += k->n;
    k->n = 0;
    while (k->slice < at->n_kv && k->row >= at->kv_len[k->slice]) {
        k->slice++;
        k->row = 0;
    }
    if (k->slice == at->n_kv || k->pos >= end)
        return false;
    k->n = at->kv_len[k->slice] - k->row;
    k->n = k->n < most ? k->n : most;
    k->n = k->n < end - k->pos ? k->n : end - k->pos;
    return true;
}

static inline int sp_query_tiles(const struct sp_attention *at)
{
    return (at->q_len + SP_Q_TILE - 1) / SP_Q_TILE;
}

/* Keys of the tile at b's row in the slice; the values are kv_heads * head_dim further. */
static inline size_t sp_key_offset(const struct sp_attention *at, const struct sp_key_tile *k,
                                   int b, int kv_head)
{
    size_t row = (size_t)b * (size_t)at->kv_len[k->slice] + (size_t)k->row;

    return (row * 2 * (size_t)at->kv_heads + (size_t)kv_head) * (size_t)at->head_dim;
}

static inline size_t sp_query_offset(const struct sp_attention *at, int b, int head, int row)
{
    size_t r = (size_t)b * (size_t)at->q_len + (size_t)row;

    return (r * (size_t)at->heads + (size_t)head) * (size_t)at->head_dim;
}

/* n rounded up to a multiple. */
static inline int sp_up(int n, int multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Element i of tensors of a type. */
static inline const void *sp_element(enum sp_dtype type, const void *x, size_t i)
{
    return (const char *)x + i * sp_dtype_bytes(type);
}

#endif
