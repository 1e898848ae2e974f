/* The pre-tokenizers of a tokenizer: where text is cut into pieces that tokens do not reach across. */
#ifndef SP_TOKENIZER_PRETOKENIZER_H
#define SP_TOKENIZER_PRETOKENIZER_H

#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/words.h"
#include <jansson.h>

enum { SP_PRETOKENIZER_STEPS = 32 };

enum sp_split_kind {                 /* what is looked for */
                     SP_SPLIT_WORDS, /* the words of a known pattern, which leave nothing out */
                     SP_SPLIT_REGEX,
                     SP_SPLIT_TEXT,
                     SP_SPLIT_CHARACTERS
};
enum sp_split_behavior { /* what becomes of what was found, its neighbours being the text between */
                         SP_SPLIT_ISOLATED,
                         SP_SPLIT_REMOVED,
                         SP_SPLIT_MERGED_WITH_PREVIOUS,
                         SP_SPLIT_MERGED_WITH_NEXT,
                         SP_SPLIT_CONTIGUOUS /* neighbours that were found are one */
};
enum sp_pretokenizer_prefix { SP_PREFIX_NEVER, SP_PREFIX_FIRST, SP_PREFIX_ALWAYS };

struct sp_pretokenizer {
    struct sp_pretokenizer_step {
        /* First, the text of a piece changes: */
        bool maps;       /* its bytes become the characters of byte-level vocabularies */
        uint32_t spaces; /* spaces become this character; 0: they stay */
        enum sp_pretokenizer_prefix
            prefix; /* this character, or a space, in front where there is none */
        /* Then it is cut: */
        bool splits;
        enum sp_split_kind kind;
        enum sp_split_behavior behavior;
        bool invert; /* what was not found counts as found, and the other way round */
        bool (*is)(uint32_t c, uint32_t a);
        uint32_t a;
        const struct sp_words *words;
        struct sp_regex *regex;
        char *text;
        size_t text_n;
    } step[SP_PRETOKENIZER_STEPS];
    int steps;
    bool byte_level; /* pieces go to the model as bytes, for a byte-level vocabulary */
    bool mapped;     /* the steps leave these as the characters of such a vocabulary */
};

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

#endif
