/* The parts of a tokenizer, for the files of this folder. */
#ifndef SP_TOKENIZER_PARTS_H
#define SP_TOKENIZER_PARTS_H

#include "model/tokenizer/regex.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/vocabulary.h"
#include <jansson.h>

struct sp_words;

/* Added tokens: texts that are tokens wherever they are, before anything else is looked at. */

struct sp_added_token {
    uint32_t id;
    char *content;
    size_t n;
    char *found; /* is looked for in the text: the content, or its normal form if `normalized` */
    size_t found_n;
    bool special;
    bool single_word;    /* not beside a character of a word */
    bool lstrip, rstrip; /* white space on that side belongs to it */
    bool normalized;     /* looked for in the text after the normalizers */
};

struct sp_added {
    struct sp_added_token *token;
    size_t n;
    struct sp_trie trie[2]; /* of those not normalized, and those normalized; values count tokens */
};

/* Reads "added_tokens"; `found` is the content at first. 0 or -errno after one line. */
int sp_added_read(struct sp_added *a, const json_t *list, const char *where);
/* When all that is looked for is known. 0 or -ENOMEM. */
int sp_added_index(struct sp_added *a);
void sp_added_destroy(struct sp_added *a);
/* The token of that id or content; NULL: none. */
const struct sp_added_token *sp_added_of(const struct sp_added *a, uint32_t id);

/* A search for the next one in a text. */
struct sp_added_search {
    const char *text;
    size_t n;
    bool normalized; /* those which it is looked for */
    bool special;    /* special tokens are tokens */
    size_t at;       /* 0 at first; how far was searched */
    size_t behind;   /* 0 at first; the end of the last one found */
};
/* NULL: there are no more; else it is at *begin .. s->behind - 1. */
const struct sp_added_token *sp_added_next(const struct sp_added *a, struct sp_added_search *s,
                                           size_t *begin);

/* The table of characters and what they become that sentencepiece writes, the normalizer Precompiled. */

struct sp_charsmap;

/* Reads the table from base64. *out NULL without an error: an empty one. 0, -EINVAL without a word, or -ENOMEM likewise. */
int sp_charsmap_create(const char *base64, size_t n, struct sp_charsmap **out);
void sp_charsmap_destroy(struct sp_charsmap *m);

/* Appends what text[n], valid UTF-8, becomes. */
void sp_charsmap_run(const struct sp_charsmap *m, const char *text, size_t n, struct sp_bytes *out);

/* The normalizers of a tokenizer: what text becomes before it is cut. */

enum { SP_NORMALIZER_STEPS = 32 };

struct sp_normalizer {
    struct sp_normalizer_step {
        /* The first are those of enum sp_normal_form, in its order. */
        enum sp_normalizer_kind {
            SP_NORMALIZE_NFC,
            SP_NORMALIZE_NFD,
            SP_NORMALIZE_NFKC,
            SP_NORMALIZE_NFKD,
            SP_NORMALIZE_LOWERCASE,
            SP_NORMALIZE_STRIP_ACCENTS,
            SP_NORMALIZE_STRIP,
            SP_NORMALIZE_PREPEND,
            SP_NORMALIZE_REPLACE,
            SP_NORMALIZE_CHARSMAP
        } kind;
        bool left, right;              /* STRIP */
        struct sp_replacement replace; /* REPLACE; PREPEND: what it puts in front is `to` */
        struct sp_charsmap *charsmap;  /* NULL: it maps nothing */
    } step[SP_NORMALIZER_STEPS];
    int steps;
};

/* Reads "normalizer". 0 or -errno after one line. */
int sp_normalizer_read(struct sp_normalizer *z, const json_t *json, const char *where);
void sp_normalizer_destroy(struct sp_normalizer *z);

/*
 * The normal form of text[n], valid UTF-8, in *out; a text that `continues` another gets nothing in front. Both
 * have memory that is used again; *out and *spare change places. 0 or -errno after one line.
 */
struct sp_normalizer_room {
    size_t most; /* bytes that the text under way may become */
    struct sp_bytes out, spare;
    struct sp_matcher *matcher;
};
int sp_normalizer_run(const struct sp_normalizer *z, struct sp_normalizer_room *r, const char *text,
                      size_t n, bool continues);

/* The pre-tokenizers of a tokenizer: where text is cut into pieces that tokens do not reach across. */

enum { SP_PRETOKENIZER_STEPS = 32 };

/* Texts that are looked for: */
enum sp_split_kind {
    SP_SPLIT_WORDS, /* the words of a known pattern, which leave nothing out */
    SP_SPLIT_PATTERN,
    SP_SPLIT_CHARACTERS
};
/* The use of a text that was found; its neighbours are the texts between: */
enum sp_split_behavior {
    SP_SPLIT_ISOLATED,
    SP_SPLIT_REMOVED,
    SP_SPLIT_MERGED_WITH_PREVIOUS,
    SP_SPLIT_MERGED_WITH_NEXT,
    SP_SPLIT_CONTIGUOUS /* neighbours that were found are one */
};
/* In the order of the words of "prepend_scheme". */
enum sp_pretokenizer_prefix { SP_PREFIX_NEVER, SP_PREFIX_FIRST, SP_PREFIX_ALWAYS };

