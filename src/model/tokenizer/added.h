/* Added tokens: texts that are tokens wherever they are, before anything else is looked at. */
#ifndef SP_TOKENIZER_ADDED_H
#define SP_TOKENIZER_ADDED_H

#include "model/tokenizer/unicode.h"
#include "model/tokenizer/vocabulary.h"
#include <jansson.h>

struct sp_added_token {
    uint32_t id;
    char *content;
    size_t n;
    char *
        found; /* what is looked for in the text: the content, or where normalized, its normal form */
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
    bool begins[2][256];    /* whether one begins with the byte */
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

#endif
