/* The decoder of a tokenizer: what the text of a token says once it stands among others. */
#ifndef SP_TOKENIZER_DECODER_H
#define SP_TOKENIZER_DECODER_H

#include "model/tokenizer/unicode.h"
#include <jansson.h>

enum { SP_DECODER_STEPS = 16 };

struct sp_decoder {
    /* Steps that change the text of every token, in order. */
    struct sp_decoder_step {
        enum sp_decoder_kind {
            SP_DECODE_BYTE_LEVEL,
            SP_DECODE_BYTE_FALLBACK,
            SP_DECODE_METASPACE,
            SP_DECODE_REPLACE,
            SP_DECODE_STRIP
        } kind;
        char *from, *to; /* REPLACE */
        size_t from_n, to_n;
        uint32_t c;      /* STRIP, METASPACE */
        int left, right; /* STRIP */
        bool prefixed;   /* METASPACE: text begins with a replacement that was not in it */
    } step[SP_DECODER_STEPS];
    int steps;
    bool fused;  /* the steps have made one text of all tokens */
    bool joined; /* there is no decoder: tokens are words with spaces between them */
    uint32_t c;  /* of the whole text, characters at its beginning that are taken away, */
    int left;    /* at most so many */
};

/* Reads "decoder". 0 or -errno after one line. */
int sp_decoder_read(struct sp_decoder *d, const json_t *json, const char *where);
void sp_decoder_destroy(struct sp_decoder *d);

/* Appends what a token says, which is the first of its text or not. spare: room to work. */
void sp_decoder_token(const struct sp_decoder *d, const char *text, size_t n, bool first,
                      struct sp_bytes *out, struct sp_bytes *spare);

#endif
