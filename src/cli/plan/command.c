/* Commands that train with a layout, as a shell takes them. */
#include "cli/plan/ranking.h"
#include "sp_text.h"
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 80, OPTIONS = 1024 }; /* columns; bytes of a command beside its names */

static void put_quoted(const char *text, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    bool shown = sp_text_is_plain(text); /* otherwise some bytes only have names: $'\x1b' */

    if (*text && !text[strspn(text, plain)]) {
        fputs(text, out);
        return;
    }
    fputs(shown ? "'" : "$'", out);
    for (; *text; text++) {
        if (*text == '\'')
            fputs(shown ? "'\\''" : "\\'", out);
        else if (!shown && *text == '\\')
            fputs("\\\\", out);
        else if (!shown && (*text < ' ' || *text > '~'))
            fprintf(out, "\\x%02x", (unsigned)(unsigned char)*text);
        else
            putc(*text, out);
    }
    putc('\'', out);
}

/* To be freed; NULL: no memory, or no text. */
static char *quote(const char *text)
{
    char *quoted = NULL;
    size_t n = 0;
    FILE *out = text ? open_memstream(&quoted, &n) : NULL;

    if (!out)
        return NULL;
    put_quoted(text, out);
    if (fclose(out)) {
        free(quoted);
        return NULL;
    }
    return quoted;
}

char *sp_ranking_command(const struct sp_ranking *r, const struct sp_found *f)
{
    char *model = quote(r->names.model), *hardware = quote(r->names.hardware);
    char *plugin = quote(r->names.plugin), *command = NULL;
    size_t n = OPTIONS;

    if (model && !hardware == !r->names.hardware && !plugin == !r->names.plugin) {
        n += strlen(model) + (hardware ? strlen(hardware) : 0) + (plugin ? strlen(plugin) : 0);
        command = malloc(n);
    }
    if (command)
        sp_found_command(r->want, f, &(struct sp_found_names){model, hardware, plugin}, command, n);
    free(model);
    free(hardware);
    free(plugin);
    return command;
}

/* Bytes up to the next option, outside quotes, with the blanks before it. */
static size_t length_of_option(const char *text)
{
    bool quoted = false, escapes = false;
    size_t i = 0;

    for (; text[i]; i++) {
        if (quoted && escapes && text[i] == '\\' && text[i + 1])
            i++;
        else if (!quoted && text[i] == '\\' && text[i + 1])
            i++;
        else if (text[i] == '\'') {
            escapes = !quoted && i > 0 && text[i - 1] == '$';
            quoted = !quoted;
        } else if (!quoted && i > 0 && !strncmp(text + i, " --", 3)) {
            break;
        }
    }
    return i;
}

/* Lines that are being written, each with a column at most to be followed by " \\". */
struct lines {
    FILE *out;
    int indent;
    size_t column;
};

static void put_options(struct lines *lines, const char *text)
{
    for (size_t n; *text; text += n) {
        n = length_of_option(text);
        if (*text == ' ' && lines->column + n + 2 > WIDTH) {
            lines->column = (size_t)lines->indent + 3;
            fprintf(lines->out, " \\\n%*s", lines->indent + 3, "");
        }
        fwrite(text, 1, n, lines->out);
        lines->column += n;
    }
}

void sp_command_wrap(const char *command, int indent, FILE *out)
{
    struct lines lines = {out, indent, (size_t)indent};

    fprintf(out, "%*s", indent, "");
    put_options(&lines, command);
    put_options(&lines, " --tokens FILE.bin");
    putc('\n', out);
}
