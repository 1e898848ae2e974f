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

int sp_output_open(const char *path, struct sp_output *out)
{
    size_t len = strlen(path) + 48;
    struct stat st;
    int fd = -1, rc;

    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return sp_error(EINVAL, "%s: not a regular file, cannot be replaced", path);
    out->path = strdup(path);
    out->temporary = malloc(len);
    if (!out->path || !out->temporary) {
        rc = sp_error(ENOMEM, "%s: no memory for its path", path);
        goto err_free;
    }
    for (int i = 0; i < ATTEMPTS; i++) {
        snprintf(out->temporary, len, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        /* O_EXCL: two writers of one path never share a temporary file */
        fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    if (fd < 0) {
        rc = sp_error(errno, "%s: cannot be created: %s", out->temporary, strerror(errno));
        goto err_free;
    }
    out->f = fdopen(fd, "wb");
    if (!out->f) {
        rc = sp_error(errno, "%s: %s", out->temporary, strerror(errno));
        goto err_unlink;
    }
    return 0;

err_unlink:
    close(fd);
    unlink(out->temporary);
err_free:
    free(out->path);
    free(out->temporary);
    return rc;
}

void sp_output_sync(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

void sp_output_sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");

    if (dir)
        sp_output_sync(dir);
    free(dir);
}

int sp_output_close(struct sp_output *out)
{
    int rc = 0;

    errno = 0; /* an earlier write may have failed and left only the stream's error flag */
    if (fflush(out->f) || ferror(out->f) || fsync(fileno(out->f)))
        rc = sp_error(errno ? errno : EIO, "%s: cannot be written: %s", out->path, strerror(errno));
    if (fclose(out->f) && !rc)
        rc = sp_error(errno, "%s: cannot be written: %s", out->path, strerror(errno));
    out->f = NULL;
    return rc;
}

int sp_output_commit(struct sp_output *out)
{
    int rc = out->f ? sp_output_close(out) : 0;

    if (!rc && rename(out->temporary, out->path))
        rc = sp_error(errno, "%s: cannot be replaced: %s", out->path, strerror(errno));
    if (rc)
        unlink(out->temporary);
    else
        sp_output_sync_parent(out->path);
    free(out->temporary);
    free(out->path);
    return rc;
}

int sp_output_json(const char *path, const json_t *value)
{
    struct sp_output out;
    int rc = sp_output_open(path, &out);

    if (rc)
        return rc;
    /* 9 digits give every float back */
    if (json_dumpf(value, out.f, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) ||
        fputc('\n', out.f) == EOF) {
        rc = sp_error(EIO, "%s: cannot be written", path);
        sp_output_discard(&out);
        return rc;
    }
    return sp_output_commit(&out);
}

void sp_output_discard(struct sp_output *out)
{
    if (out->f)
        fclose(out->f);
    unlink(out->temporary);
    free(out->temporary);
    free(out->path);
}
