#define _GNU_SOURCE /* asprintf */
#include "train/start/outputs.h"
#include "model/files/companions.h"
#include "model/model.h"
#include "policies/registry.h"
#include "sp_error.h"
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- can it be written? --------------------------------------------------------------- */

/* Names a kind of file that an output must not replace; NULL: the output may go there. */
static const char *bad_kind(mode_t mode)
{
    return S_ISFIFO(mode)   ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISBLK(mode)  ? "a block device"
                            : NULL;
}

static int try_file(const char *name, const char *shown)
{
    char real[PATH_MAX];
    struct stat st;
    bool existed = !stat(name, &st);
    int fd;

    if (existed && bad_kind(st.st_mode))
        return sp_error(EINVAL, "cannot write %s: it is %s", shown, bad_kind(st.st_mode));
    /* O_NONBLOCK, in case it has become a FIFO meanwhile */
    fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0)
        return sp_error(errno, "cannot write %s: %s", shown, strerror(errno));
    /* removes the file and not a link that led to it, nor a log that another run has locked by
     * now */
    if (!existed && (!flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) && realpath(name, real))
        unlink(real);
    close(fd);
    return 0;
}

/* True if there is nothing at `path`, not even a dangling link. */
static bool is_absent(const char *path)
{
    struct stat st;

    return lstat(path, &st) && errno == ENOENT;
}

/* Cuts the last name off; "." is left of a single name. */
static void cut_name(char path[PATH_MAX])
{
    const char *parent = dirname(path);

    if (parent != path)
        strcpy(path, parent);
}

