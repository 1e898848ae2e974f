#include "cli/record.h"
#include "sp_error.h"
#include <string.h>

/* A file of a directory that is being written. */
struct file {
    FILE *out;
    char path[4096];
};

/* 0, or -errno after one line. */
static int begin(const char *dir, const char *name, struct file *f)
{
    snprintf(f->path, sizeof f->path, "%s/%s", dir, name);
    f->out = fopen(f->path, "w");
    return f->out ? 0 : sp_error(errno, "cannot write %s: %s", f->path, strerror(errno));
}

static int finish(struct file *f)
{
    int bad = ferror(f->out);

    bad |= fclose(f->out);
    return bad ? sp_error(EIO, "cannot write %s", f->path) : 0;
}

int sp_record_write(const struct sp_timeline *t, const char *dir, const char *name)
{
    struct file f = {0};
    int err = begin(dir, name, &f);

    if (err)
        return err;
    if (sp_timeline_write(t, f.out)) {
        fclose(f.out);
        return sp_error(ENOMEM, "no memory to write %s", f.path);
    }
    return finish(&f);
}

int sp_record_svg(const struct sp_gantt *g, const char *dir, const char *name)
{
    struct file f = {0};
    int err = begin(dir, name, &f);

    if (err)
        return err;
    sp_gantt_svg(g, f.out);
    return finish(&f);
}

int sp_record_page(const struct sp_schedule_def *def, const struct sp_gantt g[2], const char *first,
                   const char *second, const char *dir)
{
    const char *const what[] = {first, second};
    struct sp_gantt_fact facts[3] = {{.name = "schedule"}};
    struct file f = {0};
    int err = begin(dir, "trace.html", &f);

    if (err)
        return err;
    snprintf(facts[0].value, sizeof facts[0].value, "%s: %s", def->name, def->summary);
    for (int i = 0; i < 2; i++) {
        snprintf(facts[i + 1].name, sizeof facts[i + 1].name, "%s", what[i]);
        snprintf(facts[i + 1].value, sizeof facts[i + 1].value, "%.4g%s", g[i].end,
                 *g[i].unit ? " ms" : "");
    }
    sp_gantt_html(g, 2, facts, 3, f.out);
    return finish(&f);
}
