/* The forms of the output that need no file of their own, and its destination. */
#include "cli/result.h"
#include "cli/show/show.h"
#include "policies/load/csv.h"
#include "sp_error.h"
#include "trace/timeline/json.h"
#include "train/start/outputs.h"

static int print_csv(const struct sp_show *show, FILE *out)
{
    char why[160];
    int ret = sp_csv_write(show->plan, out, why, sizeof why);

    return ret ? sp_error(-ret, "show: %s", why) : 0;
}

/* The list simulation as a record of a step. */
static int print_perfetto(const struct sp_show *show, FILE *out)
{
    const struct sp_timeline_terms terms = {.plan = show->plan,
                                            .shape = show->shape,
                                            .recompute = show->recompute.mode,
                                            .every = show->recompute.every};
    char costs[192];
    struct sp_timeline t;
    int err = sp_timeline_of_prediction(&terms, show->prediction, &t);

    if (!err) {
        snprintf(t.unit, sizeof t.unit, "%s", show->machine ? "ms" : "");
        snprintf(t.model, sizeof t.model, "%s", show->model);
        sp_show_costs(show, costs, sizeof costs);
        snprintf(t.machine, sizeof t.machine, "%s", costs);
        err = sp_timeline_write(&t, out);
        sp_timeline_destroy(&t);
    }
    return err ? sp_error(-err, "show: no memory for the record of %d ops", sp_plan_ops(show->plan))
               : 0;
}

int sp_show_check_output(const char *output, const struct sp_layout_args *layout)
{
    struct sp_files files = {0};
    int err;

    if (!output)
        return 0;
    err = sp_files_add(&files, SP_FILE_WRITTEN, "--output", output);
    err = err ? err : sp_files_add_layout(&files, layout);
    err = err ? err : sp_files_check(&files, "show");
    sp_files_free(&files);
    return err;
}

int sp_show_write(const struct sp_show *show, enum sp_show_format format, const char *output)
{
    static int (*const print[])(const struct sp_show *, FILE *) = {
        [SP_SHOW_TEXT] = sp_show_text,       [SP_SHOW_JSON] = sp_show_json,
        [SP_SHOW_CSV] = print_csv,           [SP_SHOW_SVG] = sp_show_svg,
        [SP_SHOW_HTML] = sp_show_html,       [SP_SHOW_PICTURE] = sp_show_picture,
        [SP_SHOW_PERFETTO] = print_perfetto,
    };
    int err = sp_result_begin("show", output, 0);

    return err ? err : print[format](show, stdout);
}