/* Checks if a directory could be made at `path`, where there is none. */
static int try_to_make(const char *path, const char *shown)
{
    char at[PATH_MAX];
    struct stat st;

    snprintf(at, sizeof at, "%s", path);
    do {
        const char *name = strrchr(at, '/');

        if (strlen(name ? name + 1 : at) > NAME_MAX)
            return sp_error(ENAMETOOLONG, "cannot write %s: %s", shown, strerror(ENAMETOOLONG));
        cut_name(at);
    } while (is_absent(at));
    if (stat(at, &st))
        return sp_error(errno, "cannot write %s: %s: %s", shown, at, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return sp_error(ENOTDIR, "cannot write %s: %s: %s", shown, at, strerror(ENOTDIR));
    if (faccessat(AT_FDCWD, at, W_OK | X_OK, AT_EACCESS))
        return sp_error(errno, "cannot make a directory in %s for %s: %s", at, shown,
                        strerror(errno));
    return 0;
}

int sp_output_try_file(const char *path, bool makes)
{
    char parent[PATH_MAX];

    if (snprintf(parent, sizeof parent, "%s", path) >= (int)sizeof parent)
        return sp_error(ENAMETOOLONG, "cannot write %s: %s", path, strerror(ENAMETOOLONG));
    cut_name(parent);
    return makes && is_absent(path) && is_absent(parent) ? try_to_make(parent, path)
                                                         : try_file(path, path);
}

int sp_output_try_dir(const char *path)
{
    char probe[PATH_MAX];
    struct stat st;

    if (snprintf(probe, sizeof probe, "%s/.starpipe-probe", path) >= (int)sizeof probe)
        return sp_error(ENAMETOOLONG, "cannot write %s: %s", path, strerror(ENAMETOOLONG));
    if (is_absent(path))
        return try_to_make(path, path);
    if (!stat(path, &st) && !S_ISDIR(st.st_mode))
        return sp_error(ENOTDIR, "cannot write %s: %s", path, strerror(ENOTDIR));
    return try_file(probe, path);
}

/* ---- which file is it? ---------------------------------------------------------------- */

/* Identities of files are texts: the numbers of the file, or if it does not exist, those of the nearest directory that
 * does and the path from there. NULL: a character device, which several outputs may share, or not known. */
struct sp_file {
    enum sp_file_use use;
    const char *option;
    char *path;
    char *itself, *target; /* identities: of a link, and of what it leads to */
};

/* If `at` names a link, replaces it by its target. False: it is none, or its target cannot be
 * named. */
static bool follow(char at[PATH_MAX])
{
    char to[PATH_MAX];
    ssize_t len = readlink(at, to, sizeof to - 1);
    char *slash = strrchr(at, '/');
    size_t dir = len > 0 && to[0] != '/' && slash ? (size_t)(slash - at) + 1 : 0;

    if (len <= 0 || dir + (size_t)len >= PATH_MAX)
        return false;
    memcpy(at + dir, to, (size_t)len);
    at[dir + (size_t)len] = '\0';
    return true;
}

/* Normalises a path of names that are not there: without ".", ".." and superfluous slashes; to
 * be freed. */
static char *normal(const char *path)
{
    char *out = calloc(1, strlen(path) + 2), *end = out;

    while (out && *path) {
        size_t n = strcspn(path, "/");

        if (n == 2 && !strncmp(path, "..", 2)) {
            while (end > out && *--end != '/')
                continue;
            *end = '\0';
        } else if (n && (n > 1 || *path != '.')) {
            end += sprintf(end, "%s%.*s", end > out ? "/" : "", (int)n, path);
        }
        path += n + (path[n] == '/');
    }
    return out;
}

static char *identity(const struct stat *st, const char *rest)
{
    char *text;

    return asprintf(&text, "%ju:%ju/%s", (uintmax_t)st->st_dev, (uintmax_t)st->st_ino, rest) < 0
               ? NULL
               : text;
}

/* The identity of what a path names, or with `through` leads to; to be freed. */
static char *identify(const char *path, bool through)
{
    enum { MOST_LINKS = 40 };
    char at[PATH_MAX], dir[PATH_MAX], *rest, *id;
    struct stat st;
    int hops = 0;

    snprintf(at, sizeof at, "%s", path);
    if (!(through ? stat(at, &st) : lstat(at, &st)))
        return S_ISCHR(st.st_mode) ? NULL : identity(&st, "");
    while (through && hops++ < MOST_LINKS && follow(at)) /* links to what is not there yet */
        continue;
    strcpy(dir, at);
    do
        cut_name(dir);
    while (is_absent(dir));
    rest = normal(at + (at[0] != '/' && !strcmp(dir, ".") ? 0 : strlen(dir)));
    id = rest && !stat(dir, &st) ? identity(&st, rest) : NULL;
    free(rest);
    return id;
}

static bool same(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

/* ---- the list ------------------------------------------------------------------------- */

int sp_files_add(struct sp_files *files, enum sp_file_use use, const char *option, const char *path)
{
    struct sp_file *f;

    if (files->n == files->cap) {
        int cap = files->cap ? 2 * files->cap : 16;

        f = realloc(files->file, (size_t)cap * sizeof *f);
        if (!f)
            return sp_error(ENOMEM, "no memory for the names of %d files", cap);
        files->file = f;
        files->cap = cap;
    }
    f = &files->file[files->n];
    *f = (struct sp_file){.use = use, .option = option, .path = strdup(path)};
    if (!f->path)
        return sp_error(ENOMEM, "no memory for the name of %s", path);
    f->itself = identify(path, false);
    f->target = identify(path, true);
    files->n++;
    return 0;
}

static bool ends_in(const char *name, const char *end)
{
    size_t len = strlen(name), n = strlen(end);

    return len >= n && !strcmp(name + len - n, end);
}

/* True for shards of weights and their index too, and for files that say how the model reads and
 * writes text. */
static bool is_of_model(const char *name)
{
    if (!strcmp(name, "config.json") || !strcmp(name, "state.json") || sp_companions_is_known(name))
        return true;
    return (!strncmp(name, "model", 5) || !strncmp(name, "optimizer-", 10)) &&
           (ends_in(name, ".safetensors") || ends_in(name, ".safetensors.index.json"));
}

int sp_files_add_model(struct sp_files *files, const char *option, const char *dir)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *d;
    int err = 0;

    for (const char *const *preset = sp_model_presets(); *preset; preset++)
        if (!strcmp(dir, *preset))
            return 0; /* even if a directory has that name */
    d = opendir(dir);
    if (!d)
        return 0;
    while (!err && (entry = readdir(d)))
        if (is_of_model(entry->d_name) &&
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < (int)sizeof path)
            err = sp_files_add(files, SP_FILE_READ, option, path);
    closedir(d);
    return err;
}

int sp_files_add_layout(struct sp_files *files, const struct sp_layout_args *layout)
{
    const struct sp_schedule_def *def;
    int err = layout->model ? sp_files_add_model(files, "--model", layout->model) : 0;

    if (!err && !strncmp(layout->schedule, "csv:", 4))
        err = sp_files_add(files, SP_FILE_READ, "--schedule", layout->schedule + 4);
    for (int i = 0; !err && (def = sp_schedule_at(i)); i++)
        if (sp_schedule_plugin(def))
            err = sp_files_add(files, SP_FILE_READ, "--plugin", sp_schedule_plugin(def));
    return err;
}

/* True if writing `out` changes `other`, a file that is read or written. */
static bool destroys(const struct sp_file *out, const struct sp_file *other)
{
    if (out->use == SP_FILE_WRITTEN && other->use != SP_FILE_REPLACED)
        return same(out->target, other->target);
    /* a name is replaced, so a file that has only this name is lost */
    if (other->use == SP_FILE_READ)
        return same(out->itself, other->target);
    return same(out->itself, other->itself) || same(out->itself, other->target) ||
           same(out->target, other->itself);
}

bool sp_output_is_in(const char *path, const char *dir, bool (*takes)(const char *name))
{
    char at[PATH_MAX], real[PATH_MAX], *whole = identify(dir, true), *on_way;
    bool is_in = false;

    snprintf(at, sizeof at, "%s", path);
    while (!is_in) {
        const char *name;
        bool taken;

        if (realpath(at, real))
            strcpy(at, real);
        if (!strcmp(at, "/"))
            break;
        while (strlen(at) > 1 && at[strlen(at) - 1] == '/')
            at[strlen(at) - 1] = '\0';
        name = strrchr(at, '/');
        taken = takes(name ? name + 1 : at);
        cut_name(at);
        if (!taken)
            continue;
        on_way = identify(at, true);
        is_in = same(whole, on_way);
        free(on_way);
    }
    free(whole);
    return is_in;
}

int sp_files_check(const struct sp_files *files, const char *command)
{
    for (int i = 0; i < files->n; i++)
        for (int k = 0; k < files->n; k++) {
            const struct sp_file *a = &files->file[i], *b = &files->file[k];
            bool alike = !strcmp(a->path, b->path);

            if (a->use == SP_FILE_READ || (b->use != SP_FILE_READ && k <= i) || !destroys(a, b))
                continue;
            return sp_error(EINVAL, "%s: %s %s is also %s%s%s: %s", command, a->option, a->path,
                            b->option, alike ? "" : " ", alike ? "" : b->path,
                            b->use == SP_FILE_READ ? "it would be overwritten"
                                                   : "one would overwrite the other");
        }
    return 0;
}

bool sp_files_have(const struct sp_files *files, const struct stat *st)
{
    char *id = identity(st, "");
    bool have = false;

    for (int i = 0; i < files->n; i++)
        have = have || same(files->file[i].target, id);
    free(id);
    return have;
}

void sp_files_free(struct sp_files *files)
{
    for (int i = 0; i < files->n; i++) {
        free(files->file[i].itself);
        free(files->file[i].target);
        free(files->file[i].path);
    }
    free(files->file);
    *files = (struct sp_files){0};
}
