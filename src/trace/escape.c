#include "trace/escape.h"
#include "sp_utf8.h"

/* Copies the character at *text if it is valid, otherwise writes a question mark; returns the
 * rest. */
static const char *copy(const char *text, FILE *out)
{
    int n = sp_utf8_length(text);

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
