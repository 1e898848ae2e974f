#include "model/tokenizer/parts.h"
#include "model/try.h"
#include "sp_error.h"
#include <stdlib.h>

/* ---- reading ----------------------------------------------------------------------------------- */

static void destroy_step(struct sp_normalizer_step *s)
{
    sp_replacement_destroy(&s->replace);
    sp_charsmap_destroy(s->charsmap);
}

/* Takes over what the step holds. */
static int add_step(const struct sp_part *p, struct sp_normalizer *z, struct sp_normalizer_step s)
{
    if (z->steps == SP_NORMALIZER_STEPS) {
        destroy_step(&s);
        return sp_part_refuse(p, "more than %d steps", SP_NORMALIZER_STEPS);
    }
    z->step[z->steps++] = s;
    return 0;
}

/* Reads a step without settings. */
static int read_plain(const struct sp_part *p, void *to)
{
    static const char names[] = /* in the order of the enum */
        "NFC NFD NFKC NFKD Lowercase StripAccents";
    int kind = sp_word_find(names, p->type);

    return add_step(p, to, (struct sp_normalizer_step){.kind = (enum sp_normalizer_kind)kind});
}

static int read_strip(const struct sp_part *p, void *to)
{
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_STRIP, .left = true, .right = true};

    SP_TRY(sp_part_bool(p, "strip_left", &s.left));
    SP_TRY(sp_part_bool(p, "strip_right", &s.right));
    return add_step(p, to, s);
}

static int read_prepend(const struct sp_part *p, void *to)
{
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_PREPEND};
    const char *text = "";
    size_t n = 0;

    SP_TRY(sp_part_text(p, "prepend", &text, &n));
    SP_TRY(sp_replacement_set(&s.replace, p, text, n));
    return add_step(p, to, s);
}

static int read_replace(const struct sp_part *p, void *to)
{
    struct sp_normalizer_step s = {.kind = SP_NORMALIZE_REPLACE};
    int err = sp_replacement_read(&s.replace, p, false);

    return err ? err : add_step(p, to, s);
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
    return add_step(p, to, s);
}

int sp_normalizer_read(struct sp_normalizer *z, const json_t *json, const char *where)
{
    static const struct sp_part_type types[] = {
        {"NFC", read_plain},
        {"NFD", read_plain},
        {"NFKC", read_plain},
        {"NFKD", read_plain},
        {"Lowercase", read_plain},
        {"Strip", read_strip},
        {"StripAccents", read_plain},
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

static void append_lower_case(const char *text, size_t n, struct sp_bytes *out)
{
    for (size_t at = 0; at < n;) {
        uint32_t c, low[2];

        at += (size_t)sp_unicode_next(text + at, &c);
        for (int i = 0, count = sp_unicode_lower(c, low); i < count; i++)
            sp_bytes_add_char(out, low[i]);
    }
}

static void append_without_accents(const char *text, size_t n, struct sp_bytes *out)
{
    for (size_t at = 0, length; at < n; at += length) {
        uint32_t c;

        length = (size_t)sp_unicode_next(text + at, &c);
        if (!sp_unicode_is_mark(c))
            sp_bytes_add(out, text + at, length);
    }
}

static void append_stripped(const struct sp_normalizer_step *s, const char *text, size_t n,
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

static int run_step(const struct sp_normalizer_step *s, struct sp_normalizer_room *r,
                    const char *text, size_t n)
{
    switch (s->kind) {
    case SP_NORMALIZE_NFC:
    case SP_NORMALIZE_NFD:
    case SP_NORMALIZE_NFKC:
    case SP_NORMALIZE_NFKD:
        sp_unicode_normalize((enum sp_normal_form)s->kind, text, n, &r->out);
        return 0;
    case SP_NORMALIZE_LOWERCASE:
        append_lower_case(text, n, &r->out);
        return 0;
    case SP_NORMALIZE_STRIP:
        append_stripped(s, text, n, &r->out);
        return 0;
    case SP_NORMALIZE_STRIP_ACCENTS:
        append_without_accents(text, n, &r->out);
        return 0;
    case SP_NORMALIZE_CHARSMAP:
        if (s->charsmap)
            sp_charsmap_run(s->charsmap, text, n, &r->out);
        else
            sp_bytes_add(&r->out, text, n);
        return 0;
    case SP_NORMALIZE_PREPEND:
        if (n)
            sp_bytes_add(&r->out, s->replace.to, s->replace.to_n);
        sp_bytes_add(&r->out, text, n);
        return 0;
    case SP_NORMALIZE_REPLACE:
        break;
    }
    return sp_replacement_run(&s->replace, r->matcher, text, n, r->most, &r->out);
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
        err = run_step(&z->step[i], r, begun ? r->spare.at : text, begun ? r->spare.n : n);
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
