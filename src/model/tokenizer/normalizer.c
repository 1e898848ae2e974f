#define _GNU_SOURCE /* memmem */
#include "model/tokenizer/json.h"
#include "model/tokenizer/parts.h"
#include "model/tokenizer/regex.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------- */

static int add_step(const struct sp_part *p, void *to, const struct sp_normalizer_step *s)
{
    struct sp_normalizer *z = to;

    if (z->steps == SP_NORMALIZER_STEPS)
        return sp_part_refuse(p, "more than %d steps", SP_NORMALIZER_STEPS);
    z->step[z->steps++] = *s;
    return 0;
}

static int read_form(const struct sp_part *p, void *to)
{
    static const char *const names[] = {
        [SP_NFC] = "NFC", [SP_NFD] = "NFD", [SP_NFKC] = "NFKC", [SP_NFKD] = "NFKD"};
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_FORM};

    while (strcmp(names[s.form], p->type))
        s.form++;
    return add_step(p, to, &s);
}

static int read_lowercase(const struct sp_part *p, void *to)
{
    return add_step(p, to, &(struct sp_normalizer_step){.kind = SP_NORMALIZE_LOWERCASE});
}

static int read_strip_accents(const struct sp_part *p, void *to)
{
    return add_step(p, to, &(struct sp_normalizer_step){.kind = SP_NORMALIZE_STRIP_ACCENTS});
}

static int read_strip(const struct sp_part *p, void *to)
{
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_STRIP, .left = true, .right = true};
    int err = sp_part_bool(p, "strip_left", &s.left);

    err = err ? err : sp_part_bool(p, "strip_right", &s.right);
    return err ? err : add_step(p, to, &s);
}

/* A copy of text[n], which zeros may be in; NULL without memory. */
static char *copy_of(const char *text, size_t n)
{
    char *copy = malloc(n + 1);

    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

static void destroy_step(struct sp_normalizer_step *s)
{
    free(s->from);
    free(s->to);
    sp_regex_destroy(s->regex);
    sp_charsmap_destroy(s->charsmap);
}

static int read_prepend(const struct sp_part *p, void *to)
{
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_PREPEND};
    const char *text = "";
    int err = sp_part_text(p, "prepend", &text, &s.to_n);

    if (err)
        return err;
    s.to = copy_of(text, s.to_n);
    err = s.to ? add_step(p, to, &s) : sp_error(ENOMEM, "%s: no memory", p->where);
    if (err)
        destroy_step(&s);
    return err;
}

static int read_replace(const struct sp_part *p, void *to)
{
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_REPLACE};
    struct sp_pattern pattern;
    const char *content = "";
    int err = sp_part_pattern(p, "pattern", &pattern);

    err = err ? err : sp_part_text(p, "content", &content, &s.to_n);
    if (err)
        return err;
    if (!pattern.n)
        return sp_part_refuse(p, "nothing to look for");
    if (pattern.regex)
        err = sp_regex_create(pattern.text, pattern.n, p->where, &s.regex);
    s.from = copy_of(pattern.text, pattern.n);
    s.from_n = pattern.n;
    s.to = copy_of(content, s.to_n);
    if (!err && (!s.from || !s.to))
        err = sp_error(ENOMEM, "%s: no memory", p->where);
    err = err ? err : add_step(p, to, &s);
    if (err)
        destroy_step(&s);
    return err;
}

static int read_precompiled(const struct sp_part *p, void *to)
{
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_CHARSMAP};
    const char *table = "";
    size_t n = 0;
    int err = sp_part_text(p, "precompiled_charsmap", &table, &n);

    if (err)
        return err;
    err = sp_charsmap_create(table, n, &s.charsmap);
    if (err)
        return err == -ENOMEM ? sp_error(ENOMEM, "%s: no memory", p->where)
                              : sp_part_refuse(p, "\"precompiled_charsmap\" is damaged");
    err = add_step(p, to, &s);
    if (err)
        destroy_step(&s);
    return err;
}

int sp_normalizer_read(struct sp_normalizer *z, const json_t *json, const char *where)
{
    static const struct sp_part_type types[] = {
        {"NFC", read_form},
        {"NFD", read_form},
        {"NFKC", read_form},
        {"NFKD", read_form},
        {"Lowercase", read_lowercase},
        {"Strip", read_strip},
        {"StripAccents", read_strip_accents},
        {"Prepend", read_prepend},
        {"Replace", read_replace},
        {"Precompiled", read_precompiled},
        {NULL, NULL},
    };
    const struct sp_part p = {json, where, "normalizer", ""};

    return sp_part_read(&p, "normalizers", types, z);
}

void sp_normalizer_destroy(struct sp_normalizer *z)
{
    for (int i = 0; i < z->steps; i++)
        destroy_step(&z->step[i]);
}

