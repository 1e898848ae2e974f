#include "sp_utf8.h"
#include <stdlib.h>
#include <string.h>

int sp_utf8_length(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    int n = t[0] < 0x80 ? 1 : t[0] < 0xc2 ? 0 : t[0] < 0xe0 ? 2 : t[0] < 0xf0 ? 3 : 4;

    if (t[0] > 0xf4)
        return 0;
    for (int i = 1; i < n; i++) {
        if ((t[i] & 0xc0) != 0x80)
            return 0;
    }
    /* longer than needed, surrogates, U+FFFE and U+FFFF, past the last character */
    if ((t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xed && t[1] > 0x9f) ||
        (t[0] == 0xef && t[1] == 0xbf && t[2] > 0xbd) || (t[0] == 0xf0 && t[1] < 0x90) ||
        (t[0] == 0xf4 && t[1] > 0x8f))
        return 0;
    return n;
}

int sp_utf8_next(const char *text, size_t n, bool *valid)
{
    const unsigned char *t = (const unsigned char *)text;
    /* the second byte, which tells overlong forms, surrogates and numbers that are too large */
    unsigned char low = t[0] == 0xe0 ? 0xa0 : t[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = t[0] == 0xed ? 0x9f : t[0] == 0xf4 ? 0x8f : 0xbf;
    int length = t[0] < 0x80   ? 1
                 : t[0] < 0xc2 ? 0
                 : t[0] < 0xe0 ? 2
                 : t[0] < 0xf0 ? 3
                 : t[0] < 0xf5 ? 4
                               : 0,
        i = 1;

    while (i < length && (size_t)i < n && t[i] >= low && t[i] <= high) {
        low = 0x80;
        high = 0xbf;
        i++;
    }
    *valid = i == length;
    return i < length && (size_t)i == n ? 0 : i;
}

json_t *sp_utf8_jsonn(const char *text, size_t n)
{
    char *in = text ? strndup(text, n) : NULL, *out = in ? malloc(3 * strlen(in) + 1) : NULL;
    char *to = out;
    json_t *string = NULL;

    if (!text)
        return json_null();
    for (const char *at = in; out && *at;) {
        int length = sp_utf8_length(at);

        memcpy(to, length ? at : "\xef\xbf\xbd", length ? (size_t)length : 3);
        to += length ? length : 3;
        at += length ? length : 1;
    }
    if (out)
        string = json_stringn(out, (size_t)(to - out));
    free(in);
    free(out);
    return string;
}

json_t *sp_utf8_json(const char *text)
{
    return sp_utf8_jsonn(text, text ? strlen(text) : 0);
}
