/* Files of text to tokens, on several threads, with the ids that one thread gives. */
#ifndef SP_TOKENIZER_STREAM_H
#define SP_TOKENIZER_STREAM_H

#include "model/tokenizer/tokenizer.h"
#include <stdio.h>

/* The extent of a document. */
enum sp_documents_by {
    SP_DOCUMENTS_FILE,       /* a file */
    SP_DOCUMENTS_BLANK_LINE, /* what is between lines without text */
    SP_DOCUMENTS_EOS         /* what is between the texts of eos, "<|endoftext|>" */
};

struct sp_tokenizing {
    const struct sp_tokenizer *t;
    unsigned flags; /* SP_ENCODE_SPECIAL, SP_ENCODE_AROUND: of every document */
    int threads;
    enum sp_documents_by by;
    int64_t separator; /* a token behind every document that is not empty; -1: none */
    /* Called in the order of the text; the ids are gone afterwards. 0 or -errno after one line. */
    int (*write)(void *to, const uint32_t *ids, size_t n);
    void *to;
    /* A thread encodes about so many bytes at once, and so many are read before threads begin; 0: as is good. */
    size_t chunk_bytes, window_bytes;
    uint64_t bytes, documents, tokens; /* so far */
};

/* Writes ids as tokens of `width` bytes, 2 or 4, little-endian whatever the machine. 0, or -errno without a word. */
int sp_tokens_write(FILE *f, const uint32_t *ids, size_t n, int width);

/* Reads a file to its end; `path` is for messages. 0 or -errno after one line. */
int sp_tokenize_file(struct sp_tokenizing *z, FILE *f, const char *path);

#endif