struct sp_pretokenizer {
    struct sp_pretokenizer_step {
        /* First, the text of a piece changes: */
        bool maps;       /* its bytes become the characters of byte-level vocabularies */
        bool unmaps;     /* these become bytes again */
        uint32_t spaces; /* spaces become this character; 0: they stay */
        /* This character, or a space, comes in front where there is none. */
        enum sp_pretokenizer_prefix prefix;
        /* Then it is cut: */
        bool splits;
        enum sp_split_kind kind;
        enum sp_split_behavior behavior;
        bool invert;            /* what was not found counts as found, and the other way round */
        bool (*is)(uint32_t c); /* characters; NULL: `c` alone */
        uint32_t c;
        const struct sp_words *words;
        struct sp_regex *pattern;
    } step[SP_PRETOKENIZER_STEPS];
    int steps;
    bool byte_level; /* pieces go to the model as bytes, for a byte-level vocabulary */
    bool mapped;     /* the steps leave these as the characters of such a vocabulary */
};

/* True if a step that is SP_SPLIT_CHARACTERS looks for a character. */
static inline bool sp_split_is(const struct sp_pretokenizer_step *s, uint32_t c)
{
    return s->is ? s->is(c) : c == s->c;
}

struct sp_piece {
    size_t at, n;
    bool first;     /* it begins where the text does */
    bool continues; /* it begins where a text goes on that was cut before */
};

/* The memory of a thread. */
struct sp_pretokenizer_room {
    struct sp_bytes text, spare;
    struct sp_pieces {
        struct sp_piece *piece;
        size_t n, room;
        bool failed;
    } pieces, spare_pieces;
    struct sp_pieces found; /* in one piece, what was found, `first`, and what is between */
    struct sp_matcher *matcher;
};
void sp_pretokenizer_room_free(struct sp_pretokenizer_room *r);

/* Reads "pre_tokenizer". 0 or -errno after one line. */
int sp_pretokenizer_read(struct sp_pretokenizer *z, const json_t *json, const char *where);
void sp_pretokenizer_destroy(struct sp_pretokenizer *z);

/* Words that are the pieces of any text, by themselves; NULL: there is more to do. */
const struct sp_words *sp_pretokenizer_words(const struct sp_pretokenizer *z);

/*
 * Cuts `whole` of `text` into r->pieces of *of, which is `text` or memory of the room. 0 or -errno after one line.
 */
int sp_pretokenizer_run(const struct sp_pretokenizer *z, struct sp_pretokenizer_room *r,
                        const char *text, struct sp_piece whole, const char **of);

/*
 * Byte-pair encoding: a word begins as its characters, and of all pairs of neighbours the one that was learnt first is
 * merged, until none is left that was learnt.
 */

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

/* Unigram: of all ways to cut a text into tokens, the one whose scores have the largest sum. */

struct sp_unigram {
    const struct sp_vocabulary *vocabulary;
    struct sp_trie trie; /* of its texts; values are ids */
    double *score;       /* [ids] */
    double least;        /* of them */
    bool byte_fallback;
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

/* The decoder of a tokenizer: what the text of a token says once it stands among others. */

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
        struct sp_replacement replace;
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

enum { SP_AROUND = 8 };

struct sp_tokenizer {
    struct sp_vocabulary vocabulary; /* of the model: added tokens may be in it, or not */
    bool is_unigram;
    struct sp_bpe bpe;
    struct sp_unigram unigram;
    struct sp_added added;
    struct sp_normalizer normalizer;
    struct sp_pretokenizer pretokenizer;
    struct sp_decoder decoder;
    const struct sp_words *words; /* all that the pre-tokenizers do; NULL: they do something else */
    struct sp_around {
        uint32_t id[SP_AROUND];
        int n;
    } before, after; /* the post-processor's */
    bool around;     /* there was one */
    uint32_t vocab;
    int64_t special[SP_SPECIAL_TOKENS];
    /* Places where text may be cut: a space behind such a character; behind the only newline between two words. */
    bool cut_at_space[128], cut_at_newline;
};

/* Finds the tokens that a vocabulary has for bytes: written as byte-level ones write them, or <0x00> and on. */
void sp_bytes_find(struct sp_vocabulary *v, bool byte_level);
/* True if each of the bytes has a token. */
bool sp_bytes_known(const struct sp_vocabulary *v, const char *bytes, size_t n);

/* Reads "model", the pre-tokenizers being known. 0 or -errno after one line. */
int sp_model_read(struct sp_tokenizer *t, const json_t *json, const char *where);
/* When all is read: finds out where text may be cut. 0 or -errno after one line. */
int sp_cut_prepare(struct sp_tokenizer *t);

#endif
