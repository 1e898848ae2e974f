#include "model/files/input.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int sp_input_open(const char *path, FILE **f, uint64_t *size)
{
    /* O_NONBLOCK: opening a pipe that nobody writes to would wait for ever */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), rc;
    struct stat info;

    if (fd < 0)
        return sp_error(errno, "%s: cannot be opened: %s", path, strerror(errno));
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

int sp_input_read(const char *path, uint64_t max_bytes, const char *what, char **text, size_t *len)
{
    uint64_t size = 0;
    FILE *f = NULL;
    char *buf;
    int rc = sp_input_open(path, &f, &size);

    if (rc)
        return rc;
    if (size > max_bytes) {
        rc = sp_error(EINVAL, "%s: %llu bytes, %s has at most %llu", path, (unsigned long long)size,
                      what, (unsigned long long)max_bytes);
        goto err_close;
    }
    buf = malloc((size_t)size + 1);
    if (!buf) {
        rc = sp_error(ENOMEM, "%s: no memory for %llu bytes", path, (unsigned long long)size);
        goto err_close;
    }
    *len = fread(buf, 1, (size_t)size, f);
    if (ferror(f)) {
        rc = sp_error(EIO, "%s: cannot be read", path);
        free(buf);
        goto err_close;
    }
    *text = buf;
err_close:
    fclose(f);
    return rc;
}
