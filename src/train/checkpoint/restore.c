#include "train/checkpoint/resume.h"
#include "sp_error.h"
#include "train/checkpoint/run_state.h"
#include "train/checkpoint/step_dirs.h"
#include "train/config.h"
#include "train/run/log_file.h"
#include "model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REPLACED "\xef\xbf\xbd" /* bytes that were no UTF-8 (sp_utf8.h) */

/* Options point into this until the program ends. */
static struct sp_run_state kept;

/* The run to be continued. */
struct source {
    const char *cwd; /* the directory it was started in; NULL: this one, or unknown */
    char dir[SP_RUN_PATH];
    bool goes_on; /* at the newest step of `dir`, which it saved into */
};

/* ---- paths ------------------------------------------------------------------------------ */

/* A path as seen from where the run was started, or with `list` each of several between commas, after `prefix`. Copied;
 * NULL without memory. */
static char *name_from(const char *cwd, const char *prefix, const char *name, bool list)
{
    char *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);

    if (!f)
        return NULL;
    fputs(prefix, f);
    while (true) {
        int length = (int)(list ? strcspn(name, ",") : strlen(name));

        fprintf(f, "%s%s%.*s", *name == '/' ? "" : cwd, *name == '/' ? "" : "/", length, name);
        name += length;
        if (!*name)
            break;
        fputc(*name++, f);
    }
    if (!fclose(f))
        return out;
    free(out);
    return NULL;
}

/* True if the text names a built-in model or machine rather than a path. */
static bool is_preset(const char *option, const char *text)
{
    return (!strcmp(option, "model") && sp_model_is_preset(text)) ||
           (!strcmp(option, "hardware") && !strchr(text, '/') && !strstr(text, ".json"));
}

static bool is_list(const char *option)
{
    return sp_choice_of("data|tokens|eval|plugin", option) >= 0;
}

static const char *resolve(const struct source *from, const struct sp_option *o, const char *text)
{
    bool csv = !strncmp(text, "csv:", 4);

    if (!from->cwd || is_preset(o->name, text) ||
        (o->role != SP_ROLE_READ && o->role != SP_ROLE_WRITTEN && !csv) ||
        (!strcmp(o->name, "log") && sp_log_is_stdout(text)))
        return text;
    if (csv && !is_list(o->name))
        return name_from(from->cwd, "csv:", text + 4, false);
    return name_from(from->cwd, "", text, is_list(o->name));
}

/* ---- the run ---------------------------------------------------------------------------- */

static bool same_directory(const char *a, const char *b)
{
    struct stat x, y;

    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const char *stored(const char *name)
{
    char key[64];

    snprintf(key, sizeof key, "--%s", name);
    return sp_run_state_option(&kept, key);
}

/* True if the run saved step N into `dir` last. Otherwise the step may have been archived there,
 * or be one that the run has left behind. */
static bool is_newest(const struct source *from, long n)
{
    const char *save = stored("save");
    struct sp_dir run;
    char *path;
    bool newest;

    if (!save || !*save || sp_dir_open(from->dir, &run))
        return false;
    path = from->cwd ? name_from(from->cwd, "", save, false) : strdup(save);
    newest = path && n == sp_step_highest(&run, "", SP_ANY_STEP) && same_directory(from->dir, path);
    free(path);
    sp_dir_close(&run);
    return newest;
}

static int find_source(const char *resume, struct source *from)
{
    struct sp_dir step = SP_DIR_CLOSED;
    char here[SP_RUN_PATH];
    const char *cwd, *slash, *name;
    int err = sp_step_open(resume, &step);

    if (err)
        return err;
    err = sp_run_state_read(&step, &kept);
    if (!err) {
        cwd = json_string_value(json_object_get(kept.json, "cwd"));
        /* a name that was no UTF-8 cannot be told from its replacement */
        from->cwd =
            cwd && *cwd && !strstr(cwd, REPLACED) && getcwd(here, sizeof here) && strcmp(cwd, here)
                ? cwd
                : NULL;
        slash = strrchr(step.path, '/');
        name = slash ? slash + 1 : step.path;
        snprintf(from->dir, sizeof from->dir, "%.*s", slash ? (int)(slash - step.path) : 1,
                 slash ? step.path : ".");
        from->goes_on =
            same_directory(from->dir, resume) || is_newest(from, sp_step_number(name, ""));
    }
    sp_dir_close(&step);
    return err;
}

/* ---- options ---------------------------------------------------------------------------- */

static bool is_taken(const struct source *from, const struct sp_option *o, const char *text)
{
    if (!text || !*text || o->role == SP_ROLE_START || o->role == SP_ROLE_NONE)
        return false;
    if (!strcmp(o->name, "offload-dir")) /* may be another machine's, usually its TMPDIR */
        return !access(text, W_OK);
    /* a version that counted no samples wrote a value even for an option that was not given */
    if (o->given && !strcmp(text, "0") && !json_object_get(kept.json, "samples"))
        return false;
    if ((o->role == SP_ROLE_READ || o->role == SP_ROLE_WRITTEN) && strstr(text, REPLACED)) {
        sp_warn(
            "--%s of the run that --resume goes on with was a name that is no UTF-8, and is not "
            "known: give it again",
            o->name);
        return false;
    }
    return o->role != SP_ROLE_WRITTEN || from->goes_on;
}

static int restore(const struct source *from, const struct sp_option *o)
{
    const char *text = stored(o->name);
    int err;

    if (!is_taken(from, o, text))
        return 0;
    text = strcmp(o->name, "save") ? resolve(from, o, text) : strdup(from->dir);
    if (!text)
        return sp_error(ENOMEM, "no memory for the options of a run");
    err = sp_option_set(o, "train", text);
    if (err)
        return err;
    if (o->given)
        *o->given = true;
    return 0;
}

int sp_train_restore(struct sp_train_config *cfg, bool goes_on)
{
    struct sp_option options[SP_TRAIN_OPTIONS];
    struct source from = {0};
    int err = find_source(cfg->resume, &from);

    from.goes_on = from.goes_on && goes_on;
    sp_train_options(cfg, options);
    for (const struct sp_option *o = options; o->name && !err; o++)
        err = restore(&from, o);
    if (!err && kept.seed <= INT_MAX) {
        cfg->seed = (int)kept.seed;
        cfg->seed_set = true;
    }
    return err;
}
