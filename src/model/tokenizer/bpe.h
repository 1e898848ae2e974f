/*
 * Byte-pair encoding: a word begins as its characters, and of all pairs of neighbours the one that was learnt first is
 * merged, until none is left that was learnt.
 */
#ifndef SP_TOKENIZER_BPE_H
#define SP_TOKENIZER_BPE_H

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/vocabulary.h"

struct sp_merge {
    uint32_t left, right; /* left at UINT32_MAX: an empty slot */
    uint32_t rank, id;
};

struct sp_bpe {
    const struct sp_vocabulary *vocabulary;
    struct sp_merge *merge; /* by the hash of the pair */
    uint32_t slots;
    bool byte_level; /* words are bytes, and the vocabulary writes each as a character of its own */
    bool byte_fallback, ignore_merges, fuse_unk;
    int64_t unk;       /* -1: none */
    int64_t byte[256]; /* the id of a byte: byte_level, byte_fallback; -1: none */
    /*
     * Pairs of characters that are inside some token, by their hash, so some that are not too; NULL: not known. A word
     * may be cut between two others, if each of them is a token.
     */
    uint64_t *inside;
};

/* The memory of a thread. */
struct sp_bpe_room {
    struct sp_bpe_symbol {
        uint32_t id;
        uint32_t previous, next; /* of the long way */
    } * symbol;
    size_t symbols;
    struct sp_bpe_pair {
        uint64_t order; /* rank, position */
        uint32_t left, right, id;
    } * heap;
    size_t pairs, pair_room;
    struct sp_bytes text; /* a word as the vocabulary writes it */
};
void sp_bpe_room_free(struct sp_bpe_room *r);

/* Its part of the file: the pairs of ids in the order in which they were learnt. 0 or -errno: -EINVAL without a
 * word, *bad being the number of the merge whose result is not in the vocabulary. */
struct sp_bpe_merges {
    uint32_t (*pair)[2];
    size_t n;
};
int sp_bpe_create(struct sp_bpe *b, const struct sp_bpe_merges *merges, size_t *bad);
void sp_bpe_destroy(struct sp_bpe *b);

/* Appends the ids of word[n], n > 0. 0 or -ENOMEM without a word. */
int sp_bpe_encode(const struct sp_bpe *b, struct sp_bpe_room *r, const char *word, size_t n,
                  struct sp_ids *ids);

/* True if no merge joins a word that ends in `left` with one that begins with `right`. */
bool sp_bpe_apart(const struct sp_bpe *b, uint32_t left, uint32_t right);

/* Byte b as byte-level vocabularies write it, and back; -1: no byte is written so. */
uint32_t sp_byte_char(unsigned char b);
int sp_byte_of_char(uint32_t c);

#endif
