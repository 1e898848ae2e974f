#include "model/files/foreign_json.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The text that jansson reads: at most so many bytes for one of the original, "NaN" for three being the worst. */
enum { GROWTH = 2 };

struct copy {
    const char *at, *end;
    char *out;
};

static void append(struct copy *c, const char *text, size_t n)
{
    memcpy(c->out, text, n);
    c->out += n;
}

/* A string as it is, to its quote. */
static void copy_string(struct copy *c)
{
    const char *from = c->at++;

    while (c->at < c->end && *c->at != '"')
        c->at += *c->at == '\\' && c->at + 1 < c->end ? 2 : 1;
    c->at += c->at < c->end;
    append(c, from, (size_t)(c->at - from));
}

/* True if a word of n bytes ends there, and is no key. */
static bool is_value(const struct copy *c, size_t n)
{
    const char *next = c->at + n;

    while (next < c->end && strchr(" \t\r\n", *next))
        next++;
    return next == c->end || *next == ',' || *next == ']' || *next == '}';
}

static bool copy_word(struct copy *c, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) || !is_value(c, n))
        return false;
    append(c, "\"", 1);
    append(c, word, n);
    append(c, "\"", 1);
    c->at += n;
    return true;
}

/* A number that jansson cannot hold becomes one that it can, or the text that Python has for it. */
static void copy_number(struct copy *c)
{
    size_t n = 0, digits = 0;
    char *text, *end;
    double x;

    while (c->at + n < c->end && c->at[n] && strchr("+-0123456789.eE", c->at[n])) {
        digits += c->at[n] >= '0' && c->at[n] <= '9';
        n++;
    }
    text = digits > 18 || memchr(c->at, 'e', n) || memchr(c->at, 'E', n) ? strndup(c->at, n) : NULL;
    if (text) {
        bool whole = digits + (*text == '-') == n;

        errno = 0;
        if (whole)
            (void)strtoll(text, &end, 10);
        whole = whole && errno == ERANGE;
        x = strtod(text, &end);
        if (isinf(x) && !*end) {
            append(c, x < 0 ? "\"-Infinity\"" : "\"Infinity\"", x < 0 ? 11 : 10);
        } else {
            append(c, text, n);
            append(c, ".0", whole ? 2 : 0);
        }
        free(text);
    } else {
        append(c, c->at, n);
    }
    c->at += n;
}

json_t *sp_foreign_json(const char *text, size_t len, json_error_t *err)
{
    return sp_foreign_json_with(text, len, 0, err);
}

json_t *sp_foreign_json_with(const char *text, size_t len, size_t flags, json_error_t *err)
{
    struct copy c = {text, text + len, NULL};
    char *copy = malloc(GROWTH * len + 16);
    json_t *root;

    if (!copy) {
        *err = (json_error_t){.text = "no memory"};
        return NULL;
    }
    c.out = copy;
    while (c.at < c.end)
        if (*c.at == '"')
            copy_string(&c);
        else if (copy_word(&c, "NaN") || copy_word(&c, "Infinity") || copy_word(&c, "-Infinity"))
            continue;
        else if (*c.at == '-' || (*c.at >= '0' && *c.at <= '9'))
            copy_number(&c);
        else
            *c.out++ = *c.at++;
    root = json_loadb(copy, (size_t)(c.out - copy), JSON_REJECT_DUPLICATES | flags, err);
    free(copy);
    return root;
}
