/* The page: page.html, which the build turns into the string `page`, with the log's lines as a JSON
 * list in it. */
#include "src/cli/watch/page.inc"
#include "cli/watch/watch.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* '<' stands in strings only, and would end the element that holds the list. */
static void put_line(const char *line, ssize_t n, FILE *out)
{
    for (ssize_t i = 0; i < n; i++) {
        if (line[i] == '<')
            fputs("\\u003c", out);
        else
            putc(line[i], out);
    }
}

/* Lines that are whole, each checked. */
static int write_lines(FILE *in, struct sp_watched *w, FILE *out)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int err = 0;

    while (!err && (n = getline(&line, &cap, in)) > 0 && line[n - 1] == '\n') {
        err = sp_watched_add(w, line, (size_t)n);
        if (err > 0) {
            err = 0;
            continue;
        }
        fputs(w->lines > 1 ? "," : "", out);
        put_line(line, n, out);
    }
    if (!err && ferror(in))
        err = sp_error(EIO, "watch: cannot read %s", w->name);
    if (!err && !w->plan)
        err = sp_error(EINVAL, "watch: %s is empty", w->name);
    free(line);
    return err;
}

int sp_watch_html(FILE *in, struct sp_watched *w)
{
    static const char mark[] = "@LOG@";
    const char *at = strstr(page, mark);
    char *text = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    bool bad;
    int err;

    if (!memory)
        return sp_error(ENOMEM, "watch: no memory for a page of %s", w->name);
    err = write_lines(in, w, memory);
    bad = fclose(memory) != 0;
    if (!err && bad)
        err = sp_error(ENOMEM, "watch: no memory for a page of %s", w->name);
    if (!err) {
        fwrite(page, 1, (size_t)(at - page), stdout);
        fwrite(text, 1, n, stdout);
        fputs(at + strlen(mark), stdout);
    }
    free(text);
    return err;
}
