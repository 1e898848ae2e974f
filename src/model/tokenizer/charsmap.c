/*
 * A double array of Darts-clone, whose values are places among texts that end with a zero:
 *
 *     bytes of the array (4, little-endian)   its units (4 each)   "text\0text\0..."
 *
 * A unit has the byte that leads to it, whether a key ends there, and where its children are.
 */
#include "model/tokenizer/parts.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct sp_charsmap {
    uint32_t *unit;
    size_t units;
    char *text; /* [n], and a zero */
    size_t n;
};

/* Bytes of base64; -1: it is none. */
static ptrdiff_t decode_base64(const char *text, size_t n, unsigned char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    ptrdiff_t m = 0;

    while (n && text[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;

        if (!digit)
            return -1;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4)
            out[m++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    return m;
}

static uint32_t word_at(const unsigned char *b)
{
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int read_table(struct sp_charsmap *m, const unsigned char *bytes, size_t n)
{
    size_t size = n >= 4 ? word_at(bytes) : 0;

    if (n < 8 || size < 4 || size % 4 || size > n - 4 ||
        sp_unicode_valid((const char *)bytes + 4 + size, n - 4 - size) != n - 4 - size)
        return -EINVAL;
    m->units = size / 4;
    m->unit = malloc(size);
    m->n = n - 4 - size;
    m->text = malloc(m->n + 1);
    if (!m->unit || !m->text)
        return -ENOMEM;
    for (size_t i = 0; i < m->units; i++)
        m->unit[i] = word_at(bytes + 4 + 4 * i);
    memcpy(m->text, bytes + 4 + size, m->n);
    m->text[m->n] = '\0';
    return 0;
}

int sp_charsmap_create(const char *base64, size_t n, struct sp_charsmap **out)
{
    unsigned char *bytes = malloc(n + 1);
    struct sp_charsmap *m = calloc(1, sizeof *m);
    ptrdiff_t length = bytes ? decode_base64(base64, n, bytes) : -1;
    int err = !bytes || !m ? -ENOMEM : length < 0 ? -EINVAL : 0;

    if (!err && length)
        err = read_table(m, bytes, (size_t)length);
    free(bytes);
    if (err || !length) {
        sp_charsmap_destroy(m);
        m = NULL;
    }
    if (!err)
        *out = m;
    return err;
}

void sp_charsmap_destroy(struct sp_charsmap *m)
{
    if (!m)
        return;
    free(m->unit);
    free(m->text);
    free(m);
}

/* The place of the children of a unit, from its own. */
static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The text that replaces the shortest key with which text[n] begins; NULL: it begins with none. */
static const char *find_key(const struct sp_charsmap *m, const char *text, size_t n)
{
    size_t at = offset_of(m->unit[0]);

    for (size_t i = 0; i < n && text[i]; i++) {
        unsigned char byte = (unsigned char)text[i];
        uint32_t unit;

        at ^= byte;
        unit = at < m->units ? m->unit[at] : 0;
        if ((unit & (1u << 31 | 0xff)) != byte)
            return NULL;
        at ^= offset_of(unit);
        if (unit >> 8 & 1) {
            size_t place = at < m->units ? m->unit[at] & ~(1u << 31) : m->n;

            /* Inside a character there is no text. */
            return place < m->n && (m->text[place] & 0xc0) != 0x80 ? m->text + place
                                                                   : m->text + m->n;
        }
    }
    return NULL;
}

/* A character as a reader sees it: by itself where it has a key, otherwise character by character. */
static void map_grapheme(const struct sp_charsmap *m, const char *text, size_t n,
                         struct sp_bytes *out)
{
    const char *to = n < 6 ? find_key(m, text, n) : NULL;

    if (to) {
        sp_bytes_add(out, to, strlen(to));
        return;
    }
    for (size_t at = 0, length; at < n; at += length) {
        length = (size_t)sp_unicode_length(text[at]);
        to = find_key(m, text + at, length);
        sp_bytes_add(out, to ? to : text + at, to ? strlen(to) : length);
    }
}

void sp_charsmap_run(const struct sp_charsmap *m, const char *text, size_t n, struct sp_bytes *out)
{
    utf8proc_int32_t state = 0;
    size_t begin = 0;
    uint32_t before = 0, c;

    for (size_t at = 0, length; at < n; at += length, before = c) {
        length = (size_t)sp_unicode_next(text + at, &c);
        if (at && utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c,
                                                   &state)) {
            map_grapheme(m, text + begin, at - begin, out);
            begin = at;
        }
    }
    if (begin < n)
        map_grapheme(m, text + begin, n - begin, out);
}
