#define _GNU_SOURCE /* program_invocation_short_name */
#include "policies/load/plugin.h"
#include "policies/families/family.h"
#include "policies/load/guard.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "policies/families/families.h"
#include <dirent.h>
#include <dlfcn.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRY "sp_plugin_schedules"

enum { MAX_SCHEDULES = 64, MAX_NAME = 40, MAX_LINE = 200 };

/* Reading a plugin runs its code and follows its pointers. The guarded part does this and leaves
 * its results here. */
struct reading {
    const struct sp_schedule_owner *owner;
    const struct sp_schedule_def *const *defs;
    int n;
    char why[512]; /* empty: in order */
};

static bool is_name(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len <= MAX_NAME && strchr("-_", *name) == NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == len;
}

/* True for one line of UTF-8 that is not too long. */
static bool is_line(const char *text)
{
    json_t *string = strlen(text) <= MAX_LINE ? json_string(text) : NULL;
    bool ok = string && *text;

    json_decref(string);
    for (; *text; text++)
        ok &= (unsigned char)*text >= ' ' && *text != 127;
    return ok;
}

/* Checks a definition's family, its chunks, and who makes the programs; writes the fault to
 * why[n]. */
static void check_family(const struct sp_schedule_def *def, char *why, size_t n)
{
    const struct sp_family *family = def->family ? sp_family_find(def->family) : NULL;
    int used;

    if (!family) {
        used = snprintf(why, n, "schedule %s: no graph family '%.40s'; there are:", def->name,
                        def->family ? def->family : "");
        for (int i = 0; sp_family_at(i) && used < (int)n; i++)
            used += snprintf(why + used, n - (size_t)used, " %s", sp_family_at(i)->name);
    } else if (family->emit && (def->emit || def->emit_all)) {
        snprintf(why, n, "schedule %s: it has %s, but the family %s makes the programs", def->name,
                 def->emit ? "emit" : "emit_all", family->name);
    } else if (!family->emit && !def->emit == !def->emit_all) {
        snprintf(why, n, "schedule %s: it has %s", def->name,
                 def->emit ? "both emit and emit_all" : "no emit");
    } else if (def->default_chunks < !family->facts.one_line) {
        snprintf(why, n, "schedule %s: default_chunks is %d, must be at least %d", def->name,
                 def->default_chunks, !family->facts.one_line);
    }
}

/* Writes the fault of a definition to why[n]. The fields after `abi` only mean something if it is
 * ours. */
static void check_def(const struct sp_schedule_def *def, char *why, size_t n)
{
    const struct {
        const char *field, *text;
        bool required;
    } lines[] = {
        {"summary", def->summary, true},
        {"source", def->source, true},
        {"options", def->options, false},
        {"flags", def->flags, false},
        {"recompute", def->recompute, false},
        {"makespan_source", def->makespan_source, def->makespan || def->makespan_of_parts}};

    if (!def->name) {
        snprintf(why, n, "a schedule has no name");
        return;
    }
    if (!is_name(def->name)) {
        snprintf(why, n, "the name '%.60s' is not of 1 to %d characters a-z 0-9 - _", def->name,
                 MAX_NAME);
        return;
    }
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!lines[i].text && !lines[i].required)
            continue;
        if (!lines[i].text || !is_line(lines[i].text)) {
            snprintf(why, n, "schedule %s: its %s is %s", def->name, lines[i].field,
                     lines[i].text ? "not one line of 1 to 200 bytes" : "missing");
            return;
        }
    }
    check_family(def, why, n);
}

/* Refuses a definition made for other headers, or a wrong one. */
static void read_def(const struct sp_schedule_def *def, struct reading *r)
{
    if (!def)
        snprintf(r->why, sizeof r->why, "a schedule is NULL");
    else if (def->abi != SP_SCHEDULE_ABI)
        snprintf(r->why, sizeof r->why,
                 "it has schedule ABI %d, this starpipe has %d: build it against the headers "
                 "installed with it",
                 def->abi, SP_SCHEDULE_ABI);
    else
        check_def(def, r->why, sizeof r->why);
}

static void read_plugin(void *arg)
{
    struct reading *r = arg;
    const char *file = r->owner->file;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *error = dlerror();
        size_t len = strlen(file);

        if (!strncmp(error, file, len) && !strncmp(error + len, ": ", 2))
            error += len + 2;
        snprintf(r->why, sizeof r->why, "cannot be loaded: %s", error);
        return;
    }
    r->defs = dlsym(library, ENTRY);
    if (!r->defs) {
        snprintf(r->why, sizeof r->why,
                 "it has no " ENTRY ": end the C file with SP_PLUGIN(&your_schedule);");
        return;
    }
    for (; r->n < MAX_SCHEDULES && r->defs[r->n] && !*r->why; r->n++)
        read_def(r->defs[r->n], r);
    if (r->n == 0)
        snprintf(r->why, sizeof r->why, "it has no schedule");
    else if (r->n == MAX_SCHEDULES)
        snprintf(r->why, sizeof r->why, "its " ENTRY " does not end in NULL within %d schedules",
                 MAX_SCHEDULES);
}

