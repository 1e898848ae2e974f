#define _GNU_SOURCE /* O_PATH */
#include "model/files/dir.h"
#include "sp_grow.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct sp_held_file {
    char *name;
    int fd;
};

/* ---- opening ---------------------------------------------------------------------------- */

static int open_at(const struct sp_dir *parent, const char *name, int flags, struct sp_dir *d)
{
    char *path = sp_dir_join(parent, name);
    int fd =
        path ? openat(sp_dir_fd(parent), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags) : -1;

    /* one that may be searched and not be listed */
    if (path && fd < 0 && errno == EACCES)
        fd = openat(sp_dir_fd(parent), name, O_PATH | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd < 0) {
        int err = path ? errno : ENOMEM;

        free(path);
        return -err;
    }
    *d = (struct sp_dir){.fd = fd, .path = path};
    return 0;
}

int sp_dir_open(const char *path, struct sp_dir *d)
{
    return open_at(NULL, path, 0, d);
}

int sp_dir_open_parent(const char *path, struct sp_dir *d)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int err = parent ? sp_dir_open(parent, d) : -ENOMEM;

    free(parent);
    return err;
}

int sp_dir_open_in(const struct sp_dir *parent, const char *name, bool follow, struct sp_dir *d)
{
    return open_at(parent, name, follow ? 0 : O_NOFOLLOW, d);
}

void sp_dir_close(struct sp_dir *d)
{
    if (d->fd >= 0)
        close(d->fd);
    for (int i = 0; i < d->n_held; i++) {
        close(d->held[i].fd);
        free(d->held[i].name);
    }
    free(d->held);
    free(d->path);
    *d = SP_DIR_CLOSED;
}

int sp_dir_fd(const struct sp_dir *d)
{
    return d ? d->fd : AT_FDCWD;
}

char *sp_dir_join(const struct sp_dir *d, const char *name)
{
    size_t n = d ? strlen(d->path) : 0, size = n + strlen(name) + 2;
    char *path = malloc(size);

    if (path)
        snprintf(path, size, "%s%s%s", d ? d->path : "", n && d->path[n - 1] != '/' ? "/" : "",
                 name);
    return path;
}

DIR *sp_dir_list(const struct sp_dir *d)
{
    /* with an offset of its own */
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !list)
        close(fd);
    return list;
}

static const struct sp_held_file *find_held(const struct sp_dir *d, const char *name)
{
    for (int i = 0; i < d->n_held; i++)
        if (!strcmp(d->held[i].name, name))
            return &d->held[i];
    return NULL;
}

