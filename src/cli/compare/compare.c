/* starpipe compare: where two records of a step differ. */
#include "cli/compare/compare.h"
#include "cli/commands.h"
#include "cli/result.h"
#include "sp_error.h"
#include "trace/timeline/json.h"
#include <errno.h>
#include <string.h>

enum format { TEXT, JSON, SVG, HTML };

/* -EINVAL after one line for records that have nothing in common. */
static int check_comparable(const struct sp_timeline *a, const struct sp_timeline *b,
                            const char *const path[2])
{
    if (strcmp(a->unit, b->unit))
        return sp_error(EINVAL,
                        "compare: times of %s are in %s, of %s in %s: predict both on a machine",
                        path[0], *a->unit ? a->unit : "units of costs", path[1],
                        *b->unit ? b->unit : "units of costs");
    if (*a->model && *b->model && strcmp(a->model, b->model))
        return sp_error(EINVAL, "compare: %s is of %s and %s of %s: take one model", path[0],
                        a->model, path[1], b->model);
    if (a->stages != b->stages)
        return sp_error(EINVAL,
                        "compare: %s has %d stages and %s %d: stages are compared one by one",
                        path[0], a->stages, path[1], b->stages);
    if (a->micro_batches != b->micro_batches)
        return sp_error(EINVAL,
                        "compare: %s has %d micro-batches and %s %d: steps of different work",
                        path[0], a->micro_batches, path[1], b->micro_batches);
    return 0;
}

static int print_comparison(const struct sp_timeline t[2], enum format format, int rows)
{
    struct sp_comparison c;
    int err = sp_comparison_make(&t[0], &t[1], &c);

    if (err)
        return sp_error(-err, "compare: no memory for steps of %d and %d ops", t[0].n_ops,
                        t[1].n_ops);
    if (format == TEXT)
        sp_compare_text(&c, rows, stdout);
    else
        err = format == JSON  ? sp_compare_json(&c, stdout)
              : format == SVG ? sp_compare_svg(&c, stdout)
                              : sp_compare_html(&c, stdout);
    sp_comparison_destroy(&c);
    return err;
}

int sp_cmd_compare(int argc, char **argv)
{
    const char *path[2] = {NULL, NULL};
    struct sp_result result = {0};
    int rows = 10, given;
    bool rows_set = false;
    const struct sp_option options[] = {
        SP_OPTION(
            OPERAND, "A", path[0],
            "a record of a step: the DIR of 'train --trace', a file of it, or of 'show --format "
            "perfetto'",
            .arg = "DIR|FILE.json"),
        SP_OPTION(OPERAND, "B", path[1], "what A is compared with", .arg = "DIR|FILE.json"),
        SP_OPTION(INT, "rows", rows, "rows of each table of the text, the largest differences",
                  .arg = "N", .min = 1, .max = 1000000, .given = &rows_set),
        SP_RESULT_OPTIONS(result, "text|json|svg|html"),
        {0},
    };
    struct sp_timeline t[2] = {0};
    int err = sp_options_parse(
        options, "Says by op, stage and cause where two recorded steps differ.", argc, argv);

    if (err)
        return SP_OPTIONS_EXIT(err);
    if (rows_set && result.format != TEXT)
        err = sp_error(EINVAL, "compare: --rows is for --format text");
    for (given = 0; !err && given < 2; given++)
        err = sp_timeline_load("compare", path[given], &t[given]);
    err = err ? err : check_comparable(&t[0], &t[1], path);
    if (err) {
        sp_timeline_destroy(&t[0]);
        sp_timeline_destroy(&t[1]);
        return 2;
    }
    err = sp_result_begin("compare", result.output, 0);
    err = err ? err : print_comparison(t, (enum format)result.format, rows);
    sp_timeline_destroy(&t[0]);
    sp_timeline_destroy(&t[1]);
    return err ? 1 : 0;
}
