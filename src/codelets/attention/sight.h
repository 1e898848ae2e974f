/* What queries see of keys and values that lie in pieces: all of a micro-batch, or those of a document. */
#ifndef SP_SIGHT_H
#define SP_SIGHT_H

#include "kernels/backend.h"
#include "model/documents.h"

/* Keys and values of tokens that follow each other in every sequence: (b,len,kv); gradients likewise, or NULL. */
struct sp_keys {
    int first, len; /* position of the first, tokens */
    void *keys, *gradients;
};

/* Attention of the queries of a segment. */
struct sp_sight {
    struct sp_attention at;
    double pairs; /* of a query and a key that it sees, in a head of a sequence */
    int len[2 * SP_MAX_SLICES];
    void *keys[2 * SP_MAX_SLICES], *gradients[2 * SP_MAX_SLICES];
};

/*
 * Of n pieces, at most 2 SP_MAX_SLICES, in the order of their positions: those of the segment's document that begin
 * before its end. What the pieces leave out of it is before them, or after all queries. False: it sees nothing of
 * them.
 */
bool sp_sight_of(const struct sp_shape *sh, const struct sp_segment *s, int n,
                 const struct sp_keys *piece, struct sp_sight *sight);

/* Where a segment's statistics are, (sequences, heads, len) one after the other in (T,a) of the shape's tokens. */
static inline size_t sp_segment_stats(const struct sp_shape *sh, const struct sp_segment *s)
{
    return s->row * (size_t)sh->model.heads;
}

#endif
