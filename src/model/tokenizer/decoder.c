/* "decoder" of tokenizer.json, and ids to text by it. */
#include "model/tokenizer/json.h"
#include "model/tokenizer/parts.h"
#include "model/try.h"
#include "sp_error.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------- */

/* Takes over what the step holds. */
static int add_step(const struct sp_part *p, struct sp_decoder *d, struct sp_decoder_step s)
{
    int err = 0;

    if (d->left)
        err = sp_part_refuse(p, "behind a Strip of the whole text");
    else if (d->fused && s.kind != SP_DECODE_STRIP &&
             (s.kind != SP_DECODE_REPLACE || !sp_regex_is_character(s.replace.from)))
        err = sp_part_refuse(p, "of the whole text");
    else if (d->steps == SP_DECODER_STEPS)
        err = sp_part_refuse(p, "more than %d steps", SP_DECODER_STEPS);
    else
        d->step[d->steps++] = s;
    if (err)
        sp_replacement_destroy(&s.replace);
    return err;
}

static int read_byte_level(const struct sp_part *p, void *to)
{
    struct sp_decoder *d = to;
    int err = add_step(p, d, (struct sp_decoder_step){.kind = SP_DECODE_BYTE_LEVEL});

    d->fused = true;
    return err;
}

static int read_byte_fallback(const struct sp_part *p, void *to)
{
    return add_step(p, to, (struct sp_decoder_step){.kind = SP_DECODE_BYTE_FALLBACK});
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
    int scheme = 2;
    bool prefix = true;

    SP_TRY(sp_part_char(p, "replacement", &s.c));
    SP_TRY(sp_part_bool(p, "add_prefix_space", &prefix));
    SP_TRY(sp_part_word(p, "prepend_scheme", "never first always", &scheme));
    s.prefixed = scheme && prefix;
    return add_step(p, to, s);
}

static int read_strip(const struct sp_part *p, void *to)
{
    struct sp_decoder *d = to;
    struct sp_decoder_step s = {.kind = SP_DECODE_STRIP};
    int64_t left = 0, right = 0;

    SP_TRY(sp_part_char(p, "content", &s.c));
    SP_TRY(sp_part_int(p, "start", &left));
    SP_TRY(sp_part_int(p, "stop", &right));
    if (left < 0 || left > 1000 || right < 0 || right > 1000)
        return sp_part_refuse(p, "\"start\" and \"stop\" are to be 0 to 1000");
    if (d->fused && right)
        return sp_part_refuse(p, "a \"stop\" of the whole text is not supported");
    s.left = (int)left;
    s.right = (int)right;
    if (!d->fused)
        return add_step(p, d, s);
    if (d->left)
        return sp_part_refuse(p, "behind a Strip of the whole text");
    d->c = s.c;
    d->left = s.left;
    return 0;
}

static int read_replace(const struct sp_part *p, void *to)
{
    struct sp_decoder_step s = {.kind = SP_DECODE_REPLACE};
    int err = sp_replacement_read(&s.replace, p, true);

    return err ? err : add_step(p, to, s);
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
    for (int i = 0; i < d->steps; i++)
        sp_replacement_destroy(&d->step[i].replace);
}

/* ---- a token ----------------------------------------------------------------------------------- */

/* Characters that all stand for bytes are these bytes; others say what they are. */
static void decode_byte_level(const char *text, size_t n, struct sp_bytes *out)
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

/* <0xE2> */
static void decode_byte_fallback(const char *text, size_t n, struct sp_bytes *out)
{
    bool is_byte = n == 6 && !memcmp(text, "<0x", 3) && text[5] == '>' &&
                   isxdigit((unsigned char)text[3]) && isxdigit((unsigned char)text[4]);
    char byte = is_byte ? (char)strtol(text + 3, NULL, 16) : 0;

    sp_bytes_add(out, is_byte ? &byte : text, is_byte ? 1 : n);
}

/* Bytes, which may be a part of a character. */
static void decode_metaspace(const struct sp_decoder_step *s, const char *text, size_t n,
                             bool first, struct sp_bytes *out)
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

static void decode_strip(const struct sp_decoder_step *s, const char *text, size_t n,
                         struct sp_bytes *out)
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

static void decode_step(const struct sp_decoder_step *s, const struct sp_bytes *text, bool first,
                        struct sp_bytes *out)
{
    switch (s->kind) {
    case SP_DECODE_BYTE_LEVEL:
        decode_byte_level(text->at, text->n, out);
        break;
    case SP_DECODE_BYTE_FALLBACK:
        decode_byte_fallback(text->at, text->n, out);
        break;
    case SP_DECODE_METASPACE:
        decode_metaspace(s, text->at, text->n, first, out);
        break;
    case SP_DECODE_REPLACE:
        sp_replacement_run(&s->replace, NULL, text->at, text->n, SIZE_MAX, out);
        break;
    case SP_DECODE_STRIP:
        decode_strip(s, text->at, text->n, out);
        break;
    }
}

