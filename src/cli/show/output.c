/* The destination of the output: standard output, or the file of --output. */
#include "cli/show/show.h"
#include "cli/result.h"
#include "train/start/outputs.h"

static int print(const struct sp_show *show, enum sp_show_format format, FILE *out)
{
    switch (format) {
    case SP_SHOW_JSON:
        return sp_show_json(show, out);
    case SP_SHOW_CSV:
        return sp_show_csv(show, out);
    case SP_SHOW_SVG:
        return sp_show_svg(show, out);
    case SP_SHOW_HTML:
        return sp_show_html(show, out);
    case SP_SHOW_PICTURE:
        return sp_show_picture(show, out);
    case SP_SHOW_PERFETTO:
        return sp_show_perfetto(show, out);
    default:
        return sp_show_text(show, out);
    }
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
    int err = sp_result_begin("show", output, 0);

    return err ? err : print(show, format, stdout);
}
