/* The tiles of causal attention over key/value slices, shared by forward and backward. */
#ifndef SP_KERNELS_TILE_H
#define SP_KERNELS_TILE_H

#include "kernels/cpu/attention/attention_path.h"
#include "kernels/cpu/pointwise/pointwise.h"

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

/* An attention's tiles on a path. */
struct sp_tiling {
    const struct sp_attention *at;
    const struct sp_attention_path *path;
    enum sp_dtype type;  /* of the tensors */
    int words, ldw, ldd; /* words of a row along d, as they are and padded; d padded */
    int keys;            /* of a tile, at most */
};

static inline struct sp_tiling sp_tiling_of(enum sp_dtype type, const struct sp_attention *at)
{
    const struct sp_attention_path *path = sp_attention_path(type);
    int words = (at->head_dim + path->pair - 1) / path->pair;

    return (struct sp_tiling){.at = at,
                              .path = path,
                              .type = type,
                              .words = words,
                              .ldw = sp_up(words, path->lanes),
                              .ldd = sp_up(at->head_dim, path->lanes),
                              .keys = sp_keys_of_a_tile(at)};
}

/* Loads a tile of rows of a tensor, in words along d; `t` has rows, all, x, ld and tile. */
static inline void sp_tile_load(const struct sp_tiling *w, struct sp_tile_pack t)
{
    t.type = w->type;
    t.d = w->at->head_dim;
    t.ldt = w->ldw;
    w->path->pack(&t);
}

#endif
