/* Preloaded: after FAIL_WRITES calls of pwrite the disk is full, after FAIL_READS of pread it is broken, after
 * FAIL_BYTES it reads one byte wrong, after FAIL_ENDS the file is cut; with FAIL_RESERVE files cannot be given room ahead of writes. Only the file of what is offloaded counts, which
 * has no name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>

static int writes, reads;

static int is_over(const char *name, int *calls, int fd)
{
    const char *after = getenv(name);
    struct stat st;

    return after && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink == 0 &&
           __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED) > atoi(after);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (is_over("FAIL_WRITES", &writes, fd)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return pwrite(fd, data, n, at);
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    ssize_t got;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pread");
    if (is_over("FAIL_READS", &reads, fd)) {
        errno = EIO;
        return -1;
    }
    if (is_over("FAIL_ENDS", &reads, fd))
        return 0;
    got = real(fd, data, n, at);
    if (got > 0 && is_over("FAIL_BYTES", &reads, fd))
        *(char *)data ^= 1;
    return got;
}

ssize_t pread64(int fd, void *data, size_t n, off_t at)
{
    return pread(fd, data, n, at);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    static int (*real)(int, int, off_t, off_t);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fallocate");
    if (getenv("FAIL_RESERVE")) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return real(fd, mode, at, n);
}

int fallocate64(int fd, int mode, off_t at, off_t n)
{
    return fallocate(fd, mode, at, n);
}
