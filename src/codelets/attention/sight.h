/* Finds which keys and values a segment's queries see, in pieces: those of a whole micro-batch,
 * or of a document. */
#ifndef SP_SIGHT_H
#define SP_SIGHT_H

#include "kernels/backend.h"
#include "model/documents.h"

/* Keys and values of tokens that follow each other in every sequence: (b,len,kv); gradients too,
 * or NULL. */
struct sp_keys {
    int first, len; /* position of the first token; tokens */
    void *keys, *gradients;
};

/* Attention of the queries of a segment. */
struct sp_sight {
    struct sp_attention at;
    int len[2 * SP_MAX_SLICES];
    void *keys[2 * SP_MAX_SLICES], *gradients[2 * SP_MAX_SLICES];
};

/*
 * Chooses what the segment sees of n pieces (at most 2 SP_MAX_SLICES, by position): the tokens of
 * its document in pieces that begin before the segment's end. Tokens of the document in no piece
 * must lie before all pieces, or after all queries. False: the segment sees none of the pieces.
 */
bool sp_sight_of(const struct sp_shape *sh, const struct sp_segment *s, int n,
                 const struct sp_keys *piece, struct sp_sight *sight);

/* Offset of a segment's statistics, (sequences, heads, len), in the (T,a) statistics of the
 * shape's tokens. */
static inline size_t sp_segment_stats(const struct sp_shape *sh, const struct sp_segment *s)
{
    return s->row * (size_t)sh->model.heads;
}

#endif
