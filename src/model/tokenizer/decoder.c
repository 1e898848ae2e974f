#include "model/tokenizer/json.h"
#include "model/tokenizer/parts.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------- */

static int add_step(const struct sp_part *p, struct sp_decoder *d, const struct sp_decoder_step *s)
{
    if (d->left)
        return sp_part_refuse(p, "behind a Strip of the whole text");
    if (d->fused && s->kind != SP_DECODE_STRIP &&
        (s->kind != SP_DECODE_REPLACE || (size_t)sp_unicode_length(*s->from) != s->from_n))
        return sp_part_refuse(p, "of the whole text");
    if (d->steps == SP_DECODER_STEPS)
        return sp_part_refuse(p, "more than %d steps", SP_DECODER_STEPS);
    d->step[d->steps++] = *s;
    return 0;
}

static int read_byte_level(const struct sp_part *p, void *to)
{
    struct sp_decoder *d = to;
    int err = add_step(p, d, &(struct sp_decoder_step){.kind = SP_DECODE_BYTE_LEVEL});

    d->fused = true;
    return err;
}

static int read_byte_fallback(const struct sp_part *p, void *to)
{
    return add_step(p, to, &(struct sp_decoder_step){.kind = SP_DECODE_BYTE_FALLBACK});
}

static int read_fuse(const struct sp_part *p, void *to)
{
    struct sp_decoder *d = to;

    (void)p;
    d->fused = true;
    return 0;
}

static int read_metaspace(const struct sp_part *p, void *to)
{
    struct sp_decoder_step s = {.kind = SP_DECODE_METASPACE, .c = 0x2581};
    int scheme = 2, err = sp_part_char(p, "replacement", &s.c);
    bool prefix = true;

    err = err ? err : sp_part_bool(p, "add_prefix_space", &prefix);
    err = err ? err : sp_part_word(p, "prepend_scheme", "never first always", &scheme);
    s.prefixed = scheme && prefix;
    return err ? err : add_step(p, to, &s);
}

static int read_strip(const struct sp_part *p, void *to)
{
    struct sp_decoder *d = to;
    struct sp_decoder_step s = {.kind = SP_DECODE_STRIP};
    int64_t left = 0, right = 0;
    int err = sp_part_char(p, "content", &s.c);

    err = err ? err : sp_part_int(p, "start", &left);
    err = err ? err : sp_part_int(p, "stop", &right);
    if (err)
        return err;
    if (left < 0 || left > 1000 || right < 0 || right > 1000)
        return sp_part_refuse(p, "\"start\" and \"stop\" are to be 0 to 1000");
    if (d->fused && right)
        return sp_part_refuse(p, "a \"stop\" of the whole text is not supported");
    s.left = (int)left;
    s.right = (int)right;
    if (!d->fused)
        return add_step(p, d, &s);
    if (d->left)
        return sp_part_refuse(p, "behind a Strip of the whole text");
    d->c = s.c;
    d->left = s.left;
    return 0;
}

static int read_replace(const struct sp_part *p, void *to)
{
    struct sp_decoder *d = to;
    struct sp_pattern pattern;
    struct sp_decoder_step s = {.kind = SP_DECODE_REPLACE};
    const char *content = "";
    int err = sp_part_pattern(p, "pattern", &pattern);

    err = err ? err : sp_part_text(p, "content", &content, &s.to_n);
    if (err)
        return err;
    if (pattern.regex || !pattern.n)
        return sp_part_refuse(p, "%s",
                              pattern.regex ? "a regular expression is not supported"
                                            : "nothing to look for");
    s.from_n = pattern.n;
    s.from = malloc(pattern.n + 1);
    s.to = malloc(s.to_n + 1);
    if (s.from && s.to) {
        memcpy(s.from, pattern.text, pattern.n + 1);
        memcpy(s.to, content, s.to_n + 1);
        err = add_step(p, d, &s);
    } else {
        err = sp_error(ENOMEM, "%s: no memory for a decoder", p->where);
    }
    if (err) {
        free(s.from);
        free(s.to);
    }
    return err;
}

int sp_decoder_read(struct sp_decoder *d, const json_t *json, const char *where)
{
    static const struct sp_part_type types[] = {{"ByteLevel", read_byte_level},
                                                {"ByteFallback", read_byte_fallback},
                                                {"Fuse", read_fuse},
                                                {"Metaspace", read_metaspace},
                                                {"Strip", read_strip},
                                                {"Replace", read_replace},
                                                {NULL, NULL}};
    const struct sp_part p = {json, where, "decoder", ""};

    d->joined = !json || json_is_null(json);
    return sp_part_read(&p, "decoders", types, d);
}

