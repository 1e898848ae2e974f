/* Regular expressions of tokenizer.json, which are Oniguruma's there, run by PCRE2. */
#ifndef SP_TOKENIZER_REGEX_H
#define SP_TOKENIZER_REGEX_H

#include "model/tokenizer/json.h"
#include "model/tokenizer/unicode.h"

/* A pattern to look for in a text: a regular expression, or a text that stands for itself. */
struct sp_regex;
struct sp_matcher; /* the memory of a thread that matches */

/*
 * Compiles pattern[n]. It translates constructs that the two write differently, and refuses others by name. 0, or -errno
 * after one line that begins with `where`.
 */
int sp_regex_create(const char *pattern, size_t n, const char *where, struct sp_regex **re);
/* The same of a pattern of a part, which may be a text; an empty one is refused. */
int sp_regex_of(const struct sp_part *p, const struct sp_pattern *pattern, struct sp_regex **re);
void sp_regex_destroy(struct sp_regex *re);
/* True if it is a text of one character. */
bool sp_regex_is_character(const struct sp_regex *re);

struct sp_matcher *sp_matcher_create(void); /* NULL without memory */
void sp_matcher_destroy(struct sp_matcher *m);

/* The first match in text[n], valid UTF-8, from byte `at` on. 1: at match[0] .. match[1] - 1; 0: there is none; or
 * -errno after one line. A text is found in any bytes, and needs no matcher. */
int sp_regex_find(const struct sp_regex *re, struct sp_matcher *m, const char *text, size_t n,
                  size_t at, size_t match[2]);
/* From where on the next match may be: behind this one, and where it is empty behind the next character too. */
size_t sp_regex_behind(const char *text, size_t n, const size_t match[2]);

/* "pattern" and "content" of a part: what is found becomes to[to_n]. {0}: nothing to free. */
struct sp_replacement {
    struct sp_regex *from;
    char *to;
    size_t to_n;
};
/* Reads it; only a text is looked for where `texts_only`. 0 or -errno after one line, with nothing to free. */
int sp_replacement_read(struct sp_replacement *r, const struct sp_part *p, bool texts_only);
/* Takes a copy of to[n], which zeros may be in. 0 or -ENOMEM after one line. */
int sp_replacement_set(struct sp_replacement *r, const struct sp_part *p, const char *to, size_t n);
void sp_replacement_destroy(struct sp_replacement *r);
/* Appends what text[n] becomes, refused when that is more than `most` bytes. 0 or -errno after one line. */
int sp_replacement_run(const struct sp_replacement *r, struct sp_matcher *m, const char *text,
                       size_t n, size_t most, struct sp_bytes *out);

#endif