static void exchange(struct sp_bytes *a, struct sp_bytes *b)
{
    struct sp_bytes c = *a;

    *a = *b;
    *b = c;
}

/* Writes what a token says, which is the first of its text or not. spare: room to work. */
static void decode_token(const struct sp_decoder *d, const char *text, size_t n, bool first,
                         struct sp_bytes *out, struct sp_bytes *spare)
{
    out->n = 0;
    if (d->joined && !first)
        sp_bytes_add(out, " ", 1);
    sp_bytes_add(out, text, n);
    for (int i = 0; i < d->steps; i++) {
        spare->n = 0;
        decode_step(&d->step[i], out, first, spare);
        exchange(out, spare);
    }
}

/* ---- a text ------------------------------------------------------------------------------------ */

void sp_decode_room_free(struct sp_decode_room *room)
{
    free(room->at);
    free(room->spare);
    *room = (struct sp_decode_room){0};
}

int64_t sp_tokenizer_id(const struct sp_tokenizer *t, const char *text, size_t n)
{
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.token[i].n == n && !memcmp(t->added.token[i].content, text, n))
            return t->added.token[i].id;
    return sp_vocabulary_find(&t->vocabulary, text, n);
}

const char *sp_tokenizer_text(const struct sp_tokenizer *t, uint32_t id, size_t *n)
{
    const struct sp_added_token *added = sp_added_of(&t->added, id);

    if (!added)
        return sp_vocabulary_text(&t->vocabulary, id, n);
    *n = added->n;
    return added->content;
}

/* The characters of the whole text that are to be taken from its beginning. */
static size_t strip_beginning(const struct sp_decoder *z, struct sp_decoding *d,
                              const struct sp_bytes *text)
{
    char c[4];
    size_t length = (size_t)sp_unicode_encode(z->c, c), at = 0;

    while (d->stripped < z->left && at < text->n) {
        bool same = text->n - at >= length && !memcmp(text->at + at, c, length);

        d->stripped = same ? d->stripped + 1 : z->left;
        at += same ? length : 0;
    }
    return at;
}

/* Bytes at the end that begin a character which is not complete. */
static size_t incomplete_bytes(const char *text, size_t n)
{
    for (size_t length = 1; length < 4 && length <= n; length++) {
        unsigned char byte = (unsigned char)text[n - length];

        if (byte >= 0xc2 && byte <= 0xf4)
            return (size_t)sp_unicode_length((char)byte) > length ? length : 0;
        if ((byte & 0xc0) != 0x80)
            break;
    }
    return 0;
}

/* Bytes that wait come first; a character that is not complete waits. */
static void hold_back(struct sp_decoding *d, struct sp_bytes *text, struct sp_bytes *spare)
{
    size_t n;

    spare->n = 0;
    sp_bytes_add(spare, d->waiting, (size_t)d->n_waiting);
    sp_bytes_add(spare, text->at, text->n);
    exchange(text, spare);
    n = text->n ? incomplete_bytes(text->at, text->n) : 0;
    d->n_waiting = (int)n;
    if (n)
        memcpy(d->waiting, text->at + text->n - n, n);
    text->n -= n;
}

int sp_decode(const struct sp_tokenizer *t, struct sp_decoding *d, uint32_t id,
              struct sp_decode_room *room, size_t *len)
{
    const struct sp_added_token *added = sp_added_of(&t->added, id);
    size_t n = 0, from;
    const char *text = sp_tokenizer_text(t, id, &n);
    struct sp_bytes out = {room->at, 0, room->size, false},
                    spare = {room->spare, 0, room->spare_size, false};

    if (!text)
        return sp_error(EINVAL, "the tokenizer has no token %u", (unsigned)id);
    *len = 0;
    if (added && added->special && (d->flags & SP_DECODE_SKIP_SPECIAL))
        return 0;
    decode_token(&t->decoder, text, n, !d->begun, &out, &spare);
    d->begun = true;
    from = strip_beginning(&t->decoder, d, &out);
    if (from) {
        memmove(out.at, out.at + from, out.n - from);
        out.n -= from;
    }
    if (d->flags & SP_DECODE_CHARACTERS)
        hold_back(d, &out, &spare);
    room->at = out.at;
    room->size = out.room;
    room->spare = spare.at;
    room->spare_size = spare.room;
    *len = out.n;
    return out.failed || spare.failed ? sp_error(ENOMEM, "no memory to decode a token") : 0;
}