void sp_decoder_destroy(struct sp_decoder *d)
{
    for (int i = 0; i < d->steps; i++) {
        free(d->step[i].from);
        free(d->step[i].to);
    }
}

/* ---- a token ----------------------------------------------------------------------------------- */

/* Characters that all stand for bytes are these bytes; others say what they are. */
static void byte_level(const char *text, size_t n, struct sp_bytes *out)
{
    size_t kept = out->n;

    for (size_t at = 0; at < n;) {
        uint32_t c;
        int length = sp_unicode_decode(text + at, n - at, &c);
        int byte = length ? sp_byte_of_char(c) : -1;

        if (byte < 0) {
            out->n = kept;
            sp_bytes_add(out, text, n);
            return;
        }
        sp_bytes_add(out, &(char){(char)byte}, 1);
        at += (size_t)length;
    }
}

static int hexadecimal(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;

    return at ? (int)((at - digits) % 16) : -1;
}

/* <0xE2> */
static void byte_fallback(const char *text, size_t n, struct sp_bytes *out)
{
    bool is_byte = n == 6 && !memcmp(text, "<0x", 3) && text[5] == '>' &&
                   hexadecimal(text[3]) >= 0 && hexadecimal(text[4]) >= 0;

    if (is_byte)
        sp_bytes_add(out, &(char){(char)(hexadecimal(text[3]) << 4 | hexadecimal(text[4]))}, 1);
    else
        sp_bytes_add(out, text, n);
}

/* Bytes, which may be a part of a character. */
static void metaspace(const struct sp_decoder_step *s, const char *text, size_t n, bool first,
                      struct sp_bytes *out)
{
    char mark[4];
    size_t length = (size_t)sp_unicode_encode(s->c, mark);

    for (size_t at = 0; at < n;)
        if (n - at < length || memcmp(text + at, mark, length)) {
            sp_bytes_add(out, text + at++, 1);
        } else {
            sp_bytes_add(out, " ", first && s->prefixed ? 0 : 1);
            at += length;
        }
}

static void replace(const struct sp_decoder_step *s, const char *text, size_t n,
                    struct sp_bytes *out)
{
    size_t copied = 0;

    for (size_t at = 0; at + s->from_n <= n;) {
        if (memcmp(text + at, s->from, s->from_n)) {
            at++;
            continue;
        }
        sp_bytes_add(out, text + copied, at - copied);
        sp_bytes_add(out, s->to, s->to_n);
        copied = at += s->from_n;
    }
    sp_bytes_add(out, text + copied, n - copied);
}

static void strip(const struct sp_decoder_step *s, const char *text, size_t n, struct sp_bytes *out)
{
    char c[4];
    size_t length = (size_t)sp_unicode_encode(s->c, c), from = 0;

    for (int i = 0; i < s->left && n - from >= length && !memcmp(text + from, c, length); i++)
        from += length;
    for (int i = 0; i < s->right && n - from >= length && !memcmp(text + n - length, c, length);
         i++)
        n -= length;
    sp_bytes_add(out, text + from, n - from);
}

static void take_step(const struct sp_decoder_step *s, const struct sp_bytes *text, bool first,
                      struct sp_bytes *out)
{
    if (s->kind == SP_DECODE_BYTE_LEVEL)
        byte_level(text->at, text->n, out);
    else if (s->kind == SP_DECODE_BYTE_FALLBACK)
        byte_fallback(text->at, text->n, out);
    else if (s->kind == SP_DECODE_METASPACE)
        metaspace(s, text->at, text->n, first, out);
    else if (s->kind == SP_DECODE_REPLACE)
        replace(s, text->at, text->n, out);
    else
        strip(s, text->at, text->n, out);
}

void sp_decoder_token(const struct sp_decoder *d, const char *text, size_t n, bool first,
                      struct sp_bytes *out, struct sp_bytes *spare)
{
    out->n = 0;
    if (d->joined && !first)
        sp_bytes_add(out, " ", 1);
    sp_bytes_add(out, text, n);
    for (int i = 0; i < d->steps; i++) {
        struct sp_bytes from = *out;

        spare->n = 0;
        take_step(&d->step[i], &from, first, spare);
        *out = *spare;
        *spare = from;
    }
}
