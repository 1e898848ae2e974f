#include "sp_text.h"
#include "sp_utf8.h"
#include <stdio.h>
#include <string.h>

/* Bytes of the character at `text` if it is shown as it is, otherwise 0. */
static int plain_length(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    int n = sp_utf8_length(text);

    if (n == 1)
        return t[0] >= 0x20 && t[0] != 0x7f;
    if (n == 2) /* U+0080 .. U+009F */
        return t[0] == 0xc2 && t[1] < 0xa0 ? 0 : 2;
    if (n == 3 && t[0] == 0xe2) {
        /* U+2028 .. U+202E: separators of lines, directions; U+2066 .. U+2069: directions */
        if ((t[1] == 0x80 && t[2] >= 0xa8 && t[2] <= 0xae) ||
            (t[1] == 0x81 && t[2] >= 0xa6 && t[2] <= 0xa9))
            return 0;
    }
    return n;
}

const char *sp_text_show(const char *text, char *out, size_t size)
{
    size_t used = 0;

    while (*text) {
        int n = plain_length(text);
        char escaped[5];

        if (!n)
            snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned)(unsigned char)*text);
        if (used + (n ? (size_t)n : 4) >= size)
            break;
        memcpy(out + used, n ? text : escaped, n ? (size_t)n : 4);
        used += n ? (size_t)n : 4;
        text += n ? n : 1;
    }
    out[used] = '\0';
    return out;
}

bool sp_text_is_plain(const char *text)
{
    while (*text) {
        int n = plain_length(text);

        if (!n)
            return false;
        text += n;
    }
    return true;
}

const char *sp_text_count(long long n, const char *noun, char out[SP_TEXT_COUNT])
{
    size_t end = strlen(noun);
    bool hisses = end > 1 && (noun[end - 1] == 's' || !strcmp(noun + end - 2, "ch"));

    snprintf(out, SP_TEXT_COUNT, "%lld %s%s", n, noun, n == 1 ? "" : hisses ? "es" : "s");
    return out;
}

const char *sp_text_duration(double seconds, char out[SP_TEXT_DURATION])
{
    long long s = seconds > 0 && seconds < 1e15 ? (long long)seconds : 0;

    if (s < 3600)
        snprintf(out, SP_TEXT_DURATION, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(out, SP_TEXT_DURATION, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return out;
}
