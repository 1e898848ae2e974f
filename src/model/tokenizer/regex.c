#define _GNU_SOURCE /* memmem */
#include "model/tokenizer/regex.h"
#include "sp_error.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sp_regex {
    pcre2_code *code; /* NULL: the pattern is a text */
    char *pattern;    /* as the file has it */
    size_t n;
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

static void append(struct translation *t, const char *text)
{
    sp_bytes_add(&t->out, text, strlen(text));
}

static int refuse_construct(const struct translation *t, const char *what)
{
    return sp_error(EINVAL, "%s: the regular expression '%s': %s is not supported", t->where,
                    t->pattern, what);
}

/* Compiles a translated pattern; NULL: it cannot be, for which *err is PCRE2's code. */
static pcre2_code *compile_translated(const char *translated, int *err)
{
    PCRE2_SIZE offset;

    return pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, OPTIONS, err, &offset,
                         NULL);
}

static bool compiles(const char *pattern)
{
    int err;
    pcre2_code *code = compile_translated(pattern, &err);

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
        return refuse_construct(t, "\\p without {NAME}");
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
    append(t, text);
    return 0;
}

/* \uHHHH, which PCRE2 lacks. */
static int translate_number(struct translation *t)
{
    char text[16];

    if (t->end - t->at < 4 || strspn(t->at, "0123456789abcdefABCDEF") < 4)
        return refuse_construct(t, "\\u without four digits");
    snprintf(text, sizeof text, "\\x{%.4s}", t->at);
    t->at += 4;
    append(t, text);
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
        return refuse_construct(t, "a \\ at the end");
    c = *t->at;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].name == c && (!in_class || known[i].inside)) {
            t->at++;
            append(t, in_class ? known[i].inside : known[i].outside);
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
    return refuse_construct(t, what);
}

/* [...], from behind its bracket. */
static int translate_class(struct translation *t)
{
    int err = 0;

    if (t->at < t->end && *t->at == '^')
        sp_bytes_add(&t->out, t->at++, 1);
    if (t->at < t->end && *t->at == ']')
        return refuse_construct(t, "a ] that begins a class");
    while (!err && t->at < t->end && *t->at != ']') {
        if (*t->at == '[')
            return refuse_construct(t, "a class in a class");
        if (*t->at == '&' && t->end - t->at > 1 && t->at[1] == '&')
            return refuse_construct(t, "an intersection of classes");
        if (*t->at == '\\') {
            t->at++;
            err = translate_escape(t, true);
        } else {
            sp_bytes_add(&t->out, t->at++, 1);
        }
    }
    if (!err && t->at == t->end)
        return refuse_construct(t, "a class without end");
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
            append(t, known[i]);
            t->at += n;
            return 0;
        }
    }
    return refuse_construct(t, "a group of this kind");
}

/* {n,m}: PCRE2 takes {,m} for a text, and {n,m}+ for a possessive repeat. */
static int translate_repeat(struct translation *t)
{
    size_t n = strspn(t->at, "0123456789,");

    if (t->at[n] != '}') { /* a text for both */
        append(t, "\\{");
        return 0;
    }
    append(t, *t->at == ',' ? "{0" : "{");
    sp_bytes_add(&t->out, t->at, n + 1);
    t->at += n + 1;
    return t->at < t->end && *t->at == '+' ? refuse_construct(t, "+ behind {n,m}") : 0;
}

static int translate_pattern(struct translation *t)
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
            err = refuse_construct(t, "(*");
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

static int compile_pattern(struct sp_regex *re, const char *translated, const char *where)
{
    PCRE2_UCHAR why[128];
    int err;

    re->code = compile_translated(translated, &err);
    if (!re->code) {
        pcre2_get_error_message(err, why, sizeof why);
        return sp_error(EINVAL, "%s: the regular expression '%s': %s", where, re->pattern,
                        (char *)why);
    }
    /* Without a compiler for this processor it is interpreted. */
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
    return 0;
}

static struct sp_regex *hold_pattern(const char *pattern, size_t n, const char *where)
{
    struct sp_regex *r = calloc(1, sizeof *r);

    if (r)
        r->pattern = malloc(n + 1);
    if (!r || !r->pattern) {
        sp_regex_destroy(r);
        sp_error(ENOMEM, "%s: no memory for a pattern", where);
        return NULL;
    }
    memcpy(r->pattern, pattern, n);
    r->pattern[n] = '\0';
    r->n = n;
    return r;
}