static void read_program(void *arg)
{
    struct reading *r = arg;

    read_def(r->defs[r->n++], r);
}

static int add(const struct sp_schedule_def *def, const struct sp_schedule_owner *owner)
{
    const struct sp_schedule_def *other = sp_schedule_find(def->name);
    const struct sp_schedule_owner *others;

    if (!strcmp(def->name, "csv"))
        return sp_error(EINVAL, "%s: the name csv stands for files (csv:FILE); rename it",
                        owner->label);
    if (!other)
        return sp_schedule_add(def, owner);
    others = sp_schedule_owner(other);
    return sp_error(EINVAL, "%s: there is a schedule %s already, %s%s; rename this one",
                    owner->label, def->name, others ? "of " : "built in",
                    others ? others->label : "");
}

/* Runs `read` under guard, and adds or refuses the schedules that it finds. */
static int read_and_add(struct reading *r, const char *what, void (*read)(void *arg))
{
    int ret = sp_guard_call(r->owner, what, read, r);

    if (!ret && *r->why)
        ret = sp_error(EINVAL, "%s: %s", r->owner->label, r->why);
    for (int i = 0; i < r->n && !ret; i++)
        ret = add(r->defs[i], r->owner);
    return ret;
}

static bool is_loaded(const char *file)
{
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        if (sp_schedule_plugin(def) && !strcmp(sp_schedule_plugin(def), file))
            return true;
    }
    return false;
}

/* The owner lives as long as the process, for the registry. NULL: no memory. */
static struct sp_schedule_owner *make_owner(const char *file)
{
    static const char kind[] = "plugin ";
    struct sp_schedule_owner *owner = malloc(sizeof *owner + sizeof kind + strlen(file));
    char *label;

    if (!owner)
        return NULL;
    label = (char *)(owner + 1);
    strcat(strcpy(label, kind), file);
    *owner = (struct sp_schedule_owner){.label = label, .file = label + strlen(kind)};
    return owner;
}

/* `file` is a full path, so that dlopen searches nowhere else. */
static int load_file(const char *file)
{
    struct reading r = {0};

    if (is_loaded(file))
        return 0;
    r.owner = make_owner(file);
    if (!r.owner)
        return sp_error(ENOMEM, "no memory for the name of plugin %s", file);
    return read_and_add(&r, "loading it", read_plugin);
}

int sp_schedule_register(const struct sp_schedule_def *def)
{
    static char label[64];
    static const struct sp_schedule_owner program = {.label = label};
    struct reading r = {.owner = &program, .defs = &def};

    if (def && sp_schedule_owner(def))
        return 0;
    snprintf(label, sizeof label, "program %s", program_invocation_short_name);
    return read_and_add(&r, "reading its schedule", read_program);
}

static int is_library(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);

    return len > 3 && !strcmp(entry->d_name + len - 3, ".so");
}

/* Compares bytes, whatever the locale: every process loads the files in the same order. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_path(const char *name, bool may_be_directory);

static int load_directory(const char *path)
{
    struct dirent **entries;
    char file[PATH_MAX + NAME_MAX + 2];
    int n = scandir(path, &entries, is_library, by_name), ret = 0;

    if (n < 0)
        return sp_error(EINVAL, "plugin directory %s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (!ret)
            ret = load_path(file, false);
        free(entries[i]);
    }
    free(entries);
    return ret;
}

static int load_path(const char *name, bool may_be_directory)
{
    char path[PATH_MAX];
    struct stat st;

    if (!realpath(name, path) || stat(path, &st))
        return sp_error(EINVAL, "plugin %s: %s", name, strerror(errno));
    if (may_be_directory && S_ISDIR(st.st_mode))
        return load_directory(path);
    if (!S_ISREG(st.st_mode))
        return sp_error(EINVAL, "plugin %s: not a regular file", name);
    return load_file(path);
}

static int load_list(const char *list, const char *separators)
{
    char *copy = list ? strdup(list) : NULL, *rest;
    int ret = 0;

    if (list && !copy)
        return sp_error(ENOMEM, "no memory for the names of plugins");
    for (char *name = copy ? strtok_r(copy, separators, &rest) : NULL; name && !ret;
         name = strtok_r(NULL, separators, &rest))
        ret = load_path(name, true);
    free(copy);
    return ret;
}

int sp_plugins_load(const char *files)
{
    int ret = load_list(files, ":,");

    return ret ? ret : load_list(getenv("STARPIPE_PLUGIN_PATH"), ":");
}
