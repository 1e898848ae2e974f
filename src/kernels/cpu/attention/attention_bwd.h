/* One tile of keys against one of queries, for the backward: attention_bwd.c has the equations. */
#ifndef SP_KERNELS_ATTENTION_BWD_H
#define SP_KERNELS_ATTENTION_BWD_H

#include "kernels/cpu/attention/tile.h"
#include <stdatomic.h>

struct bwd {
    const struct sp_attention *at;
    const struct sp_attention_path *path;
    enum sp_dtype type;
    const void *q;
    const void *const *kv;
    const void *o;
    const float *lse;
    const void *d_o;
    void *dq;
    void *const *dkv;
    bool first;          /* dkv = instead of += */
    int words, ldw, ldd; /* words of a row along d, as they are and padded; d padded */
    int keys;            /* of a unit, at most */
    int seen;            /* keys that some query sees */
    float *mean;         /* D(batch, a, q_len) */
    float *sums;         /* dq(batch, a, q_len, d) where the type is not f32, or NULL */
    atomic_int *tickets; /* (batch, a, query tiles) */
    atomic_int next;     /* unit to take */
};

/* A tile of queries. */
struct bwd_tile {
    int row, rows, columns;
    size_t bh, at_q; /* b a + head; offset of its first row in q */
    float lse[SP_Q_TILE], mean[SP_Q_TILE];
};

/* Tiles; in words along d but where `across` says along the rows: with pair 1 that is the same. */
struct bwd_scratch {
    float *row;                               /* 2 a d */
    uint32_t *k, *v, *k_across;               /* (keys,ldw), (keys,ldw), (keys/pair,ldd) */
    float *dk, *dv;                           /* (keys,ldd) */
    uint32_t *q, *d_o, *q_across, *do_across; /* (Q_TILE,ldw) twice, (Q_TILE/pair,ldd) twice */
    uint32_t *qt, *dot;                       /* (words,Q_TILE) */
    float *s, *dp, *dq;                       /* (keys,Q_TILE) twice, (Q_TILE,ldd) */
    uint32_t *p, *ds, *ds_across;             /* as the path's `gradient` leaves them */
};

/* Sets words .. keys from the path and the head's size. */
void sp_bwd_sizes(struct bwd *w);
/* The calling thread's scratch. */
void sp_bwd_scratch_cut(const struct bwd *w, struct bwd_scratch *s);

/* Loads K and V of a unit; dk, dv = 0. */
void sp_bwd_load_keys(const struct bwd *w, struct bwd_scratch *s, const struct sp_key_tile *k,
                      int b, int kv_head);
void sp_bwd_load_queries(const struct bwd *w, struct bwd_scratch *s, struct bwd_tile *t, int b,
                         int head, int row);
/* dk, dv +=, dq = (without its scale). */
void sp_bwd_meet(const struct bwd *w, const struct bwd_scratch *s, const struct bwd_tile *t,
                 const struct sp_key_tile *k);
/* Adds dk and dv to dkv, or writes them. */
void sp_bwd_store_keys(const struct bwd *w, const struct bwd_scratch *s,
                       const struct sp_key_tile *k, int b, int kv_head);

#endif
