#include "model/tokenizer/regex.h"
#include "model/tokenizer/unicode.h"
#include "sp_error.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sp_regex {
    pcre2_code *code;
    char *pattern; /* as the file has it */
};

struct sp_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

enum { OPTIONS = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, STACK_BYTES = 8 << 20 };

/* ---- translation ------------------------------------------------------------------------------- */

struct translation {
    const char *at, *end;
    const char *where, *pattern;
    struct sp_bytes out;
};

static void put(struct translation *t, const char *text)
{
    sp_bytes_add(&t->out, text, strlen(text));
}

static int refuse(const struct translation *t, const char *what)
{
    return sp_error(EINVAL, "%s: the regular expression '%s': %s is not supported", t->where,
                    t->pattern, what);
}

static bool compiles(const char *pattern)
{
    PCRE2_SIZE offset;
    int err;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, OPTIONS, &err, &offset, NULL);

    pcre2_code_free(code);
    return code;
}

/* \p{NAME}. A script is that of the character itself, where PCRE2 takes those of its extensions too. */
static int translate_property(struct translation *t)
{
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));
    char name[64], text[96];
    bool negative = t->at[-1] == 'P';

    if (t->at == t->end || *t->at != '{' || !close || close - t->at > (int)sizeof name)
        return refuse(t, "\\p without {NAME}");
    t->at++;
    if (*t->at == '^') {
        negative = !negative;
        t->at++;
    }
    snprintf(name, sizeof name, "%.*s", (int)(close - t->at), t->at);
    t->at = close + 1;
    snprintf(text, sizeof text, "\\%c{sc:%s}", negative ? 'P' : 'p', name);
    if (strlen(name) < 3 || !compiles(text))
        snprintf(text, sizeof text, "\\%c{%s}", negative ? 'P' : 'p', name);
    put(t, text);
    return 0;
}

/* \uHHHH, which PCRE2 lacks. */
static int translate_number(struct translation *t)
{
    char text[16];

    if (t->end - t->at < 4 || strspn(t->at, "0123456789abcdefABCDEF") < 4)
        return refuse(t, "\\u without four digits");
    snprintf(text, sizeof text, "\\x{%.4s}", t->at);
    t->at += 4;
    put(t, text);
    return 0;
}

/* \xHH or \x{H...}, which both have. */
static int translate_hexadecimal(struct translation *t)
{
    size_t n = 1 + strspn(t->at + 1, "{0123456789abcdefABCDEF");

    n += t->at[1] == '{' && t->at[n] == '}';
    sp_bytes_add(&t->out, "\\", 1);
    sp_bytes_add(&t->out, t->at, t->at[1] == '{' || n < 3 ? n : 3);
    t->at += t->at[1] == '{' || n < 3 ? n : 3;
    return 0;
}

/* Translates the character behind a backslash. */
static int translate_escape(struct translation *t, bool in_class)
{
    static const struct {
        char name;
        const char *outside, *inside;
    } known[] = {
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
        {'s', "\\p{White_Space}", "\\p{White_Space}"},
        {'S', "\\P{White_Space}", "\\P{White_Space}"},
        {'w', "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"},
        {'W', "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]", NULL},
#else
        {'s', "\\s", "\\s"},
        {'S', "\\S", "\\S"},
#endif
        {'d', "\\p{Nd}", "\\p{Nd}"},
        {'D', "\\P{Nd}", "\\P{Nd}"},
        {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
        {'v', "\\x0b", "\\x0b"},
    };
    char what[8], c;

    if (t->at == t->end)
        return refuse(t, "a \\ at the end");
    c = *t->at;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].name == c && (!in_class || known[i].inside)) {
            t->at++;
            put(t, in_class ? known[i].inside : known[i].outside);
            return 0;
        }
    if (c == 'p' || c == 'P') {
        t->at++;
        return translate_property(t);
    }
    if (c == 'x')
        return translate_hexadecimal(t);
    if (c == 'u') {
        t->at++;
        return translate_number(t);
    }
    if (strchr(in_class ? "rntfae" : "rntfaeAzZ", c) ||
        (c > ' ' && c < 0x7f && !strchr("_", c) && sp_ascii_class[(int)c] == SP_CHAR_OTHER) ||
        c == '_' || c == ' ') {
        sp_bytes_add(&t->out, "\\", 1);
        sp_bytes_add(&t->out, t->at++, 1);
        return 0;
    }
    snprintf(what, sizeof what, "\\%c", c);
    return refuse(t, what);
}

