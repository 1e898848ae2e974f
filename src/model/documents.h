/*
 * Documents packed in the sequences of a micro-batch: a token of a given number ends one, and with the next token
 * another begins. Attention stays inside a document, and positions count from its beginning.
 */
#ifndef SP_DOCUMENTS_H
#define SP_DOCUMENTS_H

#include "model/shape.h"

struct sp_documents {
    size_t room; /* of start */
    int *first;  /* [sequences + 1] of those of a sequence in start */
    int *start;  /* positions at which documents begin, ascending, a sequence's first one 0 */
};

/* For so many sequences of a micro-batch. 0 or -ENOMEM. */
int sp_documents_create(struct sp_documents *d, int sequences);
void sp_documents_destroy(struct sp_documents *d);

/* Takes sequence b, after those before it: n tokens. 0 or -ENOMEM. */
int sp_documents_read(struct sp_documents *d, int b, const int32_t *tokens, int n, int separator);

/*
 * Tokens of a device that follow each other in a sequence and a document, or, where documents are not told apart, in
 * as many sequences as there are. Their positions are the shape's stride apart.
 */
struct sp_segment {
    int sequences, len;
    int position; /* of the first, from the beginning of its document */
    size_t row;   /* of the first, in tensors of the shape */
    int run, sequence,
        first; /* where it is: of the shape's runs, which sequence, position in that */
};

/* The next one of a shape's tokens, `s` being {0} for the first; d NULL: documents are not told apart. False:
 * there are no more. */
bool sp_segment_next(const struct sp_shape *sh, const struct sp_documents *d, struct sp_segment *s);

#endif
