/*
 * Preloaded: records what a program does to the files under RECORD_ROOT, in the directory RECORD_TO:
 * `log` has a line an event, data-N the contents that a file had.
 *
 *   create PATH | mkdir PATH | symlink TARGET PATH | rename FROM TO | exchange A B | unlink PATH
 *   rmdir PATH | sync PATH N (these contents are durable) | look PATH N (not synced, but written)
 *   syncdir PATH
 *
 * Writes themselves are not seen (the C library makes them without a call that could be replaced):
 * before every event a file that is not synced is looked at.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static int contents;
static struct {
    char path[PATH_MAX];
    off_t looked; /* size when it was looked at last */
} dirty[64];
static int n_dirty;

#define REAL(name) (*(__typeof__(&name))real(#name))

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static int tracked(const char *path)
{
    const char *root = getenv("RECORD_ROOT");

    return root && path && !strncmp(path, root, strlen(root)) && getenv("RECORD_TO");
}

static void event(const char *format, ...)
{
    char path[PATH_MAX];
    va_list ap;

    if (!out) {
        snprintf(path, sizeof path, "%s/log", getenv("RECORD_TO"));
        out = fopen(path, "a");
    }
    va_start(ap, format);
    vfprintf(out, format, ap);
    va_end(ap);
    fputc('\n', out);
    fflush(out);
}

static int copy(const char *path)
{
    static char piece[1 << 16];
    char to[PATH_MAX];
    FILE *from = fopen(path, "rb"), *f;
    size_t n;

    do /* beside those of an earlier run */
        snprintf(to, sizeof to, "%s/data-%d", getenv("RECORD_TO"), ++contents);
    while (!access(to, F_OK));
    f = fopen(to, "wb");
    while (from && f && (n = fread(piece, 1, sizeof piece, from)) > 0)
        fwrite(piece, 1, n, f);
    if (from)
        fclose(from);
    if (f)
        fclose(f);
    return contents;
}

/* Contents that were written since, and are not synced. */
static void look(void)
{
    for (int i = 0; i < n_dirty; i++) {
        struct stat st;

        if (stat(dirty[i].path, &st) || st.st_size == dirty[i].looked)
            continue;
        dirty[i].looked = st.st_size;
        event("look %s %d", dirty[i].path, copy(dirty[i].path));
    }
}

static void forget(const char *path)
{
    for (int i = 0; i < n_dirty; i++)
        if (!strcmp(dirty[i].path, path)) {
            dirty[i] = dirty[--n_dirty];
            return;
        }
}

/* The path of a name in a directory that is open. */
static const char *in(int dir, const char *name, char path[PATH_MAX])
{
    char link[64];
    ssize_t n;

    if (dir == AT_FDCWD || name[0] == '/')
        return name;
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    n = readlink(link, path, PATH_MAX - 1);
    if (n <= 0)
        return name;
    snprintf(path + n, PATH_MAX - (size_t)n, "/%s", name);
    return path;
}

int openat(int dir, const char *name, int flags, ...)
{
    char at[PATH_MAX];
    const char *path = in(dir, name, at);
    int mode = 0, fd;
    va_list ap;

    if (flags & O_CREAT) {
        va_start(ap, flags);
        mode = va_arg(ap, int);
        va_end(ap);
    }
    if (!tracked(path) || !(flags & O_CREAT) || !access(path, F_OK))
        return REAL(openat)(dir, name, flags, mode);
    pthread_mutex_lock(&mutex);
    look();
    fd = REAL(openat)(dir, name, flags, mode);
    if (fd >= 0) {
        event("create %s", path);
        if (n_dirty < 64) {
            snprintf(dirty[n_dirty].path, PATH_MAX, "%s", path);
            dirty[n_dirty++].looked = 0;
        }
    }
    pthread_mutex_unlock(&mutex);
    return fd;
}

int openat64(int dir, const char *name, int flags, ...)
{
    va_list ap;
    int mode;

    va_start(ap, flags);
    mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    return openat(dir, name, flags, mode);
}

static int sync_file(int fd)
{
    char link[64], path[PATH_MAX];
    struct stat st;
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (!tracked(path) || fstat(fd, &st))
        return 0;
    pthread_mutex_lock(&mutex);
    look();
    if (S_ISDIR(st.st_mode)) {
        event("syncdir %s", path);
    } else {
        event("sync %s %d", path, copy(path));
        forget(path);
    }
    pthread_mutex_unlock(&mutex);
    return 0;
}

/* The disk need not be troubled. */
int fsync(int fd)
{
    return sync_file(fd);
}

int fdatasync(int fd)
{
    return sync_file(fd);
}

#define CHANGE(what, call, ...)                                                                    \
    do {                                                                                           \
        int changed;                                                                               \
                                                                                                   \
        pthread_mutex_lock(&mutex);                                                                \
        look();                                                                                    \
        changed = call;                                                                            \
        if (!changed)                                                                              \
            event(what, __VA_ARGS__);                                                              \
        pthread_mutex_unlock(&mutex);                                                              \
        return changed;                                                                            \
    } while (0)

int mkdir(const char *path, mode_t mode)
{
    if (!tracked(path))
        return REAL(mkdir)(path, mode);
    CHANGE("mkdir %s", REAL(mkdir)(path, mode), path);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    char at[PATH_MAX];
    const char *path = in(dir, name, at);

    if (!tracked(path))
        return REAL(mkdirat)(dir, name, mode);
    CHANGE("mkdir %s", REAL(mkdirat)(dir, name, mode), path);
}

int renameat(int a, const char *from, int b, const char *to)
{
    char at_from[PATH_MAX], at_to[PATH_MAX];
    const char *path = in(b, to, at_to);

    if (!tracked(path))
        return REAL(renameat)(a, from, b, to);
    CHANGE("rename %s %s", REAL(renameat)(a, from, b, to), in(a, from, at_from), path);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    char at_from[PATH_MAX], at_to[PATH_MAX];
    const char *path = in(b, to, at_to);

    if (!tracked(path))
        return REAL(renameat2)(a, from, b, to, flags);
    CHANGE("exchange %s %s", REAL(renameat2)(a, from, b, to, flags), in(a, from, at_from), path);
}

int symlinkat(const char *target, int dir, const char *name)
{
    char at[PATH_MAX];
    const char *path = in(dir, name, at);

    if (!tracked(path))
        return REAL(symlinkat)(target, dir, name);
    CHANGE("symlink %s %s", REAL(symlinkat)(target, dir, name), target, path);
}

int unlinkat(int dir, const char *name, int flags)
{
    char at[PATH_MAX];
    const char *path = in(dir, name, at);

    if (!tracked(path))
        return REAL(unlinkat)(dir, name, flags);
    CHANGE("%s %s", REAL(unlinkat)(dir, name, flags), flags & AT_REMOVEDIR ? "rmdir" : "unlink",
           path);
}