/* [...], from behind its bracket. */
static int translate_class(struct translation *t)
{
    int err = 0;

    if (t->at < t->end && *t->at == '^')
        sp_bytes_add(&t->out, t->at++, 1);
    if (t->at < t->end && *t->at == ']')
        return refuse(t, "a ] that begins a class");
    while (!err && t->at < t->end && *t->at != ']') {
        if (*t->at == '[')
            return refuse(t, "a class in a class");
        if (*t->at == '&' && t->end - t->at > 1 && t->at[1] == '&')
            return refuse(t, "an intersection of classes");
        if (*t->at == '\\') {
            t->at++;
            err = translate_escape(t, true);
        } else {
            sp_bytes_add(&t->out, t->at++, 1);
        }
    }
    if (!err && t->at == t->end)
        return refuse(t, "a class without end");
    if (!err)
        sp_bytes_add(&t->out, t->at++, 1);
    return err;
}

/* (?..., from behind the question mark. */
static int translate_group(struct translation *t)
{
    static const char *const known[] = {":", "=", "!", ">", "<=", "<!", "i:", "-i:", "i)", "-i)"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i]);

        if ((size_t)(t->end - t->at) >= n && !memcmp(t->at, known[i], n)) {
            put(t, known[i]);
            t->at += n;
            return 0;
        }
    }
    return refuse(t, "a group of this kind");
}

/* {n,m}: PCRE2 takes {,m} for a text, and {n,m}+ for a possessive repeat. */
static int translate_repeat(struct translation *t)
{
    size_t n = strspn(t->at, "0123456789,");

    if (t->at[n] != '}') { /* a text for both */
        put(t, "\\{");
        return 0;
    }
    put(t, *t->at == ',' ? "{0" : "{");
    sp_bytes_add(&t->out, t->at, n + 1);
    t->at += n + 1;
    return t->at < t->end && *t->at == '+' ? refuse(t, "+ behind {n,m}") : 0;
}

static int translate(struct translation *t)
{
    int err = 0;

    while (!err && t->at < t->end) {
        char c = *t->at++;

        if (c == '\\') {
            err = translate_escape(t, false);
            continue;
        }
        if (c == '{') {
            err = translate_repeat(t);
            continue;
        }
        sp_bytes_add(&t->out, &c, 1);
        if (c == '[') {
            err = translate_class(t);
        } else if (c == '(' && t->at < t->end && *t->at == '*') {
            err = refuse(t, "(*");
        } else if (c == '(' && t->at < t->end && *t->at == '?') {
            sp_bytes_add(&t->out, t->at++, 1);
            err = translate_group(t);
        }
    }
    sp_bytes_add(&t->out, "", 1);
    if (!err && t->out.failed)
        err = sp_error(ENOMEM, "%s: no memory for a regular expression", t->where);
    return err;
}

/* ---- matching ---------------------------------------------------------------------------------- */

static int compile(struct sp_regex *re, const char *translated, const char *where)
{
    PCRE2_UCHAR why[128];
    PCRE2_SIZE offset;
    int err;

    re->code =
        pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, OPTIONS, &err, &offset, NULL);
    if (!re->code) {
        pcre2_get_error_message(err, why, sizeof why);
        return sp_error(EINVAL, "%s: the regular expression '%s': %s", where, re->pattern,
                        (char *)why);
    }
    /* Without a compiler for this processor it is interpreted. */
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
    return 0;
}

int sp_regex_create(const char *pattern, size_t n, const char *where, struct sp_regex **re)
{
    struct sp_regex *r = calloc(1, sizeof *r);
    struct translation t = {.at = pattern, .end = pattern + n, .where = where, .pattern = pattern};
    int err;

    if (r)
        r->pattern = strdup(pattern);
    if (!r || !r->pattern)
        err = sp_error(ENOMEM, "%s: no memory for a regular expression", where);
    else if (strlen(pattern) != n)
        err = refuse(&t, "a zero byte");
    else
        err = translate(&t);
    err = err ? err : compile(r, t.out.at, where);
    free(t.out.at);
    if (err)
        sp_regex_destroy(r);
    else
        *re = r;
    return err;
}

void sp_regex_destroy(struct sp_regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    free(re->pattern);
    free(re);
}

struct sp_matcher *sp_matcher_create(void)
{
    struct sp_matcher *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 << 10, STACK_BYTES, NULL);
    if (!m->data || !m->context) {
        sp_matcher_destroy(m);
        return NULL;
    }
    if (m->stack) /* there is none where there is no compiler */
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return m;
}

void sp_matcher_destroy(struct sp_matcher *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

int sp_regex_find(const struct sp_regex *re, struct sp_matcher *m, const char *text, size_t n,
                  size_t at, size_t match[2])
{
    int k = pcre2_match(re->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
    PCRE2_UCHAR why[128];

    if (k == PCRE2_ERROR_NOMATCH)
        return 0;
    if (k < 0) {
        pcre2_get_error_message(k, why, sizeof why);
        return sp_error(EINVAL, "the regular expression '%s' of the tokenizer gave up: %s",
                        re->pattern, (char *)why);
    }
    match[0] = found[0];
    match[1] = found[1];
    return 1;
}
