/*
 * How attention computes a tile: one path for each instruction set, chosen at run time.
 *
 * The two algorithms (attention.c, attention_bwd.c) copy tiles into contiguous scratch and call a
 * path on them. A tile is made of 32-bit words along the dimension that a product sums over: one
 * f32, or two bf16 if `pair` is 2. Products accumulate in f32.
 *
 * Inside a tile, query i sees key j if j <= i + diag.
 */
#ifndef SP_KERNELS_ATTENTION_PATH_H
#define SP_KERNELS_ATTENTION_PATH_H

#include "kernels/dtype.h"
#include <stdbool.h>

enum { SP_Q_TILE = 64 }; /* queries of a tile; arrays indexed by queries have rows of this length */

/* The part of a product that the mask allows to leave out. */
enum sp_product_kind {
    SP_KEYS_QUERIES, /* rows are keys, columns queries: most masked elements stay undefined */
    SP_OVER_QUERIES, /* rows are keys, the sum takes only the queries that see a key */
    SP_OVER_KEYS,    /* rows are queries, the sum takes only the keys that are seen */
};

enum { SP_KEY_TILE = 256 }; /* keys of a tile, at most */

/*
 * C(rows,columns) = A B, or += with `add`; A(rows,words) by its two strides, one of which is 1;
 * B(words,columns). A and C have room for rows up to the next multiple of the path's `rows`; the
 * path may read them, and write or add to them.
 */
struct sp_product {
    enum sp_product_kind kind;
    int diag;
    int rows, columns, words; /* columns: a multiple of the path's lanes */
    const uint32_t *a;
    size_t a_row, a_word;
    const uint32_t *b;
    size_t ldb;
    float *c;
    size_t ldc;
    bool add;
};

/* One online-softmax step of a tile of scores(keys, SP_Q_TILE), scaled here. */
struct sp_softmax {
    int keys, queries, diag;
    float scale;
    bool first; /* no tile came before: max and sum are undefined */
    /* In: scores. Out: P, in words along the keys (ceil(keys/pair), SP_Q_TILE); masked: 0. */
    float *scores;
    float *max, *sum, *correction; /* (SP_Q_TILE): of the scores, of e^(scale(s - max)); e^-rise */
};

/* P and dS of a tile in the backward; padded queries have lse = +inf and mean = 0. */
struct sp_gradient {
    int keys, queries, diag;
    float scale;
    const float *lse, *mean; /* (SP_Q_TILE) */
    /*
     * (keys, SP_Q_TILE), in: scores, dP. With pair 1: P and dS in the same places, masked: 0. With
     * pair 2: P and dS(keys, SP_Q_TILE/2) in words along the queries, dS also in `across`
     * (ceil(keys/2), SP_Q_TILE), in words along the keys.
     */
    float *s, *dp;
    uint32_t *p, *ds, *across;
};

/* tile(all,ldt) = x(rows,d) in words along d; 0 beyond d, up to ldt, and beyond rows. */
struct sp_tile_pack {
    enum sp_dtype type; /* of x */
    int rows, all, d;
    const void *x;
    size_t ld;
    uint32_t *tile;
    int ldt; /* a multiple of lanes */
};

/* y(rows,d) = factor(rows) x, rounded; or += with `add`. */
struct sp_tile_store {
    enum sp_dtype type; /* of y */
    int rows, d;
    const float *x;
    int ldx;
    const float *factor; /* NULL: `scale` for all rows */
    float scale;
    bool add;
    void *y;
    size_t ld;
};

struct sp_attention_path {
    const char *name;
    int pair, lanes, rows;
    /* On AMX this also asks the kernel for tiles, which the process then keeps. */
    bool (*supported)(void);
    void (*pack)(const struct sp_tile_pack *t);
    /* out(words,SP_Q_TILE) = tile(rows,words)^T; rows a multiple of lanes, words of 4. */
    void (*transpose)(int rows, int words, const uint32_t *tile, int ldt, uint32_t *out);
    /* out(rows/2,ldo): words along the rows of a packed tile(rows,ldt). NULL if pair is 1. */
    void (*interleave)(int rows, const uint32_t *tile, int ldt, uint32_t *out, int ldo);
    void (*product)(const struct sp_product *p);
    bool (*softmax)(const struct sp_softmax *s); /* true if a maximum rose */
    void (*gradient)(const struct sp_gradient *g);
    /* x(rows,width) *= factor(rows); width a multiple of lanes */
    void (*scale)(int rows, int width, const float *factor, float *x);
    void (*store)(const struct sp_tile_store *t);
};

/* Paths on f32 tiles; `supported` is false for a path that the build or the machine lacks. */
extern const struct sp_attention_path sp_attention_plain, sp_attention_avx2, sp_attention_avx512;
/* Paths on bf16 tiles. */
extern const struct sp_attention_path sp_attention_amx, sp_attention_avx512bf16;

/*
 * The path for tensors of a type: the fastest that the machine has, or the one of
 * SP_CPU_ATTENTION=NAME in the environment. If NAME works on bf16 tiles, f32 gets the next path.
 * Aborts the run if NAME is unknown or the machine cannot run it.
 */
const struct sp_attention_path *sp_attention_path(enum sp_dtype type);

/*
 * For tests, while no kernel runs: takes NAME as the environment's from now on, NULL for none.
 * -ENOENT if there is no such path, -ENOTSUP if this machine cannot run it.
 */
int sp_attention_choose(const char *name);

#endif