int sp_regex_create(const char *pattern, size_t n, const char *where, struct sp_regex **re)
{
    struct sp_regex *r = hold_pattern(pattern, n, where);
    struct translation t = {.at = pattern, .end = pattern + n, .where = where, .pattern = pattern};
    int err;

    if (!r)
        return -ENOMEM;
    err = strlen(pattern) != n ? refuse_construct(&t, "a zero byte") : translate_pattern(&t);
    err = err ? err : compile_pattern(r, t.out.at, where);
    free(t.out.at);
    if (err)
        sp_regex_destroy(r);
    else
        *re = r;
    return err;
}

int sp_regex_of(const struct sp_part *p, const struct sp_pattern *pattern, struct sp_regex **re)
{
    if (!pattern->n)
        return sp_part_refuse(p, "nothing to look for");
    if (pattern->regex)
        return sp_regex_create(pattern->text, pattern->n, p->where, re);
    *re = hold_pattern(pattern->text, pattern->n, p->where);
    return *re ? 0 : -ENOMEM;
}

void sp_regex_destroy(struct sp_regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    free(re->pattern);
    free(re);
}

bool sp_regex_is_character(const struct sp_regex *re)
{
    return !re->code && (size_t)sp_unicode_length(*re->pattern) == re->n;
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

static int find_text(const struct sp_regex *re, const char *text, size_t n, size_t at,
                     size_t match[2])
{
    const char *found = n - at < re->n ? NULL : memmem(text + at, n - at, re->pattern, re->n);

    match[0] = found ? (size_t)(found - text) : 0;
    match[1] = match[0] + re->n;
    return found != NULL;
}

int sp_regex_find(const struct sp_regex *re, struct sp_matcher *m, const char *text, size_t n,
                  size_t at, size_t match[2])
{
    PCRE2_UCHAR why[128];
    const PCRE2_SIZE *found;
    int k;

    if (!re->code)
        return find_text(re, text, n, at, match);
    k = pcre2_match(re->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (k == PCRE2_ERROR_NOMATCH)
        return 0;
    if (k < 0) {
        pcre2_get_error_message(k, why, sizeof why);
        return sp_error(EINVAL, "the regular expression '%s' of the tokenizer gave up: %s",
                        re->pattern, (char *)why);
    }
    found = pcre2_get_ovector_pointer(m->data);
    match[0] = found[0];
    match[1] = found[1];
    return 1;
}

size_t sp_regex_behind(const char *text, size_t n, const size_t match[2])
{
    size_t end = match[1];

    if (match[0] < end)
        return end;
    return end + (end < n ? (size_t)sp_unicode_length(text[end]) : 1);
}

/* ---- replacing --------------------------------------------------------------------------------- */

int sp_replacement_set(struct sp_replacement *r, const struct sp_part *p, const char *to, size_t n)
{
    r->to = malloc(n + 1);
    if (!r->to)
        return sp_error(ENOMEM, "%s: no memory for a text", p->where);
    memcpy(r->to, to, n);
    r->to_n = n;
    return 0;
}

int sp_replacement_read(struct sp_replacement *r, const struct sp_part *p, bool texts_only)
{
    struct sp_pattern pattern;
    const char *content = "";
    size_t n = 0;
    int err = sp_part_pattern(p, "pattern", &pattern);

    err = err ? err : sp_part_text(p, "content", &content, &n);
    if (!err && texts_only && pattern.regex)
        err = sp_part_refuse(p, "a regular expression is not supported");
    err = err ? err : sp_regex_of(p, &pattern, &r->from);
    err = err ? err : sp_replacement_set(r, p, content, n);
    if (err)
        sp_replacement_destroy(r);
    return err;
}

void sp_replacement_destroy(struct sp_replacement *r)
{
    sp_regex_destroy(r->from);
    free(r->to);
    *r = (struct sp_replacement){0};
}

int sp_replacement_run(const struct sp_replacement *r, struct sp_matcher *m, const char *text,
                       size_t n, size_t most, struct sp_bytes *out)
{
    size_t copied = 0, match[2];
    int found = 1;

    for (size_t at = 0; at <= n; at = sp_regex_behind(text, n, match)) {
        if (out->n > most)
            return sp_error(EFBIG, "the tokenizer's normalizer makes more than %zu bytes of a text",
                            most);
        found = sp_regex_find(r->from, m, text, n, at, match);
        if (found <= 0)
            break;
        sp_bytes_add(out, text + copied, match[0] - copied);
        sp_bytes_add(out, r->to, r->to_n);
        copied = match[1];
    }
    sp_bytes_add(out, text + copied, n - copied);
    return found < 0 ? found : 0;
}
