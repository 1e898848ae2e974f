/*
 * starpipe watch: the log that `train --log` writes, while the run goes on or later.
 */
#include "cli/watch/watch.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "sp_error.h"
#include "train/start/outputs.h"
#include <string.h>

struct args {
    const char *log, *html;
    bool once;
};

static int check(const struct args *a)
{
    struct sp_files files = {0};
    int err = 0;

    if (!a->html)
        return 0;
    if (strcmp(a->log, "-"))
        err = sp_files_add(&files, SP_FILE_READ, "LOG", a->log);
    err = err ? err : sp_files_add(&files, SP_FILE_WRITTEN, "--html", a->html);
    err = err ? err : sp_files_check(&files, "watch");
    sp_files_free(&files);
    return err ? err : sp_output_try_file(a->html, false);
}

int sp_cmd_watch(int argc, char **argv)
{
    struct args a = {0};
    const struct sp_option options[] = {
        {.name = "LOG",
         .kind = SP_OPT_OPERAND,
         .value = &a.log,
         .arg = "FILE.jsonl",
         .help = "a log that train --log writes; -: standard input"},
        {.name = "once",
         .kind = SP_OPT_FLAG,
         .value = &a.once,
         .help = "shows what is there, and ends"},
        {.name = "html",
         .kind = SP_OPT_STRING,
         .value = &a.html,
         .arg = "FILE",
         .help = "writes a page with what is there, which can read other logs too, and ends"},
        {0},
    };
    int err = sp_options_parse(options, "Follows the log of a run.", argc, argv);
    struct sp_watched w = {.eval_step = -1};
    FILE *in;

    if (err)
        return SP_OPTIONS_EXIT(err);
    if (check(&a))
        return 2;
    w.name = strcmp(a.log, "-") ? a.log : "standard input";
    in = strcmp(a.log, "-") ? fopen(a.log, "r") : stdin;
    if (!in) {
        sp_error(errno, "watch: cannot open %s: %s", a.log, strerror(errno));
        return 2;
    }
    err = a.html ? sp_watch_html(in, &w, a.html) : sp_watch_follow(in, &w, a.once);
    if (in != stdin)
        fclose(in);
    sp_watched_destroy(&w);
    return !err ? 0 : err == -EINVAL ? 2 : 1;
}
