#define _GNU_SOURCE /* flock */
#include "kernels/cuda/gemm/tuning_cache.h"
#include "sp_error.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 16 << 20, LINE_BYTES = 512, PATIENCE_MS = 20000, LOOK_MS = 20 };

struct sp_kept {
    int fd; /* -1: given up */
    bool locked;
    char *text; /* whole lines, a newline before the first; text[used] is 0 */
    size_t used;
    off_t read; /* of the file */
};

/* path(PATH_MAX) = the file; false: nowhere. */
static bool find_place(const char *name, char *path)
{
    const char *chosen = getenv("SP_CUDA_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n;

    if (chosen && strcmp(chosen, "0") == 0)
        return false;
    if (chosen && *chosen)
        n = snprintf(path, PATH_MAX, "%s/%s", chosen, name);
    else if (cache && *cache == '/')
        n = snprintf(path, PATH_MAX, "%s/starpipe/%s", cache, name);
    else if (home && *home == '/')
        n = snprintf(path, PATH_MAX, "%s/.cache/starpipe/%s", home, name);
    else
        return false;
    return n > 0 && n < PATH_MAX;
}

/* The directories above path. */
static void make_directories(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777); /* whatever is wrong, opening the file says so */
        *slash = '/';
    }
}

struct sp_kept *sp_kept_open(const char *name)
{
    struct sp_kept *kept;
    char path[PATH_MAX];
    struct stat about;

    if (!find_place(name, path))
        return NULL;
    make_directories(path);
    kept = calloc(1, sizeof *kept);
    if (!kept)
        return NULL;
    kept->text = calloc(2, 1);
    kept->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (kept->fd < 0 || fstat(kept->fd, &about) || !S_ISREG(about.st_mode) || !kept->text) {
        sp_kept_close(kept);
        return NULL;
    }
    kept->text[0] = '\n';
    kept->used = 1;
    return kept;
}

void sp_kept_close(struct sp_kept *kept)
{
    if (!kept)
        return;
    if (kept->fd >= 0)
        close(kept->fd);
    free(kept->text);
    free(kept);
}

/* Whole lines that were added since; who was cut off in the middle of one left none. */
static void read_more(struct sp_kept *kept)
{
    struct stat about;
    size_t bytes, whole;
    ssize_t got;
    char *text;

    if (fstat(kept->fd, &about) || about.st_size <= kept->read || about.st_size > MOST_BYTES)
        return;
    bytes = (size_t)(about.st_size - kept->read);
    text = realloc(kept->text, kept->used + bytes + 1);
    if (!text)
        return;
    kept->text = text;
    got = pread(kept->fd, text + kept->used, bytes, kept->read);
    for (whole = got > 0 ? (size_t)got : 0; whole && text[kept->used + whole - 1] != '\n'; whole--)
        ;
    for (size_t i = 0; i < whole; i++)
        if (!text[kept->used + i])
            text[kept->used + i] = '?';
    kept->used += whole;
    kept->read += (off_t)whole;
    text[kept->used] = '\0';
}

/* Whoever decides takes a fraction of a second, unless stopped in the middle. */
static bool try_lock(int fd)
{
    for (int waited = 0; waited <= PATIENCE_MS; waited += LOOK_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false; /* a file system without locks */
        usleep(1000 * LOOK_MS);
    }
    sp_warn(
        "cuda: a process that is stopped, or hangs, holds the file of choices for this GPU in the "
        "cache (SP_CUDA_CACHE): this run does without");
    return false;
}

void sp_kept_lock(struct sp_kept *kept)
{
    if (!kept || kept->fd < 0)
        return;
    kept->locked = try_lock(kept->fd);
    if (kept->locked) {
        read_more(kept);
        return;
    }
    close(kept->fd);
    kept->fd = -1;
}

void sp_kept_unlock(struct sp_kept *kept)
{
    if (kept && kept->locked)
        flock(kept->fd, LOCK_UN);
    if (kept)
        kept->locked = false;
}

const char *sp_kept_find(const struct sp_kept *kept, const char *name)
{
    char start[LINE_BYTES];
    const char *value = NULL, *line;

    if (!kept || snprintf(start, sizeof start, "\n%s ", name) >= (int)sizeof start)
        return NULL;
    for (line = kept->text; (line = strstr(line, start)); line = value - 1)
        value = line + strlen(start);
    return value;
}

/* In one write, which appends whole; after half a line that somebody left, on a line of its own. */
void sp_kept_add(struct sp_kept *kept, const char *name, const char *value)
{
    struct stat about;
    char line[LINE_BYTES];
    bool half;
    int n;

    if (!kept || !kept->locked || fstat(kept->fd, &about) || about.st_size > MOST_BYTES)
        return;
    half = about.st_size > kept->read;
    n = snprintf(line, sizeof line, "%s%s %s\n", half ? "\n" : "", name, value);
    if (n > 0 && n < (int)sizeof line && write(kept->fd, line, (size_t)n) == n)
        read_more(kept);
}
