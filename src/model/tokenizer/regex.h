/* Regular expressions of tokenizer.json, which are Oniguruma's there, run by PCRE2. */
#ifndef SP_TOKENIZER_REGEX_H
#define SP_TOKENIZER_REGEX_H

#include <stddef.h>

struct sp_regex;
struct sp_matcher; /* the memory of a thread that matches */

/*
 * Compiles pattern[n]. It translates constructs that the two write differently, and refuses others by name. 0, or -errno
 * after one line that begins with `where`.
 */
int sp_regex_create(const char *pattern, size_t n, const char *where, struct sp_regex **re);
void sp_regex_destroy(struct sp_regex *re);

struct sp_matcher *sp_matcher_create(void); /* NULL without memory */
void sp_matcher_destroy(struct sp_matcher *m);

/* The first match in text[n], valid UTF-8, from byte `at` on. 1: at match[0] .. match[1] - 1; 0: there is none; or
 * -errno after one line. */
int sp_regex_find(const struct sp_regex *re, struct sp_matcher *m, const char *text, size_t n,
                  size_t at, size_t match[2]);

#endif
