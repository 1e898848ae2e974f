#include "cli/record.h"
#include "model/files/output.h"
#include "sp_error.h"
#include <string.h>

/* A file of a directory, to be written. 0, or -errno after one line. */
static int open_in_dir(const char *dir, const char *name, struct sp_output *f)
{
    char path[4400];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return sp_output_open(path, f);
}

int sp_record_write(const struct sp_timeline *t, const char *dir, const char *name)
{
    struct sp_output f = {0};
    int err = open_in_dir(dir, name, &f);

    if (err)
        return err;
    if (sp_timeline_write(t, f.f)) {
        err = sp_error(ENOMEM, "no memory to write %s", f.path);
        sp_output_discard(&f);
        return err;
    }
    return sp_output_commit(&f);
}

static int write_svg(const struct sp_gantt *g, const char *dir, const char *what)
{
    struct sp_output f = {0};
    char name[64];
    int err;

    snprintf(name, sizeof name, "%s.svg", what);
    err = open_in_dir(dir, name, &f);
    if (err)
        return err;
    sp_gantt_svg(g, f.f);
    return sp_output_commit(&f);
}

int sp_record_pictures(const struct sp_schedule_def *def, const struct sp_gantt g[2],
                       const char *const what[2], const char *dir)
{
    struct sp_gantt_fact facts[3] = {{.name = "schedule"}};
    struct sp_output f = {0};
    int err = 0;

    for (int i = 0; !err && i < 2; i++)
        err = write_svg(&g[i], dir, what[i]);
    err = err ? err : open_in_dir(dir, "trace.html", &f);
    if (err)
        return err;
    snprintf(facts[0].value, sizeof facts[0].value, "%s: %s", def->name, def->summary);
    for (int i = 0; i < 2; i++) {
        snprintf(facts[i + 1].name, sizeof facts[i + 1].name, "%s", what[i]);
        snprintf(facts[i + 1].value, sizeof facts[i + 1].value, "%.4g%s", g[i].end,
                 *g[i].unit ? " ms" : "");
    }
    sp_gantt_html(g, 2, facts, 3, f.f);
    return sp_output_commit(&f);
}