void sp_dir_free_names(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

int sp_dir_names(const struct sp_dir *d, bool (*takes)(const char *name),
                 int (*compare)(const void *a, const void *b), char ***names, int *n)
{
    DIR *entries = sp_dir_list(d);
    char **list = NULL;
    struct dirent *e;
    bool has_memory = true;
    int count = 0;

    if (!entries)
        return errno;
    while (has_memory && (e = readdir(entries)))
        has_memory = !takes(e->d_name) || sp_append_text(&list, &count, e->d_name);
    closedir(entries);
    if (!has_memory) {
        sp_dir_free_names(list, count);
        return sp_error(ENOMEM, "%s: no memory for the names of its files", d->path);
    }
    if (count)
        qsort(list, (size_t)count, sizeof *list, compare);
    *names = list;
    *n = count;
    return 0;
}

bool sp_dir_has(const struct sp_dir *d, const char *name, struct stat *st)
{
    if (d && d->holds) {
        const struct sp_held_file *held = find_held(d, name);

        if (!held)
            errno = ENOENT;
        return held && !fstat(held->fd, st);
    }
    return !fstatat(sp_dir_fd(d), name, st, AT_SYMLINK_NOFOLLOW);
}

bool sp_dir_is(const struct sp_dir *d, const struct stat *st)
{
    struct stat own;

    return !fstat(d->fd, &own) && own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

void sp_dir_sync(const struct sp_dir *d)
{
    (void)fsync(d->fd);
}

/* ---- files ------------------------------------------------------------------------------ */

/* Weights and data may be in many shards: if the files that the system allows at first are used up, as many as it
 * allows at all. False: these are used up too. */
static bool allow_more_files(void)
{
    struct rlimit limit;

    if (errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return !setrlimit(RLIMIT_NOFILE, &limit);
}

/* A descriptor, -1 and errno. */
static int open_to_read(int dir, const char *name)
{
    enum { FLAGS = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };
    int fd = openat(dir, name, FLAGS);

    return fd < 0 && allow_more_files() ? openat(dir, name, FLAGS) : fd;
}

static int open_again(int fd)
{
    int again = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    return again < 0 && allow_more_files() ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : again;
}

int sp_dir_hold_file(struct sp_dir *d, const char *name, int fd)
{
    struct sp_held_file *more = realloc(d->held, ((size_t)d->n_held + 1) * sizeof *more);
    char *copy = strdup(name);

    if (more)
        d->held = more;
    d->holds = true;
    if (!more || !copy) {
        free(copy);
        close(fd);
        return sp_error(ENOMEM, "%s: no memory for its files", d->path);
    }
    d->held[d->n_held++] = (struct sp_held_file){.name = copy, .fd = fd};
    return 0;
}

static int open_and_hold(struct sp_dir *d, const char *name)
{
    int fd = open_to_read(d->fd, name);

    if (fd >= 0)
        return sp_dir_hold_file(d, name, fd);
    return errno == ENOENT
               ? 0 /* removed meanwhile: whoever wants it misses it */
               : sp_error(errno, "%s/%s: cannot be opened: %s", d->path, name, strerror(errno));
}

int sp_dir_hold(struct sp_dir *d, bool (*wanted)(const char *name, const void *arg),
                const void *arg)
{
    DIR *list = sp_dir_list(d);
    struct dirent *e;
    int err = 0;

    if (!list)
        return sp_error(errno, "%s: cannot be read: %s", d->path, strerror(errno));
    while (!err && (e = readdir(list)))
        if (wanted(e->d_name, arg))
            err = open_and_hold(d, e->d_name);
    closedir(list);
    d->holds = true;
    return err;
}

const char *sp_dir_held(const struct sp_dir *d, int i)
{
    return i < d->n_held ? d->held[i].name : NULL;
}

int sp_dir_file(const struct sp_dir *d, const char *name)
{
    const struct sp_held_file *held = d && d->holds ? find_held(d, name) : NULL;
    int fd;

    if (d && d->holds && !held)
        return -ENOENT;
    fd = held ? open_again(held->fd) : open_to_read(sp_dir_fd(d), name);
    return fd < 0 ? -errno : fd;
}

/* ---- making ----------------------------------------------------------------------------- */

/* One of them; those on the way to it are there. */
static int make_directory(const char *path, struct sp_made_dirs *made)
{
    struct stat st;

    if (!stat(path, &st))
        return S_ISDIR(st.st_mode)
                   ? 0
                   : sp_error(ENOTDIR, "cannot make directory %s: %s", path, strerror(EEXIST));
    if (!sp_append_text(&made->path, &made->n, path))
        return sp_error(ENOMEM, "%s: no memory for its path", path);
    if (!mkdir(path, 0777))
        return 0;
    free(made->path[--made->n]);
    return errno == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode)
               ? 0 /* by another process, meanwhile */
               : sp_error(errno, "cannot make directory %s: %s", path, strerror(errno));
}

/* The directories of path[0 .. n). */
static int make_directories(const char *path, size_t n, struct sp_made_dirs *made)
{
    char *part = strndup(path, n);
    int err = part ? 0 : sp_error(ENOMEM, "%s: no memory for its path", path);

    for (size_t i = 1; !err && i <= n; i++)
        if (part[i - 1] != '/' && (part[i] == '/' || !part[i])) {
            char end = part[i];

            part[i] = '\0';
            err = make_directory(part, made);
            part[i] = end;
        }
    free(part);
    return err;
}

/* A crash would lose them otherwise. */
static void sync_made(const struct sp_made_dirs *made, int first)
{
    for (int i = first; i < made->n; i++) {
        struct sp_dir d;

        if (!sp_dir_open_parent(made->path[i], &d)) {
            sp_dir_sync(&d);
            sp_dir_close(&d);
        }
    }
}

/* The directories of path[0 .. n), durable. */
static int make_durable(const char *path, size_t n, struct sp_made_dirs *made)
{
    struct sp_made_dirs here = {0}, *list = made ? made : &here;
    int first = list->n, err = make_directories(path, n, list);

    if (!err)
        sync_made(list, first);
    sp_dir_made_end(&here, false);
    return err;
}

int sp_dir_make(const char *path, struct sp_made_dirs *made)
{
    return make_durable(path, strlen(path), made);
}

int sp_dir_make_parent(const char *path, struct sp_made_dirs *made)
{
    const char *slash = strrchr(path, '/');

    return slash ? make_durable(path, (size_t)(slash - path), made) : 0;
}

void sp_dir_made_end(struct sp_made_dirs *made, bool undo)
{
    while (made->n > 0) {
        char *path = made->path[--made->n];

        if (undo)
            rmdir(path); /* if it is empty */
        free(path);
    }
    free(made->path);
    *made = (struct sp_made_dirs){0};
}
