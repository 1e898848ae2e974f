#include "trace/escape.h"
#include <stddef.h>

/* Bytes of the UTF-8 character at `text`, 0 if it is none (or one that XML forbids). */
static int utf8_length(const char *text)
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

/* Copies the character at *text if it is one, otherwise a question mark; returns what is next. */
static const char *copy(const char *text, FILE *out)
{
    int n = utf8_length(text);

    if (n)
        fwrite(text, 1, (size_t)n, out);
    else
        putc('?', out);
    return text + (n ? n : 1);
}

void sp_escape_xml(const char *text, FILE *out)
{
    while (*text) {
        const char *entity = *text == '&'   ? "&amp;"
                             : *text == '<' ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '"' ? "&quot;"
                                            : NULL;

        if (entity) {
            fputs(entity, out);
            text++;
        } else if ((unsigned char)*text >= 32 || *text == '\t' || *text == '\n') {
            text = copy(text, out);
        } else {
            text++; /* XML knows no other control characters */
        }
    }
}

void sp_escape_json(const char *text, FILE *out)
{
    putc('"', out);
    while (*text) {
        if ((unsigned char)*text < 32 || *text == '"' || *text == '\\' || *text == '<' ||
            *text == '>' || *text == '&')
            fprintf(out, "\\u%04x", (unsigned char)*text++);
        else
            text = copy(text, out);
    }
    putc('"', out);
}
