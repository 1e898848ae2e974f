/* The parts of tokenizer.json: objects with a "type", each with its own keys. Refusals are one line. */
#ifndef SP_TOKENIZER_JSON_H
#define SP_TOKENIZER_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part, and how messages call it. */
struct sp_part {
    const json_t *json;
    const char *where; /* the file */
    const char *what;  /* "normalizer" */
    const char *type;  /* "Replace"; "": not read yet */
};

/* A row of a table of types. */
struct sp_part_type {
    const char *name;
    int (*read)(const struct sp_part *p, void *to);
};

/* Says "FILE: WHAT 'TYPE': ..."; -EINVAL. */
int sp_part_refuse(const struct sp_part *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Reads `json` by the row that its "type" names. A "Sequence", whose parts are a list under `list`, is read part by
 * part. Nothing for null. Types that have no row are refused by name. 0 or -errno.
 */
int sp_part_read(const struct sp_part *p, const char *list, const struct sp_part_type *types,
                 void *to);

/* The place of a word in a list with blanks between; -1: it is not there. */
int sp_word_find(const char *list, const char *word);

/* The keys that a part may have besides "type", with blanks between: others are refused. */
int sp_part_keys(const struct sp_part *p, const char *keys);
/* The value of a key, in *out; a key that is absent or null leaves it as it is. */
int sp_part_bool(const struct sp_part *p, const char *key, bool *out);
int sp_part_int(const struct sp_part *p, const char *key, int64_t *out);
int sp_part_text(const struct sp_part *p, const char *key, const char **out, size_t *n);
/* One character. */
int sp_part_char(const struct sp_part *p, const char *key, uint32_t *out);
/* The number, from 0 on, of a word among `words`, which have blanks between. */
int sp_part_word(const struct sp_part *p, const char *key, const char *words, int *out);

/* {"String": "..."} or {"Regex": "..."}. */
struct sp_pattern {
    bool regex;
    const char *text;
    size_t n;
};
int sp_part_pattern(const struct sp_part *p, const char *key, struct sp_pattern *out);

#endif
