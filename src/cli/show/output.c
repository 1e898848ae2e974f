/* Where what is shown goes: standard output, or --output. */
#include "cli/show/show.h"
#include "sp_error.h"
#include "train/start/outputs.h"
#include <stdlib.h>
#include <string.h>

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
    return err ? err : sp_output_try_file(output, false);
}

static int write_file(const char *path, const char *text, size_t n)
{
    FILE *out = fopen(path, "w");
    int err = !out || fwrite(text, 1, n, out) < n || fflush(out) ? errno : 0;
    if (out && fclose(out) && !err)
        err = errno;
    return err ? sp_error(err, "show: cannot write %s: %s (%zu bytes are wanted)", path,
                          strerror(err), n)
               : 0;
}

int sp_show_write(const struct sp_show *show, enum sp_show_format format, const char *output)
{
    char *text = NULL;
    size_t n = 0;
    FILE *memory;
    bool bad;
    int ret;

    if (!output)
        return print(show, format, stdout);
    memory = open_memstream(&text, &n);
    if (!memory)
        return sp_error(ENOMEM, "show: no memory for what %s will hold", output);
    ret = print(show, format, memory);
    bad = ferror(memory);
    bad |= fclose(memory) != 0;
    if (!ret && bad)
        ret = sp_error(ENOMEM, "show: no memory for what %s will hold", output);
    ret = ret ? ret : write_file(output, text, n);
    free(text);
    return ret;
}
