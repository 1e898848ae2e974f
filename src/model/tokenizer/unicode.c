#include "model/tokenizer/unicode.h"
#include "sp_grow.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static bool reserve(struct sp_bytes *b, size_t n)
{
    b->failed = b->failed || !sp_grow(&b->at, b->n + n, &b->room, 1);
    return !b->failed;
}

void sp_bytes_add(struct sp_bytes *b, const void *bytes, size_t n)
{
    if (!n || !reserve(b, n))
        return;
    memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

void sp_bytes_add_char(struct sp_bytes *b, uint32_t c)
{
    if (reserve(b, 4))
        b->n += (size_t)sp_unicode_encode(c, b->at + b->n);
}

int sp_unicode_decode(const char *text, size_t n, uint32_t *c)
{
    utf8proc_int32_t number;
    utf8proc_ssize_t length =
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &number);

    *c = (uint32_t)number;
    return length > 0 ? (int)length : 0;
}

int sp_unicode_encode(uint32_t c, char out[4])
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)out);
}

size_t sp_unicode_valid(const char *text, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint64_t eight;
        uint32_t c;
        int length;

        if (n - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        length = sp_unicode_decode(text + at, n - at, &c);
        if (!length)
            break;
        at += (size_t)length;
    }
    return at;
}

enum { O = SP_CHAR_OTHER, L = SP_CHAR_LETTER, N = SP_CHAR_NUMBER, S = SP_CHAR_SPACE };
const unsigned char sp_ascii_class[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};

/* True if a character is of one of the categories from `first` to `last`, in the order that utf8proc has them. */
static bool is_of(uint32_t c, utf8proc_category_t first, utf8proc_category_t last)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);

    return k >= first && k <= last;
}

bool sp_unicode_is_space(uint32_t c)
{
    if (c < 0x80)
        return sp_ascii_class[c] == SP_CHAR_SPACE;
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

enum sp_char_class sp_unicode_class(uint32_t c)
{
    if (c < 0x80)
        return (enum sp_char_class)sp_ascii_class[c];
    if (is_of(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO))
        return SP_CHAR_LETTER;
    if (is_of(c, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO))
        return SP_CHAR_NUMBER;
    return sp_unicode_is_space(c) ? SP_CHAR_SPACE : SP_CHAR_OTHER;
}

bool sp_unicode_is_mark(uint32_t c)
{
    return c >= 0x80 && is_of(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool sp_unicode_is_word(uint32_t c)
{
    /* Letters in circles and squares: Other_Alphabetic, of category So. */
    static const uint32_t enclosed[][2] = {
        {0x24b6, 0x24e9}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

    if (is_of(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) || /* letters, marks, digits */
        is_of(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC))
        return true;
    for (size_t i = 0; i < sizeof enclosed / sizeof *enclosed; i++)
        if (c >= enclosed[i][0] && c <= enclosed[i][1])
            return true;
    return c == 0x200c || c == 0x200d; /* Join_Control */
}

bool sp_unicode_is_punctuation(uint32_t c)
{
    if (c < 0x80)
        return c > ' ' && c < 0x7f && sp_ascii_class[c] == SP_CHAR_OTHER;
    return is_of(c, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

int sp_unicode_lower(uint32_t c, uint32_t out[2])
{
    if (c == 0x130) { /* the one that becomes two: i and a dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0)
                      : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

/*
 * Characters that no form changes and that end what can be composed: nothing before them depends on them, and they
 * depend on nothing before them. Most text consists of them.
 */
static bool is_inert(enum sp_normal_form form, uint32_t c)
{
    const utf8proc_property_t *p;

    if (c < 0x80)
        return true;
    if (c < 0x300 && form == SP_NFC)
        return true;
    /* Hangul is composed by a formula, and so is what follows it; so are vowels of Kirat Rai, which are letters. */
    if ((c >= 0x1100 && c < 0x1200) || (c >= 0xa960 && c < 0xa980) || (c >= 0xac00 && c < 0xd800) ||
        (c >= 0x16d40 && c < 0x16d80))
        return false;
    p = utf8proc_get_property((utf8proc_int32_t)c);
    return !p->combining_class && p->decomp_seqindex == UINT16_MAX && !sp_unicode_is_mark(c);
}

static void normalize_run(enum sp_normal_form form, const char *text, size_t n,
                          struct sp_bytes *out)
{
    static const utf8proc_option_t options[] = {
        [SP_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [SP_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [SP_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [SP_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *normal = NULL;
    utf8proc_ssize_t k =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &normal, options[form]);

    out->failed |= k < 0;
    if (k >= 0)
        sp_bytes_add(out, normal, (size_t)k);
    free(normal);
}

void sp_unicode_normalize(enum sp_normal_form form, const char *text, size_t n,
                          struct sp_bytes *out)
{
    size_t at = 0, copied = 0, last = 0; /* the last inert character, which marks may follow */

    while (at < n) {
        uint32_t c;
        size_t length = (size_t)sp_unicode_next(text + at, &c);

        if (is_inert(form, c)) {
            last = at;
            at += length;
            continue;
        }
        sp_bytes_add(out, text + copied, last - copied);
        copied = last;
        for (; at < n; at += length) {
            length = (size_t)sp_unicode_next(text + at, &c);
            if (is_inert(form, c))
                break;
        }
        normalize_run(form, text + copied, at - copied, out);
        copied = last = at;
    }
    sp_bytes_add(out, text + copied, n - copied);
}
