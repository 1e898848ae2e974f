/* Unigram: of all ways to cut a text into tokens, the one whose scores have the largest sum. */
#ifndef SP_TOKENIZER_UNIGRAM_H
#define SP_TOKENIZER_UNIGRAM_H

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/vocabulary.h"

struct sp_unigram {
    const struct sp_vocabulary *vocabulary;
    struct sp_trie trie; /* of its texts; values are ids */
    double *score;       /* [ids] */
    double least;        /* of them */
    bool byte_fallback;
    int64_t unk;       /* -1: none */
    int64_t byte[256]; /* ids of <0x00> and on; -1: none */
};

/* The memory of a thread. */
struct sp_unigram_room {
    struct sp_unigram_node {
        double score;   /* of the best way that ends here */
        uint32_t id;    /* of its last token */
        uint32_t start; /* of that; UINT32_MAX: no way ends here */
    } * node;
    size_t nodes;
};

/* Takes scores that are there. 0 or -ENOMEM. */
int sp_unigram_create(struct sp_unigram *u);
void sp_unigram_destroy(struct sp_unigram *u);

/* Appends the ids of text[n], n > 0. 0, -ENOMEM, or -ENOENT: a character that is in no token, and no unk. */
int sp_unigram_encode(const struct sp_unigram *u, struct sp_unigram_room *r, const char *text,
                      size_t n, struct sp_ids *ids);

#endif
