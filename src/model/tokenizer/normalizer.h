/* The normalizers of a tokenizer: what text becomes before it is cut. */
#ifndef SP_TOKENIZER_NORMALIZER_H
#define SP_TOKENIZER_NORMALIZER_H

#include "model/tokenizer/charsmap.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode.h"
#include <jansson.h>

enum { SP_NORMALIZER_STEPS = 32 };

struct sp_normalizer {
    struct sp_normalizer_step {
        enum sp_normalizer_kind {
            SP_NORMALIZE_FORM,
            SP_NORMALIZE_LOWERCASE,
            SP_NORMALIZE_STRIP,
            SP_NORMALIZE_STRIP_ACCENTS,
            SP_NORMALIZE_PREPEND,
            SP_NORMALIZE_REPLACE,
            SP_NORMALIZE_CHARSMAP
        } kind;
        enum sp_normal_form form;
        bool left, right; /* STRIP */
        char *from, *to;  /* REPLACE, PREPEND: to */
        size_t from_n, to_n;
        struct sp_regex *regex;       /* REPLACE: instead of `from` */
        struct sp_charsmap *charsmap; /* NULL: it maps nothing */
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

#endif
