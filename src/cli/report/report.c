/* starpipe report: where the time of a step went, from its record. */
#include "cli/report/report.h"
#include "cli/commands.h"
#include "cli/result.h"
#include "sp_error.h"
#include "trace/timeline/json.h"
#include <errno.h>

enum format { TEXT, JSON, HTML };

int sp_report_make(const struct sp_timeline *t, struct sp_report *r)
{
    int err;

    *r = (struct sp_report){.t = t};
    err = sp_waits_create(t, &r->waits);
    if (err)
        return err;
    err = sp_causes_find(&r->waits, &r->causes);
    err = err ? err : sp_path_find(&r->waits, &r->path);
    err = err ? err : sp_findings_make(&r->waits, r->finding);
    r->n_longest = sp_long_waits(&r->waits, r->longest);
    if (err)
        sp_report_destroy(r);
    return err;
}

void sp_report_destroy(struct sp_report *r)
{
    sp_waits_destroy(&r->waits);
    sp_path_destroy(&r->path);
}

static int print_report(const struct sp_timeline *t, enum format format)
{
    struct sp_report r;
    int err = sp_report_make(t, &r);

    if (err)
        return sp_error(-err, "report: no memory for the report of %d ops", t->n_ops);
    if (format == TEXT)
        sp_report_text(&r, stdout);
    else
        err = format == JSON ? sp_report_json(&r, stdout) : sp_report_html(&r, stdout);
    sp_report_destroy(&r);
    return err;
}

int sp_cmd_report(int argc, char **argv)
{
    const char *path = NULL;
    struct sp_result result = {0};
    const struct sp_option options[] = {
        SP_OPTION(OPERAND, "RECORD", path,
                  "the DIR of 'train --trace' or 'simulate --trace', or a file of it, or of 'show "
                  "--format "
                  "perfetto'",
                  .arg = "DIR|FILE.json"),
        SP_RESULT_OPTIONS(result, "text|json|html"),
        {0},
    };
    struct sp_timeline t;
    int err = sp_options_parse(options, "Says where the time of a recorded step went, and why.",
                               argc, argv);

    if (err)
        return SP_OPTIONS_EXIT(err);
    if (sp_timeline_load("report", path, &t))
        return 2;
    err = sp_result_begin("report", result.output, 0);
    err = err ? err : print_report(&t, (enum format)result.format);
    sp_timeline_destroy(&t);
    return err ? 1 : 0;
}
