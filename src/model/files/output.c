/* Write beside, fsync, rename: an interrupted save never replaces a good file. */
#include "model/files/output.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A crash may leave a temporary file of an earlier process with this pid: try other names. */
#define ATTEMPTS 1000

/* A descriptor of the directory of a path, which a rename of the directory does not change. */
static int open_parent(const char *path)
{
    struct sp_dir d = SP_DIR_CLOSED;
    int err = sp_dir_open_parent(path, &d), fd = err ? err : d.fd;

    d.fd = -1; /* the caller's */
    sp_dir_close(&d);
    return fd;
}

/* Creates the temporary file in out->dir. */
static int create_temporary(struct sp_output *out)
{
    size_t len = strlen(out->name) + 48;
    struct stat st;
    int fd = -1, err;

    if (!fstatat(out->dir, out->name, &st, 0) && !S_ISREG(st.st_mode))
        return sp_error(EINVAL, "%s: not a regular file, cannot be replaced", out->path);
    out->temporary = malloc(len);
    if (!out->temporary)
        return sp_error(ENOMEM, "%s: no memory for its path", out->path);
    for (int i = 0; i < ATTEMPTS; i++) {
        snprintf(out->temporary, len, "%s.tmp-%ld-%d", out->name, (long)getpid(), i);
        /* O_EXCL: two writers of one path never share a temporary file, and no link is followed */
        fd = openat(out->dir, out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    if (fd < 0)
        return sp_error(errno, "%s: cannot be created: %s", out->path, strerror(errno));
    out->f = fdopen(fd, "wb");
    if (out->f)
        return 0;
    err = sp_error(errno, "%s: %s", out->path, strerror(errno));
    close(fd);
    unlinkat(out->dir, out->temporary, 0);
    return err;
}

static void free_output(struct sp_output *out)
{
    if (out->dir >= 0)
        close(out->dir);
    free(out->temporary);
    free(out->name);
    free(out->path);
}

int sp_output_open_in(const struct sp_dir *dir, const char *name, struct sp_output *out)
{
    const char *slash = dir ? NULL : strrchr(name, '/');
    int rc;

    *out = (struct sp_output){.dir = dir ? fcntl(dir->fd, F_DUPFD_CLOEXEC, 0) : open_parent(name)};
    rc = dir && out->dir < 0 ? -errno : out->dir;
    out->path = sp_dir_join(dir, name);
    out->name = strdup(slash ? slash + 1 : name);
    if (out->path && out->name && rc >= 0)
        rc = create_temporary(out);
    else if (rc < 0)
        sp_error(-rc, "%s: cannot be created: %s", name, strerror(-rc));
    else
        rc = sp_error(ENOMEM, "%s: no memory for its path", name);
    if (rc)
        free_output(out);
    return rc;
}

int sp_output_fail(const struct sp_output *out, int err)
{
    err = err ? err : EIO;
    if (out->bytes)
        return sp_error(err, "%s: cannot be written: %s (%llu bytes are wanted)", out->path,
                        strerror(err), (unsigned long long)out->bytes);
    return sp_error(err, "%s: cannot be written: %s", out->path, strerror(err));
}

int sp_output_close(struct sp_output *out)
{
    int rc = 0;

    errno = 0;
    if (fflush(out->f) || (!ferror(out->f) && fsync(fileno(out->f))))
        rc = sp_output_fail(out, errno);
    else if (ferror(out->f)) /* an earlier write failed: one more tells why */
        rc = sp_output_fail(out, putc('\n', out->f) == EOF || fflush(out->f) ? errno : EIO);
    if (fclose(out->f) && !rc)
        rc = sp_output_fail(out, errno);
    out->f = NULL;
    return rc;
}

int sp_output_commit(struct sp_output *out)
{
    int rc = out->f ? sp_output_close(out) : 0;

    if (!rc && renameat(out->dir, out->temporary, out->dir, out->name))
        rc = sp_error(errno, "%s: cannot be replaced: %s", out->path, strerror(errno));
    if (rc)
        unlinkat(out->dir, out->temporary, 0);
    else
        (void)fsync(out->dir);
    free_output(out);
    return rc;
}

void sp_output_discard(struct sp_output *out)
{
    if (out->f)
        fclose(out->f);
    unlinkat(out->dir, out->temporary, 0);
    free_output(out);
}

int sp_output_text_in(const struct sp_dir *dir, const char *name, const char *text, size_t n)
{
    struct sp_output out;
    int rc = sp_output_open_in(dir, name, &out);

    if (rc)
        return rc;
    out.bytes = n;
    errno = 0;
    if (fwrite(text, 1, n, out.f) == n)
        return sp_output_commit(&out);
    rc = sp_output_fail(&out, errno);
    sp_output_discard(&out);
    return rc;
}

int sp_output_json_in(const struct sp_dir *dir, const char *name, const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags);
    size_t n = text ? strlen(text) : 0;
    int rc;

    if (!text)
        return sp_error(EINVAL, "%s: cannot be written: no memory, or text that is not UTF-8",
                        name);
    text[n] = '\n'; /* in the place of its end, which is not written */
    rc = sp_output_text_in(dir, name, text, n + 1);
    free(text);
    return rc;
}
