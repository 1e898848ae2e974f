/*
 * starpipe watch: the log that `train --log` writes, while the run goes on or later.
 */
#include "cli/watch/watch.h"
#include "cli/commands.h"
#include "cli/result.h"
#include "sp_error.h"
#include <string.h>

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
        SP_OPTION(OPERAND, "LOG", a.log, "a log that train --log writes; -: standard input",
                  .arg = "FILE.jsonl"),
        SP_OPTION(FLAG, "once", a.once, "shows what is there, and ends"),
        SP_OPTION(
            CHOICE, "format", a.result.format,
            "what to print; html: a page with what is there, which can read other logs too (a "
            "log itself is JSON)",
            .choices = "text|html"),
        SP_OUTPUT_OPTION(a.result.output),
        SP_OPTION(OUTPUT, "html", a.html, "the same as --format html --output FILE", .arg = "FILE"),
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
        err = a.result.format == HTML ? sp_watch_html(in, &w) : sp_watch_follow(in, &w, a.once);
    if (in != stdin)
        fclose(in);
    sp_watched_destroy(&w);
    return !err ? 0 : err == -EINVAL ? 2 : 1;
}