/* ---- a text ------------------------------------------------------------------------------------ */

static void lowercase(const char *text, size_t n, struct sp_bytes *out)
{
    for (size_t at = 0; at < n;) {
        uint32_t c, low[2];

        at += (size_t)sp_unicode_next(text + at, &c);
        for (int i = 0, count = sp_unicode_lower(c, low); i < count; i++)
            sp_bytes_add_char(out, low[i]);
    }
}

static void strip_accents(const char *text, size_t n, struct sp_bytes *out)
{
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c;

        length = (size_t)sp_unicode_next(text + at, &c);
        if (!sp_unicode_is_mark(c))
            sp_bytes_add(out, text + at, length);
    }
}

static void strip(const struct sp_normalizer_step *s, const char *text, size_t n,
                  struct sp_bytes *out)
{
    size_t first = n, last = 0; /* what is no white space is between them */

    for (size_t at = 0; at < n;) {
        size_t start = at;
        uint32_t c;

        at += (size_t)sp_unicode_next(text + at, &c);
        if (sp_unicode_is_space(c))
            continue;
        first = first == n ? start : first;
        last = at;
    }
    if (first < n)
        sp_bytes_add(out, text + (s->left ? first : 0),
                     (s->right ? last : n) - (s->left ? first : 0));
}

static int replace(const struct sp_normalizer_step *s, const char *text, size_t n,
                   struct sp_normalizer_room *r)
{
    struct sp_matcher *m = r->matcher;
    struct sp_bytes *out = &r->out;
    size_t copied = 0, at = 0, match[2];

    while (at <= n) {
        if (out->n > r->most)
            return sp_error(EFBIG, "the tokenizer's normalizer makes more than %zu bytes of a text",
                            r->most);
        if (s->regex) {
            int found = sp_regex_find(s->regex, m, text, n, at, match);

            if (found < 0)
                return found;
            if (!found)
                break;
        } else {
            const char *found = memmem(text + at, n - at, s->from, s->from_n);

            if (!found)
                break;
            match[0] = (size_t)(found - text);
            match[1] = match[0] + s->from_n;
        }
        sp_bytes_add(out, text + copied, match[0] - copied);
        sp_bytes_add(out, s->to, s->to_n);
        copied = at = match[1];
        if (match[0] == match[1]) /* nothing was matched: go on behind the next character */
            at += at < n ? (size_t)sp_unicode_length(text[at]) : 1;
    }
    sp_bytes_add(out, text + copied, n - copied);
    return 0;
}

static int take_step(const struct sp_normalizer_step *s, struct sp_normalizer_room *r,
                     const char *text, size_t n)
{
    switch (s->kind) {
    case SP_NORMALIZE_FORM:
        sp_unicode_normalize(s->form, text, n, &r->out);
        return 0;
    case SP_NORMALIZE_LOWERCASE:
        lowercase(text, n, &r->out);
        return 0;
    case SP_NORMALIZE_STRIP:
        strip(s, text, n, &r->out);
        return 0;
    case SP_NORMALIZE_STRIP_ACCENTS:
        strip_accents(text, n, &r->out);
        return 0;
    case SP_NORMALIZE_CHARSMAP:
        if (s->charsmap)
            sp_charsmap_run(s->charsmap, text, n, &r->out);
        else
            sp_bytes_add(&r->out, text, n);
        return 0;
    case SP_NORMALIZE_PREPEND:
        if (n)
            sp_bytes_add(&r->out, s->to, s->to_n);
        sp_bytes_add(&r->out, text, n);
        return 0;
    default:
        return replace(s, text, n, r);
    }
}

int sp_normalizer_run(const struct sp_normalizer *z, struct sp_normalizer_room *r, const char *text,
                      size_t n, bool continues)
{
    enum { GROWTH = 64, LEAST = 1 << 16 }; /* NFKC makes 11 bytes of one, a blank becomes 3 */
    int err = 0;
    bool begun = false;

    r->most = GROWTH * n + LEAST;
    for (int i = 0; !err && i < z->steps; i++) {
        struct sp_bytes other = r->spare;

        if (z->step[i].kind == SP_NORMALIZE_PREPEND && continues)
            continue;
        r->spare = r->out;
        r->out = other;
        r->out.n = 0;
        err = take_step(&z->step[i], r, begun ? r->spare.at : text, begun ? r->spare.n : n);
        begun = true;
    }
    if (!begun) {
        r->out.n = 0;
        sp_bytes_add(&r->out, text, n);
    }
    return !err && (r->out.failed || r->spare.failed)
               ? sp_error(ENOMEM, "no memory to normalize %zu bytes of text", n)
               : err;
}
