#include "model/files/input.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* `path` is for messages. */
static int open_regular(const struct sp_dir *dir, const char *name, const char *path, FILE **f,
                        uint64_t *size)
{
    int fd = sp_dir_file(dir, name), rc;
    struct stat info;

    if (fd < 0)
        return sp_error(-fd, "%s: cannot be opened: %s", path, strerror(-fd));
    if (fstat(fd, &info))
        rc = sp_error(errno, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        rc = sp_error(EINVAL, "%s: not a regular file", path);
    else if (!(*f = fdopen(fd, "rb")))
        rc = sp_error(errno, "%s: %s", path, strerror(errno));
    else
        rc = 0;
    if (rc)
        close(fd);
    else
        *size = (uint64_t)info.st_size;
    return rc;
}

int sp_input_open(const struct sp_dir *dir, const char *name, FILE **f, uint64_t *size)
{
    char *path = sp_dir_join(dir, name);
    int rc = path ? open_regular(dir, name, path, f, size)
                  : sp_error(ENOMEM, "%s: no memory for its path", name);

    free(path);
    return rc;
}

/* Up to `size` bytes; fewer if it has become shorter. */
static int read_all(int fd, const char *path, char *buf, size_t size, size_t *len)
{
    *len = 0;
    while (*len < size) {
        ssize_t k = pread(fd, buf + *len, size - *len, (off_t)*len);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return sp_error(errno, "%s: cannot be read: %s", path, strerror(errno));
        if (k == 0)
            break;
        *len += (size_t)k;
    }
    return 0;
}

int sp_input_read_in(const struct sp_dir *dir, const char *name, uint64_t max_bytes,
                     const char *what, char **text, size_t *len)
{
    char *path = sp_dir_join(dir, name), *buf = NULL;
    uint64_t size = 0;
    FILE *f = NULL;
    int rc = path ? open_regular(dir, name, path, &f, &size)
                  : sp_error(ENOMEM, "%s: no memory for its path", name);

    if (rc)
        goto out;
    if (size > max_bytes) {
        rc = sp_error(EINVAL, "%s: %llu bytes, %s has at most %llu", path, (unsigned long long)size,
                      what, (unsigned long long)max_bytes);
        goto out;
    }
    buf = malloc((size_t)size + 1);
    rc = buf ? read_all(fileno(f), path, buf, (size_t)size, len)
             : sp_error(ENOMEM, "%s: no memory for %llu bytes", path, (unsigned long long)size);
    if (!rc) {
        *text = buf;
        buf = NULL;
    }
out:
    if (f)
        fclose(f);
    free(buf);
    free(path);
    return rc;
}
