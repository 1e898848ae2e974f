/*
 * starpipe watch: the log that `train --log` writes, while the run goes on or later.
 */
#include "src/cli/watch/page.inc"
#include "cli/commands.h"
#include "cli/result.h"
#include "cli/watch/watch.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* ---- the page: page.html, which the build turns into the string `page`, with the log's lines as a
 * JSON list in it */

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

static int print_page(FILE *in, struct sp_watched *w)
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

/* ---- the command */

enum format { TEXT, HTML };

struct args {
    const char *log, *html;
    struct sp_result result;
    bool once;
};

/* --html FILE is --format html --output FILE. */
static int check_options(struct args *a)
{
    if (a->html && a->result.output)
        return sp_error(EINVAL, "watch: --html names the file, and --output another; give one");
    if (a->html)
        a->result = (struct sp_result){.format = HTML, .output = a->html};
    if (a->once && a->result.format == HTML)
        return sp_error(EINVAL, "watch: --once has no effect: a page is of what is there");
    return 0;
}

int sp_cmd_watch(int argc, char **argv)
{
    struct args a = {0};
    const struct sp_option options[] = {
        SP_OPTION("LOG", OPERAND, a.log, .help = "a log that train --log writes; -: standard input",
                  .arg = "FILE.jsonl"),
        SP_OPTION("once", FLAG, a.once, .help = "shows what is there, and ends"),
        SP_OPTION(
            "format", CHOICE, a.result.format,
            .help =
                "what to print; html: a page with what is there, which can read other logs too (a "
                "log itself is JSON)",
            .choices = "text|html"),
        SP_OUTPUT_OPTION(a.result.output),
        SP_OPTION("html", OUTPUT, a.html, .help = "the same as --format html --output FILE",
                  .arg = "FILE"),
        {0},
    };
    int err = sp_options_parse(options, "Follows the log of a run.", argc, argv);
    struct sp_watched w = {.eval_step = -1};
    FILE *in;

    if (err)
        return SP_OPTIONS_EXIT(err);
    if (check_options(&a))
        return 2;
    w.name = strcmp(a.log, "-") ? a.log : "standard input";
    in = strcmp(a.log, "-") ? fopen(a.log, "r") : stdin;
    if (!in) {
        sp_error(errno, "watch: cannot open %s: %s", a.log, strerror(errno));
        return 2;
    }
    err = sp_result_begin("watch", a.result.output, 0);
    if (!err)
        err = a.result.format == HTML ? print_page(in, &w) : sp_watch_follow(in, &w, a.once);
    if (in != stdin)
        fclose(in);
    sp_watched_destroy(&w);
    return !err ? 0 : err == -EINVAL ? 2 : 1;
}
